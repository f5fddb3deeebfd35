"""The settings as text: all of them, from the one source."""

import re

import pytest
import yaml
from helpers.messages import message
from helpers.thorough import thorough

from transformer_mt.__main__ import show_settings
from transformer_mt.base.errors import ConfigError
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import dump_config
from transformer_mt.settings.suggestions import MODELS, parts, settings_text

CORPUS = {"source_language": "en", "target_language": "de", "train": "a", "valid": "b", "test": {}}


def entries(text):
    """Key -> (default, allowed, meaning) of each entry."""
    found = {}
    for entry in re.split(r"\n(?=  \S)", text):
        if match := re.match(r"  (\S+) (\S.*?)\s+\[([^\]]*)\]\n      (\S.*)", entry, re.DOTALL):
            key, default, allowed, meaning = (" ".join(part.split()) for part in match.groups())
            found[key] = (default, allowed, meaning)
    return found


def flat(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["transformer", *thorough("rnn", "convolutional")])
def test_every_key_of_a_configuration_is_shown_with_its_default(kind):
    model = MODELS[kind](kind=kind)
    config = Config(data_dir="d", run_dir="r", corpus=CorpusConfig(**CORPUS), model=model)
    shown = entries(
        "\n".join(settings_text(name) for name in ["corpus", "filters", "tokenizer", "training", "averaging"])
    )
    shown |= entries(settings_text("decoding")) | entries(settings_text().partition("\n\n")[2])
    of_kind = entries(settings_text("model").split("\n\nmodel, with ")[list(MODELS).index(kind)])
    shown = {key: entry for key, entry in shown.items() if not key.startswith("model.")} | of_kind
    expected = dict(flat(yaml.safe_load(dump_config(config))))
    assert shown.keys() == expected.keys()
    for key, value in expected.items():
        default = shown[key][0]
        if default != "(required)":
            assert yaml.safe_load(default.removeprefix("= ")) == value or float(default.removeprefix("= ")) == value
        else:
            assert key in ("data_dir", "run_dir", "model.kind") or key.startswith("corpus.")


def test_every_key_has_a_meaning_and_every_line_fits_a_terminal():
    for _, _, keys in parts():
        assert [key for key, schema in keys.items() if len(schema.get("description", "")) < 8] == []
    assert max(map(len, settings_text().splitlines())) <= 100


def test_every_meaning_is_in_plain_words():
    unclear = re.compile(r"\b(?:so many|alone|likewise)\b", re.IGNORECASE)
    half_a_sentence = re.compile(r"(?:Of|As|Than)\b")
    for name, title, keys in parts():
        for key, schema in keys.items():
            meaning = schema["description"]
            assert not unclear.search(meaning), (name, key)
            assert not half_a_sentence.match(meaning), (name, key)
            assert meaning.endswith("."), (name, key)
        assert not unclear.search(title), name


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("key", "default", "allowed"),
    [
        ("training.peak_lr", "= 0.0007", "number > 0, <= 100"),
        ("training.tokens_per_batch", "= 25000", "integer > 0, <= 1000000000"),
        ("decoding.tokens_per_batch", "= auto", "integer > 0, <= 1000000000, or auto"),
        ("training.compile", "= auto", "true or false, or auto"),
        ("training.initialise_from", "= null", "text, or null"),
        ("training.num_threads", "= 0", "integer >= 0, <= 1024"),
        ("training.metric", "= bleu", "bleu, chrf or nll"),
        ("tokenizer.character_coverage", "= 0.9999", "number > 0.9, <= 1"),
        ("corpus.test", "= {}", "{name: text, or keys such as {source: FILE, target: FILE}}"),
        ("corpus.train.path", "= null", "text, or null"),
        ("corpus.train.source", "= null", "text, or integer >= 1, <= 100000, or null"),
        ("data_dir", "(required)", "text"),
    ],
)
def test_one_key_is_shown_alone_with_what_is_allowed(key, default, allowed):
    shown = entries(settings_text(key))
    assert shown.keys() == {key}
    assert shown[key][:2] == (default, allowed)


def test_a_key_with_many_forms_is_shown_with_the_keys_below_it():
    shown = entries(settings_text("corpus.train"))
    forms = "text, or keys such as {source: FILE, target: FILE}, or a list of them"
    assert shown["corpus.train"][:2] == ("(required)", forms)
    below = [f"corpus.train.{key}" for key in PairedText.model_fields]
    assert list(shown) == ["corpus.train", *below]
    assert all(len(meaning) > 20 and meaning.endswith(".") for *_, meaning in shown.values())
    assert max(map(len, settings_text("corpus.train").splitlines())) <= 100


def test_a_key_of_all_models_is_shown_for_each():
    text = settings_text("model.dropout")
    assert text.count("  model.dropout = ") == 3
    assert "With model.kind=transformer: The probability of dropout on the output" in text
    assert "With model.kind=rnn: The probability of dropout on the embeddings" in text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("trainin", "training"),
        ("peak_lr", "training.peak_lr"),
        ("decoding.peak_lr", "training.peak_lr"),
        ("model.droput", "dropout"),
        ("warmup", "training.warmup_steps"),
        ("lr", "training.peak_lr"),
        ("beam", "decoding.beam_size"),
        ("corpus.train.tsv", "path"),
        ("corpus.valid.jsonl", "path"),
        ("corpus.train.streeming", "streaming"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(ConfigError, match=message("no-such-setting", name, f"'{nearest}'")):
        settings_text(name)


def test_without_any_near_name_the_sections_are_listed():
    with pytest.raises(
        ConfigError,
        match=message("no-such-setting", "zzzz", "The keys are: data_dir, run_dir, corpus, filters"),
    ):
        settings_text("zzzz")


def test_the_command_prints_a_section(capsys):
    assert show_settings(["averaging"]) == 0
    assert capsys.readouterr().out == settings_text("averaging") + "\n"
