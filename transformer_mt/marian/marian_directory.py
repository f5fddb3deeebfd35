"""Recognises directories of MarianMT, wherever a model directory is expected."""

import json
from pathlib import Path
from typing import Any

from transformer_mt.base.errors import CheckpointError

CONFIG_JSON = "config.json"


def as_model_dir(path: Path) -> Path:
    """Return the model directory that is made of a MarianMT directory, once, in the user's cache; other paths as given.

    Raises CheckpointError or TokenizerError, which name the file, if it is damaged or this package cannot run it.
    """
    if not (path / CONFIG_JSON).is_file() or (path / "config.yaml").is_file():
        return path
    config = read_json_object(path / CONFIG_JSON)
    if config.get("model_type") != "marian":
        return path
    from transformer_mt.marian.marian_conversion import converted  # imports PyTorch, which other models may not need

    return converted(path, config)


def read_json_object(path: Path) -> dict[str, Any]:
    """Read an object of JSON. Raises CheckpointError."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); copy the complete directory again") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: is not an object of JSON; copy the complete directory again")
    return values
