"""A tokenizer that exists already: used as it is, refused where it does not fit, and told apart from another one."""

import json
import shutil
from pathlib import Path

import pytest
from helpers.messages import message, says
from helpers.thorough import thorough
from helpers.tiny import demo_pairs, log_records, renew_sums, status_and_error, train_tiny, write_experiment
from sentencepiece import SentencePieceTrainer

from transformer_mt import average, prepare, train
from transformer_mt.base.errors import TokenizerError
from transformer_mt.decoding.scorer import Scorer
from transformer_mt.preparing.prepared import Prepared
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.text.existing_tokenizer import check_symbols, open_existing
from transformer_mt.text.tokenizer import Tokenizer

OURS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "byte_fallback": True}
SEPARATE = ("tokenizer.joint=false", "model.tied_embeddings=none")
STILL = ("training.max_steps=1", "training.peak_lr=1e-30", "training.validate_every=1", "model.dropout=0.0")


def sentencepiece_file(path: Path, **flags: object) -> Path:
    """A file that sentencepiece's own trainer writes."""
    lines = [line for pair in demo_pairs(60) for line in pair]
    with path.open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            **{"vocab_size": 330, "minloglevel": 2, "normalization_rule_name": "identity", **OURS, **flags},
        )
    return path


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The configuration of an experiment on other text, which nothing has been prepared of."""
    directory = tmp_path_factory.mktemp("other")
    config = write_experiment(directory)
    for name in ("train", "valid", "test"):
        for language in ("en", "de"):
            lines = (directory / f"{name}.{language}").read_text(encoding="utf-8").splitlines()
            (directory / f"{name}.{language}").write_text("".join(f"{line} 7\n" for line in lines), encoding="utf-8")
    return config


@pytest.fixture(scope="module")
def separate_run(tmp_path_factory):
    """An averaged run with a tokenizer for each language."""
    directory = tmp_path_factory.mktemp("separate")
    config = write_experiment(directory)
    assert prepare.main([str(config), *SEPARATE]) == 0
    run = train_tiny(config, directory / "run", *SEPARATE, "training.max_steps=4", "averaging.checkpoints=1")
    average.main([str(run)])
    return run


def prepared(config: Path, data_dir: Path, path: Path, *overrides: str) -> dict[str, object]:
    """What prepare.json says of data that were prepared with this tokenizer."""
    arguments = [str(config), f"data_dir={data_dir}", f"tokenizer.from={path}", *overrides]
    assert prepare.main(arguments) == 0
    return json.loads((data_dir / "prepare.json").read_text(encoding="utf-8"))


def tokenizer_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("tokenizer*.model")}


@pytest.mark.parametrize("name", ["", *thorough("tokenizer.model", "data")])
def test_it_is_used_byte_for_byte_wherever_it_lies(model_dir, experiment, other, tmp_path, name):
    directory = experiment.parent / "data" if name == "data" else model_dir
    path = directory if name == "data" else directory / name
    summary = prepared(other, tmp_path / "data", path)
    assert tokenizer_files(tmp_path / "data") == tokenizer_files(directory)
    assert summary["tokenizer_digest"] == Tokenizer.load(directory).digest
    assert summary["tokenizer"]["from"] == str(path)


@pytest.mark.thorough
@pytest.mark.parametrize("is_joint", [*thorough(True), False])
def test_the_weights_of_a_model_fit_the_ids_that_its_tokenizer_makes(
    model_dir, other, separate_run, tmp_path, is_joint
):
    model, overrides = (model_dir, ["model.d_model=32"]) if is_joint else (separate_run / "model", SEPARATE)
    named = [f"data_dir={tmp_path / 'data'}", f"tokenizer.from={model}", *overrides]
    prepared(other, tmp_path / "data", model, *overrides)
    assert tokenizer_files(tmp_path / "data") == tokenizer_files(model)
    new = train_tiny(other, tmp_path / "new", *named, *STILL, f"training.initialise_from={model}")
    [found] = [record["valid_nll"] for record in log_records(new) if "valid_nll" in record]
    sides = [(other.parent / f"valid.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    log_probs = [log_prob for pair in Scorer.load(model, "cpu").score(*sides) for log_prob in pair.log_probs]
    assert found == pytest.approx(-sum(log_probs) / len(log_probs), rel=1e-4)


def test_a_file_of_sentencepiece_serves_both_languages(other, tmp_path, capsys):
    file = sentencepiece_file(tmp_path / "ours.model", model_type="bpe", vocab_size=500)
    prepared(other, tmp_path / "data", file)
    assert (tmp_path / "data" / "tokenizer.model").read_bytes() == file.read_bytes()
    assert Tokenizer.load(tmp_path / "data").joint
    captured = capsys.readouterr()
    assert f"using the tokenizer {file}\n" in captured.out
    assert captured.err == "", "there is nothing to say of one like ours"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"byte_fallback": False, "vocab_size": 150}, ["warning: this tokenizer has no byte fallback"]),
        ({"normalization_rule_name": "nmt_nfkc"}, ["warning: this tokenizer normalises text by the rule nmt_nfkc"]),
        ({"model_type": "char", "byte_fallback": False, "vocab_size": 60}, ["has no byte fallback"]),
    ],
)
def test_what_it_does_otherwise_is_said(other, tmp_path, capsys, flags, said):
    prepared(other, tmp_path / "data", sentencepiece_file(tmp_path / "their.model", **flags))
    error = capsys.readouterr().err
    for words in said:
        assert words in error
    assert ("byte fallback" in error) == (not flags.get("byte_fallback", True))
    assert ("normalises" in error) == ("normalization_rule_name" in flags)


@pytest.mark.parametrize(
    ("name", "overrides", "code", "facts"),
    [
        ("joint", SEPARATE, "tokenizer-joint-unfit", ["tokenizer.joint=false", "tokenizer.joint=true"]),
        ("separate", (), "tokenizer-joint-unfit", ["tokenizer.joint=false", "model.tied_embeddings=target (or none)"]),
        ("ids", (), "special-pieces-differ", ["--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"]),
        ("nowhere", (), "tokenizer-from-missing", []),
        ("empty", (), "tokenizer-from-empty", []),
        ("text", (), "not-sentencepiece-model", []),
    ],
)
def test_what_does_not_fit_is_refused(
    other, tmp_path, capsys, joint_tokenizer, separate_tokenizer, name, overrides, code, facts
):
    path = tmp_path / name
    match name:
        case "joint":
            joint_tokenizer.save(path)
        case "separate":
            separate_tokenizer.save(path)
        case "ids":
            sentencepiece_file(path, pad_id=-1, unk_id=0, bos_id=1, eos_id=2)
        case "empty":
            path.mkdir()
        case "text":
            path.write_text("no model\n")
    arguments = [other, f"data_dir={tmp_path / 'data'}", f"tokenizer.from={path}", *overrides]
    status, error = status_and_error(prepare.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, code, *facts) and str(path) in error
    assert not (tmp_path / "data").exists()


@pytest.mark.thorough
def test_data_and_run_stay_what_they_are_when_the_file_is_moved(other, tmp_path, capsys):
    file = sentencepiece_file(tmp_path / "one.model")
    data, run = f"data_dir={tmp_path / 'data'}", tmp_path / "run"
    prepared(other, tmp_path / "data", file)
    train_tiny(other, run, data, f"tokenizer.from={file}", "training.max_steps=1")
    moved = file.rename(tmp_path / "two.model")
    for name in (file, moved):  # the first is no more
        assert prepare.main([str(other), data, f"tokenizer.from={name}"]) == 0
        assert "already prepared" in capsys.readouterr().out
        train_tiny(other, run, data, f"tokenizer.from={name}", "training.max_steps=1")
        assert "already trained" in capsys.readouterr().out
    status, error = status_and_error(
        train.main, other, f"run_dir={run}", data, f"tokenizer.from={tmp_path / 'three.model'}", capsys=capsys
    )
    assert status == 2
    assert says(error, "tokenizer-from-missing", "three.model")


def test_another_one_is_something_else(other, tmp_path, capsys):
    one, two = (sentencepiece_file(tmp_path / f"{size}.model", vocab_size=size) for size in (330, 340))
    prepared(other, tmp_path / "data", one)
    before = tokenizer_files(tmp_path / "data")
    shared = [other, f"data_dir={tmp_path / 'data'}", f"run_dir={tmp_path / 'run'}"]
    for main, code in ((prepare.main, "data-dir-unfit"), (train.main, "data-prepared-differently")):
        status, error = status_and_error(main, *shared, f"tokenizer.from={two}", capsys=capsys)
        assert status == 2
        assert says(error, code, f"tokenizer.from={two}")
    status, error = status_and_error(prepare.main, *shared, capsys=capsys)
    assert status == 2
    assert f"tokenizer.from: {one}, now None" in error
    status, error = status_and_error(train.main, *shared, capsys=capsys)
    assert status == 2
    assert says(error, "data-prepared-differently", "tokenizer")
    assert tokenizer_files(tmp_path / "data") == before


def test_a_tokenizer_that_was_put_in_place_of_the_datas_is_refused(experiment, other, tmp_path, capsys):
    data = shutil.copytree(experiment.parent / "data", tmp_path / "data")
    path = sentencepiece_file(data / "tokenizer.model", vocab_size=500, model_type="bpe")  # as many pieces
    renew_sums(data)
    for main in (train.main, prepare.main):
        status, error = status_and_error(
            main, experiment, f"data_dir={data}", f"run_dir={tmp_path / 'run'}", capsys=capsys
        )
        assert status == 2
        ours, theirs = Tokenizer.load(experiment.parent / "data").digest[:8], open_existing(path).digest[:8]
        assert says(error, "tokenizer-of-other-data", f"{data} ", theirs, str(data / "prepare.json"), ours)
    assert not (tmp_path / "run").exists()


def test_settings_of_training_a_tokenizer_do_not_matter_to_one_that_exists():
    def same(made: dict[str, object], asked: dict[str, object]) -> bool:
        data = Prepared.model_construct(tokenizer=TokenizerConfig.model_validate(made))
        return data.same_tokenizer(TokenizerConfig.model_validate(asked))

    theirs = {"from": "a", "vocab_size": 400}
    assert same(theirs, {"from": "b", "vocab_size": 500})
    assert not same(theirs, {"from": "a", "joint": False})
    assert not same(theirs, {"vocab_size": 400})
    assert not same({"vocab_size": 400}, {"vocab_size": 500})


TAGGED = "corpus.train=[{name: a, path: no/such/text, tag: <bt> <2de>}]"


@pytest.mark.parametrize(
    ("overrides", "kept", "missing"),
    [
        ([TAGGED], ["<bt>"], ("<2de>", "tag")),
        (["tokenizer.user_symbols=[<name>]"], ["<bt>"], ("<name>", "tokenizer.user_symbols")),
        ([TAGGED, "tokenizer.user_symbols=[<name>]"], ["<bt>", "<2de>", "<name>"], None),
    ],
)
def test_tags_and_symbols_must_be_pieces_that_it_keeps_whole(other, tmp_path, overrides, kept, missing):
    # <2de> is in its text, so it is among its pieces in one way or another; yet it is cut up in another word.
    file = sentencepiece_file(tmp_path / "ours.model", model_type="bpe", user_defined_symbols=kept)
    config = load_config(other, [f"tokenizer.from={file}", *overrides])
    tokenizer = open_existing(file)
    if missing is None:
        check_symbols(tokenizer, config.tokenizer, config.corpus.tags)
        return
    with pytest.raises(
        TokenizerError, match=message("symbol-not-in-tokenizer", *missing, f"--user_defined_symbols={missing[0]}")
    ):
        check_symbols(tokenizer, config.tokenizer, config.corpus.tags)


def test_prepare_refuses_tags_that_are_no_pieces_before_it_makes_anything(other, tmp_path, capsys):
    file = sentencepiece_file(tmp_path / "ours.model", model_type="bpe")
    prefix = other.parent / "train"
    arguments = [f"data_dir={tmp_path / 'data'}", f"tokenizer.from={file}"]
    train_on = f"corpus.train={{path: {prefix}, tag: <2de>}}"
    status, error = status_and_error(prepare.main, other, *arguments, train_on, capsys=capsys)
    assert status == 2 and says(error.splitlines()[-1], "symbol-not-in-tokenizer", "<2de>", "tag")
    assert not (tmp_path / "data").exists()
