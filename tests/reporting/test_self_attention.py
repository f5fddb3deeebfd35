"""`plot self-attention`: the lines are the weights of the model, joined to words."""

import re

import numpy as np
import pytest
from helpers.messages import message, says
from helpers.tiny import demo_pairs, status_and_error
from helpers.untrained import write_untrained

from transformer_mt import plot
from transformer_mt.base.errors import UserError
from transformer_mt.reporting import picture_file, plot_attention
from transformer_mt.reporting.plot_attention import Word, number_of

pytest.importorskip("matplotlib")

SOURCE, TARGET = demo_pairs(1)[0]
SOURCE_WORDS, TARGET_WORDS = (re.findall(r"\w+|[^\w\s]", text) for text in (SOURCE, TARGET))
WORD = SOURCE_WORDS[1]


@pytest.fixture
def drawn(monkeypatch, tmp_path, capsys):
    """A function that runs the stage, without a file of the picture: what it was made of."""
    got = []
    figure_of = plot_attention.arcs_of
    monkeypatch.setattr(plot_attention, "arcs_of", lambda *given: (got.append(given), figure_of(*given))[1])
    monkeypatch.setattr(picture_file, "write", lambda _, make, __: make())

    def run(model_dir, *arguments, source=SOURCE, target=TARGET):
        files = ["--output", tmp_path / "picture.png", "--device", "cpu"]
        words = ["self-attention", model_dir, "--source", source, "--target", target, *files, *arguments]
        assert plot.main([str(word) for word in words]) == 0
        weights_HM, names, title, words, word, seen = got.pop()
        assert ", layer " in title
        assert title.endswith(", mean of 2 heads") == (names == ["mean"])
        assert weights_HM.shape == (len(names), len(seen))
        np.testing.assert_allclose(weights_HM.sum(axis=1), np.ones(len(names)), rtol=1e-5)
        return weights_HM, words, word, seen, capsys.readouterr().out

    return run


@pytest.mark.parametrize("layer", [1, 2])
def test_a_word_of_the_source_looks_at_the_words_of_the_source(layer, drawn, model_dir, translator):
    """The pieces of a word are found here by adding up their letters."""
    weights_HM, words, word, seen, _ = drawn(model_dir, "--word", WORD, "--layer", layer, "--heads")
    found = translator.attention(SOURCE, TARGET)
    assert words == seen == [*SOURCE_WORDS, "</s>"] and words[word] == WORD
    of_word = []  # for each piece, the number of its word
    for piece in found.source[:-1]:
        begins = piece.startswith("▁") or not piece.isalnum()
        of_word.append((of_word[-1] if of_word else -1) + begins)
    of_word.append(of_word[-1] + 1)
    own = [t for t, number in enumerate(of_word) if number == word]
    for h in range(len(weights_HM)):
        for other in range(len(seen)):
            total = 0.0
            for t in own:
                for s, number in enumerate(of_word):
                    total += float(found.encoder_LHSS[layer - 1, h, t, s]) if number == other else 0.0
            assert weights_HM[h, other] == pytest.approx(total / len(own), abs=1e-6)


def test_without_heads_their_mean_is_drawn(drawn, model_dir):
    heads_HM, *_ = drawn(model_dir, "--word", WORD, "--heads")
    mean_1M, _, _, seen, said = drawn(model_dir, "--word", WORD)
    np.testing.assert_allclose(mean_1M[0], heads_HM.mean(axis=0), rtol=1e-5)
    most = seen[mean_1M[0].argmax()]
    assert f"picture.png: {WORD} looks at {most} {mean_1M.max():.2f}, " in said
    np.testing.assert_allclose(drawn(model_dir, "--word", WORD, "--layer", 1)[0], mean_1M)


@pytest.mark.thorough
def test_a_word_of_the_translation_looks_at_those_before_it(drawn, model_dir):
    """And at its own pieces, of which it has written some; never at itself if it has one piece."""
    for number, text in list(enumerate(TARGET_WORDS))[::6]:
        wanted = f"{text}:{TARGET_WORDS[: number + 1].count(text)}"
        weights_1M, words, word, seen, _ = drawn(model_dir, "--word", wanted, "--side", "decoder")
        assert (seen[0], seen[1:], word) == ("<s>", words[:-1], number)
        assert (weights_1M[0, : number + 1] > 0).all()
        assert (weights_1M[0, number + 2 :] == 0).all()
    weights_1M, *_ = drawn(model_dir, "--word", "</s>", "--side", "decoder")
    assert (weights_1M > 0).all()


@pytest.mark.thorough
def test_the_same_input_is_the_same_bytes(model_dir, tmp_path):
    for name in ("one", "other"):
        files = ["--output", tmp_path / f"{name}.svg"]
        arguments = ["self-attention", model_dir, "--source", SOURCE, "--word", WORD, "--heads", *files]
        assert plot.main([str(argument) for argument in arguments]) == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()


WORDS = [
    Word(text, [number]) for number, text in enumerate(["it", "is", "it", ":", "10:2", "it:2", "so", "so", "</s>"])
]


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ("is", 1),
        ("it", 0),
        ("it:1", 0),
        ("it:2", 5),
        ("is:1", 1),
        (":", 3),
        (":" + ":1", 3),
        ("10:2", 4),
        ("so:1", 6),
        ("so:2", 7),
        ("</s>", 8),
    ],
)
def test_a_word_is_named_by_itself_or_with_its_number(wanted, number):
    """A word that stands there as it is named comes first."""
    assert number_of(wanted, WORDS) == number


@pytest.mark.parametrize(
    ("wanted", "code", "facts"),
    [
        ("It", "word-not-in-sentence", ["it is it : 10:2 it:2 so so </s>"]),
        ("", "word-not-in-sentence", ["it is it"]),
        ("it:3", "word-not-in-sentence", ["it is it"]),
        ("it:0", "word-not-in-sentence", ["it is it"]),
        ("was:1", "word-not-in-sentence", ["it is it"]),
    ],
)
def test_a_word_that_is_not_there_or_not_clear_is_an_error(wanted, code, facts):
    with pytest.raises(UserError, match=message(code, f"--word {wanted}", *facts)):
        number_of(wanted, WORDS)


def test_mistakes_end_with_status_2_and_leave_no_file(model_dir, tmp_path, joint_tokenizer, capsys):
    rnn_dir = write_untrained(tmp_path / "rnn", joint_tokenizer, kind="rnn", attention="dot")
    before = set(tmp_path.iterdir())
    for model, arguments, *expected in [
        (model_dir, ["--word", "xyz"], "word-not-in-sentence", "--word xyz"),
        (model_dir, ["--word", WORD, "--layer", 9], "no-such-attention-layer", "9", "encoder", "2"),
        (rnn_dir, ["--word", WORD], "no-self-attention", "encoder"),
    ]:
        files = ["--output", tmp_path / "x.png", "--device", "cpu"]
        status, error = status_and_error(
            plot.main, "self-attention", model, "--source", SOURCE, *files, *arguments, capsys=capsys
        )
        assert status == 2 and says(error, *expected)
        assert set(tmp_path.iterdir()) == before
