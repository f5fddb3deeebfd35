"""The configuration is strict, and says where it is wrong and what is right."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from helpers.messages import message

from transformer_mt.base.errors import ConfigError
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model_settings import RnnConfig, TransformerConfig
from transformer_mt.settings.reading import differences, dump_config, load_config
from transformer_mt.settings.section import fingerprint
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.optimization import learning_rate

ROOT = Path(__file__).parent.parent.parent
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
SMALL = """\
data_dir: data/x
run_dir: runs/x
corpus:
  source_language: en
  target_language: de
  train: text/train
  valid: text/valid
  test:
    news: text/news
model:
  d_model: 64
"""


def bad(*facts: str) -> tuple[str, ...]:
    """The code of a value that is not allowed, and facts about it: its key, and where it stands if that has the key."""
    return "value-not-allowed", *facts


@pytest.fixture
def load(tmp_path):
    """A function that loads SMALL with lines after it, or with one text in place of another."""

    def load(*overrides: str, more: str = "", change: tuple[str, str] = ("", ""), section: str | None = None) -> Config:
        path = tmp_path / "x.yaml"
        path.write_text(SMALL.replace(*change) + more, encoding="utf-8")
        return load_config(path, overrides, section)

    return load


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_loads_and_survives_being_written(path, tmp_path):
    config = load_config(path)
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_config(config), encoding="utf-8")
    assert load_config(copy) == config
    # Nothing is left to defaults that may change one day.
    assert copy.read_text(encoding="utf-8").count("adam_epsilon: ") == 1


def test_a_configuration_of_a_former_version_loads_where_its_settings_changed_nothing(load):
    former = (
        "training: {r_drop: 0.0, subword_sampling: 0.0, on_failed_save: stop, seed: 7,"
        " modifiers: {upper_case: 0.0, typos: 0.0}}\n"
        "filters: {source_script: null, min_length: 0}\n"
    )
    corpus = "  source_language: en", "  subset: null\n  source_language: en"
    assert load(more=former, change=corpus) == load("training.seed=7")
    for wrong in (
        "training: {r_drop: 5.0}\n",
        "training: {modifiers: {upper_case: 0.1}}\n",
        "training: {on_failed_save: continue}\n",
        "filters: {source_script: Latn}\n",
    ):
        with pytest.raises(ConfigError, match="no such key"):
            load(more=wrong)


def test_a_model_of_a_former_version_loads_however_it_was_trained(load, tmp_path):
    """What training did then does not matter for translating."""
    (tmp_path / "model.safetensors").touch()
    former = "training: {r_drop: 5.0, subword_sampling: 0.1, schedule: cooldown, modifiers: {upper_case: 0.1}}\n"
    assert load(more=former) == load()
    assert load(more="training: {schedule: linear}\n").training.schedule == "linear"
    with pytest.raises(ConfigError, match="no such key"):
        load(more="filters: {source_script: Latn}\n")


def test_there_are_configurations():
    assert "demo_en_de" in [path.stem for path in CONFIGS]


def test_schema_of_the_editors_is_current():
    # `make schema` writes it.
    schema = json.dumps(Config.model_json_schema(), indent=2) + "\n"
    assert (ROOT / "configs/schema.json").read_text(encoding="utf-8") == schema


def test_schema_holds_keys_and_their_meaning():
    sections = Config.model_json_schema()["$defs"]
    assert sections["DecodingConfig"]["properties"]["beam_size"]["default"] == 4
    assert "Vaswani" not in sections["DecodingConfig"]["description"]
    assert "Wu et al." in sections["DecodingConfig"]["properties"]["length_penalty"]["description"]
    assert sections["DecodingConfig"]["properties"]["length_penalty_form"]["enum"] == ["gnmt", "average", "none"]
    assert "from" in sections["TokenizerConfig"]["properties"]


class TestValues:
    def test_defaults_are_the_papers(self, load):
        config = load(change=("64", "512"))
        assert config.model == TransformerConfig()
        assert (config.model.ffn_dim, config.model.num_heads, config.training.adam_beta2) == (2048, 8, 0.98)

    @pytest.mark.parametrize("number", ["3e-4", "3.0e-4", "0.0003", "3E-4", "+3e-04"])
    def test_small_numbers_are_numbers(self, load, number):
        assert load(more=f"training:\n  peak_lr: {number}\n").training.peak_lr == 3e-4
        assert load(f"training.peak_lr={number}").training.peak_lr == 3e-4

    def test_overrides_go_in_order_into_their_section(self, load):
        config = load("training.max_steps=7", "run_dir=runs/y", "training.max_steps=8", "corpus.test={a: b, c: d}")
        assert (config.training.max_steps, config.run_dir) == (8, "runs/y")
        assert config.corpus.test == {"a": "b", "c": "d"}
        # What is not named stays.
        assert (config.model.d_model, config.data_dir) == (64, "data/x")

    def test_a_key_without_a_dot_is_of_the_stages_section(self, load):
        config = load("beam_size=7", "run_dir=runs/z", "decoding.length_penalty=0", section="decoding")
        assert (config.decoding.beam_size, config.run_dir, config.decoding.length_penalty) == (7, "runs/z", 0)

    def test_a_stage_takes_no_other_section_s_settings(self, load):
        with pytest.raises(ConfigError, match=message("override-of-other-section", "model.dropout=0", "decoding")):
            load("model.dropout=0", section="decoding")
        with pytest.raises(ConfigError, match=message("override-of-other-section", "training={}", "decoding")):
            load("training={}", section="decoding")

    @pytest.mark.parametrize("line_break", ["\n", "\r\n", "\u2028", "\x85"])
    def test_an_override_is_a_text_of_one_line(self, load, line_break):
        with pytest.raises(ConfigError, match=message("override-with-line-break", "data_dir=a\\", "b")) as refused:
            load(f"data_dir=a{line_break}b")
        assert len(str(refused.value).splitlines()) == 1
        assert load(f"corpus.test={{a: b,{line_break}c: d}}").corpus.test == {"a": "b", "c": "d"}

    @pytest.mark.parametrize(
        "override",
        [
            "corpus={source_language: fr, target_language: en, train: a, valid: b, test: {}}",
            "filters={identical: true}",
            "tokenizer={vocab_size: 700}",
            "model={kind: rnn, d_model: 32}",
            "training={max_steps: 7}",
            "averaging={checkpoints: 2}",
            "decoding={beam_size: 3}",
            "corpus.test={talks: t}",
        ],
    )
    def test_a_section_is_replaced_whole(self, load, override):
        path, _, text = override.partition("=")
        more = (
            "tokenizer: {algorithm: unigram}\naveraging: {choose: best}\ndecoding: {n_best: 2}\ntraining: {seed: 2}\n"
        )
        before, after, name = load(more=more), load(override, more=more), path.partition(".")[0]
        assert {key.partition(".")[0] for key in differences(before, after)} == {name}
        section = getattr(after, name)
        if path == "corpus.test":
            assert section.test == {"talks": "t"}
        else:
            assert section == type(section).model_validate(yaml.safe_load(text))

    def test_two_files_make_a_split(self, load):
        config = load("corpus.train={source: a.en, target: b.de}")
        assert config.corpus.train == PairedText(source="a.en", target="b.de")

    @pytest.mark.parametrize(
        ("path", "form"),
        [("my/train", "prefix"), ("a.tsv", "tsv"), ("a/*.jsonl.gz", "jsonl"), ("a.txt.zip", "zip"), ("tsv", "prefix")],
    )
    def test_the_end_of_a_name_says_the_form(self, load, path, form):
        corpus = load(f"corpus.train={path}").corpus
        assert corpus.training_corpora[0].form == form
        assert load(f"corpus.train={{path: {path}}}").corpus.train.form == form
        assert load(f"corpus.train={{path: {path}, form: csv}}").corpus.train.form == "csv"

    def test_several_corpora_have_names(self, load):
        both = "\n    - {name: a, path: a.tmx}\n    - name: b\n      path: b.tsv"
        config = load(change=("text/train", f"{both}\n      weight: 2.0"))
        a, b = config.corpus.training_corpora
        assert (a, b) == (PairedText(name="a", path="a.tmx"), PairedText(name="b", path="b.tsv", weight=2.0))
        assert (a.form, b.form, b.place) == ("tmx", "tsv", "b.tsv")
        one_more = load("corpus.train=[{name: b, path: b.tsv}, {name: c, path: d/c}]").corpus.training_corpora
        assert [(corpus.name, corpus.place) for corpus in one_more] == [("b", "b.tsv"), ("c", "d/c")]

    @pytest.mark.parametrize(
        "train",
        [
            "a",
            "{source: a.en, target: a.de}",
            "{path: a.tsv, source: 3, target: 1}",
            "{path: a.tsv, source: English, target: German}",
            "{path: a.csv, source: '1', target: '2'}",
            "{hub: a/b, split: train, subset: de-en, streaming: true, source: translation.en}",
            "[{name: a, path: a.tmx, tag: <2de>}, {name: b, path: b.zip, weight: 0.5}]",
        ],
    )
    def test_every_form_of_a_corpus_survives_being_written(self, load, train, tmp_path):
        config = load(f"corpus.train={train}")
        (tmp_path / "again.yaml").write_text(dump_config(config))
        assert load_config(tmp_path / "again.yaml") == config
        assert Config.model_validate(json.loads(json.dumps(config.model_dump()))) == config

    def test_settings_cannot_be_changed_afterwards(self, load):
        with pytest.raises(ValueError, match="frozen"):
            load().model.d_model = 128


class TestMistakes:
    @pytest.mark.parametrize(
        ("more", "expected"),
        [
            (
                "training:\n  warmup_stpes: 5\n",
                ("no-such-key", "x.yaml:13", "training.warmup_stpes", "'warmup_steps'"),
            ),
            ("trainign:\n  seed: 5\n", ("no-such-key", "x.yaml:12", "trainign", "'training'")),
            ("warmup_steps: 5\n", ("no-such-key", "x.yaml:12", "warmup_steps", "'training.warmup_steps'")),
            ("averaging:\n  zzz: 5\n", ("no-such-key", "x.yaml:13", "averaging.zzz", "checkpoints, choose")),
            ("training:\n  max_steps:200\n", ("not-a-section", "x.yaml:12", "training", "'max_steps:200'", "colon")),
            ("run_dir: runs/y\n", ("key-given-twice", "x.yaml:12", "run_dir")),
            ("training:\n  seed: 1\n  seed: 1\n", ("key-given-twice", "x.yaml:14", "seed")),
            (
                "training:\n  precision: fp8\n",
                (*bad("training.precision"), "'fp8'", "'auto', 'fp32', 'bf16' or 'fp16'"),
            ),
            ("training:\n  max_steps: 0\n", (*bad("training.max_steps"), "0", "greater than 0")),
            ("training:\n  max_steps: many\n", (*bad("training.max_steps"), "'many'", "integer")),
            ("training:\n  max_steps: 1.5\n", (*bad("training.max_steps"), "1.5", "integer")),
            ("training:\n  label_smoothing: 1\n", (*bad("training.label_smoothing"), "1", "less than 1")),
            ("training: 3\n", ("not-a-section", "x.yaml:12", "training", "3")),
            ("training: {\n", ("not-yaml", "x.yaml")),
            ("trainin: {max_steps: 3}\n", ("no-such-key", "x.yaml:12", "trainin", "'training'")),
            ("training:\n  clip_norm: yes\n", ("boolean-not-text", "x.yaml:13", "True", "valid number", "true")),
            ("training:\n  max_steps: off\n", ("boolean-not-text", "x.yaml:13", "False", "valid integer", "false")),
            ("training:\n  schedule: on\n", ("boolean-not-text", "x.yaml:13", "'linear'", "true")),
        ],
    )
    def test_name_file_line_and_what_is_right(self, load, more, expected):
        with pytest.raises(ConfigError, match=message(*expected)):
            load(more=more)

    @pytest.mark.parametrize(
        ("override", "expected"),
        [
            ("beam_sise=5", ("no-such-key", "override beam_sise=5", "decoding.beam_sise", "'beam_size'")),
            ("decoding.beam=4", ("no-such-key", "override decoding.beam=4", "decoding.beam", "'beam_size'")),
            ("beam_size", ("override-malformed", "beam_size", "beam_size=5")),
            ("=5", ("override-malformed", "=5", "beam_size=5")),
            ("beam_size=four", (*bad("beam_size=four", "decoding.beam_size"), "'four'", "integer")),
            ("length_penalty=-1", (*bad("length_penalty=-1"), "greater than or equal to 0")),
            ("length_penalty_form=wu", (*bad("decoding.length_penalty_form"), "'wu'", "'gnmt', 'average' or 'none'")),
            ("coverage_penalty=-1", (*bad("coverage_penalty=-1"), "greater than or equal to 0")),
            ("n_best=0", (*bad("n_best=0"), "greater than 0")),
            ("min_length=-1", (*bad("min_length=-1"), "greater than or equal to 0")),
            ("no_repeat_ngram=-1", (*bad("no_repeat_ngram=-1"), "greater than or equal to 0")),
            ("sampling=1", (*bad("sampling=1", "decoding.sampling"), "1", "boolean")),
            ("temperature=0", (*bad("temperature=0"), "greater than or equal to")),
            ("top_k=-1", (*bad("top_k=-1"), "greater than or equal to 0")),
            ("top_p=0", (*bad("top_p=0"), "greater than 0")),
            ("top_p=1.1", (*bad("top_p=1.1"), "less than or equal to 1")),
            ("seed=-1", (*bad("seed=-1"), "greater than or equal to 0")),
            ("alignment_layer=-1", (*bad("alignment_layer=-1"), "greater than or equal to 0")),
            (
                "n_best=5",
                ("n-best-above-beam", "override n_best=5", "decoding", "n_best=5", "beam_size=4", "beam_size=5"),
            ),
            ("top_k=5", ("needs-sampling", "override top_k=5", "decoding", "top_k")),
            ("run_dir=[", ("not-yaml", "override run_dir=[")),
        ],
    )
    def test_name_the_override(self, load, override, expected):
        with pytest.raises(ConfigError, match=message(*expected)):
            load(override, section="decoding")

    def test_of_several_overrides_the_one_that_the_error_is_about_is_named(self, load):
        with pytest.raises(ConfigError) as raised:
            load("top_k=99999", "sampling=true", section="decoding")
        assert "override top_k=99999: decoding.top_k=99999" in str(raised.value)

    @pytest.mark.parametrize(
        ("override", "expected"),
        [
            (
                "tokenizer.from=3",
                ("text-read-as-number", "override tokenizer.from=3", "tokenizer.from", "3", "valid string"),
            ),
            ("tokenizer.from_=x", ("no-such-key", "override tokenizer.from_=x", "tokenizer.from_", "'from'")),
            ("training.from=x", ("no-such-key", "override training.from=x", "training.from", "'tokenizer.from'")),
            (
                "tokenizer.zzz=x",
                ("no-such-key", "override tokenizer.zzz=x", "tokenizer.zzz", "from, algorithm, ", "sentences."),
            ),
            ("training.zzz=x", ("no-such-key", "override training.zzz=x", "training.zzz", "settings training`")),
            ("model.num_heads=3", ("heads-do-not-divide", "override model.num_heads=3", "model", "num_heads=3")),
            ("model=4", ("not-a-section", "override model=4", "model", "4")),
            (
                "model={kind: cnn}",
                (*bad("override model={kind: cnn}", "model.kind"), "'cnn'", "transformer, rnn or convolutional"),
            ),
            ("model={d_model: 0}", (*bad("override model={d_model: 0}", "model.d_model"), "0")),
            (
                "corpus.test=my/test",
                ("test-set-without-name", "override corpus.test=my/test", "corpus.test", "'my/test'"),
            ),
            ("corpus.test={zh:x}", ("no-space-after-colon", "override corpus.test={zh:x}", "zh:x", "{zh: x}")),
            ("averaging={a: 1, a: 2}", ("key-given-twice", "override averaging={a: 1, a: 2}", "a")),
            ("run_dir=1234567", ("text-read-as-number", "override run_dir=1234567", "run_dir", "1234567")),
            ("corpus.train={source: a, targt: b}", ("no-such-key", "corpus.train.targt", "'target'")),
            ("training.peak_lr=.inf", (*bad("training.peak_lr"), "inf", "finite")),
            (
                "tokenizer.vocab_size=5",
                (*bad("override tokenizer.vocab_size=5", "tokenizer.vocab_size"), "5", "greater than 260"),
            ),
            ("training.tokens_per_batch=10", ("no-room-for-sentence", "=10: ", "tokens_per_batch=10")),
            ("trainin.max_steps=3", ("no-such-key", "override trainin.max_steps=3", "trainin", "'training'")),
            ("training.modifers.typos=1", ("no-such-key", "override training.modifers.typos=1", "'modifiers'")),
            ("modl.a.b.c=1", ("no-such-key", "override modl.a.b.c=1", "'model'")),
            ("training={? [a] : b}", ("key-must-be-word",)),
            ("training=&a {x: *a}", ("not-yaml",)),
            ("run_dir=!!python/object:os.system x", ("not-yaml", "could not determine a constructor for the tag")),
            ("training=\x07", ("not-yaml",)),
            ("run_dir=''", (*bad("override run_dir=''", "run_dir"), "''", "at least 1 character")),
            (
                "training.average_decay=1",
                (*bad("override training.average_decay=1", "training.average_decay"), "1", "less than 1"),
            ),
            (
                "training.keep_best=0",
                (*bad("override training.keep_best=0", "training.keep_best"), "0", "greater than 0"),
            ),
            ("training.metric=ter", (*bad("training.metric"), "'ter'", "'bleu', 'chrf' or 'nll'")),
            ("training.sharding=half", (*bad("training.sharding"), "'half'", "'none' or 'full'")),
            (
                "training.tensorboard=1",
                (*bad("override training.tensorboard=1", "training.tensorboard"), "1", "boolean"),
            ),
            (
                "averaging.choose=first",
                (*bad("averaging.choose"), "'first'", "'auto', 'last', 'best' or 'moving_average'"),
            ),
        ],
    )
    def test_explain_the_value(self, load, override, expected):
        with pytest.raises(ConfigError, match=message(*expected)) as raised:
            load(override)
        assert "valid string" not in str(raised.value) or "quotes" in str(raised.value)

    @pytest.mark.parametrize(
        ("train", "expected"),
        [
            ("[a, b]", ("not-a-section", "corpus.train[1]", "'a'", "\n", "corpus.train[2]", "'b'")),
            ("[]", ("no-training-corpora", "train=[]")),
            ("[{name: a, path: b}, {path: c}]", ("corpus-without-name", "train[2]")),
            ("[{name: a, path: b}, {name: a, path: c}]", ("corpus-name-twice", "a")),
            ("[{name: a/b, path: b}]", (*bad("corpus.train[1].name"), "'a/b'", "pattern")),
            ("{name: a, path: b}", ("name-without-list", "train")),
            ("{path: a, hub: b, split: c}", ("path-and-hub",)),
            ("{source: a}", ("corpus-without-files",)),
            ("{path: a, split: train}", ("key-only-for-hub", "split: train}", "split")),
            ("{source: a, target: b, form: tsv}", ("form-without-path", "form=tsv")),
            ("{path: a, form: hub}", ("form-without-path", "form=hub")),
            ("{tsv: a}", ("no-such-key", "corpus.train.tsv", "'path'")),
            ("{hub: a}", ("hub-without-split",)),
            ("{path: a.tsv, source: no, target: 2}", ("text-read-as-boolean", "corpus.train.source", "False")),
            (
                "{path: a.tsv, source: 0, target: 2}",
                (*bad("target: 2}", "corpus.train.source"), "0", "greater than or equal to 1"),
            ),
            ("{path: a.txt, form: tsv, source: 2}", ("tsv-columns-incomplete",)),
            ("{path: a.tsv.gz, source: 2, target: de}", ("tsv-columns-incomplete",)),
            ("{path: a.tsv, source: 2, target: 2}", ("source-is-target", "source: 2, target: 2", "2")),
            ("{path: a.csv, source: 1, target: 2}", ("part-is-number", "source: 1", "source", "1", "name")),
            ("{source: 1, target: 2}", ("part-is-number", "source: 1", "source", "1", "file")),
        ],
    )
    def test_explain_what_is_wrong_with_a_corpus(self, load, train, expected):
        with pytest.raises(ConfigError, match=message(*expected)) as raised:
            load(f"corpus.train={train}")
        assert str(raised.value).startswith(f"override corpus.train={train}: ")

    @pytest.mark.parametrize("text", ["-", "...", "<>", "|||", "👍", "()\u0301"])
    def test_a_tag_or_a_language_without_letter_and_digit_is_refused(self, load, text):
        load("corpus.train={path: a, tag: '<bt> <2de> ->de @1 [原文]'}")
        for tag in (text, f"<bt> {text}"):
            with pytest.raises(ConfigError, match=message("without-letter-or-digit", f"corpus.train.tag: '{text}'")):
                load(f"corpus.train={{path: a, tag: '{tag}'}}")
        for key in ("source_language", "target_language", "train.source_language"):
            with pytest.raises(ConfigError, match=message("without-letter-or-digit", f"corpus.{key}: '{text}'")):
                load("corpus.train={path: a}", f"corpus.{key}='{text}'")

    @pytest.mark.parametrize("hidden", "\u200b \u00ad \u202e \ufeff \u2060 \ue000 \U000e0041".split(" "))
    def test_a_tag_or_a_language_with_what_cannot_be_seen_is_refused(self, load, hidden):
        found = f"U+{ord(hidden):04X}"
        for tag in (hidden, f"<2de{hidden}>", f"<bt> {hidden}<2de>"):
            with pytest.raises(ConfigError, match=message("with-invisible-character", "corpus.train.tag", found)):
                load(f"corpus.train={{path: a, tag: '{tag}'}}")
        with pytest.raises(ConfigError, match=message("with-invisible-character", "corpus.source_language", found)):
            load(f"corpus.source_language='e{hidden}n'")

    def test_name_the_line_of_a_corpus_in_a_list(self, load):
        both = "\n    - {name: a, path: a.tmx}\n    - name: b\n      path: b.tsv\n      sorce: 1"
        with pytest.raises(ConfigError, match=message("no-such-key", "x.yaml:10", "corpus.train[2].sorce", "'source'")):
            load(change=("text/train", both))
        both = both.replace("sorce: 1", "source: 1")
        with pytest.raises(ConfigError, match=message("tsv-columns-incomplete", "x.yaml:8", "corpus.train[2]")):
            load(change=("text/train", both))
        with pytest.raises(ConfigError, match=message("no-such-key", "corpus.train.b")):
            load("corpus.train.b.path=x", change=("text/train", both))
        with pytest.raises(ConfigError, match=message("several-corpora-as-test-set", "corpus.test.a", "['a']")):
            load("corpus.test={a: [a]}")

    def test_the_keys_of_another_kind_of_model_are_named_with_the_way_to_replace_them_all(self, load):
        change = ("d_model: 64", "d_model: 64\n  ffn_dim: 8\n  num_heads: 2")
        with pytest.raises(ConfigError) as error:
            load("model.kind=rnn", change=change)
        kinds = "model.kind=transformer", "model.kind=rnn"
        first, second = str(error.value).splitlines()
        assert re.search(message("key-of-other-kind", "x.yaml:12", "model.ffn_dim", *kinds), first)
        assert re.search(message("key-of-other-kind", "x.yaml:13", "model.num_heads", *kinds), second)
        [override] = set(re.findall("'(model={.*})'", str(error.value)))
        assert load(override, change=change).model == RnnConfig(kind="rnn", d_model=256)

    def test_norwegian_is_explained(self, load):
        expected = message("text-read-as-boolean", "x.yaml:4", "corpus.source_language", "False")
        with pytest.raises(ConfigError, match=expected):
            load(change=("source_language: en", "source_language: no"))
        assert load(change=("source_language: en", "source_language: 'no'")).corpus.source_language == "no"

    def test_missing_keys_are_all_named(self, tmp_path):
        path = tmp_path / "x.yaml"
        path.write_text("corpus:\n  train: a\n")
        with pytest.raises(ConfigError) as error:
            load_config(path)
        for key in ("data_dir", "run_dir", "corpus.source_language", "corpus.valid"):
            assert any(re.search(message("key-missing", f" {key} "), line) for line in str(error.value).splitlines())

    @pytest.mark.parametrize("content", [b"", b"- a\n", b"text", b"\xff\xfe"])
    def test_other_files_are_no_configuration(self, tmp_path, content):
        path = tmp_path / "x.yaml"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"x\.yaml: "):
            load_config(path)

    def test_missing_file_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match=message("config-cannot-be-read", "none.yaml")):
            load_config(tmp_path / "none.yaml")

    @pytest.mark.parametrize(
        ("overrides", "expected"),
        [
            (["model.num_heads=3"], ("heads-do-not-divide", ": num_heads=3", "d_model=64")),
            (["model.d_model=15", "model.num_heads=5"], ("odd-width-for-sinusoids", ": d_model=15")),
            (["tokenizer.joint=false"], ("tied-needs-joint",)),
            (["corpus.max_length=2000"], ("max-length-above-positions", ": corpus.max_length=2000", "positions=1024")),
            (["averaging.checkpoints=9"], ("averages-more-than-kept", ": averaging.checkpoints=9", "keep_last=5")),
            (["averaging.choose=moving_average"], ("moving-average-without-decay",)),
            (
                ["training.tokens_per_batch=500", "training.tokens_per_update=499"],
                ("update-smaller-than-batch", ": training.tokens_per_update=499", "training.tokens_per_batch=500"),
            ),
            (["decoding.temperature=0.5", "decoding.top_p=0.9"], ("needs-sampling", "decoding: temperature, top_p")),
            (
                ["decoding.sampling=true", "decoding.coverage_penalty=0.2"],
                ("coverage-with-sampling", "coverage_penalty=0.2"),
            ),
            (["decoding.alignment_layer=7"], ("no-such-alignment-layer", "alignment_layer=7", "6")),
        ],
    )
    def test_impossible_combinations_are_refused(self, load, overrides, expected):
        with pytest.raises(ConfigError, match=message(*expected)):
            load(*overrides)

    @pytest.mark.parametrize(
        "overrides",
        [
            ["averaging.choose=moving_average", "training.average_decay=0.9"],
            ["averaging.choose=best", "averaging.checkpoints=9", "training.keep_best=9"],
            ["training.tokens_per_batch=500", "training.tokens_per_update=0"],
            ["training.tokens_per_batch=500", "training.tokens_per_update=500"],
            ["decoding.n_best=4"],
            ["decoding.sampling=true", "decoding.n_best=9"],
            ["decoding.sampling=true", "decoding.temperature=0.5", "decoding.top_k=5", "decoding.top_p=0.9"],
            ["decoding.alignment_layer=6"],
        ],
    )
    def test_possible_combinations_are_not(self, load, overrides):
        assert load(*overrides)


class TestBounds:
    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("override", "expected"),
        [
            ('run_dir="a\\0b"', ("with-control-character", ": run_dir", "U+0000", "2")),
            (
                'corpus.train={source: "a\\n", target: b}',
                ("with-control-character", "corpus.train.source", "U+000A", "2"),
            ),
            ('run_dir="\\ud800"', (*bad("run_dir", "run_dir"), "'\\ud800'", "unicode")),
            ("corpus.train={hub: '', split: a}", (*bad("corpus.train.hub"), "''", "at least 1 character")),
            (
                f"run_dir={'x' * 5000}",
                (*bad("run_dir", "run_dir"), "'xxx", "… (5,002 characters)", "at most 4096 characters"),
            ),
            (
                "training.seed=9223372036854775808",
                (*bad("training.seed", "training.seed"), "9223372036854775808", "less than"),
            ),
            (
                "training.max_steps=1000000000001",
                (
                    *bad("training.max_steps", "training.max_steps"),
                    "1000000000001",
                    "less than or equal to 1000000000000",
                ),
            ),
            ("training.peak_lr=1e9", (*bad("training.peak_lr"), "1000000000.0", "less than or equal to 100")),
            ("training.peak_lr=1e400", (*bad("training.peak_lr"), "inf", "finite")),
            (
                "model.encoder_layers=1000000",
                (*bad("model.encoder_layers", "model.encoder_layers"), "1000000", "less than or equal to 1000"),
            ),
            ("model.num_heads=true", (*bad("model.num_heads"), "True", "integer")),
            (
                "decoding.beam_size=1000000",
                (*bad("decoding.beam_size", "decoding.beam_size"), "1000000", "less than or equal to 10000"),
            ),
            ("decoding.min_length=1024", ("min-length-too-large", "decoding.min_length=1024", "1024")),
            (
                "decoding={sampling: true, top_k: 32001}",
                ("top-k-too-large", "decoding.top_k=32001", "32000"),
            ),
            (f"{'k' * 9000}=1", ("no-such-key", "kkk… (9,000 characters)")),
            ("training=" + "[" * 3000, ("not-yaml",)),
        ],
    )
    def test_values_that_no_machine_can_hold_are_refused(self, load, override, expected):
        with pytest.raises(ConfigError, match=message(*expected)) as raised:
            load(override)
        assert len(str(raised.value)) < 1000

    @pytest.mark.parametrize(
        "overrides",
        [
            ["decoding.beam_size=500", "decoding.n_best=500"],
            ["model.max_positions=1000000", "corpus.max_length=20000"],
            ["model.encoder_layers=96", "model.d_model=12288", "model.num_heads=96", "model.ffn_dim=49152"],
            ["tokenizer.vocab_size=1000000", "training.max_steps=100000000"],
            ["training.tokens_per_batch=1000000", "training.clip_norm=1e6"],
            ["tokenizer.from=x", "tokenizer.vocab_size=300", "decoding={sampling: true, top_k: 5000}"],
        ],
    )
    def test_what_researchers_do_is_not(self, load, overrides):
        assert load(*overrides)

    def test_aliases_as_people_use_them_are_read(self, load):
        test = "test:\n    news: text/news\n"
        both = "test:\n    news: &pair {source: a, target: b}\n    talks: *pair\n"
        assert load(change=(test, both)).corpus.test["talks"] == PairedText(source="a", target="b")

    def test_a_name_that_no_file_can_have_is_refused(self):
        with pytest.raises(ConfigError, match=message("config-cannot-be-read", "null")):
            load_config("a\0b")

    def test_the_pipe_of_a_command_is_read(self, load):
        load()
        reader, writer = os.pipe()
        os.write(writer, SMALL.encode())
        os.close(writer)
        assert load_config(f"/dev/fd/{reader}").model.d_model == 64
        os.close(reader)


class TestSchedule:
    @pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine", "constant"])
    @pytest.mark.parametrize(("warmup", "last", "better"), [(2000, 6, 1), (300, 300, 30), (101, 100, 10)])
    def test_a_peak_that_is_never_left_or_reached_is_told(self, schedule, warmup, last, better):
        settings = TrainingConfig(warmup_steps=warmup, max_steps=last, schedule=schedule)
        warning = settings.schedule_warning()
        assert f"training.warmup_steps={warmup} is not less than training.max_steps={last}" in warning
        assert warning.endswith(f"training.warmup_steps={better}")
        highest = max(learning_rate(step, settings) for step in range(1, last + 1))
        assert highest == learning_rate(last, settings)
        assert f"where it is {highest:.2g} (training.peak_lr=0.0007)" in warning

    @pytest.mark.parametrize(("warmup", "last"), [(1, 1), (1, 9), (8, 9), (4000, 100_000)])
    def test_another_is_not(self, warmup, last):
        assert TrainingConfig(warmup_steps=warmup, max_steps=last).schedule_warning() == ""

    @pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
    def test_none_of_the_configurations_is_told_of(self, path):
        assert load_config(path).training.schedule_warning() == ""


class TestComparison:
    def test_differences_name_old_and_new(self, load):
        old, new = load(), load("training.max_steps=7", "tokenizer.from=a/b", "corpus.test={talks: t}")
        assert differences(old, new) == {
            "corpus.test.news": "corpus.test.news: text/news, now None",
            "corpus.test.talks": "corpus.test.talks: None, now t",
            "tokenizer.from": "tokenizer.from: None, now a/b",
            "training.max_steps": "training.max_steps: 100000, now 7",
        }
        assert differences(old, load()) == {}

    def test_differences_are_of_each_corpus_by_its_name(self, load):
        old = load("corpus.train=[{name: a, path: a.tmx}]")
        new = load("corpus.train=[{name: b, path: b.tsv}, {name: a, path: b.tmx}]")
        assert differences(old, new) == {
            "corpus.train.a.path": "corpus.train.a.path: a.tmx, now b.tmx",
            "corpus.train.b.form": "corpus.train.b.form: None, now tsv",
            "corpus.train.b.name": "corpus.train.b.name: None, now b",
            "corpus.train.b.path": "corpus.train.b.path: None, now b.tsv",
        }

    def test_a_key_that_is_a_word_of_python_survives_being_written(self, load, tmp_path):
        config = load("tokenizer.from=runs/x/model")
        (tmp_path / "again.yaml").write_text(dump_config(config))
        assert "  from: runs/x/model\n" in dump_config(config)
        assert load_config(tmp_path / "again.yaml") == config
        assert differences(load(), config) == {"tokenizer.from": "tokenizer.from: None, now runs/x/model"}

    def test_texts_that_look_like_numbers_survive_being_written(self, load, tmp_path):
        config = load("run_dir='1e5'", "tokenizer.from='123e45'", "data_dir=1:30")
        (tmp_path / "dumped.yaml").write_text(dump_config(config), encoding="utf-8")
        assert load_config(tmp_path / "dumped.yaml") == config

    @pytest.mark.parametrize("override", ["run_dir=!!timestamp x", "training=!!bool x", "tokenizer=!!map [a]"])
    def test_values_that_yaml_cannot_build_are_errors(self, load, override):
        with pytest.raises(ConfigError):
            load(override)

    def test_fingerprint_is_of_content_alone(self, load):
        config, same, other = load(), load(), load("model.dropout=0.2")
        assert fingerprint(config.model, "text") == fingerprint(same.model, "text")
        prints = [
            fingerprint(config.model, "text"),
            fingerprint(other.model, "text"),
            fingerprint(config.model, "Text"),
            fingerprint(config.model),
            fingerprint(config.model, "te", "xt"),
            fingerprint("text", config.model),
        ]
        assert len(set(prints)) == len(prints)
        assert all(len(found) == 64 for found in prints)
