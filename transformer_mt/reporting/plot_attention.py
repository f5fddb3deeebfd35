"""`plot attention` and `plot self-attention`: draw which pieces or words attend to which.

H heads  T rows  S columns, both of pieces  N rows  M columns, both of words; or M maps
"""

import argparse
import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from transformer_mt.base.errors import UserError
from transformer_mt.base.languages import has_spaces
from transformer_mt.base.wording import counted, warn
from transformer_mt.decoding.translator import PairAttention, Translator
from transformer_mt.decoding.word_pieces import WORD, text_of, written_together
from transformer_mt.models.attention_weights import Attention, FloatArray, index_of
from transformer_mt.reporting.picture_file import check, fonts_for, new_figure, write
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.terminal import cli

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ATTENTION_HELP = """\
Reads a model and a sentence, and draws how much the model attended to each piece of the sentence (columns) while it
wrote each piece of the translation (rows). Each row sums to 1 (with model.local_attention=predictive, to less); white
is 0, the darkest blue is 1. Without --target the model first translates the sentence, as `translate` does with the same
settings. This works for every model with attention; self-attention (of encoder or decoder) is only in a Transformer.
If no installed font has a character, a warning says so.

Each picture has its own --help:
  plot attention         this one; you can leave out the word `attention`
  plot self-attention    the words to which a word attends"""

_IN_A_ROW = 4  # up to so many maps are in one row; more are in a square


@dataclass(frozen=True)
class Side:
    """The labels of the rows or the columns of a map."""

    name: str
    pieces: list[str]


