"""Reads, writes and checks SHA256SUMS, and knows where a run keeps its checkpoints and its model.

Checksums reveal damage: files that were cut short, changed or exchanged. They are no protection from an attacker.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from transformer_mt.base.errors import CheckpointError
from transformer_mt.storage.files import open_regular, read_regular, write_whole

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


class Fault(NamedTuple):
    """A file in a directory, and what is wrong with it."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name} {self.what}"


def sha256(path: Path) -> str:
    """Return the checksum of a file, 64 hexadecimal digits. Raises OSError if it cannot be read or is not regular."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(directory: Path, names: Iterable[str], others: Mapping[str, str] = {}) -> None:
    """Write SHA256SUMS of these files and of `others`, whose checksums are known. Raises OSError and UserError."""
    sums = {name: sha256(directory / name) for name in names} | dict(others)
    write_whole(directory / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())))


def read_sums(directory: Path) -> dict[str, str]:
    """Return the checksums in SHA256SUMS, by the name of the file.

    Raises OSError if it cannot be read; ValueError, with the line, if one is of another form or names a file again.
    """
    content = read_regular(directory / SUMS).decode("utf-8", errors="replace")
    sums: dict[str, str] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        path = PurePosixPath(found[2] if found else "/")
        is_below = not path.is_absolute() and ".." not in path.parts and "\0" not in str(path)
        if found is None or not is_below or found[2] in sums:
            raise ValueError(
                f"is damaged: line {number} must be the checksum and the name of a file below the directory, which no "
                "other line names"
            )
        sums[found[2]] = found[1]
    return sums


def fault(directory: Path, names: Collection[str]) -> Fault | None:
    """Return the first of these files that differs from SHA256SUMS; None if there is none.

    A file that exists without a checksum is a fault, and so is a missing file with a checksum.
    """
    try:
        sums = read_sums(directory)
    except OSError as error:
        return Fault(SUMS, f"cannot be read ({error.strerror})")
    except ValueError as error:
        return Fault(SUMS, str(error))
    for name in names:
        path = directory / name
        if name not in sums and os.path.lexists(path):
            return Fault(name, f"is not named in {SUMS}")
        if name in sums and (what := _difference(path, sums[name])):
            return Fault(name, what)
    return None


def _difference(path: Path, digest: str) -> str:
    try:
        return "" if sha256(path) == digest else f"has changed since it was written: {SUMS} has another checksum"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


MODEL, CONFIG = "model.safetensors", "config.yaml"
TOKENIZERS = ("tokenizer.model", "tokenizer.source.model", "tokenizer.target.model")
COPIED_FROM_DATA = (*TOKENIZERS, "training_lines.json")  # copied into a run, and from there into its model
# The files that a model directory and an export for CTranslate2 can have. Other files there are ignored.
MODEL_FILES = (CONFIG, *COPIED_FROM_DATA, MODEL)
EXPORT_FILES = (
    *MODEL_FILES,
    *("config.json", "shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json", "model.bin"),
)


def checkpoint_path(run_dir: Path, step: int) -> Path:
    return run_dir / "checkpoints" / f"step-{step:08d}"


def saved_steps(run_dir: Path) -> list[int]:
    """Return the steps of all checkpoints of a run, in rising order."""
    return sorted(int(path.name[5:]) for path in (run_dir / "checkpoints").glob("step-" + "[0-9]" * 8))


def how_to_get_a_model(directory: Path) -> str:
    """Return advice about a directory without a model: name the model of the run, or average the run first."""
    if directory.suffix in (".yaml", ".yml") and directory.is_file():
        return "it is a configuration: name the directory of its run (run_dir), or the model in it, run_dir/model"
    if (run_dir := _run_of(directory)) is not None:
        return f"its run is not averaged yet: run `python -m transformer_mt.average {run_dir}` first"
    if (directory / "model" / "config.yaml").is_file():
        return f"it is the directory of a run: name its model, {directory / 'model'}"
    if saved_steps(directory):
        return f"it is a run that is not averaged yet: run `python -m transformer_mt.average {directory}` first"
    return "name the directory of a model, such as runs/<name>/model"


def check_model(directory: Path) -> None:
    """Raises CheckpointError if a file of a model directory, or of an export, does not fit its checksum."""
    found = fault(directory, EXPORT_FILES)
    if found is None:
        return
    advice = _how_to_make_again(directory)
    if found.name == CONFIG:
        advice += ". To change settings of decoding, write them on the command line, as in beam_size=5"
    if found.name.endswith((".yaml", ".json")):
        names = " ".join(name for name in EXPORT_FILES if (directory / name).is_file())
        to_sum = f"(cd {shlex.quote(str(directory))} && sha256sum {names} > {SUMS})"
        advice += f". If you have changed {found.name} on purpose, write new checksums: `{to_sum}`"
    raise CheckpointError(f"{directory / found.name} {found.what}. {advice}")


def weights_sha256(directory: Path) -> str | None:
    """Return the SHA-256 of the weights of a model or an export, listed or else computed; None if there are none."""
    name = next((name for name in (MODEL, "model.bin") if (directory / name).is_file()), None)
    if name is None:
        return None
    with suppress(OSError, ValueError, KeyError):  # loading the model reports such errors
        return read_sums(directory)[name]
    return sha256(directory / name)


def stale_warning(model_dir: Path, metadata: dict[str, str]) -> str | None:
    """Return a warning if the run was trained further after `average` wrote this model; otherwise None."""
    run_dir = _run_of(model_dir)
    if run_dir is None or "newest" not in metadata or saved_steps(run_dir)[-1] <= int(metadata["newest"]):
        return None
    return (
        f"warning: {model_dir} is {metadata['made_of']}, but its run has newer checkpoints, up to update "
        f"{saved_steps(run_dir)[-1]}: `python -m transformer_mt.average {run_dir}` makes a new model"
    )


def _run_of(model_dir: Path) -> Path | None:
    """Return the run that contains a model directory; None if no run does."""
    path = Path(os.path.abspath(model_dir))
    if path.name != "model" or not saved_steps(path.parent):
        return None
    return model_dir.parent if model_dir.name == "model" else path.parent


def _how_to_make_again(directory: Path) -> str:
    if (directory / "model.bin").is_file():
        return "Export the model again, or copy the complete directory again"
    if (run_dir := _run_of(directory)) is not None:
        return f"`python -m transformer_mt.average {run_dir}` makes the model again"
    return "Copy the complete directory again, or average the checkpoints of its run again"
