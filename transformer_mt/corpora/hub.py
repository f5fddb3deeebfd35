"""Reads sentence pairs from data sets of the Hugging Face hub."""

from collections.abc import Iterator
from typing import Any

from transformer_mt.corpora.corpus import BadPair, Block, Corpus, blocks_of_file, pair_of_texts
from transformer_mt.corpora.fields import FieldPath, find_field, names_of_fields
from transformer_mt.corpora.packages import needed
from transformer_mt.errors import CorpusError
from transformer_mt.settings.bounds import fingerprint
from transformer_mt.settings.corpus import PairedText
from transformer_mt.wording import cut

_LOCAL = "corpus.train=PREFIX corpus.valid=PREFIX 'corpus.test={NAME: PREFIX}'"


def open_hub(text: PairedText) -> Corpus:
    """Open a split of a data set. Raises CorpusError if it cannot be loaded, has no rows, or lacks a column."""
    name = f"{text.hub} ({text.split})"
    rows = _rows(text, name)
    first = _first(rows, name)
    if first is None:
        raise CorpusError(f"{name} has no rows; choose another split")
    fields = []
    for key, wanted in (("source", str(text.source)), ("target", str(text.target))):
        field = find_field(first, wanted)
        if field is None:
            raise CorpusError(
                f"{name} has no column '{wanted}', but: {names_of_fields(first)}; correct corpus.{key}_language, or "
                f"set {key} to one of these"
            )
        fields.append(field)

    def blocks() -> Iterator[Block]:
        return blocks_of_file(name, _pairs(rows, fields, name), "row")

    return Corpus((), blocks, lambda: digest_of_hub(text), None if text.streaming else len(rows))


def digest_of_hub(text: PairedText) -> str:
    """Return a hash of the name of a split, without its text."""
    return fingerprint(str(text.hub), text.subset or "", text.revision or "", str(text.split))


def _rows(text: PairedText, name: str) -> Any:
    """Load the datasets.Dataset of a split, or if it is streamed its IterableDataset, which errors call `name`."""
    wanted = f"{{hub: {text.hub}}} is on the Hugging Face hub"
    datasets = needed("datasets", wanted, f"use local files: {_LOCAL}")
    try:
        return datasets.load_dataset(
            text.hub, text.subset, split=text.split, revision=text.revision, streaming=bool(text.streaming)
        )
    except Exception as error:  # the hub, its cache and its builders raise errors of many types
        raise _not_loaded(name, error) from error


def _not_loaded(name: str, error: Exception) -> CorpusError:
    """Say why a data set could not be loaded, or why its rows stopped."""
    import datasets

    advice = ""
    if "scripts are no longer supported" in str(error):
        advice = "The hub's own copy of it may work: revision: refs/convert/parquet beside hub. "
    elif datasets.config.HF_HUB_OFFLINE:
        advice = (
            "HF_HUB_OFFLINE is set, so only what was downloaded before can be used: unset it, or download the data set "
            "first. "
        )
    return CorpusError(
        f"{name} cannot be loaded: {cut(str(error), 500).rstrip('.')}. {advice}Check the network, and correct "
        f"the name of the data set, its subset or its split; or use local files: {_LOCAL}"
    )


def _first(rows: Any, name: str) -> dict[str, Any] | None:
    try:
        return next(iter(rows), None)
    except Exception as error:  # streamed rows come from the network only now
        raise _not_loaded(name, error) from error


def _pairs(rows: Any, fields: list[FieldPath], name: str) -> Iterator[tuple[str, str] | BadPair]:
    batches = rows.iter(batch_size=1000)
    while True:
        try:
            batch = next(batches, None)
        except Exception as error:
            raise _not_loaded(name, error) from error
        if batch is None:
            return
        source, target = (_column(batch, field) for field in fields)
        yield from (_pair(*texts) for texts in zip(source, target, strict=True))


def _column(batch: dict[str, list[Any]], field: FieldPath) -> list[Any]:
    column = batch[field[0]]
    for part in field[1:]:
        column = [row[part] if row else None for row in column]
    return column


def _pair(source: Any, target: Any) -> tuple[str, str] | BadPair:
    """Return a pair; a missing text is empty."""
    for text in (source, target):
        if text is not None and not isinstance(text, str):
            return BadPair(f"holds no text, but: {cut(repr(text))}; set source and target to columns of text")
    return pair_of_texts(source or "", target or "")
