"""Logits become a better model."""
