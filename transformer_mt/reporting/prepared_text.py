"""Gathers what is known about the corpus that runs were trained on, and about the positions of their models."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import CheckpointError, UserError
from transformer_mt.evaluation.test_sets import model_in
from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.pictures.figures import Line
from transformer_mt.pictures.positions_and_masks import learned_positions
from transformer_mt.reporting import charts
from transformer_mt.reporting.charts import Chart
from transformer_mt.reporting.gathered import CorpusReport, Notes, Run, left_out
from transformer_mt.reporting.runs import read_record
from transformer_mt.storage.records import Summary

_MOST_PAIRS = 200_000  # whose lengths are counted
_MOST_PIECES = 200  # longer sentences are counted together
POSITIONS = 64


def gather_corpora(runs: Sequence[Run], notes: Notes) -> list[CorpusReport]:
    """What prepare.json says, once for each data_dir."""
    found = dict[str, CorpusReport]()
    for run in runs:
        data_dir = run.config.data_dir
        if data_dir not in found:
            with left_out(notes["corpus"], f"The corpus of {run.name} is not described: "):
                found[data_dir] = _corpus(run, Path(data_dir), f"lengths-{len(found)}", notes)
    return list(found.values())


def _corpus(run: Run, data_dir: Path, key: str, notes: Notes) -> CorpusReport:
    summary = read_record(data_dir / "prepare.json", TypeAdapter(Summary), "prepare")
    if _tokenizer_digest(run) not in (None, summary.tokenizer_digest):
        raise CheckpointError(f"{data_dir} was prepared again since then")
    chart: Chart | None = None
    with left_out(notes["corpus"]):
        curves = {side: (number, line) for number, (side, line) in enumerate(lengths_of(data_dir).items())}
        chart = charts.lines(key, "training sentences of each length", curves, "pieces")
    total = summary.counts.get("train", {}).get("kept", 0)
    return CorpusReport(str(data_dir), summary, chart, _MOST_PAIRS if total > _MOST_PAIRS else 0)


def _tokenizer_digest(run: Run) -> str | None:
    try:
        return Tokenizer.load(model_in(run.directory)).digest
    except UserError:
        return None  # a run that has no tokenizer yet: nothing says that the data are others


def lengths_of(data_dir: Path) -> dict[str, Line]:
    """Count how many sentences of each side have so many pieces; of a large corpus, of pairs spread over all of it."""
    try:
        corpus = EncodedCorpus.load(data_dir / "train")
        pairs = np.unique(np.linspace(0, len(corpus) - 1, min(len(corpus), _MOST_PAIRS)).astype(np.int64))
        return {"source": _counted(corpus.source.lengths(pairs)), "target": _counted(corpus.target.lengths(pairs))}
    except (OSError, IndexError, ValueError):  # offsets that are damaged may lead anywhere
        raise CheckpointError(
            f"The lengths of the sentences are not drawn: {data_dir / 'train'} cannot be read"
        ) from None


def _counted(lengths: NDArray[np.int64]) -> Line:
    """Raises ValueError if a length is negative."""
    counts = np.bincount(np.minimum(lengths, _MOST_PIECES))
    there = np.flatnonzero(counts)
    return there.tolist(), counts[there].tolist()


def gather_positions(runs: Sequence[Run], notes: Notes) -> list[tuple[Chart, Chart]]:
    """The encodings of positions, and the dot products of one with all; once for all runs with the same sinusoids."""
    tables = dict[str, FloatArray]()
    for run in runs:
        with left_out(notes["corpus"]):
            tables |= _positions(run)
    found = list[tuple[Chart, Chart]]()
    for number, (name, table_TD) in enumerate(tables.items()):
        at = len(table_TD) // 2
        title = f"dot product of the encoding of position {at} with that of each position"
        products: Line = list(range(len(table_TD))), (table_TD @ table_TD[at]).tolist()
        chart = charts.lines(f"products-{number}", title, {f"position {at}": (0, products)}, "position")
        found.append((charts.table(f"positions-{number}", name, table_TD), chart))
    return found


def _positions(run: Run) -> dict[str, FloatArray]:
    """The encodings TD of the first positions, by what they are. Raises UserError if there are none."""
    settings = run.config.model
    if settings.kind == "rnn":
        raise CheckpointError(
            f"{run.name} is a recurrent model: it reads words one after the other, and encodes no positions"
        )
    if settings.kind == "transformer" and settings.positions == "sinusoidal":
        from transformer_mt.models.positions import sinusoidal  # here, because it imports PyTorch

        table_TD = sinusoidal(POSITIONS, settings.d_model).numpy()
        return {f"sines and cosines in {settings.d_model} dimensions": table_TD}
    if run.model is None:
        raise CheckpointError(f"{run.name} has learned positions, but no model yet: run `average` first")
    return {f"learned by {run.name}": learned_positions(run.model)[:POSITIONS]}
