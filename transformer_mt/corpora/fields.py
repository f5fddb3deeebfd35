"""Finds fields by their names in rows of named fields, which may be nested: translation.en."""

from collections.abc import Iterator, Mapping
from typing import Any

FieldPath = tuple[str, ...]


def find_field(row: Mapping[str, Any], name: str) -> FieldPath | None:
    """Return the path to a field of a row: its name; its parts between dots; or its name within `translation`.

    None: the row has no such field.
    """
    return next((path for path in ((name,), tuple(name.split(".")), ("translation", name)) if _has(row, path)), None)


def names_of_fields(row: Mapping[str, Any]) -> str:
    """Return the names of all fields of a row, for messages."""
    return ", ".join(_names(row)) or "none"


def _has(row: Any, path: FieldPath) -> bool:
    for name in path:
        if not isinstance(row, Mapping) or name not in row:
            return False
        row = row[name]
    return True


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{below}" for below in _names(value))
        else:
            yield str(name)
