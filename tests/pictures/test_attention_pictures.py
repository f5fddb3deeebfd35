"""`plot attention`: what it draws is what the model did."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from helpers.messages import says
from helpers.tiny import demo_pairs, status_and_error
from helpers.untrained import write_untrained

from transformer_mt import plot
from transformer_mt.base.languages import BOS, EOS
from transformer_mt.decoding.engine import Sentence, Wanted
from transformer_mt.models.attention_weights import attention_to_source
from transformer_mt.reporting import plot_attention
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.text.tokenizer import Tokenizer

pytest.importorskip("matplotlib")

SOURCE, TARGET = demo_pairs(1)[0]

UNASSIGNED = "\u0378"  # by Unicode: no font has it


@pytest.fixture(scope="module")
def rnn_dir(tmp_path_factory, joint_tokenizer):
    return write_untrained(tmp_path_factory.mktemp("rnn") / "model", joint_tokenizer, kind="rnn", attention="dot")


@dataclass
class Drawn:
    """What a picture was made of."""

    maps_MTS: np.ndarray
    titles: list[str]
    across: int
    rows: plot_attention.Side
    columns: plot_attention.Side
    layers: list[int]
    said: str
    warned: str


@pytest.fixture
def drawn(monkeypatch, tmp_path, capsys):
    """A function that runs the stage.

    Unless the picture is `real`, it is made, but no file of it, which takes most of the time; or only its `parts` are.
    """
    got = []
    figure_of = plot_attention.heat_maps_of

    def run(model_dir, *arguments, source=SOURCE, real=False, parts=False):
        output = tmp_path / "picture.png"
        arguments = [model_dir, "--source", source, "--output", output, "--device", "cpu", *arguments]
        with monkeypatch.context() as patch:
            draw = (lambda *_: None) if parts else figure_of
            patch.setattr(plot_attention, "heat_maps_of", lambda *given: (got.append(given), draw(*given))[1])
            if not real:
                patch.setattr(plot_attention, "write", lambda _, make, __: make())
            assert plot.main([str(argument) for argument in arguments]) == 0
        assert not real or output.stat().st_size > 1000
        maps_MTS, titles, across, rows, columns = got.pop()
        assert maps_MTS.shape == (len(titles), len(rows.pieces), len(columns.pieces))
        np.testing.assert_allclose(maps_MTS.sum(axis=-1), np.ones(maps_MTS.shape[:2]), rtol=1e-5)
        layers = list(dict.fromkeys(int(title.split(",")[0].removeprefix("layer ")) for title in titles))
        said = capsys.readouterr()
        return Drawn(maps_MTS, titles, across, rows, columns, layers, said.out, said.err)

    return run


@pytest.mark.thorough
def test_the_darkest_cells_are_the_alignment_of_the_model_s_own_translation(drawn, model_dir, translator):
    """Of the pieces that the search wrote, which need not be those that the tokenizer cuts its text into."""
    for settings in ([], ["beam_size=1", "alignment_layer=2"]):
        found = drawn(model_dir, *settings)
        width = 1 if settings else 2
        decoding = translator.decoding.model_copy(update={"beam_size": width, "alignment_layer": 2 if settings else 0})
        [[translation, *_]] = translator.translations([SOURCE], decoding)
        assert found.rows.pieces == [*translation.pieces, "</s>"]
        assert "".join(found.columns.pieces) == f"▁{SOURCE.replace(' ', '▁')}</s>"
        assert found.said.endswith(f"picture.png: {translation.text}\n")
        [source] = translator.tokenizer.encode_source([SOURCE])
        [[hypothesis, *_]] = translator.engine.translate([Sentence(source)], decoding, Wanted(alignment=True))
        assert found.maps_MTS[0, :-1, :-1].argmax(axis=-1).tolist() == hypothesis.alignment


def test_a_target_that_is_given_is_forced(drawn, model_dir, translator):
    found = drawn(model_dir, "--target", TARGET)
    [source], [target] = translator.tokenizer.encode_source([SOURCE]), translator.tokenizer.encode_target([TARGET])
    assert found.rows.pieces == translator.tokenizer.target_pieces(target)
    assert target[-1] == EOS
    model = translator.engine.model
    with torch.no_grad():
        expected_1TS = attention_to_source(model, torch.tensor([source]), torch.tensor([[BOS, *target[:-1]]]), 0)
    np.testing.assert_allclose(found.maps_MTS, expected_1TS, rtol=1e-5)
    assert found.said.endswith(f"picture.png: {TARGET}\n")


@pytest.mark.thorough
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_without_heads_their_mean_is_drawn(drawn, model_dir, layer):
    mean = drawn(model_dir, f"alignment_layer={layer}")
    assert mean.layers == [layer or 1]
    for chosen in (["--layer", layer], [f"alignment_layer={layer}"]):
        heads = drawn(model_dir, "--heads", *chosen)
        assert (heads.rows, heads.columns, heads.layers) == (mean.rows, mean.columns, mean.layers)
        names = [f"layer {mean.layers[0]}, {head}" for head in ("mean", "head 1", "head 2")]
        assert (mean.titles, heads.titles) == (names[:1], names[1:])
        np.testing.assert_allclose(heads.maps_MTS.mean(axis=0), mean.maps_MTS[0], rtol=1e-5)
        assert not np.allclose(heads.maps_MTS[0], heads.maps_MTS[1])
    assert np.array_equal(drawn(model_dir, "--layer", layer).maps_MTS, mean.maps_MTS)


@pytest.mark.thorough
def test_several_layers_are_side_by_side(drawn, model_dir):
    found = drawn(model_dir, "--layer", "2,1")
    assert (found.titles, found.layers, found.across) == (["layer 2, mean", "layer 1, mean"], [2, 1], 2)
    for layer, map_TS in zip((2, 1), found.maps_MTS, strict=True):
        assert np.array_equal(drawn(model_dir, "--layer", layer, parts=True).maps_MTS[0], map_TS)
    heads = drawn(model_dir, "--layer", "all", "--heads", "--attention", "encoder")
    names = [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    assert (heads.titles, heads.layers, heads.across) == (names, [1, 2], 2)
    for layer in (1, 2):
        one = drawn(model_dir, "--layer", layer, "--heads", "--attention", "encoder", parts=True)
        assert np.array_equal(one.maps_MTS, heads.maps_MTS[2 * layer - 2 : 2 * layer])


@pytest.mark.parametrize(
    ("layers", "heads", "across"), [(1, 1, 1), (3, 1, 3), (4, 1, 4), (6, 1, 3), (1, 8, 3), (6, 8, 8), (2, 4, 4)]
)
def test_maps_are_in_a_row_a_square_or_by_layer_and_head(layers, heads, across):
    assert plot_attention.across(layers, heads) == across


def test_the_decoder_looks_at_what_it_has_written(drawn, model_dir):
    found = drawn(model_dir, "--attention", "decoder", "--heads", "--layer", 1)
    assert found.columns.pieces == ["<s>", *found.rows.pieces[:-1]]
    assert np.array_equal(found.maps_MTS > 0, np.tril(np.ones_like(found.maps_MTS)) > 0)


def test_the_encoder_looks_at_the_source(drawn, model_dir):
    found = drawn(model_dir, "--attention", "encoder", "alignment_layer=2")
    assert found.rows == found.columns
    assert (found.maps_MTS > 0).all()
    assert np.array_equal(drawn(model_dir, "--attention", "encoder", "--layer", 1).maps_MTS, found.maps_MTS)


def test_every_architecture_is_drawn_by_the_same_command(drawn, rnn_dir, tmp_path, joint_tokenizer):
    found = drawn(rnn_dir, "--target", "Ja.", source="Yes.")
    assert (found.rows.name, found.columns.name) == ("target", "source")
    for same in (["--layer", 1], ["--layer", "all"], ["--heads"]):
        assert np.array_equal(drawn(rnn_dir, "--target", "Ja.", *same, source="Yes.").maps_MTS, found.maps_MTS)
    sizes = {"kind": "convolutional", "encoder_layers": 1, "decoder_layers": 3}
    model_dir = write_untrained(tmp_path / "convolutional", joint_tokenizer, **sizes)
    assert drawn(model_dir, "--target", "Ja.", "--layer", "all", source="Yes.").layers == [1, 2, 3]


def test_signs_of_formulas_and_characters_of_no_font_are_drawn(drawn, tmp_path):
    """The last with a warning."""
    text = f"$x^$ {UNASSIGNED} a"
    lines = [text, *(source for source, _ in demo_pairs(200))]
    tokenizer = Tokenizer.train(lines, lines, TokenizerConfig(vocab_size=400, character_coverage=1.0))
    model_dir = write_untrained(tmp_path / "model", tokenizer)
    found = drawn(model_dir, "--target", text, source=text, real=True)
    assert UNASSIGNED in "".join(found.columns.pieces)
    assert found.warned == f"warning: no font has {UNASSIGNED}: install one\n"


def refused(capsys, model_dir, *arguments):
    status, error = status_and_error(plot.main, model_dir, "--device", "cpu", *arguments, capsys=capsys)
    assert (status, error.count("\n")) == (2, 1)
    return error


@pytest.mark.thorough
def test_mistakes_are_named(capsys, model_dir, tmp_path):
    output = ["--output", tmp_path / "x.png"]
    long = "a b " * 600
    for arguments, said in [
        (["--source", " ", *output], "the source is blank"),
        (["--source", SOURCE, "--target", "", *output], "the target is blank"),
        (["--source", long, *output], "the source has .* subword pieces, but the model takes at most 1,024"),
        (["--source", SOURCE, "--target", long, *output], "the target has .* subword pieces"),
        (["--source", SOURCE, "--output", tmp_path / "x.gif"], "x.gif: the name must end in"),
        (["--source", SOURCE, "--output", tmp_path / "no" / "x.png"], "no/x.png: cannot be written"),
        (["--source", SOURCE, "--layer", 3, *output], "the cross attention has layers 1 to 2"),
        (["--source", SOURCE, "--layer", -1, *output], "layer -1: the cross attention has layers 1 to 2"),
        (["--source", SOURCE, "alignment_layer=3", *output], "alignment_layer=3 is more than"),
        (["--source", SOURCE, "beam=3", *output], "no such key"),
    ]:
        assert re.search(said, refused(capsys, model_dir, *arguments)), said
    assert "no such directory" in refused(capsys, tmp_path / "none", "--source", SOURCE, *output)
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize("layers", ["x", "1,", "", "1;2", "All"])
def test_layers_that_are_no_numbers_are_refused(capsys, layers):
    with pytest.raises(SystemExit):
        plot.main(["attention", "model", "--source", "x", "--output", "x.png", "--layer", layers])
    assert f"{layers!r} is not a layer: give one number, several (1,3,6), or all" in capsys.readouterr().err


def test_what_a_model_does_not_have_is_refused_with_the_reason(capsys, rnn_dir, tmp_path, joint_tokenizer):
    output = ["--source", "Yes.", "--output", tmp_path / "x.png"]
    for side in ("encoder", "decoder"):
        for layer in (["--layer", "all"], []):
            error = refused(capsys, rnn_dir, *output, "--attention", side, *layer)
            assert says(error, "no-self-attention", side)
    blind = write_untrained(tmp_path / "blind", joint_tokenizer, kind="rnn", attention="none")
    assert "model.attention=none" in refused(capsys, blind, *output)
