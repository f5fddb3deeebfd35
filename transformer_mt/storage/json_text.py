"""JSON files as they are read here: damaged or hostile ones raise ValueError and nothing else."""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

_MOST_BYTES = 200_000_000  # the vocabulary file of a million pieces has some 20 MB


def read_json(path: Path) -> Any:
    """The values of a JSON file.

    Raises OSError if it cannot be read; ValueError if it is no regular file, too large, nested too deeply, or no JSON,
    to which NaN and Infinity do not belong.
    """
    found = path.stat()
    if not path.is_file():
        raise ValueError("it is no regular file")
    if found.st_size > _MOST_BYTES:
        raise ValueError(f"it has {found.st_size:,} bytes, more than {_MOST_BYTES:,}")
    return parse_json(path.read_text(encoding="utf-8"))


def parse_json(text: str) -> Any:
    """The values of a JSON text. Raises ValueError if it is none, as `read_json` says."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def finite(number: float, digits: int) -> float | None:
    """The number rounded to so many digits; None, JSON's null, where it is not finite."""
    return round(number, digits) if math.isfinite(number) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
