"""Gathers what is known about the corpus that runs were trained on, and about the positions of their models."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import UserError
from transformer_mt.evaluation.test_sets import model_in
from transformer_mt.reporting.gathered import CorpusReport, Missing, Run
from transformer_mt.storage.json_text import read_json
from transformer_mt.storage.records import Summary

_MOST_PAIRS = 200_000  # whose lengths are counted
_MOST_PIECES = 200  # longer sentences are counted together
POSITIONS = 64


def gather_corpora(runs: Sequence[Run]) -> tuple[list[CorpusReport], list[str]]:
    """What prepare.json says, once for each data_dir, and sentences about what is left out."""
    found, notes = dict[str, CorpusReport](), list[str]()
    for run in runs:
        data_dir = run.config.data_dir
        if data_dir not in found:
            report = _corpus(run, Path(data_dir))
            if isinstance(report, Missing):
                notes.append(report.reason)
            else:
                found[data_dir] = report
    return list(found.values()), list(dict.fromkeys(notes))


def _corpus(run: Run, data_dir: Path) -> CorpusReport | Missing:
    path = data_dir / "prepare.json"
    try:
        summary = Summary.model_validate(read_json(path))
    except FileNotFoundError:
        return Missing(
            f"The corpus of {run.name} is not described: {path} is missing. If the data are elsewhere, run this "
            "command in the directory where `train` was run."
        )
    except (OSError, ValueError):
        return Missing(f"The corpus of {run.name} is not described: {path} is not as `prepare` writes it.")
    try:
        if Tokenizer.load(model_in(run.directory)).digest != summary.tokenizer_digest:
            return Missing(f"The corpus of {run.name} is not described: {data_dir} was prepared again since then.")
    except UserError:
        pass  # a run that has no tokenizer yet: nothing says that the data are others
    lengths = _lengths(data_dir)
    total = summary.counts.get("train", {}).get("kept", 0)
    sampled = _MOST_PAIRS if total > _MOST_PAIRS else 0
    return CorpusReport(str(data_dir), summary, lengths, sampled)


def _lengths(data_dir: Path) -> dict[str, list[tuple[int, int]]] | Missing:
    """Count how many sentences of each side have so many pieces; of a large corpus, of pairs spread over all of it."""
    try:
        corpus = EncodedCorpus.load(data_dir / "train")
        pairs = np.unique(np.linspace(0, len(corpus) - 1, min(len(corpus), _MOST_PAIRS)).astype(np.int64))
        return {"source": _counted(corpus.source.lengths(pairs)), "target": _counted(corpus.target.lengths(pairs))}
    except (OSError, IndexError, ValueError):  # offsets that are damaged may lead anywhere
        return Missing(f"The lengths of the sentences are not drawn: {data_dir / 'train'} cannot be read.")


def _counted(lengths: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Raises ValueError if a length is negative."""
    counts = np.bincount(np.minimum(lengths, _MOST_PIECES)).tolist()
    return [(length, count) for length, count in enumerate(counts) if length]


def positions_of(run: Run) -> tuple[NDArray[np.float32], str] | Missing:
    """The encodings TD of the first positions, and what they are."""
    settings = run.config.model
    if settings.kind == "rnn":
        return Missing(
            f"{run.name} is a recurrent model: it reads words one after the other, and encodes no positions."
        )
    if settings.kind == "transformer" and settings.positions == "sinusoidal":
        from transformer_mt.models.positions import sinusoidal  # here, because it imports PyTorch

        return sinusoidal(POSITIONS, settings.d_model).numpy(), "sines and cosines"
    if run.model is None:
        return Missing(f"{run.name} has learned positions, but no model yet: run `average` first.")
    return _learned(run, run.model)


def _learned(run: Run, model: Path) -> tuple[NDArray[np.float32], str] | Missing:
    """The table of positions; of the source, if source and target have their own."""
    try:
        with safe_open(model / "model.safetensors", "np") as file:
            names = sorted(name for name in file.keys() if name.endswith("positions.table_TD"))  # noqa: SIM118
            if not names:
                return Missing(f"{run.name} has no table of positions.")
            table_TD: NDArray[np.float32] = file.get_slice(names[0])[:POSITIONS]  # source_positions come first
            return table_TD, "learned"
    except (OSError, SafetensorError) as error:
        return Missing(f"{model / 'model.safetensors'} cannot be read ({error}).")
