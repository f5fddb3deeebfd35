"""Sentences become numbers."""
