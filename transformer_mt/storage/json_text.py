"""Reads JSON so that damaged or hostile text raises ValueError and nothing else."""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from transformer_mt.storage.files import NotRegularError, read_regular


def read_json(path: Path) -> Any:
    """Return the values in a JSON file.

    Raises OSError if it cannot be read; ValueError if it is not a regular file, nested too deeply, or not JSON.
    """
    try:
        return parse_json(read_regular(path).decode("utf-8"))
    except NotRegularError as error:
        raise ValueError(error.strerror) from None


def parse_json(text: str) -> Any:
    """Return the values in a JSON text. Raises ValueError as `read_json` does.

    NaN and Infinity are not JSON, and 1e999 is a number that no float can hold.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_float, parse_int=_int)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def finite(number: float, digits: int) -> float | None:
    """Round a number to `digits` digits; None, which is null in JSON, if it is infinite or not a number."""
    return round(number, digits) if math.isfinite(number) else None


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _int(text: str) -> int:
    _float(text)
    return int(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant[:20]} is not a finite number")
