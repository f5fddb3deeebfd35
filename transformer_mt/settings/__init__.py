"""Defines every setting with its default, its meaning and its checks, and reads configurations."""
