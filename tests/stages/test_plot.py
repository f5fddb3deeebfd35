"""The stage plot: what it draws is what the model did."""

import re

import pytest
import torch
from helpers.tiny import demo_pairs, status_and_error
from helpers.untrained import write_untrained

from transformer_mt import plot
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.engine import Sentence
from transformer_mt.evaluation import heat_map
from transformer_mt.settings.experiment import TokenizerConfig
from transformer_mt.vocabulary import EOS

pytest.importorskip("matplotlib")

SOURCE, TARGET = demo_pairs(1)[0]

UNASSIGNED = "\u0378"  # by Unicode: no font has it


@pytest.fixture(scope="module")
def rnn_dir(tmp_path_factory, joint_tokenizer):
    return write_untrained(tmp_path_factory.mktemp("rnn") / "model", joint_tokenizer, kind="rnn", attention="dot")


@pytest.fixture
def drawn(monkeypatch, tmp_path, capsys):
    """A function that runs the stage: the weights, rows and columns of the picture, and what was said."""

    def run(model_dir, *arguments, source=SOURCE):
        got = []
        real = heat_map.draw
        monkeypatch.setattr(heat_map, "draw", lambda *given: (got.append(given), real(*given)))
        output = tmp_path / "picture.png"
        arguments = [model_dir, "--source", source, "--output", output, "--device", "cpu", *arguments]
        assert plot.main([str(argument) for argument in arguments]) == 0
        assert output.stat().st_size > 1000
        weights_HTS, rows, columns, _ = got[0]
        assert weights_HTS.shape[1:] == (len(rows.pieces), len(columns.pieces))
        torch.testing.assert_close(weights_HTS.sum(dim=-1), torch.ones(weights_HTS.shape[:2]))
        return weights_HTS, rows, columns, capsys.readouterr()

    return run


def test_the_darkest_cells_are_the_alignment_of_the_model_s_own_translation(drawn, model_dir, translator):
    """Of the pieces that the search wrote, which need not be those that the tokenizer cuts its text into."""
    for settings in ([], ["beam_size=1", "alignment_layer=2"]):
        weights_1TS, rows, columns, said = drawn(model_dir, *settings)
        width = 1 if settings else 2
        decoding = translator.decoding.model_copy(update={"beam_size": width, "alignment_layer": 2 if settings else 0})
        [[translation, *_]] = translator.translations([SOURCE], decoding)
        assert rows.pieces == [*translation.pieces, "</s>"]
        assert "".join(columns.pieces) == f"▁{SOURCE.replace(' ', '▁')}</s>"
        assert said.out.endswith(f"picture.png: {translation.text}\n")
        [source] = translator.tokenizer.encode_source([SOURCE])
        [[hypothesis, *_]] = translator.engine.translate([Sentence(source)], decoding, alignment=True)
        assert weights_1TS[0, :-1, :-1].argmax(dim=-1).tolist() == hypothesis.alignment


def test_a_target_that_is_given_is_forced(drawn, model_dir, translator):
    weights_1TS, rows, _, said = drawn(model_dir, "--target", TARGET)
    [source], [target] = translator.tokenizer.encode_source([SOURCE]), translator.tokenizer.encode_target([TARGET])
    assert rows.pieces == translator.tokenizer.target_pieces(target)
    assert target[-1] == EOS
    expected_TS = translator.engine.attention_to_source(source, target, 0)
    torch.testing.assert_close(weights_1TS[0], expected_TS)
    assert said.out.endswith(f"picture.png: {TARGET}\n")


@pytest.mark.thorough
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_without_heads_their_mean_is_drawn(drawn, model_dir, layer):
    mean_1TS, *sides, _ = drawn(model_dir, f"alignment_layer={layer}")
    for chosen in (["--layer", layer], [f"alignment_layer={layer}"]):
        heads_HTS, *others, _ = drawn(model_dir, "--heads", *chosen)
        assert others == sides
        assert len(heads_HTS) == 2
        torch.testing.assert_close(heads_HTS.mean(dim=0, keepdim=True), mean_1TS)
        assert not torch.allclose(heads_HTS[0], heads_HTS[1])
    torch.testing.assert_close(drawn(model_dir, "--layer", layer)[0], mean_1TS)


