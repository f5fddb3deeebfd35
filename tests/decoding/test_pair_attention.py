"""The attention that the Python API gives is that of the model."""

import numpy as np
import pytest
import torch
from helpers.echo import Echo
from helpers.messages import message
from helpers.tiny import demo_pairs
from helpers.untrained import LONG_LINES, write_untrained

from transformer_mt import export
from transformer_mt.base.errors import ConfigError, NotFiniteError, TranslationError
from transformer_mt.base.languages import BOS
from transformer_mt.decoding.line_parts import Tags
from transformer_mt.decoding.translator import Translator
from transformer_mt.models.attention_weights import attention_weights
from transformer_mt.settings.search_settings import DecodingConfig

SOURCE, TARGET = demo_pairs(1)[0]


def test_it_is_what_each_piece_looked_at_in_every_layer_and_head(translator):
    found = translator.attention(SOURCE, TARGET)
    [source], [target] = translator.tokenizer.encode_source([SOURCE]), translator.tokenizer.encode_target([TARGET])
    assert (found.text, found.source[-1], found.target[-1], found.target_before[0]) == (TARGET, "</s>", "</s>", "<s>")
    assert found.source == translator.tokenizer.source_pieces(source)
    assert found.target == translator.tokenizer.target_pieces(target)
    assert found.target_before[1:] == found.target[:-1]
    S, T = len(source), len(target)
    with torch.no_grad():
        weights = attention_weights(
            translator.engine.model, torch.tensor([source]), torch.tensor([[BOS, *target[:-1]]])
        )
    for array, expected, shape in (
        (found.encoder_LHSS, weights.encoder_LBHSS, (2, 2, S, S)),
        (found.decoder_LHTT, weights.decoder_LBHTT, (2, 2, T, T)),
        (found.cross_LHTS, weights.cross_LBHTS, (2, 2, T, S)),
    ):
        assert array.shape == shape and array.dtype == np.float32
        np.testing.assert_allclose(array, expected[:, 0], rtol=1e-5)
        np.testing.assert_allclose(array.sum(axis=-1), np.ones(shape[:-1]), rtol=1e-5)


def test_the_space_after_a_tag_is_as_in_training(translator):
    tags = Tags(tokens=("yes",), trained=("yes",), always=True)
    tagged = Translator(translator.engine, translator.tokenizer, translator.decoding, LONG_LINES, tags=tags)
    assert tagged.attention(f"yes{SOURCE}", TARGET).source == translator.attention(f"yes {SOURCE}", TARGET).source


def test_without_a_target_it_is_of_the_translation(translator):
    """In the pieces that the search wrote, with the settings that are given."""
    drawn = [DecodingConfig(sampling=True, seed=seed, max_extra_length=9) for seed in (1, 2)]
    for decoding in (None, DecodingConfig(beam_size=1, max_extra_length=3), *drawn):
        [[best, *_]] = translator.translations([SOURCE], decoding)
        found = translator.attention(SOURCE, decoding=decoding)
        assert (found.text, found.target) == (best.text, [*best.pieces, "</s>"])


def test_an_architecture_without_self_attention_has_no_layers_of_it(tmp_path, joint_tokenizer):
    sizes = {"encoder_layers": 2, "decoder_layers": 3}
    for kind, layers, settings in (("rnn", 1, {"attention": "dot"}), ("convolutional", 3, {})):
        model_dir = write_untrained(tmp_path / kind, joint_tokenizer, kind=kind, **sizes, **settings)
        with Translator.load(model_dir, "cpu", workers=1) as translator:
            found = translator.attention("Yes.", "Ja.")
        S, T = len(found.source), len(found.target)
        assert found.encoder_LHSS.shape == (0, 1, S, S) and found.decoder_LHTT.shape == (0, 1, T, T)
        assert found.cross_LHTS.shape == (layers, 1, T, S)
        np.testing.assert_allclose(found.cross_LHTS.sum(axis=-1), np.ones((layers, 1, T)), rtol=1e-5)
        if kind == "convolutional":
            assert not np.allclose(found.cross_LHTS[0], found.cross_LHTS[1])


def test_an_ensemble_has_the_mean_of_its_models(tmp_path, joint_tokenizer):
    directories = [
        write_untrained(tmp_path / str(heads), joint_tokenizer, num_heads=heads, decoder_layers=3) for heads in (1, 2)
    ]
    with Translator.load(directories, "cpu", workers=1) as ensemble:
        found = ensemble.attention("Yes.", "Ja.")
    members = []
    for directory in directories:
        with Translator.load(directory, "cpu", workers=1) as translator:
            members.append(translator.attention("Yes.", "Ja.").cross_LHTS[-2].mean(axis=0))
    assert found.cross_LHTS.shape[:2] == (1, 1)
    np.testing.assert_allclose(found.cross_LHTS[0, 0], (members[0] + members[1]) / 2, rtol=1e-5)


def test_mistakes_are_named(translator, tmp_path, joint_tokenizer):
    with pytest.raises(TranslationError, match=message("attention-of-blank", "source")):
        translator.attention(" ")
    with pytest.raises(TranslationError, match=message("attention-of-blank", "target")):
        translator.attention(SOURCE, "")
    with pytest.raises(TranslationError, match=message("attention-of-long-sentence", "source", "1,024")):
        translator.attention("a b " * 600)
    with pytest.raises(ConfigError, match=message("no-such-alignment-layer", "3")):
        translator.attention(SOURCE, decoding=DecodingConfig(alignment_layer=3))
    blind = write_untrained(tmp_path / "blind", joint_tokenizer, kind="rnn", attention="none")
    with (
        Translator.load(blind, "cpu", workers=1) as loaded,
        pytest.raises(TranslationError, match=message("model-without-attention")),
    ):
        loaded.attention("Yes.", "Ja.")
    with pytest.raises(TranslationError, match=message("translator-closed")):
        loaded.attention("Yes.", "Ja.")


def test_weights_that_are_not_finite_are_refused(translator, monkeypatch):
    real = translator.engine.attention
    monkeypatch.setattr(translator.engine, "attention", lambda *ids: [kind * np.nan for kind in real(*ids)])
    with pytest.raises(NotFiniteError):
        translator.attention(SOURCE, TARGET)


def test_an_engine_that_has_none_says_which_one_has(translator):
    echo = Translator(Echo(1000), translator.tokenizer, DecodingConfig(), LONG_LINES)
    for target in (None, TARGET):
        with pytest.raises(TranslationError, match=message("engine-without-attention")):
            echo.attention(SOURCE, target)


def test_ctranslate2_has_none(model_dir, tmp_path):
    pytest.importorskip("ctranslate2")
    export.export(model_dir, tmp_path / "exported", "ctranslate2")
    with (
        Translator.load(tmp_path / "exported", "cpu", engine="ctranslate2", workers=1) as translator,
        pytest.raises(TranslationError, match=message("engine-without-attention")),
    ):
        translator.attention(SOURCE)