def _parser(name: str, description: str, example: str) -> argparse.ArgumentParser:
    """Return the parser of a kind of picture, with the options that all pictures have."""
    description = f"{description}\n\nThe same input gives exactly the same file. Needs the package matplotlib."
    parser = cli.parser(f"plot {name}", description, f"python -m transformer_mt.plot {example}")
    parser.add_argument("--output", metavar="FILE", type=Path, required=True, help="picture: .png, .svg or .pdf")
    cli.add_model(parser)
    cli.add_settings(parser, "change a setting of decoding, for example beam_size=5")
    parser.add_argument("--source", metavar="TEXT", required=True, help="the sentence")
    parser.add_argument("--target", metavar="TEXT", help="its translation (default: the model translates it)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    return parser


def _weights(arguments: argparse.Namespace) -> tuple[PairAttention, DecodingConfig]:
    check(arguments.output)  # an error now is better than one after the translation
    with Translator.load(arguments.model, arguments.device, workers=1) as translator:
        decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
        return translator.attention(arguments.source, arguments.target, decoding), decoding


def _draw(path: Path, make: Callable[[], "Figure"], summary: str, texts: Sequence[str]) -> int:
    """Write the picture with these texts, and print what it shows. Returns the exit status."""
    if lacking := sorted(fonts_for("".join(texts))[1]):
        warn(f"no font has {' '.join(lacking)}: install one")
    write(path, make, "".join(texts))
    print(f"{cli.shown(path)}: {summary}")
    return 0


def attention(argv: Sequence[str]) -> int:
    """Draw maps of an attention. Returns the exit status."""
    example = 'runs/demo_en_de/model --source "He sees the house." --output attention.png'
    parser = _parser("attention", _ATTENTION_HELP, example)
    kinds = ["cross", "encoder", "decoder"]
    parser.add_argument("--attention", choices=kinds, default="cross", help="which attention (default: cross)")
    about = "layers; 1 is the lowest, 0 is the one before the last (default: alignment_layer)"
    parser.add_argument("--layer", metavar="N[,N...]|all", type=_layers, help=about)
    parser.add_argument("--heads", action="store_true", help="draw a map for each head, not their mean")
    arguments = parser.parse_intermixed_args(argv)
    found, decoding = _weights(arguments)
    layers_LHTS, rows, columns = kind_of(found, arguments.attention)
    usual = decoding.alignment_layer if arguments.attention == "cross" else 0
    chosen = [usual] if arguments.layer is None else arguments.layer or range(1, len(layers_LHTS) + 1) or [0]
    indices = [index_of(arguments.attention, layer, len(layers_LHTS)) for layer in chosen]
    weights_LHTS = layers_LHTS[indices]
    heads = [f"head {head}" for head in range(1, weights_LHTS.shape[1] + 1)]
    if not arguments.heads:
        weights_LHTS, heads = weights_LHTS.mean(axis=1, keepdims=True), ["mean"]
    maps_MTS = weights_LHTS.reshape(-1, *weights_LHTS.shape[2:])
    titles = [f"layer {index + 1}, {head}" for index in indices for head in heads]
    make = partial(heat_maps_of, maps_MTS, titles, across(len(indices), len(heads)), rows, columns)
    return _draw(arguments.output, make, found.text, rows.pieces + columns.pieces)


def _layers(text: str) -> list[int]:
    try:
        return [] if text == "all" else [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a layer: give one number, several (1,3,6), or all") from None


def kind_of(found: PairAttention, attention: Attention) -> tuple[FloatArray, Side, Side]:
    """Return the weights LHTS of an attention; the rows: pieces that attend; and the columns: pieces attended to."""
    match attention:
        case "cross":
            return found.cross_LHTS, Side("target", found.target), Side("source", found.source)
        case "encoder":
            return found.encoder_LHSS, Side("source", found.source), Side("source", found.source)
        case "decoder":
            # Each piece is predicted at the position of the piece before it.
            return found.decoder_LHTT, Side("target", found.target), Side("target before", found.target_before)


def across(num_layers: int, num_heads: int) -> int:
    """Return the number of maps in a row. If there are several layers and several heads, each layer is a row."""
    if num_layers > 1 and num_heads > 1:
        return num_heads
    number = num_layers * num_heads
    return number if number <= _IN_A_ROW else math.ceil(math.sqrt(number))


# In inches. A cell is as high as a line of text, or smaller if the maps would otherwise be larger than a page.
_CELL, _LONGEST_SIDE = 0.24, 16.0


def heat_maps_of(maps_MTS: FloatArray, titles: Sequence[str], across: int, rows: Side, columns: Side) -> "Figure":
    """Draw the maps in a grid with `across` columns, from white for 0 to the darkest blue for 1."""
    M, T, S = maps_MTS.shape
    down = -(-M // across)
    cell = min(_CELL, _LONGEST_SIDE / max(across * S, down * T))
    # A letter is at most about 0.4 cells wide; the constants are for names and gaps.
    left, below = (0.7 + 0.4 * cell * max(map(len, side.pieces)) for side in (rows, columns))
    figure = new_figure(across * (cell * S + left) + 1.0, down * (cell * T + below))
    points = min(10.0, 0.6 * cell * 72)  # an inch has 72 points
    grid = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for map_TS, title, axes in zip(maps_MTS, titles, grid, strict=False):
        image = axes.imshow(map_TS, cmap="Blues", vmin=0.0, vmax=1.0)
        # parse_math=False, because a piece may be a dollar sign.
        axes.set_yticks(range(T), rows.pieces, parse_math=False, fontsize=points)
        axes.set_xticks(range(S), columns.pieces, parse_math=False, fontsize=points, rotation=90)
        axes.tick_params(length=0)
        axes.set(title=title, ylabel=rows.name, xlabel=columns.name)
    for axes in grid[M:]:
        axes.remove()
    figure.colorbar(image, ax=grid[:M], shrink=0.5, aspect=15, ticks=[0, 1])
    return figure


@dataclass(frozen=True)
class Word:
    """A word, a punctuation mark before or after it, or the beginning or the end of a sentence."""

    text: str
    pieces: list[int]
    """The numbers of its pieces in the sentence, from 0."""


def words_of_pieces(pieces: Sequence[str], spaced: bool, *, begins: bool = False, ends: bool = False) -> list[Word]:
    """Return the words of a sentence. Punctuation before and after a word is a separate word.

    `begins`: the first piece is <s>; `ends`: the last is </s>. In a language without spaces, each piece is a word.
    """
    first, last = int(begins), len(pieces) - int(ends)
    groups = [[first + number for number in group] for group in written_together(pieces[first:last], spaced)]
    if spaced:
        groups = [part for group in groups for part in _without_punctuation(group, pieces)]
    if begins:
        groups = [[0], *groups]
    if ends:
        groups = [*groups, [last]]
    texts = [[pieces[number] for number in group] for group in groups]
    return [Word(text_of(text) or "".join(text), group) for text, group in zip(texts, groups, strict=True)]


def joined(weights_HTS: FloatArray, rows: Sequence[Word], columns: Sequence[Word]) -> FloatArray:
    """Return the weights HNM with which words attend to words.

    The weight to a word is the sum over its pieces, the weight from a word the mean: rows that sum to 1 still do.
    """
    to_words_HTM = np.stack([weights_HTS[:, :, word.pieces].sum(axis=2) for word in columns], axis=2)
    return np.stack([to_words_HTM[:, word.pieces].mean(axis=1) for word in rows], axis=1)


def _without_punctuation(group: list[int], pieces: Sequence[str]) -> list[list[int]]:
    """Separate the pieces of a word from the punctuation before and after it."""
    parts = [[number] for number in group]
    if pieces[group[0]] == WORD and len(group) > 1:  # a piece that is only a space belongs to the next piece
        parts[:2] = [group[:2]]
    letters = [at for at, part in enumerate(parts) if not _is_punctuation("".join(pieces[number] for number in part))]
    if letters:
        first, last = letters[0], letters[-1] + 1
        parts[first:last] = [[number for part in parts[first:last] for number in part]]
    return parts


def _is_punctuation(pieces: str) -> bool:
    text = text_of([pieces])
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)


_SELF_ATTENTION_HELP = """\
Reads a Transformer and a sentence, and draws to which words one word attends in self-attention: the sentence twice,
with lines from the word to all words, wider and darker for a larger weight. The weights of a word sum to 1.

Pieces are joined to words: the weight from a piece to a word is the sum over the pieces of that word; the weight from a
word is the mean over its own pieces. Punctuation and the end of the sentence, </s>, are separate words; in a language
without spaces, each piece is a word. With --side decoder, the picture shows self-attention of the translation: a word
attends to <s>, to the words before it, and to its own first pieces. Without --target the model first translates the
sentence, as `translate` does with the same settings.

Try several layers and heads: which of them attend to the words that a reader would expect differs from model to model.
The command prints the three words with the largest weights, in the mean of the heads."""


def self_attention(argv: Sequence[str]) -> int:
    """Draw to which words one word attends. Returns the exit status."""
    example = 'runs/demo_en_de/model --source "Anna sold the lamp because it was old." --word it --output it.png'
    parser = _parser("self-attention", _SELF_ATTENTION_HELP, f"self-attention {example}")
    about = "the word; if it occurs several times, the first; WORD:2 is the second"
    parser.add_argument("--word", metavar="WORD", required=True, help=about)
    parser.add_argument("--side", choices=["encoder", "decoder"], default="encoder", help="(default: encoder)")
    about = "1 is the lowest, 0 is the one before the last (default: 0)"
    parser.add_argument("--layer", metavar="N", type=int, default=0, help=about)
    parser.add_argument("--heads", action="store_true", help="draw each head in its own colour, not their mean")
    arguments = parser.parse_intermixed_args(argv)
    found, _ = _weights(arguments)
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
    summary = f"{texts[number]} looks at {', '.join(most)}"
    make = partial(arcs_of, weights_HM, heads, title, texts, number, seen_texts)
    return _draw(arguments.output, make, summary, texts + seen_texts)


def number_of(wanted: str, words: Sequence[Word]) -> int:
    """Return the number, from 0, of a word; WORD:2 is its second occurrence. Raises UserError if it is missing."""
    texts = [word.text for word in words]
    text, _, which = (wanted, "", "") if wanted in texts else wanted.rpartition(":")
    places = {str(count): at for count, at in enumerate((at for at, one in enumerate(texts) if one == text), start=1)}
    if (which or "1") not in places:
        raise UserError(f"--word {wanted}: the sentence does not have this word. Its words are {' '.join(texts)}")
    return places[which or "1"]


# In inches.
_LINE, _HIGHEST, _BETWEEN = 0.28, 16.0, 2.4
_LETTER = 0.6 / 72  # width of a letter, for each point of the font size
_WIDEST = 7.0  # width of the line for a weight of 1, in points
_FAINTEST = 0.15  # opacity of the line for a weight near 0, so that many small weights are visible


def arcs_of(
    weights_HM: FloatArray, names: Sequence[str], title: str, words: Sequence[str], word: int, seen: Sequence[str]
) -> "Figure":
    """Draw lines from words[word], on the left, to the words on the right: wider and darker for a larger weight.

    Each row of the weights has a colour; a legend names several. A weight of 1 looks the same in every picture.
    """
    longest = max(len(words), len(seen))
    line = min(_LINE, _HIGHEST / longest)
    points = min(11.0, 0.55 * line * 72)  # an inch has 72 points
    letters = max(map(len, words)) + max(map(len, seen))
    figure = new_figure(_BETWEEN + _LETTER * points * letters, line * longest + 0.5)
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(longest - 0.5, -0.5), xticks=[])
    axes.set_title(title, fontsize="medium")
    for spine in axes.spines.values():
        spine.set_visible(False)
    others = axes.twinx()
    others.set_ylim(axes.get_ylim())
    for side, texts in ((axes, words), (others, seen)):
        side.set_frame_on(False)
        side.tick_params(length=0, labelsize=points)
        side.set_yticks(range(len(texts)), texts, parse_math=False)  # because a word may be a dollar sign
    for number, label in enumerate(axes.get_yticklabels()):
        label.set(fontweight="bold" if number == word else "normal", color="black" if number == word else "0.6")
    _draw_lines(axes, weights_HM, word, names)
    return figure


def _draw_lines(axes: "Axes", weights_HM: FloatArray, word: int, names: Sequence[str]) -> None:
    """Draw the lines of each row in its colour. Lines of several rows end side by side, and a legend names them."""
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    H = len(weights_HM)
    several = colormaps["tab10" if H <= 10 else "tab20"]
    colours = [several(h % 20) for h in range(H)] if H > 1 else [colormaps["Blues"](0.9)]
    for h, other in np.argwhere(weights_HM > 0).tolist():
        aside = 0.6 * ((h + 0.5) / H - 0.5)
        weight = float(weights_HM[h, other])
        ends, strength = [word, other + aside], min(1.0, _FAINTEST + (1.0 - _FAINTEST) * weight)
        width = _WIDEST * weight
        axes.plot([0.03, 0.97], ends, color=colours[h], alpha=strength, linewidth=width, solid_capstyle="butt")
    if H > 1:
        lines = [Line2D([], [], color=colour, linewidth=3) for colour in colours]
        axes.legend(lines, names, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=min(H, 4), frameon=False)
