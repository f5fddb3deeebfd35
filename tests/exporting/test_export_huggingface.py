"""What is exported for Hugging Face: transformers computes from it what we compute."""

import json
import shutil
import warnings
from importlib.util import find_spec

import pytest
import torch
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import demo_pairs
from helpers.untrained import write_untrained

from transformer_mt import export
from transformer_mt.base.languages import BOS, PAD
from transformer_mt.decoding.translator import Translator
from transformer_mt.exporting.huggingface import unsupported
from transformer_mt.exporting.trained_model import random_pairs, read_trained
from transformer_mt.settings.model_settings import TransformerConfig

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")

LINES = [source for source, _ in demo_pairs(30)]


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    """A trained model; to be read alone."""
    directory = tmp_path_factory.mktemp("exported") / "huggingface"
    export.export(model_dir, directory, "huggingface")
    return directory


def load_model(directory):
    from transformers import MarianMTModel  # here, for it takes a second

    model, found = MarianMTModel.from_pretrained(directory, output_loading_info=True)
    assert not any(found.values()), found  # neither missing nor left over
    return model.eval()


def load_tokenizer(directory):
    from transformers import MarianTokenizer

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return MarianTokenizer.from_pretrained(directory)


def padded(sentences):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in sentences], True, PAD)


@torch.no_grad()
def assert_same_logits(theirs, model_dir):
    """Of sources that are padded; the longest have 30 pieces."""
    ours = Translator.load(model_dir, "cpu").engine.model
    source_BS = padded([source for source, _ in random_pairs(read_trained(model_dir, []), 8)])
    generator = torch.Generator().manual_seed(1)
    decoder_input_BT = torch.randint(4, 300, (8, 20), generator=generator)
    decoder_input_BT[:, 0] = BOS
    their_BTV = theirs(source_BS, attention_mask=source_BS != PAD, decoder_input_ids=decoder_input_BT).logits
    torch.testing.assert_close(their_BTV, ours(source_BS, decoder_input_BT), rtol=0, atol=1e-4)


# Exported is ours


@pytest.mark.parametrize(
    ("joint", "ties"),
    [(True, "all"), (False, "none"), *thorough_rows((True, "target"), (True, "none"), (False, "target"))],
)
def test_logits_are_ours_whatever_the_vocabularies(joint, ties, joint_tokenizer, separate_tokenizer, tmp_path):
    tokenizer = joint_tokenizer if joint else separate_tokenizer
    model_dir = write_untrained(tmp_path / "model", tokenizer, tied_embeddings=ties)
    export.export(model_dir, tmp_path / "exported", "huggingface")
    assert_same_logits(load_model(tmp_path / "exported"), model_dir)


@pytest.mark.parametrize("ties", ["all", *thorough("target", "none")])
def test_logits_are_ours_with_an_output_bias(ties, joint_tokenizer, tmp_path):
    """After transformers has saved the model, too."""
    model_dir = write_untrained(tmp_path / "model", joint_tokenizer, tied_embeddings=ties, output_bias=True)
    export.export(model_dir, tmp_path / "exported", "huggingface")
    assert_same_logits(load_model(tmp_path / "exported"), model_dir)
    load_model(tmp_path / "exported").save_pretrained(tmp_path / "again")
    assert_same_logits(load_model(tmp_path / "again"), model_dir)


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"activation": "gelu"}, {"num_heads": 4}, {"d_model": 32, "ffn_dim": 8}])
def test_logits_are_ours_whatever_the_layers(settings, joint_tokenizer, tmp_path):
    model_dir = write_untrained(tmp_path / "model", joint_tokenizer, **settings)
    export.export(model_dir, tmp_path / "exported", "huggingface")
    assert_same_logits(load_model(tmp_path / "exported"), model_dir)


def test_logits_are_ours_after_transformers_has_saved_the_model(model_dir, exported, tmp_path):
    """It leaves out the position encodings, and makes its own."""
    load_model(exported).save_pretrained(tmp_path / "again")
    assert_same_logits(load_model(tmp_path / "again"), model_dir)


