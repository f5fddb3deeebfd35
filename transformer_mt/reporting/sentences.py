"""Lets each model translate a few sentences, and draws its attention.

L layers  H heads  N rows  M columns
"""

from collections.abc import Sequence

import numpy as np

from transformer_mt.decoding.pair_attention import PairAttention
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import TranslationError
from transformer_mt.languages import has_spaces, split_units
from transformer_mt.models.attention_weights import FloatArray
from transformer_mt.pictures.heat_map import Side
from transformer_mt.pictures.words import Word, joined, words_of_pieces
from transformer_mt.reporting import charts
from transformer_mt.reporting.charts import Chart
from transformer_mt.reporting.gathered import Notes, Run, Shown, TestReport, left_out

N_BEST = 3
SENTENCES = 3  # of the test set, unless others are asked for
MOST_PIECES = 100  # of a sentence or a translation whose attention is drawn: of more, nothing is seen
_UNITS = range(5, 25)  # the lengths of sentences that are taken from the test set, in words


def choose(tests: Sequence[TestReport], runs: Sequence[Run]) -> list[str]:
    """Sentences of the test sets: the first of the samples that are neither short nor long."""
    spaced = has_spaces(runs[0].config.corpus.source_language)
    sources = list(dict.fromkeys(sample.source for test in tests for sample in test.samples))
    usual = [source for source in sources if len(split_units(source, spaced)) in _UNITS]
    return (usual or sources)[:SENTENCES]


def translate(runs: Sequence[Run], sentences: Sequence[str], notes: Notes) -> list[Shown]:
    """What each model makes of each sentence."""
    if not sentences:
        notes["translations"].append("There is no test set to take sentences from: choose some with --sentence TEXT.")
    found = list[Shown]()
    for run in runs if sentences else ():
        if run.model is None:
            notes["translations"].append(
                f"{run.name} has no model yet: run `python -m transformer_mt.average {run.name}`."
            )
            continue
        with (
            left_out(notes["translations"], f"{run.name} translates nothing here: "),
            Translator.load(run.model, "cpu", workers=1) as translator,
        ):
            for sentence in sentences:
                with left_out(notes["translations"], f"{run.name} does not translate “{sentence}”: "):
                    found.append(_shown(run, translator, sentence, f"s{len(found)}", notes))
    return found


def _shown(run: Run, translator: Translator, sentence: str, key: str, notes: Notes) -> Shown:
    decoding = translator.decoding
    beam_size = max(decoding.beam_size, N_BEST)
    [translations] = translator.translations([sentence], decoding, beam_size=beam_size, n_best=N_BEST)
    corpus, attention = run.config.corpus, list[Chart]()
    spaced = has_spaces(corpus.source_language), has_spaces(corpus.target_language)
    with left_out(notes["attention"], f"{run.name}, “{sentence}”: "):
        weights = translator.attention(sentence, decoding=decoding)
        if max(len(weights.source), len(weights.target)) > MOST_PIECES:
            raise TranslationError(f"the attention of more than {MOST_PIECES} pieces is not drawn")
        attention = charts_of(weights, spaced, key)
    return Shown(run.name, sentence, [(each.text, each.score) for each in translations], attention)


def charts_of(found: PairAttention, spaced: tuple[bool, bool], key: str) -> list[Chart]:
    """Attention to the source between pieces, and self-attention between words, of models that have it."""
    source = words_of_pieces(found.source, spaced[0], ends=True)
    target = words_of_pieces(found.target, spaced[1], ends=True)
    before = words_of_pieces(found.target_before, spaced[1], begins=True)
    rows, columns = Side("translation", _readable(found.target)), Side("source", _readable(found.source))
    return [
        charts.attention(f"{key}-cross", "From the translation to the source", found.cross_LHTS, rows, columns),
        *_of_words(f"{key}-encoder", "From the source to itself", found.encoder_LHSS, source, source),
        *_of_words(f"{key}-decoder", "From the translation to what precedes it", found.decoder_LHTT, target, before),
    ]


def _of_words(
    key: str, title: str, weights_LHTS: FloatArray, rows: Sequence[Word], columns: Sequence[Word]
) -> list[Chart]:
    if not len(weights_LHTS):
        return []
    weights_LHNM = np.stack([joined(weights_HTS, rows, columns) for weights_HTS in weights_LHTS])
    words, seen = Side("word", [word.text for word in rows]), Side("looks at", [word.text for word in columns])
    return [charts.attention(key, title, weights_LHNM, words, seen)]


def _readable(pieces: Sequence[str]) -> list[str]:
    return [piece.replace("\u2581", "\u00b7") for piece in pieces]
