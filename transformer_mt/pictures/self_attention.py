"""`plot self-attention`: what a word looks at."""

import argparse
from collections.abc import Sequence

import numpy as np

from transformer_mt.errors import PictureError
from transformer_mt.languages import has_spaces
from transformer_mt.models.attention_weights import FloatArray, index_of
from transformer_mt.pictures import arcs, sentence
from transformer_mt.pictures.attention import kind_of
from transformer_mt.pictures.command import Command, Picture
from transformer_mt.pictures.words import Word, joined, words_of_pieces
from transformer_mt.settings.reading import load_config
from transformer_mt.wording import counted

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
    sentence.add_arguments(parser)
    parser.add_argument(
        "--word", metavar="WORD", required=True, help="the word; of several that are the same, WORD:2 is the second"
    )
    parser.add_argument("--side", choices=["encoder", "decoder"], default="encoder", help="(default: encoder)")
    parser.add_argument(
        "--layer", metavar="N", type=int, default=0, help="1 is the lowest, 0 the last but one (default: 0)"
    )
    parser.add_argument("--heads", action="store_true", help="draw each head in a colour of its own, not their mean")


def _looks_of_word(arguments: argparse.Namespace) -> Picture:
    found, _ = sentence.attention_of(arguments)
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
    return Picture(
        lambda: arcs.arcs_of(weights_HM, heads, title, texts, number, seen_texts),
        {
            "weights_HM": weights_HM,
            "heads": heads,
            "layer": index + 1,
            "words": texts,
            "word": number,
            "seen": seen_texts,
        },
        f"{texts[number]} looks at {_most(weights_HM.mean(axis=0), seen_texts)}",
        "".join(texts + seen_texts),
    )


def _most(weights_M: FloatArray, seen: Sequence[str]) -> str:
    """The three words that get most, with their weights."""
    return ", ".join(f"{seen[other]} {weights_M[other]:.2f}" for other in np.argsort(-weights_M, kind="stable")[:3])


def number_of(wanted: str, words: Sequence[Word]) -> int:
    """The number, from 0, of the word that is named, or as WORD:2 of the second that is the same.

    Raises PictureError if there is none, or if there are several and it is not said which.
    """
    texts = [word.text for word in words]
    text, _, which = (wanted, "", "") if wanted in texts else wanted.rpartition(":")
    places = [number for number, other in enumerate(texts) if other == text]
    if not places:
        raise PictureError(f"--word {wanted}: is not in the sentence. Its words are {' '.join(texts)}")
    if not which and len(places) > 1:
        raise PictureError(
            f"--word {wanted}: stands {len(places)} times in the sentence: write {wanted}:1 for the first, and so on "
            f"up to {wanted}:{len(places)}"
        )
    if which and which not in map(str, range(1, len(places) + 1)):
        raise PictureError(f"--word {wanted}: {text} stands only {len(places)} times in the sentence")
    return places[int(which or 1) - 1]


SELF_ATTENTION = Command(
    _SELF_ATTENTION_HELP,
    'self-attention runs/demo_en_de/model --source "Anna sold the lamp because it was old." --word it --output it.png',
    _self_attention_arguments,
    _looks_of_word,
)
