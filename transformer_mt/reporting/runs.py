"""Opens the directories of runs and models that a report is about."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open

from transformer_mt.errors import CheckpointError
from transformer_mt.evaluation.score_file import read_scores
from transformer_mt.evaluation.test_sets import model_in, results_dir
from transformer_mt.pictures.lines import read_log
from transformer_mt.reporting.gathered import Notes, Run, left_out
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.json_text import read_json
from transformer_mt.storage.records import CURVES, STARTS
from transformer_mt.storage.run_directory import CONFIG, MODEL, checkpoint_path, saved_steps
from transformer_mt.wording import counted

Form = TypeVar("Form")


def open_runs(paths: Sequence[Path], notes: Notes) -> list[Run]:
    """Open each directory. Raises CheckpointError, which names it, if it is neither a run nor a model, or named twice;
    ConfigError if its configuration cannot be read."""
    seen: dict[Path, Path] = {}
    for path in paths:
        if (real := path.resolve()) in seen:
            raise CheckpointError(f"{path}: is named twice, first as {seen[real]}; name each run once")
        seen[real] = path
    return [_open(path, notes) for path in paths]


def _open(path: Path, notes: Notes) -> Run:
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such directory; name the directory of a run, such as runs/<name>")
    is_run = not (path / MODEL).is_file() and any(
        (path / name).exists() for name in ("run.json", "log.jsonl", "checkpoints", "model")
    )
    if not (path / CONFIG).is_file() or not (is_run or (path / MODEL).is_file()):
        raise CheckpointError(
            f"{path}: is neither the directory of a run, which `train` writes, nor that of a model, which `average` "
            "writes; name a directory such as runs/<name>"
        )
    model = path / "model" if is_run else path
    has_model = (model / MODEL).is_file() and (model / CONFIG).is_file()
    run = Run(str(path), path, model if has_model else None, load_config(path / CONFIG))
    with left_out(notes["training"]):
        run.num_parameters, run.made_of = _weights(path, model)
    if is_run:
        with left_out(notes["training"]):
            run.starts = read_record(path / "run.json", STARTS, "train")
        with left_out(notes["curves"]):
            _read_log(run, notes)
    else:
        notes["curves"].append(f"{path} is the directory of a model, which has no log: name the directory of its run.")
    with left_out(notes["scores"]):
        _read_scores(run)
    return run


def _weights(path: Path, model: Path) -> tuple[int, str]:
    """How many numbers the weights of the model or else of the newest checkpoint have, and of what they are made.

    Only the head of the file is read.
    """
    file, steps = model / MODEL, saved_steps(path)
    if not file.is_file():
        if not steps:
            raise CheckpointError(f"{path} has neither a model nor a checkpoint yet")
        file = checkpoint_path(path, steps[-1]) / MODEL
    try:
        with safe_open(file, "np") as weights:
            shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
            return sum(map(math.prod, shapes)), (weights.metadata() or {}).get("made_of", "")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read ({error})") from None


def read_record(path: Path, form: TypeAdapter[Form], writer: str) -> Form:
    """What a JSON file of that form holds. Raises CheckpointError, which names it and the stage that writes it."""
    try:
        return form.validate_python(read_json(path))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, which `{writer}` writes") from None
    except (OSError, ValueError):
        raise CheckpointError(f"{path} is not as `{writer}` writes it") from None


def _read_log(run: Run, notes: Notes) -> None:
    run.log, faults = read_log(run.directory, CURVES)
    if faults:
        lines = counted(len(faults), "line")
        notes["curves"].append(f"{lines} of the log of {run.name} cannot be read: {faults[0]}.")


def _read_scores(run: Run) -> None:
    path = results_dir(model_in(run.directory)) / "scores.json"
    if not path.is_file():
        first = "" if run.model else f"run `python -m transformer_mt.average {run.name}`, then "
        raise CheckpointError(
            f"{run.name} is not evaluated yet: {first}run `python -m transformer_mt.evaluate {run.name} --analyse`"
        )
    run.results = read_scores(path)
