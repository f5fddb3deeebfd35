"""Translates documents: only their text changes, and all else in them stays."""

from collections.abc import Callable

Translate = Callable[[list[str]], list[tuple[str, list[tuple[int, int]]]]]
"""Turns lines into their translations, each with its pairs of a source word and a target word, numbered from 0."""
