"""Decides whether parts of a translation that an earlier command kept belong to this one, and which are missing."""

from argparse import Namespace
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt.errors import DirectoryError, TranslationError
from transformer_mt.line_progress import LineProgress
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.storage.checksums import read_sums
from transformer_mt.storage.output_parts import OutputParts
from transformer_mt.storage.run_directory import EXPORT_FILES
from transformer_mt.terminal.input_parts import Division, LineFile
from transformer_mt.terminal.model_arguments import model_dirs
from transformer_mt.wording import counted

_NAMED = 3  # parts that a message names
_FORM = 3  # of parts.json and of what the parts hold: changes with what this program writes there


@dataclass(frozen=True)
class Begun:
    """The parts of a translation, and what is still to be done."""

    division: Division
    missing: list[int]
    """The numbers of the parts that are to be made, in rising order."""

    @property
    def num_before(self) -> int:
        """How many lines earlier commands have translated."""
        return self.division.num_lines - self.division.lines_of(self.missing)


def settings_of(arguments: Namespace, decoding: DecodingConfig) -> dict[str, Any]:
    """Return what decides what the output is, apart from its lines, by the names that a user gives to it.

    What changes only speed and memory is not in it: a user who has run out of memory may go on with less.
    """
    flags = ("engine", "dtype", "quantize", "tag", "scores", "alignment", "json")
    return {
        "the model": [_model_sums(directory) for directory in model_dirs(arguments)],
        **{f"--{flag}": getattr(arguments, flag) for flag in flags},
        "--prefix": arguments.prefix is not None,
        "--output as .gz": arguments.output.suffix == ".gz",  # a link may have another ending than its file
        **decoding.model_dump(mode="json", exclude={"tokens_per_batch"}),
    }


def begin(
    parts: OutputParts, settings: dict[str, Any], lines: LineFile, unit: int, held: ExitStack, shows: bool
) -> Begun:
    """Read the input once, and begin to keep parts, or find out what is missing.

    The directory of the parts is held until `held` is closed. Raises DirectoryError if the parts there belong to
    another translation, and CorpusError for an input that cannot be read.
    """
    record = parts.read_record()
    if record is not None:
        unit = _check_record(parts, record, settings)
    with LineProgress(None, doing="reading: ") if shows else ExitStack() as progress:
        division = lines.divided(unit, progress if isinstance(progress, LineProgress) else None)
    held.enter_context(parts.held())
    if record is None:
        parts.begin({"form": _FORM, "unit": unit, "lines": division.num_lines, "settings": settings})
    elif record.get("lines") != division.num_lines:
        raise DirectoryError(
            f"{parts.directory} holds translations of {record.get('lines')} lines, but {lines.path} has "
            f"{division.num_lines} now; to go on, put the input back as it was; {parts.begin_anew()}"
        )
    return Begun(division, _missing(parts, division, lines))


def _missing(parts: OutputParts, division: Division, lines: LineFile) -> list[int]:
    """The parts that are not there. Raises DirectoryError if one is of other lines."""
    missing, others = [], []
    for number, digest in enumerate(division.digests):
        end = parts.end_of(number)
        if end is None:
            missing.append(number)
        elif end.made_from != digest:
            others.append(number)
    if others:
        first = others[0] * division.part_lines + 1
        named = " ".join(str(parts.path(number)) for number in others[:_NAMED])
        read = str(lines.path) if lines.prefixes is None else f"{lines.path} or {lines.prefixes}"
        raise DirectoryError(
            f"{read} has changed since parts of it were translated, first in lines {first} to "
            f"{min(first + division.part_lines - 1, division.num_lines)}. To go on, put the input back as it was; to "
            f"translate only the changed lines again, delete {counted(len(others), 'part')}: {named}"
            f"{' …' if len(others) > _NAMED else ''}; {parts.begin_anew()}"
        )
    return missing


def _check_record(parts: OutputParts, record: dict[str, Any], settings: dict[str, Any]) -> int:
    """Return the unit in which the input was divided. Raises DirectoryError unless the settings are the same."""
    unit, old = record.get("unit"), record.get("settings")
    if record.get("form") != _FORM or not isinstance(unit, int) or unit < 1 or not isinstance(old, dict):
        raise DirectoryError(
            f"{parts.directory}: another version of this program began this translation, or parts.json there is "
            f"damaged; {parts.begin_anew()}"
        )
    changed = [key for key in {**old, **settings} if old.get(key) != settings.get(key)]
    if changed:
        said = ", ".join(_said(key, old.get(key), settings.get(key)) for key in changed)
        raise DirectoryError(
            f"{parts.directory} holds the beginning of another translation ({said}). To go on with it, give the "
            f"command that began it; {parts.begin_anew()}"
        )
    return unit


def _said(key: str, old: Any, new: Any) -> str:
    return key if isinstance(old, list) or isinstance(new, list) else f"{key}: {old} there, {new} now"


def _model_sums(directory: Path) -> dict[str, str]:
    """The checksums of the files of a model. Raises TranslationError if they cannot be read."""
    try:
        return {name: digest for name, digest in read_sums(directory).items() if name in EXPORT_FILES}
    except (OSError, ValueError) as error:
        raise TranslationError(f"{directory}: its files cannot be read ({error}); copy the model again") from None
