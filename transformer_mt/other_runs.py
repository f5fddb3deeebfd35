"""Says at the end of a training how the run compares with the other runs on the same corpus that lie beside it."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_mt.data.prepared import VALIDATION_TEXT, data_digests
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.checksums import read_sums
from transformer_mt.storage.files import read_regular
from transformer_mt.storage.json_text import parse_json, read_json

_MOST_RUNS = 500  # that are looked at
_LONGEST_LOG = 100_000_000  # bytes
_UNREADABLE = (OSError, ValueError, LookupError, TypeError)  # an error of a user is a ValueError
_FIELDS = {"bleu": "valid_bleu", "chrf": "valid_chrf", "nll": "valid_nll"}
_NAMES = {"bleu": "BLEU", "chrf": "chrF2", "nll": "perplexity"}


def place_among_runs(config: Config) -> str | None:
    """Return a line about the place of a run among those beside it, by its training.metric on the validation set.

    None if there is no other run on the same validation text that can be read, or if this one has no validation. Raises
    nothing: runs that cannot be read do not count.
    """
    run_dir, metric = Path(config.run_dir), config.training.metric
    try:
        own = _best(run_dir, metric)
        others = {other: _best(other, metric) for other in _comparable(run_dir, config)}
    except _UNREADABLE:
        return None
    found = {other: value for other, value in others.items() if value is not None}
    if own is None or not found:
        return None
    first = max(found, key=lambda other: found[other])
    rank, total = 1 + sum(value > own for value in found.values()), len(found) + 1
    place = f"the best of {total} runs" if rank == 1 else f"number {rank} of {total} runs"
    against = "next" if rank == 1 else "best"
    return (
        f"validation {_NAMES[metric]} {_shown(own, metric)}: {place} on this corpus "
        f"({against}: {first} with {_shown(found[first], metric)})"
    )


def _comparable(run_dir: Path, config: Config) -> Iterator[Path]:
    """Yield the other runs beside this one that were scored on the same validation text in the same way."""
    digest, texts = _validation_of(run_dir, config)
    for path in islice(sorted(run_dir.absolute().parent.glob("*/run.json")), _MOST_RUNS):
        other = run_dir.parent / path.parent.name
        try:
            theirs = load_config(other / "config.yaml")
            if path.parent.samefile(run_dir) or theirs.training.valid_sentences != config.training.valid_sentences:
                continue
            their_digest, their_texts = _validation_of(other, theirs)
        except _UNREADABLE:
            continue
        # The same text may be cut into other pieces. A likelihood can be compared only of the same pieces.
        is_same_text = texts is not None and texts == their_texts and config.training.metric != "nll"
        if their_digest == digest or is_same_text:
            yield other


def _validation_of(run_dir: Path, config: Config) -> tuple[str, list[str] | None]:
    """Return the digest of the validation data of a run, and the checksums of their text.

    None for the text if the data are not there any more, or are others now.
    """
    digest = str(read_json(run_dir / "run.json")[-1]["data"]["valid"])
    data_dir = Path(config.data_dir)
    try:
        if data_digests(data_dir)["valid"] == digest:
            sums = read_sums(data_dir)
            return digest, [sums[name] for name in VALIDATION_TEXT]
    except _UNREADABLE:
        pass
    return digest, None


def _best(run_dir: Path, metric: str) -> float | None:
    """Return the best validation of a run, the higher the better; None if it has none that can be read."""
    path = run_dir / "log.jsonl"
    try:
        if path.stat().st_size > _LONGEST_LOG:
            return None
        lines = [line for line in read_regular(path).decode("utf-8").splitlines() if f'"{_FIELDS[metric]}"' in line]
        values = [value for line in lines if (value := _value(parse_json(line), metric)) is not None]
    except _UNREADABLE:
        return None
    return max(values, default=None)


def _value(record: Any, metric: str) -> float | None:
    value = record[_FIELDS[metric]]
    if value is None:  # it was not finite
        return None
    return -float(value) if metric == "nll" else float(value)


def _shown(value: float, metric: str) -> str:
    return f"{math.exp(min(-value, 700.0)) if metric == 'nll' else value:.2f}"
