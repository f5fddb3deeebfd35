"""Checks of what Python code passes to Translator and Scorer."""

from collections.abc import Sized
from reprlib import repr as shortened


def check_text(name: str, text: object) -> None:
    """Raises TypeError unless this argument is a text."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is {shortened(text)}, not a str")


def check_texts(name: str, texts: object, *, of: str = "texts") -> None:
    """Raises TypeError unless this argument is a list of texts: one text is none, since its characters are not meant.

    A tuple or an array will do, but not an iterator, for the list is read more than once.
    """
    if isinstance(texts, str | bytes):
        raise TypeError(f"{name} is one text; give a list of {of}")
    if not isinstance(texts, Sized):
        raise TypeError(f"{name} is {shortened(texts)}; give a list of {of}")
    for number, text in enumerate(texts):  # type: ignore[arg-type, var-annotated]
        check_text(f"{name}[{number}]", text)
