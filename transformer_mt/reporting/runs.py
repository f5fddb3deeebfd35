"""Opens the directories of runs and models that a report is about."""

import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from transformer_mt.errors import CheckpointError
from transformer_mt.reporting.gathered import Missing, Run
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.json_text import read_json
from transformer_mt.storage.records import STARTS, Start
from transformer_mt.storage.run_directory import CONFIG, MODEL, checkpoint_path, saved_steps


def open_runs(paths: Sequence[Path]) -> list[Run]:
    """Open each directory. Raises CheckpointError, which names it, if it is neither a run nor a model, or named twice;
    ConfigError if its configuration cannot be read."""
    seen: dict[Path, Path] = {}
    for path in paths:
        if (real := path.resolve()) in seen:
            raise CheckpointError(f"{path}: is named twice, first as {seen[real]}; name each run once")
        seen[real] = path
    return [_open(path) for path in paths]


def _open(path: Path) -> Run:
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such directory; name the directory of a run, such as runs/<name>")
    files = ("run.json", "log.jsonl", "checkpoints", "model")
    is_run = not (path / MODEL).is_file() and any((path / name).exists() for name in files)
    if not (path / CONFIG).is_file() or not (is_run or (path / MODEL).is_file()):
        raise CheckpointError(
            f"{path}: is neither the directory of a run, which `train` writes, nor that of a model, which `average` "
            "writes; name a directory such as runs/<name>"
        )
    model = path / "model" if is_run else path
    has_model = (model / MODEL).is_file() and (model / CONFIG).is_file()
    weights = _weights_file(path, model)
    return Run(
        name=str(path),
        directory=path,
        model=model if has_model else None,
        is_run=is_run,
        config=load_config(path / CONFIG),
        num_parameters=_num_parameters(weights, path),
        made_of=_metadata(model / MODEL).get("made_of", "") if has_model else "",
        starts=_starts(path, is_run),
    )


def _weights_file(path: Path, model: Path) -> Path | None:
    """The file of weights to count: the model's, or else that of the newest checkpoint."""
    if (model / MODEL).is_file():
        return model / MODEL
    steps = saved_steps(path)
    return checkpoint_path(path, steps[-1]) / MODEL if steps else None


def _num_parameters(weights: Path | None, path: Path) -> int | Missing:
    """Count the numbers that the head of the file names; the weights themselves are not read."""
    if weights is None:
        return Missing(f"{path} has neither a model nor a checkpoint yet.")
    try:
        with safe_open(weights, "np") as file:
            shapes: list[list[int]] = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
            return sum(map(math.prod, shapes))
    except (OSError, SafetensorError) as error:
        return Missing(f"{weights} cannot be read ({error}).")


def _metadata(weights: Path) -> dict[str, str]:
    try:
        with safe_open(weights, "np") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return {}


def _starts(path: Path, is_run: bool) -> list[Start] | Missing:
    if not is_run:
        return Missing(f"{path} is the directory of a model: the run, which is not there, says how it was trained.")
    try:
        return STARTS.validate_python(read_json(path / "run.json"))
    except FileNotFoundError:
        return Missing(f"{path} has no run.json, in which `train` writes what it runs on.")
    except ValidationError:
        return Missing(f"{path / 'run.json'} is not as `train` writes it.")
    except (OSError, ValueError) as error:
        return Missing(f"{path / 'run.json'} cannot be read ({error}).")
