"""`plot attention` and `plot self-attention`: what looked at what.

H heads  T rows  S columns, both of pieces  N rows  M columns, both of words
"""

import argparse
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from transformer_mt.base.errors import UserError
from transformer_mt.base.languages import has_spaces
from transformer_mt.base.wording import counted
from transformer_mt.decoding.translation import PairAttention
from transformer_mt.decoding.word_pieces import WORD, text_of, written_together
from transformer_mt.models.attention_weights import Attention, FloatArray, index_of
from transformer_mt.reporting import attention_figures, picture_command
from transformer_mt.reporting.attention_figures import Side
from transformer_mt.reporting.picture_command import Command, Picture
from transformer_mt.settings.reading import load_config

_ATTENTION_HELP = """\
Reads a model and a sentence, and draws how much the model attended to each piece of the sentence (columns) while it
wrote each piece of the translation (rows). Each row sums to 1, or with model.local_attention=predictive to less; white
is 0, the darkest blue is 1. Without --target the model first translates the sentence, as `translate` does with the same
key=value. Every model with attention can be drawn; only a Transformer has self-attention, that of the encoder and that
of the decoder. A character that is in no installed font is drawn as its code point, such as U+4E2D, with a warning.

Other pictures have a name of their own, and their own --help:
  plot self-attention    what a word looks at
  plot positions         encodings of positions, sinusoids or learned ones
  plot masks             who may see whom in self-attention
  plot schedule          the learning rate of configurations
  plot curves            loss, likelihood, BLEU and learning rate of runs
  plot lengths           how long the training sentences are
  plot attention         this one; the word can be left out"""

_IN_A_ROW = 4  # so many layers are side by side; more are in a square


def _attention_arguments(parser: argparse.ArgumentParser) -> None:
    picture_command.add_arguments(parser)
    parser.add_argument(
        "--attention", choices=["cross", "encoder", "decoder"], default="cross", help="which attention (default: cross)"
    )
    parser.add_argument(
        "--layer",
        metavar="N[,N...]|all",
        type=_layers,
        help="layers; 1 is the lowest, 0 the last but one (default: alignment_layer)",
    )
    parser.add_argument("--heads", action="store_true", help="draw a map for each head, not their mean")


def _layers(text: str) -> list[int]:
    """The numbers of layers; none for all of them."""
    try:
        return [] if text == "all" else [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no layer: give a number, several as in 1,3,6, or all") from None


def _maps(arguments: argparse.Namespace) -> Picture:
    found, decoding = picture_command.attention_of(arguments)
    layers_LHTS, rows, columns = kind_of(found, arguments.attention)
    usual = decoding.alignment_layer if arguments.attention == "cross" else 0
    chosen = [usual] if arguments.layer is None else arguments.layer or range(1, len(layers_LHTS) + 1) or [0]
    indices = [index_of(arguments.attention, layer, len(layers_LHTS)) for layer in chosen]
    weights_LHTS = layers_LHTS[indices]
    heads = [f"head {head}" for head in range(1, weights_LHTS.shape[1] + 1)]
    if not arguments.heads:
        weights_LHTS, heads = weights_LHTS.mean(axis=1, keepdims=True), ["mean"]
    layers, maps_MTS = [index + 1 for index in indices], weights_LHTS.reshape(-1, *weights_LHTS.shape[2:])
    titles = [f"layer {layer}, {head}" for layer in layers for head in heads]
    return Picture(
        lambda: attention_figures.heat_maps_of(maps_MTS, titles, across(len(layers), len(heads)), rows, columns),
        {
            "weights_LHTS": weights_LHTS,
            "layers": layers,
            "heads": heads,
            "rows": rows.pieces,
            "columns": columns.pieces,
        },
        found.text,
        "".join(rows.pieces + columns.pieces),
    )


def kind_of(found: PairAttention, attention: Attention) -> tuple[FloatArray, Side, Side]:
    """The weights LHTS of an attention; the pieces that attended, which are the rows; and those they attended to."""
    match attention:
        case "cross":
            return found.cross_LHTS, Side("target", found.target), Side("source", found.source)
        case "encoder":
            return found.encoder_LHSS, Side("source", found.source), Side("source", found.source)
        case "decoder":
            # A piece is written at the position of the one before it.
            return found.decoder_LHTT, Side("target", found.target), Side("target before", found.target_before)
        case _:
            assert_never(attention)


def across(num_layers: int, num_heads: int) -> int:
    """How many maps stand side by side. Of several layers with several heads, each layer is a row."""
    if num_layers > 1 and num_heads > 1:
        return num_heads
    number = num_layers * num_heads
    return number if number <= _IN_A_ROW else math.ceil(math.sqrt(number))


ATTENTION = Command(
    _ATTENTION_HELP,
    'runs/demo_en_de/model --source "He sees the house." --output attention.png',
    _attention_arguments,
    _maps,
)


@dataclass(frozen=True)
class Word:
    """A word, or a sign before or behind it, or the begin or end of a sentence."""

    text: str
    pieces: list[int]
    """The numbers of its pieces in the sentence, from 0."""


def words_of_pieces(pieces: Sequence[str], spaced: bool, *, begins: bool = False, ends: bool = False) -> list[Word]:
    """The words of a sentence. Signs of punctuation around a word are words of their own.

    `begins` and `ends` say whether the first piece is the begin of a sentence and the last piece its end: these are
    words of their own, too. In a language without spaces, each piece is a word.
    """
    first, last = int(begins), len(pieces) - int(ends)
    groups = [[first + number for number in group] for group in written_together(pieces[first:last], spaced)]
    if spaced:
        groups = [part for group in groups for part in _without_signs(group, pieces)]
    if begins:
        groups = [[0], *groups]
    if ends:
        groups = [*groups, [last]]
    texts = [[pieces[number] for number in group] for group in groups]
    return [Word(text_of(text) or "".join(text), group) for text, group in zip(texts, groups, strict=True)]


def joined(weights_HTS: FloatArray, rows: Sequence[Word], columns: Sequence[Word]) -> FloatArray:
    """HNM: how much each word looked at each word.

    What a piece gives to a word is the sum of what it gives to the pieces of that word; what a word gives is the mean
    of what its own pieces give. So rows that sum to 1 still do.
    """
    given_HTM = np.stack([weights_HTS[:, :, word.pieces].sum(axis=2) for word in columns], axis=2)
    return np.stack([given_HTM[:, word.pieces].mean(axis=1) for word in rows], axis=1)


def _without_signs(group: list[int], pieces: Sequence[str]) -> list[list[int]]:
    """Part the pieces of a word from the signs of punctuation that stand before and behind it."""
    parts = [[number] for number in group]
    if pieces[group[0]] == WORD and len(group) > 1:  # a space that is a piece belongs to the next one
        parts[:2] = [group[:2]]
    letters = [at for at, part in enumerate(parts) if not _is_sign("".join(pieces[number] for number in part))]
    if letters:
        first, last = letters[0], letters[-1] + 1
        parts[first:last] = [[number for part in parts[first:last] for number in part]]
    return parts


def _is_sign(pieces: str) -> bool:
    text = text_of([pieces])
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)


