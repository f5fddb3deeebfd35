"""A key that does not exist is answered with the one that was meant."""

import json
import re
from functools import cache

import pytest
import yaml
from helpers.messages import says
from helpers.tiny import write_experiment

from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.section import keys_of
from transformer_mt.settings.suggestions import MODELS, sections_of, suggestion, synonyms

KEYS, ADVICE = synonyms()


def keys(kind: str) -> set[str]:
    """Every key there is, as training.peak_lr, and the sections."""
    sections = sections_of(kind)
    return {f"{name}.{key}" if name else key for name, section in sections.items() for key in section.model_fields}


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("training.lr", ["peak_lr"]),
        ("lr", ["training.peak_lr"]),
        ("training.Learning-Rate", ["peak_lr"]),
        ("decoding.max-len-b", ["max_extra_length"]),
        ("data", ["corpus"]),
        # The same name elsewhere goes before what others call so, and before what is spelled alike.
        ("training.dropout", ["model.dropout"]),
        ("model.max_steps", ["training.max_steps"]),
        ("model.patience", ["training.patience", "decoding.patience"]),
        ("training.max_length", ["corpus.max_length"]),
        # What others mean by it in that section goes before both.
        ("decoding.max_length", ["max_extra_length"]),
        ("decoding.batch_size", ["tokens_per_batch"]),
        ("filters.min_length", ["min_characters"]),
        ("training.warmup_stpes", ["warmup_steps"]),
        # The modifiers of OpusTrainer.
        ("training.modifiers.RemoveEndPunct", ["remove_end_punct"]),
        ("training.modifiers.typo", ["typos"]),
        ("modifiers", ["training.modifiers"]),
        ("training.Typos", ["modifiers.typos"]),
        ("corpus.train.src", ["source"]),
        ("corpus.train.tgt", ["target"]),
        ("corpus.train.jsonl", ["path"]),
        ("corpus.test.news.pth", ["path"]),
    ],
)
def test_the_key_that_was_meant_is_named(path, keys):
    said = suggestion(tuple(path.split(".")), "transformer")
    assert re.findall("'(.*?)'", said) == keys and says(said, "nearest-key" if len(keys) == 1 else "likely-keys")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("training.update-freq", "update_freq"),
        ("training.epochs", "epochs"),
        ("training.batch_size", "batch_size"),
        ("corpus.dataset", "dataset"),
        ("training.on_failed_save", "on_failed_save"),
        ("training.subword_sampling", "subword_sampling"),
        ("tokenizer.bpe-dropout", "bpe_dropout"),
        ("training.modifiers.UpperCase", "uppercase"),
        ("training.modifiers.title_case", "title_case"),
    ],
)
def test_what_has_no_key_of_its_own_is_explained(path, name):
    """Among them what earlier versions had."""
    assert suggestion(tuple(path.split(".")), "transformer") == ADVICE[name]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("corpus.train", ("keys-by-command", "settings corpus.train`")),
        ("averaging", ("keys-of-section", "checkpoints, choose")),
        ("training", ("keys-by-command", "settings training`")),
    ],
)
def test_where_no_key_is_near_it_is_said_which_there_are(section, expected):
    assert says(suggestion((*section.split("."), "zzz"), "transformer"), *expected)


def test_no_answer_lists_many_keys():
    for name, section in sections_of("transformer").items():
        path = (name, "zzz") if name else ("zzz",)
        said = suggestion(path, "transformer")
        keys = keys_of(section)
        named = [key for key in keys if re.search(rf"\b{key}\b", said)]
        assert len(said) < 140 and (len(named) <= 1 or named == keys)


def test_every_synonym_stands_for_a_key_that_exists():
    known = keys("transformer") | {f"corpus.train.{key}" for key in keys_of(PairedText)}
    assert {key for key in KEYS.values() if key not in known} == set()
    said = " ".join(ADVICE.values())
    named = re.findall(rf"\b(?:{'|'.join(name for name in sections_of('transformer') if name)})\.\w+", said)
    assert len(named) > 20
    assert set(named) - known == set()


def advised(say: str) -> list[tuple[str, list[str], bool]]:
    """Every key that an advice names, the values that it names for it, and whether these are all that there are."""
    sections = "|".join(name for name in sections_of("transformer") if name)
    found = re.findall(
        rf"\b((?:{sections})\.\w+)(?:=(\{{[^}}]*\}}|[\w-]+(?: or \w+)?)| to (\w+(?:, \w+)* or \w+))?", say
    )
    return [
        (key, [one] if one[:1] == "{" else re.findall(r"\b(?!or\b)[\w-]+", one or of), bool(of))
        for key, one, of in found
    ]


@cache
def allowed_values(key: str) -> set[str]:
    section, _, name = key.rpartition(".")
    return set(sections_of("transformer")[section].model_json_schema()["properties"].get(name, {}).get("enum", ()))


@pytest.mark.parametrize("say", sorted({*ADVICE.values()} | {f"Set {key}." for key in {*KEYS.values()}}))
def test_whoever_follows_an_advice_gets_a_configuration_that_loads(say, tmp_path):
    """Each key that it names takes each value that it names; or, without one, the value that it has already."""
    config = write_experiment(tmp_path)
    for key, values, _ in advised(say):
        now = load_config(config).model_dump()
        for name in key.split("."):
            now = now.get(name, "text/x") if isinstance(now, dict) else "text/x"
        for value in values or [json.dumps(now)]:
            found = load_config(config, [f"{key}={value}"]).model_dump()
            for name in key.split("."):
                found = found[name]
            assert not values or found == yaml.safe_load(value) or set(found) >= set(yaml.safe_load(value))


def test_an_advice_about_values_names_all_of_them_and_none_that_was_asked_for_is_denied():
    complete = {key: set(values) for say in ADVICE.values() for key, values, is_all in advised(say) if is_all}
    assert complete == {key: allowed_values(key) for key in complete}
    assert {"training.precision", "model.norm", "tokenizer.algorithm"} == complete.keys()
    for name, say in ADVICE.items():
        takers = [key for key in keys("transformer") if "." in key and name in allowed_values(key)]
        assert not takers or any(name in values and key in takers for key, values, _ in advised(say)), (name, takers)


@pytest.mark.parametrize("kind", MODELS)
def test_no_synonym_is_a_key_itself_or_never_looked_up(kind):
    names = {key.partition(".")[2] or key for key in keys(kind)}
    for name in [*KEYS, *ADVICE]:
        section, _, plain = name.rpartition(".")
        assert plain == plain.lower().replace("-", "_")
        assert f"{section}.{plain}" not in keys(kind) if section else plain not in names
    assert not KEYS.keys() & ADVICE.keys()


def test_the_names_of_other_trainers_are_known():
    asked = """
        lr learning_rate batch_size batch_type max_tokens update_freq batch_multiplier gradient_accumulation_steps
        epochs max_epoch num_train_epochs max_update max_grad_norm hidden_size embedding_dim
        encoder_embed_dim ff_size encoder_ffn_embed_dim num_layers attention_heads nheads beam beam_alpha lenpen
        num_beams early_stopping warmup warmup_updates num_warmup_steps fp16 bf16 save_interval logging_steps
        eval_steps keep_best_ckpts save_total_limit optim share_decoder_input_output_embed vocab voc_limit src
        tgt source_lang lowercase
    """
    assert [name for name in asked.split() if name not in KEYS and name not in ADVICE] == []
