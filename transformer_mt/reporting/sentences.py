"""Lets each model translate a few sentences, and takes the weights of its attention into the page.

The page's script draws them. A weight is one byte, from 0 to 255 for 0 to 1, and all bytes of an array stand as base64.

L layers  H heads  N rows  M columns
"""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.decoding.pair_attention import PairAttention
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import UserError
from transformer_mt.languages import has_spaces, split_units
from transformer_mt.pictures.words import Word, joined, words_of_pieces
from transformer_mt.reporting.gathered import Missing, Run, Shown, TestReport

N_BEST = 3
SENTENCES = 3  # of the test set, unless others are asked for
MOST_BYTES = 1_200_000  # of all weights in a page, before base64
_UNITS = range(5, 25)  # the lengths of sentences that are taken from the test set, in words


def choose(tests: Sequence[TestReport], runs: Sequence[Run]) -> list[str] | Missing:
    """Sentences of the first test set whose text is known: the first of the samples that are neither short nor long."""
    spaced = has_spaces(runs[0].config.corpus.source_language)
    for test in tests:
        if not isinstance(test.samples, Missing):
            sources = [sample.source for sample in test.samples]
            usual = [source for source in sources if len(split_units(source, spaced)) in _UNITS]
            return list(dict.fromkeys(usual or sources))[:SENTENCES]
    return Missing("There is no text of a test set to take sentences from: choose some with --sentence TEXT.")


def translate(runs: Sequence[Run], sentences: Sequence[str]) -> tuple[list[Shown], list[str]]:
    """What each model makes of each sentence, and sentences about what is left out."""
    found, notes, room = list[Shown](), list[str](), MOST_BYTES
    for run in runs:
        if run.model is None:
            notes.append(f"{run.name} has no model yet: run `python -m transformer_mt.average {run.name}`.")
            continue
        try:
            with Translator.load(run.model, "cpu", workers=1) as translator:
                for sentence in sentences:
                    shown = _shown(run, translator, sentence, notes)
                    if shown is not None:
                        room -= _size(shown.attention)
                        found.append(shown if room >= 0 else _without_attention(shown))
        except UserError as error:
            notes.append(f"{run.name} translates nothing here: {error}.")
    return found, notes


def _shown(run: Run, translator: Translator, sentence: str, notes: list[str]) -> Shown | None:
    decoding = translator.decoding
    try:
        beam_size = max(decoding.beam_size, N_BEST)
        [translations] = translator.translations([sentence], decoding, beam_size=beam_size, n_best=N_BEST)
    except UserError as error:
        notes.append(f"{run.name} does not translate “{sentence}”: {error}.")
        return None
    corpus = run.config.corpus
    spaced = has_spaces(corpus.source_language), has_spaces(corpus.target_language)
    attention: dict[str, Any] | Missing
    try:
        attention = numbers_of(translator.attention(sentence, decoding=decoding), spaced)
    except UserError as error:
        attention = Missing(f"{error}.")
    return Shown(run.name, sentence, [(each.text, each.score) for each in translations], attention)


def numbers_of(found: PairAttention, spaced: tuple[bool, bool]) -> dict[str, Any]:
    """What the script draws: attention to the source between pieces, and self-attention between words."""
    source = words_of_pieces(found.source, spaced[0], ends=True)
    target = words_of_pieces(found.target, spaced[1], ends=True)
    before = words_of_pieces(found.target_before, spaced[1], begins=True)
    return {
        "translation": found.text,
        "cross": _weights(found.cross_LHTS, found.target, found.source),
        "encoder": _of_words(found.encoder_LHSS, source, source),
        "decoder": _of_words(found.decoder_LHTT, target, before),
    }


def _of_words(weights_LHTS: NDArray[Any], rows: Sequence[Word], columns: Sequence[Word]) -> dict[str, Any] | None:
    if not len(weights_LHTS):
        return None
    weights_LHNM = np.stack([joined(weights_HTS, rows, columns) for weights_HTS in weights_LHTS])
    return _weights(weights_LHNM, [word.text for word in rows], [word.text for word in columns])


def _weights(weights_LHNM: NDArray[Any], rows: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
    layers, heads, *_ = weights_LHNM.shape
    bytes_LHNM = np.rint(np.clip(weights_LHNM, 0.0, 1.0) * 255).astype(np.uint8)
    numbers = base64.b64encode(bytes_LHNM.tobytes()).decode("ascii")
    return {"layers": layers, "heads": heads, "rows": list(rows), "columns": list(columns), "weights": numbers}


def _size(attention: dict[str, Any] | Missing) -> int:
    """Bytes of the weights, before base64."""
    if isinstance(attention, Missing):
        return 0
    kinds = (attention[name] for name in ("cross", "encoder", "decoder"))
    return sum(len(kind["weights"]) * 3 // 4 for kind in kinds if kind is not None)


def _without_attention(shown: Shown) -> Shown:
    reason = Missing(
        "The attention of this sentence is left out, to keep the page small: choose fewer or shorter ones."
    )
    return Shown(shown.run, shown.source, shown.n_best, reason)