_SELF_ATTENTION_HELP = """\
Reads a Transformer and a sentence, and draws what one word of it looks at in self-attention: the sentence twice, with
lines from the word to all words, wider and darker for a larger weight. The weights of a word sum to 1.

Pieces are joined to words: what a piece gives to a word is the sum over the pieces of that word, and what a word gives
is the mean over its own pieces. Punctuation, and the end of the sentence, </s>, are words of their own; so is each
piece in a language without spaces. With --side decoder, it is the translation that looks at itself: at <s> and the
words before, and at the word's own first pieces. Without --target the model first translates the sentence, as
`translate` does with the same key=value.

Which layer and which head look where a reader would look differs from model to model. The three words that get most, in
the mean of the heads, are printed."""


def _self_attention_arguments(parser: argparse.ArgumentParser) -> None:
    picture_command.add_arguments(parser)
    parser.add_argument(
        "--word", metavar="WORD", required=True, help="the word; of several that are the same, WORD:2 is the second"
    )
    parser.add_argument("--side", choices=["encoder", "decoder"], default="encoder", help="(default: encoder)")
    parser.add_argument(
        "--layer", metavar="N", type=int, default=0, help="1 is the lowest, 0 the last but one (default: 0)"
    )
    parser.add_argument("--heads", action="store_true", help="draw each head in a colour of its own, not their mean")


def _looks_of_word(arguments: argparse.Namespace) -> Picture:
    found, _ = picture_command.attention_of(arguments)
    layers_LHTS, rows, columns = kind_of(found, arguments.side)
    index = index_of(arguments.side, arguments.layer, len(layers_LHTS))
    corpus = load_config(arguments.model / "config.yaml").corpus
    spaced = has_spaces(corpus.source_language if arguments.side == "encoder" else corpus.target_language)
    words = words_of_pieces(rows.pieces, spaced, ends=True)
    seen = words if arguments.side == "encoder" else words_of_pieces(columns.pieces, spaced, begins=True)
    number = number_of(arguments.word, words)
    weights_HM = joined(layers_LHTS[index], words, seen)[:, number]
    heads = [f"head {head}" for head in range(1, len(weights_HM) + 1)]
    title = f"{arguments.side}, layer {index + 1}"
    if not arguments.heads:
        title += f", mean of {counted(len(heads), 'head')}"
        weights_HM, heads = weights_HM.mean(axis=0, keepdims=True), ["mean"]
    texts, seen_texts = [word.text for word in words], [word.text for word in seen]
    mean_M = weights_HM.mean(axis=0)
    most = [f"{seen_texts[other]} {mean_M[other]:.2f}" for other in np.argsort(-mean_M, kind="stable")[:3]]
    return Picture(
        lambda: attention_figures.arcs_of(weights_HM, heads, title, texts, number, seen_texts),
        {
            "weights_HM": weights_HM,
            "heads": heads,
            "layer": index + 1,
            "words": texts,
            "word": number,
            "seen": seen_texts,
        },
        f"{texts[number]} looks at {', '.join(most)}",
        "".join(texts + seen_texts),
    )


def number_of(wanted: str, words: Sequence[Word]) -> int:
    """The number, from 0, of the word that is named, or as WORD:2 of the second that is the same.

    Raises UserError if there is none, or if there are several and it is not said which.
    """
    texts = [word.text for word in words]
    text, _, which = (wanted, "", "") if wanted in texts else wanted.rpartition(":")
    places = [number for number, other in enumerate(texts) if other == text]
    if not places:
        raise UserError(f"--word {wanted}: is not in the sentence. Its words are {' '.join(texts)}")
    if not which and len(places) > 1:
        raise UserError(
            f"--word {wanted}: stands {len(places)} times in the sentence: write {wanted}:1 for the first, and so on "
            f"up to {wanted}:{len(places)}"
        )
    if which and which not in map(str, range(1, len(places) + 1)):
        raise UserError(f"--word {wanted}: {text} stands only {len(places)} times in the sentence")
    return places[int(which or 1) - 1]


SELF_ATTENTION = Command(
    _SELF_ATTENTION_HELP,
    'self-attention runs/demo_en_de/model --source "Anna sold the lamp because it was old." --word it --output it.png',
    _self_attention_arguments,
    _looks_of_word,
)
