"""Lines from a word to what it looks at."""

import numpy as np
import pytest
from helpers.thorough import thorough

from transformer_mt.reporting import picture_file, plot_attention

matplotlib = pytest.importorskip("matplotlib")

WORDS = ["The", "lamp", "$x^$", "it", "dé", ".", "</s>"]
UNASSIGNED = "\u0378"  # by Unicode: no font has it


def weights(num_heads):
    return np.random.default_rng(1).dirichlet(np.ones(len(WORDS)), num_heads).astype(np.float32)


def figure(weights_HM, words=WORDS, word=3, seen=WORDS):
    return plot_attention.arcs_of(
        weights_HM, [f"head {h + 1}" for h in range(len(weights_HM))], "title", words, word, seen
    )


def lines(figure):
    return [line for axes in figure.axes for line in axes.lines]


@pytest.mark.parametrize("num_heads", [1, 2, 12])
def test_each_weight_is_a_line_from_the_word_as_wide_and_dark_as_it_is_large(num_heads):
    weights_HM = weights(num_heads)
    found = lines(figure(weights_HM))
    assert len(found) == weights_HM.size
    for line, (h, other) in zip(found, np.ndindex(weights_HM.shape), strict=True):
        assert line.get_ydata()[0] == 3 and round(line.get_ydata()[1]) == other
        assert line.get_alpha() == pytest.approx(0.15 + 0.85 * weights_HM[h, other])
    widths_HM = np.array([line.get_linewidth() for line in found]).reshape(weights_HM.shape)
    np.testing.assert_allclose(widths_HM / widths_HM[0, 0], weights_HM / weights_HM[0, 0], rtol=1e-4)


def test_heads_have_colours_of_their_own_and_are_named():
    found = figure(weights(12))
    assert len({line.get_color() for line in lines(found)}) == 12
    assert [text.get_text() for text in found.axes[0].get_legend().get_texts()] == [f"head {h}" for h in range(1, 13)]
    assert figure(weights(1)).axes[0].get_legend() is None


def test_a_word_that_is_not_seen_has_no_line():
    """Those behind it, in the decoder."""
    weights_HM = np.array([[0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]], np.float32)
    assert len(lines(figure(weights_HM))) == 2


def test_the_words_stand_on_both_sides_and_the_word_is_bold():
    found = figure(weights(1), seen=["<s>", *WORDS[:-1]])
    left, right = [axes.get_yticklabels() for axes in found.axes]
    assert [text.get_text() for text in left] == WORDS
    assert [text.get_text() for text in right] == ["<s>", *WORDS[:-1]]
    assert [text.get_fontweight() == "bold" for text in left] == [False] * 3 + [True] + [False] * 3


@pytest.mark.parametrize("name", [*thorough("png", "svg"), "pdf"])
def test_words_may_be_any_text_and_the_same_words_are_the_same_bytes(name, tmp_path):
    """A warning of matplotlib would be an error here."""
    words = [*WORDS, UNASSIGNED, "\\frac{", "&<>", "😀", "\x1b", ""][: len(WORDS) + 6]
    weights_HM = np.random.default_rng(1).dirichlet(np.ones(len(words)), 2).astype(np.float32)
    for path in (tmp_path / f"one.{name}", tmp_path / f"other.{name}"):
        picture_file.write(path, lambda: figure(weights_HM, words, 3, words), "".join(words))
    assert (tmp_path / f"one.{name}").read_bytes() == (tmp_path / f"other.{name}").read_bytes()


@pytest.mark.thorough
def test_a_long_sentence_fits(tmp_path):
    words = ["Donaudampfschifffahrt"] * 90
    weights_HM = np.full((1, 90), 1 / 90, np.float32)
    picture_file.write(tmp_path / "x.png", lambda: figure(weights_HM, words, 3, words))
    assert max(matplotlib.image.imread(tmp_path / "x.png").shape) < 3500