@pytest.mark.thorough
@pytest.mark.parametrize("beam_size", [*thorough(1), 3])
def test_texts_become_ours(beam_size, model_dir, exported):
    """As if nothing but `transformers` were known; the limits on lengths apart, which are other ones."""
    tokenizer, model = load_tokenizer(exported), load_model(exported)
    batch = tokenizer(LINES, return_tensors="pt", padding=True)
    generated = model.generate(**batch, num_beams=beam_size, max_length=80, length_penalty=0.0)
    theirs = tokenizer.decode(generated, skip_special_tokens=True)
    ours = Translator.load(model_dir, "cpu")
    decoding = ours.decoding.model_copy(update={"beam_size": beam_size, "length_penalty": 0.0, "max_extra_length": 100})
    translations = [found[0] for found in ours.translations(LINES, decoding)]
    short = [
        (t.text, " ".join(their.split())) for t, their in zip(translations, theirs, strict=True) if len(t.pieces) < 70
    ]
    assert len(short) > 10
    assert [our for our, _ in short] == [their for _, their in short]


def test_pieces_are_ours(joint_tokenizer, separate_tokenizer, tmp_path):
    """Of texts in NFC with single spaces: MarianTokenizer cleans nothing up."""
    for name, tokenizer in (("joint", joint_tokenizer), ("separate", separate_tokenizer)):
        model_dir = write_untrained(tmp_path / name, tokenizer, tied_embeddings="none")
        export.export(model_dir, tmp_path / "exported", "huggingface")
        theirs = load_tokenizer(tmp_path / "exported")
        texts = [*LINES, "Grüße aus Köln – „wirklich“?", "日本 🙂 naïve"]
        assert theirs(texts)["input_ids"] == tokenizer.encode_source(texts)
        sides = [target for _, target in demo_pairs(30)]
        assert theirs(text_target=sides)["input_ids"] == tokenizer.encode_target(sides)
        for ids in tokenizer.encode_target([*sides, "日本 🙂 naïve"]):
            assert theirs.decode(ids, skip_special_tokens=True) == tokenizer.decode_target(ids)


def test_defaults_of_decoding_are_ours(model_dir, tmp_path):
    overrides = ["beam_size=5", "n_best=2", "no_repeat_ngram=3", "length_penalty_form=average", "length_penalty=0.7"]
    export.export(model_dir, tmp_path / "beam", "huggingface", overrides=overrides)
    settings = load_model(tmp_path / "beam").generation_config
    assert (settings.num_beams, settings.num_return_sequences, settings.no_repeat_ngram_size) == (5, 2, 3)
    assert settings.length_penalty == pytest.approx(0.7)
    assert not settings.do_sample
    overrides = ["sampling=true", "top_k=9", "top_p=0.5", "temperature=0.3"]
    export.export(model_dir, tmp_path / "sampling", "huggingface", overrides=overrides)
    settings = load_model(tmp_path / "sampling").generation_config
    assert (settings.do_sample, settings.top_k, settings.top_p, settings.temperature) == (True, 9, 0.5, 0.3)


def test_the_shortest_translation_is_as_long_as_asked_for(model_dir, tmp_path):
    export.export(model_dir, tmp_path / "exported", "huggingface", overrides=["min_length=45"])
    model, tokenizer = load_model(tmp_path / "exported"), load_tokenizer(tmp_path / "exported")
    generated = model.generate(**tokenizer(LINES, return_tensors="pt", padding=True), num_beams=1, max_length=60)
    lengths = (generated > 3).sum(dim=1)
    assert lengths.min() == 45


def test_the_directory_is_all_that_is_needed(exported, tmp_path):
    alone = shutil.copytree(exported, tmp_path / "elsewhere")
    assert load_tokenizer(alone)(LINES)["input_ids"] == load_tokenizer(exported)(LINES)["input_ids"]
    assert load_model(alone).config.model_type == json.loads((alone / "config.json").read_text())["model_type"]


# What it cannot hold


def test_what_marian_cannot_compute_is_refused_with_the_reason():
    assert unsupported(TransformerConfig()) is None
    assert unsupported(TransformerConfig(activation="gelu", tied_embeddings="none")) is None
    assert "model.norm=pre" in unsupported(TransformerConfig(norm="pre"))
    assert "model.activation=swiglu" in unsupported(TransformerConfig(activation="swiglu"))