def test_the_decoder_looks_at_what_it_has_written(drawn, model_dir):
    weights_HTS, rows, columns, _ = drawn(model_dir, "--attention", "decoder", "--heads", "--layer", 1)
    assert columns.pieces == ["<s>", *rows.pieces[:-1]]
    assert torch.equal(weights_HTS > 0, torch.ones_like(weights_HTS).tril() > 0)


def test_the_encoder_looks_at_the_source(drawn, model_dir):
    weights_1SS, rows, columns, _ = drawn(model_dir, "--attention", "encoder", "alignment_layer=2")
    assert rows == columns
    assert (weights_1SS > 0).all()
    torch.testing.assert_close(drawn(model_dir, "--attention", "encoder", "--layer", 1)[0], weights_1SS)


def test_every_architecture_is_drawn_by_the_same_command(drawn, rnn_dir):
    _, rows, columns, _ = drawn(rnn_dir, "--target", "Ja.", source="Yes.")
    assert (rows.name, columns.name) == ("target", "source")


def test_signs_of_formulas_and_characters_of_no_font_are_drawn(drawn, tmp_path):
    """The last with a warning."""
    text = f"$x^$ {UNASSIGNED} a"
    lines = [text, *(source for source, _ in demo_pairs(200))]
    tokenizer = Tokenizer.train(lines, lines, TokenizerConfig(vocab_size=400, character_coverage=1.0))
    model_dir = write_untrained(tmp_path / "model", tokenizer)
    _, _, columns, said = drawn(model_dir, "--target", text, source=text)
    assert UNASSIGNED in "".join(columns.pieces)
    assert said.err == f"warning: no font here has {UNASSIGNED}: drawn as code points; install one\n"


def refused(capsys, model_dir, *arguments):
    status, error = status_and_error(plot.main, model_dir, "--device", "cpu", *arguments, capsys=capsys)
    assert (status, error.count("\n")) == (2, 1)
    return error


def test_mistakes_are_named(capsys, model_dir, tmp_path):
    output = ["--output", tmp_path / "x.png"]
    long = "a b " * 600
    for arguments, said in [
        (["--source", " ", *output], "--source is blank"),
        (["--source", SOURCE, "--target", "", *output], "--target is blank"),
        (["--source", long, *output], "--source has .* subword pieces, and the model takes at most 1,024"),
        (["--source", SOURCE, "--target", long, *output], "--target has .* subword pieces"),
        (["--source", SOURCE, "--output", tmp_path / "x.gif"], "x.gif: the name of a picture must end in"),
        (["--source", SOURCE, "--output", tmp_path / "no" / "x.png"], "no/x.png: cannot be written"),
        (["--source", SOURCE, "--layer", 3, *output], "the cross attention has layers 1 to 2"),
        (["--source", SOURCE, "--layer", -1, *output], "layer -1: the cross attention has layers 1 to 2"),
        (["--source", SOURCE, "alignment_layer=3", *output], "alignment_layer=3 is more than"),
        (["--source", SOURCE, "beam=3", *output], "no such key"),
    ]:
        assert re.search(said, refused(capsys, model_dir, *arguments)), said
    assert "no such directory" in refused(capsys, tmp_path / "none", "--source", SOURCE, *output)
    assert not (tmp_path / "x.png").exists()


def test_what_a_model_does_not_have_is_refused_with_the_reason(capsys, rnn_dir, tmp_path, joint_tokenizer):
    output = ["--source", "Yes.", "--output", tmp_path / "x.png"]
    for inside in (["--heads"], ["--layer", 1], ["--attention", "encoder"]):
        assert "no layers and heads" in refused(capsys, rnn_dir, *output, *inside)
    blind = write_untrained(tmp_path / "blind", joint_tokenizer, kind="rnn", attention="none")
    assert "model.attention=none" in refused(capsys, blind, *output)
