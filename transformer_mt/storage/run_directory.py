"""Knows where a run keeps its checkpoints and its model, and whether a model is whole and up to date."""

import os
import shlex
from contextlib import suppress
from pathlib import Path

from transformer_mt.errors import CheckpointError
from transformer_mt.storage.checksums import SUMS, fault, read_sums, sha256

MODEL, CONFIG = "model.safetensors", "config.yaml"
TOKENIZERS = ("tokenizer.model", "tokenizer.source.model", "tokenizer.target.model")
COPIED_FROM_DATA = (*TOKENIZERS, "training_lines.json")  # copied into a run, and from there into its model
# The files that are read in a model directory, and in an export for CTranslate2. Each has some of them.
MODEL_FILES = (CONFIG, *COPIED_FROM_DATA, MODEL)
EXPORT_FILES = (
    *MODEL_FILES,
    *("config.json", "shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json", "model.bin"),
)


def checkpoint_path(run_dir: Path, step: int) -> Path:
    """Return the directory of the checkpoint of a step."""
    return run_dir / "checkpoints" / f"step-{step:08d}"


def saved_steps(run_dir: Path) -> list[int]:
    """Return the steps of all checkpoints of a run, in rising order."""
    return sorted(int(path.name[5:]) for path in (run_dir / "checkpoints").glob("step-" + "[0-9]" * 8))


def how_to_get_a_model(directory: Path) -> str:
    """Return what to do about a directory without a model: name the model of the run, or average the run first."""
    if directory.suffix in (".yaml", ".yml") and directory.is_file():
        return "it is a configuration: name the directory of its run (run_dir), or the model in it, run_dir/model"
    if (run_dir := _run_of(directory)) is not None:
        return f"its run is not averaged yet: run `python -m transformer_mt.average {run_dir}` first"
    if (directory / "model" / "config.yaml").is_file():
        return f"it is the directory of a run, and its model is in {directory / 'model'}: name that"
    if saved_steps(directory):
        return f"it is a run that is not averaged yet: run `python -m transformer_mt.average {directory}` first"
    return "name the directory of a model, such as runs/<name>/model"


def check_model(directory: Path) -> None:
    """Raises CheckpointError if a file of a model directory, or of an export, is not as its checksum says."""
    found = fault(directory, EXPORT_FILES)
    if found is None:
        return
    advice = _how_to_make_again(directory)
    if found.name == CONFIG:
        advice += ". To change settings of decoding, give them on the command line, as in beam_size=5"
    if found.name.endswith((".yaml", ".json")):
        advice += f". If you have changed {found.name} on purpose, {_how_to_sum(directory)}"
    raise CheckpointError(f"{directory / found.name} {found.what}. {advice}")


def weights_sha256(directory: Path) -> str | None:
    """Return the SHA-256 of the weights of a model, or of an export: from its checksums, or else from the file.

    None if it has no weights.
    """
    name = next((name for name in (MODEL, "model.bin") if (directory / name).is_file()), None)
    if name is None:
        return None
    with suppress(OSError, ValueError, KeyError):  # whoever loads the model says it
        return read_sums(directory)[name]
    return sha256(directory / name)


def stale_warning(model_dir: Path, metadata: dict[str, str]) -> str | None:
    """Return a warning if the run was trained further after `average` wrote this model; else None.

    `metadata` is that of model.safetensors. There is no warning about a model that lies outside its run.
    """
    run_dir = _run_of(model_dir)
    if run_dir is None or "newest" not in metadata or saved_steps(run_dir)[-1] <= int(metadata["newest"]):
        return None
    return (
        f"warning: {model_dir} is {metadata['made_of']}, but its run has newer checkpoints, up to update "
        f"{saved_steps(run_dir)[-1]}: `python -m transformer_mt.average {run_dir}` makes a new model"
    )


def _run_of(model_dir: Path) -> Path | None:
    """Return the run in which a model directory lies; None if it lies in no run."""
    path = Path(os.path.abspath(model_dir))
    if path.name != "model" or not saved_steps(path.parent):
        return None
    return model_dir.parent if model_dir.name == "model" else path.parent


def _how_to_make_again(directory: Path) -> str:
    if (directory / "model.bin").is_file():
        return "Export the model again, or copy the whole directory again"
    if (run_dir := _run_of(directory)) is not None:
        return f"`python -m transformer_mt.average {run_dir}` makes the model again"
    return "Copy the whole directory again, or average the checkpoints of its run again"


def _how_to_sum(directory: Path) -> str:
    """Return the command that writes the checksums of the files as they are now."""
    names = [name for name in EXPORT_FILES if (directory / name).is_file()]
    return f"write the checksums anew: `(cd {shlex.quote(str(directory))} && sha256sum {' '.join(names)} > {SUMS})`"
