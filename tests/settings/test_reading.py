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
from transformer_mt.settings.reading import differences, dump_config, json_schema, load_config
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


def test_there_are_configurations():
    assert "demo_en_de" in [path.stem for path in CONFIGS]


def test_schema_of_the_editors_is_current():
    # `make schema` writes it.
    assert (ROOT / "configs/schema.json").read_text(encoding="utf-8") == json_schema()


def test_schema_holds_keys_and_their_meaning():
    sections = json.loads(json_schema())["$defs"]
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
        with pytest.raises(ConfigError, match=message("override-only-settings-can", "model.dropout=0", "decoding")):
            load("model.dropout=0", section="decoding")
        with pytest.raises(ConfigError, match=message("override-only-settings-can", "training={}", "decoding")):
            load("training={}", section="decoding")

    @pytest.mark.parametrize("line_break", ["\n", "\r\n", "\u2028", "\x85"])
    def test_an_override_is_a_text_of_one_line(self, load, line_break):
        with pytest.raises(ConfigError, match=message("override-holds-line-break", "data_dir=a\\", "b")) as refused:
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
        assert (a.form, b.form, str(b)) == ("tmx", "tsv", "b.tsv")
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
        ("more", "message"),
        [
            ("training:\n  warmup_stpes: 5\n", r"x\.yaml:13: training\.warmup_stpes: no such key.*'warmup_steps'"),
            ("trainign:\n  seed: 5\n", r"x\.yaml:12: trainign: no such key\. Did you mean 'training'\?"),
            ("warmup_steps: 5\n", r"x\.yaml:12: warmup_steps: no such key\. Did you mean 'training\.warmup_steps'\?"),
            (
                "averaging:\n  zzz: 5\n",
                r"x\.yaml:13: averaging\.zzz: no such key\. The keys there are: checkpoints, choose\.",
            ),
            (
                "training:\n  max_steps:200\n",
                r"x\.yaml:12: training is 'max_steps:200'; .*Put a space after each colon",
            ),
            ("run_dir: runs/y\n", r"x\.yaml:12: run_dir is given twice"),
            ("training:\n  seed: 1\n  seed: 1\n", r"x\.yaml:14: seed is given twice"),
            ("training:\n  precision: fp8\n", r"x\.yaml:13: training\.precision is 'fp8'; .*'auto', 'fp32' or 'bf16'"),
            ("training:\n  max_steps: 0\n", r"x\.yaml:13: training\.max_steps is 0; .*greater than 0"),
            ("training:\n  max_steps: many\n", r"x\.yaml:13: training\.max_steps is 'many'; .*integer"),
            ("training:\n  max_steps: 1.5\n", r"x\.yaml:13: training\.max_steps is 1\.5; .*integer"),
            ("training:\n  label_smoothing: 1\n", r"x\.yaml:13: training\.label_smoothing is 1; .*less than 1"),
            ("training: 3\n", r"x\.yaml:12: training is 3"),
            ("training: {\n", r"x\.yaml: is not YAML"),
        ],
    )
    def test_name_file_line_and_what_is_right(self, load, more, message):
        with pytest.raises(ConfigError, match=message):
            load(more=more)

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("beam_sise=5", r"override beam_sise=5: decoding\.beam_sise: no such key\. Did you mean 'beam_size'\?"),
            ("decoding.beam=4", r"override .*: decoding\.beam: no such key\. Did you mean 'beam_size'\?"),
            ("beam_size", r"beam_size: is not a setting; write key=value, as in beam_size=5$"),
            ("=5", r"=5: is not a setting"),
            ("beam_size=four", r"override beam_size=four: decoding\.beam_size is 'four'; .*integer"),
            ("length_penalty=-1", r"override length_penalty=-1: .*greater than or equal to 0"),
            ("length_penalty_form=wu", r"decoding\.length_penalty_form is 'wu'; .*'gnmt', 'average' or 'none'"),
            ("coverage_penalty=-1", r"override coverage_penalty=-1: .*greater than or equal to 0"),
            ("n_best=0", r"override n_best=0: .*greater than 0"),
            ("min_length=-1", r"override min_length=-1: .*greater than or equal to 0"),
            ("no_repeat_ngram=-1", r"override no_repeat_ngram=-1: .*greater than or equal to 0"),
            ("sampling=1", r"decoding\.sampling is 1; .*boolean"),
            ("temperature=0", r"override temperature=0: .*greater than or equal to"),
            ("top_k=-1", r"override top_k=-1: .*greater than or equal to 0"),
            ("top_p=0", r"override top_p=0: .*greater than 0"),
            ("top_p=1.1", r"override top_p=1\.1: .*less than or equal to 1"),
            ("seed=-1", r"override seed=-1: .*greater than or equal to 0"),
            ("alignment_layer=-1", r"override alignment_layer=-1: .*greater than or equal to 0"),
            ("n_best=5", r"^override n_best=5: decoding: n_best=5 is more than beam_size=4: set beam_size=5"),
            ("top_k=5", r"^override top_k=5: decoding: top_k: no effect without sampling; set sampling=true"),
            ("run_dir=[", r"override run_dir=\[: is not YAML"),
        ],
    )
    def test_name_the_override(self, load, override, message):
        with pytest.raises(ConfigError, match=message):
            load(override, section="decoding")

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("tokenizer.from=3", r"^override tokenizer\.from=3: tokenizer\.from is 3; .*valid string"),
            ("tokenizer.from_=x", r"tokenizer\.from_: no such key\. Did you mean 'from'\?"),
            ("training.from=x", r"training\.from: no such key\. Did you mean 'tokenizer\.from'\?"),
            ("tokenizer.zzz=x", r"tokenizer\.zzz: no such key\. The keys there are: from, algorithm, .*sentences\.$"),
            ("training.zzz=x", r"training\.zzz: no such key\. .*settings training` lists the keys"),
            ("model.num_heads=3", r"^override model\.num_heads=3: model: num_heads=3 does not divide"),
            ("model=4", r"model is 4; it must be a section"),
            (
                "model={kind: cnn}",
                r"^override model=\{kind: cnn\}: model\.kind is 'cnn'; it must be transformer, rnn or convolutional",
            ),
            ("model={d_model: 0}", r"^override model=\{d_model: 0\}: model\.d_model is 0; "),
            ("corpus.test=my/test", r"corpus\.test is 'my/test'; each test set needs a name: `test: \{NAME: PREFIX\}`"),
            ("corpus.test={zh:x}", r"^override corpus\.test=\{zh:x\}: YAML reads zh:x as one word; .*: \{zh: x\}$"),
            ("averaging={a: 1, a: 2}", r"^override averaging=\{a: 1, a: 2\}: a is given twice"),
            ("run_dir=1234567", r"run_dir is 1234567; .*reads it as a number: put it in quotes"),
            (
                "corpus.train={source: a, targt: b}",
                r"corpus\.train\.targt: no such key.*'target'",
            ),
            ("training.peak_lr=.inf", r"training\.peak_lr is inf; .*finite"),
            ("tokenizer.vocab_size=5", r"tokenizer\.vocab_size is 5; .*greater than 260"),
            ("training.tokens_per_batch=10", r"tokens_per_batch=10 is less than corpus.max_length"),
            ("training={? [a] : b}", r"is not YAML"),
            ("training=&a {x: *a}", r"is not YAML"),
            ("run_dir=!!python/object:os.system x", r"is not YAML: could not determine a constructor for the tag"),
            ("training=\x07", r"is not YAML"),
            ("run_dir=''", r"run_dir is ''; .*at least 1 character"),
            ("training.average_decay=1", r"training\.average_decay is 1; .*less than 1"),
            ("training.keep_best=0", r"training\.keep_best is 0; .*greater than 0"),
            ("training.metric=ter", r"training\.metric is 'ter'; .*'bleu', 'chrf' or 'nll'"),
            ("training.sharding=half", r"training\.sharding is 'half'; .*'none' or 'full'"),
            ("training.tensorboard=1", r"training\.tensorboard is 1; .*boolean"),
            ("averaging.choose=first", r"averaging\.choose is 'first'; .*'auto', 'last', 'best' or 'moving_average'"),
        ],
    )
    def test_explain_the_value(self, load, override, message):
        with pytest.raises(ConfigError, match=message) as raised:
            load(override)
        assert "valid string" not in str(raised.value) or "quotes" in str(raised.value)

    @pytest.mark.parametrize(
        ("train", "message"),
        [
            ("[a, b]", r"corpus\.train\[1\] is 'a'; it must be a section.*\n.*corpus\.train\[2\] is 'b'"),
            ("[]", r"train is an empty list"),
            ("[{name: a, path: b}, {path: c}]", r"train\[2\] has no name; .*\{name: europarl, path: FILE\}"),
            ("[{name: a, path: b}, {name: a, path: c}]", r"two corpora of train have the name a"),
            ("[{name: a/b, path: b}]", r"corpus\.train\[1\]\.name is 'a/b'; .*pattern"),
            ("{name: a, path: b}", r"train: name and weight are only for a list"),
            ("{path: a, hub: b, split: c}", r"path and hub are both given, .*keep one"),
            ("{source: a}", r"no text is named: give path, or hub, or the two files"),
            ("{path: a, split: train}", r"split: only for a data set of the hub"),
            ("{source: a, target: b, form: tsv}", r"form=tsv: form is only for path"),
            ("{path: a, form: hub}", r"form=hub: form is only for path; give a data set of the hub with the key hub"),
            ("{tsv: a}", r"corpus\.train\.tsv: no such key. Did you mean 'path'\?"),
            ("{hub: a}", r"hub needs a split"),
            ("{path: a.tsv, source: no, target: 2}", r"corpus\.train\.source is False; .*put it in quotes"),
            ("{path: a.tsv, source: 0, target: 2}", r"corpus\.train\.source is 0; .*greater than or equal to 1"),
            ("{path: a.txt, form: tsv, source: 2}", r"tsv: give source and target both"),
            ("{path: a.tsv.gz, source: 2, target: de}", r"tsv: give source and target both"),
            ("{path: a.tsv, source: 2, target: 2}", r"source and target are both 2"),
            ("{path: a.csv, source: 1, target: 2}", r"source is the number 1, but must be a name; .*quotes"),
            ("{source: 1, target: 2}", r"source is the number 1, but must be a file; .*quotes"),
        ],
    )
    def test_explain_what_is_wrong_with_a_corpus(self, load, train, message):
        with pytest.raises(ConfigError, match=message) as raised:
            load(f"corpus.train={train}")
        assert str(raised.value).startswith(f"override corpus.train={train}: corpus")

    @pytest.mark.parametrize("text", ["-", "...", "<>", "|||", "👍", "()\u0301"])
    def test_a_tag_or_a_language_without_letter_and_digit_is_refused(self, load, text):
        load("corpus.train={path: a, tag: '<bt> <2de> ->de @1 [原文]'}")
        message = "{} has no letter and no digit; write at least one, as in <2de> or en"
        for tag in (text, f"<bt> {text}"):
            with pytest.raises(ConfigError, match=re.escape("corpus.train.tag: " + message.format(f"'{text}'"))):
                load(f"corpus.train={{path: a, tag: '{tag}'}}")
        for key in ("source_language", "target_language", "train.source_language"):
            with pytest.raises(ConfigError, match=re.escape(f"corpus.{key}: " + message.format(f"'{text}'"))):
                load("corpus.train={path: a}", f"corpus.{key}='{text}'")

    @pytest.mark.parametrize("hidden", "\u200b \u00ad \u202e \ufeff \u2060 \ue000 \U000e0041".split(" "))
    def test_a_tag_or_a_language_with_what_cannot_be_seen_is_refused(self, load, hidden):
        message = re.escape(f"it contains the invisible character U+{ord(hidden):04X}; write it without this character")
        for tag in (hidden, f"<2de{hidden}>", f"<bt> {hidden}<2de>"):
            with pytest.raises(ConfigError, match=rf"corpus\.train\.tag: {message}"):
                load(f"corpus.train={{path: a, tag: '{tag}'}}")
        with pytest.raises(ConfigError, match=rf"corpus\.source_language: {message}"):
            load(f"corpus.source_language='e{hidden}n'")

    def test_name_the_line_of_a_corpus_in_a_list(self, load):
        both = "\n    - {name: a, path: a.tmx}\n    - name: b\n      path: b.tsv\n      sorce: 1"
        with pytest.raises(ConfigError, match=r"x\.yaml:10: corpus\.train\[2\]\.sorce: no such key.*'source'"):
            load(change=("text/train", both))
        both = both.replace("sorce: 1", "source: 1")
        with pytest.raises(ConfigError, match=r"x\.yaml:8: corpus\.train\[2\]: tsv: give source and target both"):
            load(change=("text/train", both))
        with pytest.raises(ConfigError, match=r"corpus\.train\.b: no such key"):
            load("corpus.train.b.path=x", change=("text/train", both))
        with pytest.raises(ConfigError, match=r"corpus\.valid is \['a'\]; only corpus\.train can be a list of corpora"):
            load("corpus.valid=[a]")

    def test_the_keys_of_another_kind_of_model_are_named_with_the_way_to_replace_them_all(self, load):
        change = ("d_model: 64", "d_model: 64\n  ffn_dim: 8\n  num_heads: 2")
        with pytest.raises(ConfigError) as error:
            load("model.kind=rnn", change=change)
        keys = str(error.value).splitlines()
        belongs = "belongs to model.kind=transformer, but this model has model.kind=rnn"
        assert [key.partition("x.yaml:")[2].partition(": leave")[0] for key in keys] == [
            f"12: model.ffn_dim: {belongs}",
            f"13: model.num_heads: {belongs}",
        ]
        [override] = set(re.findall("'(model={.*})'", str(error.value)))
        assert load(override, change=change).model == RnnConfig(kind="rnn", d_model=256)

    def test_norwegian_is_explained(self, load):
        message = r"x\.yaml:4: corpus\.source_language is False; .*bare no, on or yes.*put it in quotes"
        with pytest.raises(ConfigError, match=message):
            load(change=("source_language: en", "source_language: no"))
        assert load(change=("source_language: en", "source_language: 'no'")).corpus.source_language == "no"

    def test_missing_keys_are_all_named(self, tmp_path):
        path = tmp_path / "x.yaml"
        path.write_text("corpus:\n  train: a\n")
        with pytest.raises(ConfigError) as error:
            load_config(path)
        for key in ("data_dir", "run_dir", "corpus.source_language", "corpus.valid", "corpus.test"):
            assert f" {key} is missing and has no default; add it" in str(error.value)

    @pytest.mark.parametrize("content", [b"", b"- a\n", b"text", b"\xff\xfe"])
    def test_other_files_are_no_configuration(self, tmp_path, content):
        path = tmp_path / "x.yaml"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"x\.yaml: "):
            load_config(path)

    def test_missing_file_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match=message("cannot-be-read-name-4", "none.yaml")):
            load_config(tmp_path / "none.yaml")

    @pytest.mark.parametrize(
        ("overrides", "message"),
        [
            (["model.num_heads=3"], "num_heads=3 does not divide d_model=64"),
            (["model.d_model=15", "model.num_heads=5"], "d_model=15 is odd"),
            (["tokenizer.joint=false"], "tied_embeddings=all needs one.*joint=true, or model.tied_embeddings=target"),
            (["corpus.max_length=2000"], "corpus.max_length=2000 is more than model.max_positions=1024"),
            (["training.schedule=cooldown"], "training: schedule=cooldown needs cooldown_steps"),
            (["training.cooldown_steps=9"], "cooldown_steps=9 has no effect with schedule=inverse_sqrt.*=cooldown"),
            (
                ["training.schedule=cooldown", "training.cooldown_steps=97", "training.max_steps=4096"],
                "warmup_steps=4000 and cooldown_steps=97 are together more than max_steps=4096",
            ),
            (["averaging.checkpoints=9"], "averaging.checkpoints=9 is more than training.keep_last=5"),
            (["averaging.choose=moving_average"], "choose=moving_average needs training.average_decay"),
            (
                ["training.tokens_per_batch=500", "training.tokens_per_update=499"],
                "training.tokens_per_update=499 is less than training.tokens_per_batch=500",
            ),
            (["decoding.temperature=0.5", "decoding.top_p=0.9"], "decoding: temperature, top_p: no effect without"),
            (
                ["decoding.sampling=true", "decoding.coverage_penalty=0.2"],
                "coverage_penalty=0.2 has no effect with sampling",
            ),
            (["decoding.alignment_layer=7"], "decoding.alignment_layer=7 is more than 6, the number of"),
        ],
    )
    def test_impossible_combinations_are_refused(self, load, overrides, message):
        with pytest.raises(ConfigError, match=message):
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
    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ('run_dir="a\\0b"', r"run_dir: it contains the control character U\+0000 at position 2"),
            ('corpus.train={source: "a\\n", target: b}', r"train\.source: it contains.* U\+000A at position 2"),
            ('run_dir="\\ud800"', r"run_dir is '\\ud800'; .*unicode"),
            ("corpus.train={hub: '', split: a}", r"corpus\.train\.hub is ''; .*at least 1 character"),
            (f"run_dir={'x' * 5000}", r"run_dir is 'x+… \(5,002 characters\); .*at most 4096 characters"),
            ("training.seed=9223372036854775808", r"training\.seed is 9223372036854775808; .*less than"),
            ("training.max_steps=1000000000001", r"max_steps is 1000000000001; .*less than or equal to 1000000000000"),
            ("training.peak_lr=1e9", r"training\.peak_lr is 1000000000\.0; .*less than or equal to 100"),
            ("training.peak_lr=1e400", r"training\.peak_lr is inf; .*finite"),
            ("model.encoder_layers=1000000", r"model\.encoder_layers is 1000000; .*less than or equal to 1000"),
            ("model.num_heads=true", r"model\.num_heads is True; .*integer"),
            ("decoding.beam_size=1000000", r"decoding\.beam_size is 1000000; .*less than or equal to 10000"),
            ("decoding.min_length=1024", r"decoding\.min_length=1024 is too large for model\.max_positions=1024"),
            ("decoding={sampling: true, top_k: 32001}", r"decoding\.top_k=32001 is more than the 32000 pieces"),
            (f"{'k' * 9000}=1", r"kkk… \(9,000 characters\): no such key"),
            ("training=" + "[" * 3000, r"is not YAML"),
        ],
    )
    def test_values_that_no_machine_can_hold_are_refused(self, load, override, message):
        with pytest.raises(ConfigError, match=message) as raised:
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
        with pytest.raises(ConfigError, match=message("cannot-be-read-name-4", "null")):
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
