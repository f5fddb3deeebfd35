"""`new` writes a configuration from which all stages run, and tells mistakes before it measures anything."""

import json
import re
import shutil

import numpy as np
import pytest
from helpers.messages import says
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import demo_pairs, status_and_error

from transformer_mt import new, prepare
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.settings.choosing import SIZES
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.text.tokenizer import Tokenizer

PAIRS, MORE = demo_pairs(1400)[:900], demo_pairs(1400)[900:]
LANGUAGES = ("--from", "en", "--to", "de")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """In an empty directory; the speeds are given, because measuring takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new, "measured_speeds", lambda models, measures, optimizer: [5000.0 for _ in models])
    return tmp_path


def write_tsv(path, pairs=PAIRS):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def write_sides(source, target, pairs=PAIRS):
    for path, side in ((source, 0), (target, 1)):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


def made(capsys, *arguments):
    return status_and_error(new.main, *arguments, *LANGUAGES, capsys=capsys)


@pytest.mark.parametrize("form", ["tsv", *thorough("two files", "prefix", "odd name", "list")])
def test_every_form_of_a_corpus_gives_a_configuration_that_prepare_takes(quick, capsys, form):
    (quick / "text: 1, #2").mkdir()
    odd, tsv = quick / "text: 1, #2" / "a 'b'.tsv", quick / "mine.tsv"
    write_tsv(odd)
    write_tsv(tsv)
    write_tsv(quick / "more.tsv", MORE)
    write_sides(quick / "mine.en", quick / "mine.de")
    arguments = {
        "tsv": ["mine.tsv"],
        "two files": ["mine.en", "mine.de"],
        "prefix": ["mine"],
        "odd name": [str(odd)],
        "list": ["mine.tsv", "more.tsv"],
    }[form]
    assert made(capsys, *arguments, "--output", "my: #1.yaml") == (0, "")
    text = (quick / "my: #1.yaml").read_text()
    assert text.count("\n") <= 35
    config = load_config("my: #1.yaml")
    assert config.run_dir == "runs/my: #1"
    assert prepare.main(["my: #1.yaml"]) == 0
    counts = json.loads((quick / config.data_dir / "prepare.json").read_text())["counts"]
    assert counts["train"]["kept"] > 700
    assert 10 < counts["valid"]["kept"] < 120


def test_a_number_stands_beside_its_reason(quick, capsys):
    write_tsv(quick / "mine.tsv")
    assert made(capsys, "mine.tsv", "--minutes", "3")[0] == 0
    lines = (quick / "mine.yaml").read_text().splitlines()
    for key in (
        "vocab_size",
        "dropout",
        "max_steps",
        "tokens_per_batch",
        "peak_lr",
        "weight_decay",
        "warmup_steps",
        "valid",
        "length_penalty",
    ):
        assert any(re.match(rf"(\w+: {{| +){key}: .*  # ", line) for line in lines), key
    (quick / "mine.yaml").write_text("\n".join(lines).replace("  # modifiers", "  modifiers"))
    assert load_config("mine.yaml").training.modifiers.protect == 0.2


@pytest.mark.thorough
def test_speeds_are_measured_on_this_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new, "SECONDS", 0.0)
    write_tsv(tmp_path / "mine.tsv")
    assert new.main(["mine.tsv", *LANGUAGES]) == 0
    assert f"{SIZES[0]}: " in capsys.readouterr().out


@pytest.mark.parametrize(("speed", "is_warned"), [(5000.0, False), (500.0, True)])
def test_a_machine_that_is_too_slow_is_told(quick, capsys, monkeypatch, speed, is_warned):
    monkeypatch.setattr(new, "measured_speeds", lambda models, measures, optimizer: [speed for _ in models])
    write_tsv(quick / "mine.tsv")
    status, error = made(capsys, "mine.tsv", "--minutes", "1")
    assert status == 0 and ("too slow for --minutes 1" in error) == is_warned


@pytest.mark.parametrize(("speed", "minutes", "is_warned"), [(1000.0, 2, True), (1000.0, 60, False)])
def test_a_time_in_which_too_little_is_read_is_told(quick, capsys, monkeypatch, speed, minutes, is_warned):
    monkeypatch.setattr(new, "measured_speeds", lambda models, measures, optimizer: [speed for _ in models])
    write_tsv(quick / "mine.tsv")
    capsys.readouterr()
    assert new.main(["mine.tsv", *LANGUAGES, "--minutes", str(minutes)]) == 0
    said = capsys.readouterr()
    assert ("warning: --minutes 2 is too short for a useful model" in said.err) == is_warned
    times, pairs = re.search(r"reads the text about (\S+) times, (\S+) pairs in all", said.out).groups()
    assert 750 < float(pairs.replace(",", "")) / float(times) < 900
    assert re.search(
        rf"about {minutes}\.\d min for all stages" if is_warned else "more updates would teach little", said.out
    )


def test_the_numbers_of_pairs_are_those_that_prepare_finds(quick, capsys, monkeypatch):
    monkeypatch.setattr(new, "HELD_OUT", 9)  # as of a text so long that 5 % of it would be too many
    write_tsv(quick / "mine.tsv", PAIRS + MORE)
    assert made(capsys, "mine.tsv") == (0, "")
    assert prepare.main(["mine.yaml"]) == 0
    kept = json.loads((quick / "data/mine/prepare.json").read_text())["corpora"]["wanted"]["kept"]
    said = (quick / "mine.yaml").read_text().split()[2]
    assert int(said.replace(",", "")) == pytest.approx(kept, rel=0.03)


@pytest.mark.parametrize("form", ["tsv", *thorough("named columns", "two files", "prefix")])
def test_a_text_that_is_read_often_is_first_learnt_in_both_directions(quick, capsys, form):
    write_tsv(quick / "mine.tsv")
    write_tsv(quick / "named.tsv", [("english", "german"), *PAIRS])
    write_sides(quick / "mine.en", quick / "mine.de")
    arguments = {
        "tsv": ["mine.tsv"],
        "named columns": ["{path: named.tsv, source: english, target: german}"],
        "two files": ["mine.en", "mine.de"],
        "prefix": ["mine"],
    }[form]
    assert new.main([*arguments, *LANGUAGES, "--output", "mine.yaml"]) == 0
    measures = re.search(r"en \(source\)(.*\n)+?.*de \(target\).*\n", capsys.readouterr().out)[0]
    assert prepare.main(["mine.yaml", "--look"]) == 0
    looked = capsys.readouterr()
    assert measures in looked.out and "warning" not in looked.err, "both sides are measured as in one direction"
    config = load_config("mine.yaml")
    both, one = config.corpus.stages
    assert (both.weights, both.updates) == ({"wanted": 1, "reversed": 1}, config.training.max_steps // 2)
    assert one.weights == {"wanted": 1}
    assert [config.corpus.languages_of(text) for text in config.corpus.train] == [("en", "de"), ("de", "en")]
    assert prepare.main(["mine.yaml"]) == 0
    data = quick / config.data_dir
    learnt, tokenizer = EncodedCorpus.load(data / "train"), Tokenizer.load(data)
    half = len(learnt) // 2  # in each direction

    def target(row):
        return tokenizer.decode_target(learnt.target.gather(np.array([row]))[0].tolist())

    assert half > 700
    held = {line for name in ("valid", "test/own") for line in (data / f"{name}.source.txt").read_text().splitlines()}
    for row in range(half):
        source = target(half + row)
        assert (source, target(row)) in PAIRS and source not in held


@pytest.mark.parametrize(
    ("arguments", "languages"),
    [
        (["mine.tsv", "more.tsv"], LANGUAGES),
        (["{path: mine.tsv, tag: <news>}"], LANGUAGES),
        (["mine.tsv"], ("--from", "en-GB", "--to", "EN_us")),
    ],
)
def test_a_source_that_does_not_say_its_direction_is_learnt_in_one(quick, capsys, arguments, languages):
    write_tsv(quick / "mine.tsv")
    write_tsv(quick / "more.tsv", MORE)
    assert new.main([*arguments, *languages, "--output", "mine.yaml"]) == 0
    assert load_config("mine.yaml").corpus.stages is None


def test_a_text_of_many_characters_has_pieces_for_them(quick, capsys):
    chinese = ["".join(chr(0x4E00 + (17 * number + k) % 2500) for k in range(17)) for number in range(600)]
    write_tsv(quick / "mine.tsv", zip(chinese, (target for _, target in PAIRS), strict=False))
    assert new.main(["mine.tsv", "--from", "zh", "--to", "de"]) == 0
    assert prepare.main(["mine.yaml"]) == 0


def test_columns_are_named_as_in_a_configuration(quick, capsys):
    write_tsv(quick / "mine.tsv", [(f"{number}\t{source}", target) for number, (source, target) in enumerate(PAIRS)])
    status, error = made(capsys, "mine.tsv")
    assert status == 2 and says(error, "table-columns-unclear", "{path: mine.tsv, source: NUMBER, target: NUMBER}")
    assert made(capsys, "{path: mine.tsv, source: 2, target: 3}") == (0, "")
    assert load_config("mine.yaml").corpus.training_corpora[0].target == 3


def test_a_place_where_nothing_can_be_written_is_told_before_the_text_is_read(quick, capsys):
    status, error = made(capsys, "none.tsv", "--output", "none/mine.yaml")
    assert status == 2 and says(error, "no-such-output-directory", "none")


@pytest.mark.parametrize(
    ("pairs", "code"), [(PAIRS[:40], "too-few-pairs"), *thorough_rows(([("a", "")] * 600, "no-pair-in-text"))]
)
def test_a_text_that_teaches_nothing_is_told_before_anything_is_written(quick, capsys, pairs, code):
    write_tsv(quick / "mine.tsv", pairs)
    status, error = made(capsys, "mine.tsv")
    assert status == 2 and says(error, code)
    assert [path.name for path in quick.iterdir()] == ["mine.tsv"]


def test_the_encoding_of_a_text_is_named_although_some_lines_are_only_ascii(quick, capsys):
    write_sides(quick / "mine.en", quick / "mine.de", PAIRS[:500])
    text = (quick / "mine.de").read_text(encoding="utf-8")
    (quick / "mine.de").write_text(text, encoding="latin-1")
    number = next(line for line, words in enumerate(text.splitlines(), start=1) if not words.isascii())
    status, error = made(capsys, "mine")
    assert status == 2 and says(error, "too-few-pairs", f"mine.en:{number}", "is not UTF-8", "iconv -f WINDOWS-1252")


def test_a_configuration_that_exists_stays(quick, capsys):
    write_tsv(quick / "mine.tsv")
    (quick / "mine.yaml").write_text("mine")
    status, error = made(capsys, "mine.tsv")
    assert status == 2 and says(error, "configuration-exists", "mine.yaml")
    assert (quick / "mine.yaml").read_text() == "mine"


def test_a_file_that_is_missing_is_named(quick, capsys):
    status, error = made(capsys, "none.tsv")
    assert status == 2 and "none.tsv" in error


def test_swapped_sides_are_told(quick, capsys):
    write_tsv(quick / "mine.tsv", [(target, source) for source, target in PAIRS])
    status, error = made(capsys, "mine.tsv")
    assert status == 0 and "warning: " in error and "swapped" in error


class TestFromModel:
    def test_the_configuration_fine_tunes_on_old_and_new_text(self, quick, capsys, experiment, evaluated):
        write_tsv(quick / "mine.tsv", PAIRS[:300])
        assert status_and_error(new.main, "mine.tsv", "--from-model", evaluated, capsys=capsys) == (0, "")
        assert (quick / "mine.yaml").read_text().count("\n") <= 35
        config = load_config("mine.yaml")
        old = load_config(evaluated / "model" / "config.yaml")
        assert config.model == old.model
        assert config.decoding == old.decoding != DecodingConfig(), "the model is searched as before"
        assert config.training.initialise_from == config.tokenizer.from_ == str(evaluated / "model")
        assert [text.name for text in config.corpus.train] == ["old", "new"]
        assert prepare.main(["mine.yaml"]) == 0
        summary = json.loads((quick / config.data_dir / "prepare.json").read_text())
        assert summary["counts"]["valid/old"]["kept"] == 8 and 10 < summary["counts"]["valid"]["kept"] < 50
        assert set(config.corpus.test) == {"new", "old_tiny"}
        tokens = {name: corpus["kept"] for name, corpus in summary["corpora"].items()}
        weight = config.corpus.train[0].weight
        assert weight * tokens["old"] == pytest.approx(tokens["new"], rel=0.5), "about as much old text as new text"

    def test_without_the_old_text_it_says_so(self, quick, capsys, experiment, evaluated):
        model = shutil.copytree(evaluated / "model", quick / "model")
        config = load_config(model / "config.yaml", ["data_dir=nowhere"])
        (model / "config.yaml").write_text(dump_config(config))
        write_tsv(quick / "mine.tsv", PAIRS[:300])
        status, error = status_and_error(new.main, "mine.tsv", "--from-model", model, capsys=capsys)
        assert (
            status == 0
            and error.startswith("warning: the training text of the old model cannot be mixed")
            and "nowhere" in error
        )
        assert [text.name for text in load_config("mine.yaml").corpus.train] == ["new"]

    @pytest.mark.parametrize("place", ["nowhere", "checkpoints/best"])
    def test_what_is_no_model_is_told(self, quick, capsys, evaluated, place):
        write_tsv(quick / "mine.tsv", PAIRS[:300])
        status, error = status_and_error(new.main, "mine.tsv", "--from-model", evaluated / place, capsys=capsys)
        assert status == 2 and says(error, "from-model-without-model", place) and not (quick / "mine.yaml").exists()

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["mine.tsv", "--from", "fr"], "from-model-other-languages"),
            (["mine.tsv", "more.tsv"], "from-model-several-corpora"),
        ],
    )
    def test_what_does_not_fit_the_model_is_told(self, quick, capsys, experiment, evaluated, arguments, code):
        write_tsv(quick / "mine.tsv", PAIRS[:300])
        write_tsv(quick / "more.tsv", MORE[:300])
        status, error = status_and_error(new.main, *arguments, "--from-model", evaluated, capsys=capsys)
        assert status == 2 and says(error, code) and not (quick / "mine.yaml").exists()
