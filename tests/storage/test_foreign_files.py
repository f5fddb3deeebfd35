"""The stages that fill directories leave alone what they did not make, under whatever name it lies there."""

import os
import shutil
import signal
from contextlib import contextmanager

import pytest
from helpers.directories import place, tree
from helpers.messages import message, says
from helpers.tiny import prepared_experiment, status_and_error, write_experiment

from transformer_mt import average, export, prepare, train
from transformer_mt.base.errors import EvaluationError, UserError
from transformer_mt.evaluation.scores_json import read_scores
from transformer_mt.preparing.fill_data_dir import OWNER
from transformer_mt.storage.checksums import checkpoint_path
from transformer_mt.storage.claims import Claims
from transformer_mt.storage.files import own_name
from transformer_mt.storage.own_directory import LOCK, Owner, hold

KINDS = ("file", "link", "directory")


def assert_refused(main, *arguments, names, top, capsys):
    """Status 2 and an error that has these names in it; nothing below `top` has changed."""
    before = tree(top)
    status, error = status_and_error(main, *arguments, capsys=capsys)
    assert status == 2, error
    assert error.startswith("error: ") and all(name in error for name in names), error
    assert tree(top) == before


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepared_experiment(tmp_path_factory.mktemp("prepared"))


def names_in(directory):
    """Of what a stage wrote there, and of what it writes it under in between."""
    return sorted({name for path in directory.iterdir() for name in (path.name, own_name(path.name))})


# prepare


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_prepare_takes_no_directory_that_holds_something_of_the_users(prepared, tmp_path, capsys, kind):
    written = [*names_in(prepared.parent / "data"), "train.partial", "valid.partial", "notes.txt", ".hidden"]
    assert len(written) > 20
    for number, name in enumerate(written):
        top = tmp_path / str(number)
        place(top / "data" / name, kind, top / "victim")
        (top / "victim").write_bytes(b"mine\n")
        (top / ".hidden").write_bytes(b"mine\n")  # beside it
        assert_refused(prepare.main, prepared, f"data_dir={top / 'data'}", names=[name], top=top, capsys=capsys)


@pytest.mark.parametrize(
    ("part", "prefix"), [("valid", "valid.source"), ("train", "train"), ("test={x: %s}", "test/x")]
)
def test_prepare_does_not_write_over_the_corpus_that_it_reads(tmp_path, capsys, part, prefix):
    """Even if the directory was its own before."""
    experiment, data = write_experiment(tmp_path), tmp_path / "data"
    with hold(data, OWNER):
        (data / "test").mkdir()
    for language in ("en", "de"):
        shutil.copy(tmp_path / f"valid.{language}", data / f"{prefix}.{language}")
    named = part % (data / prefix) if "%" in part else f"{part}={data / prefix}"
    assert_refused(
        prepare.main, experiment, f"corpus.{named}", names=[f"{prefix}.en", "data_dir="], top=tmp_path, capsys=capsys
    )


def test_prepare_goes_on_where_one_was_killed_and_writes_through_no_link(tmp_path, capsys):
    experiment, data = write_experiment(tmp_path), tmp_path / "data"
    with hold(data, OWNER):
        (data / "tokenizer.model").write_bytes(b"half")
    place(data / "valid.source.txt", "link", tmp_path / "train.en")
    assert_refused(prepare.main, experiment, names=["valid.source.txt", "is a link"], top=tmp_path, capsys=capsys)
    (data / "valid.source.txt").unlink()
    assert prepare.main([str(experiment)]) == 0


def test_a_second_prepare_of_other_data_is_refused(tmp_path, capsys):
    experiment = write_experiment(tmp_path)
    with hold(tmp_path / "data", OWNER):
        (tmp_path / "data" / "train").mkdir()
    with Claims(tmp_path / "data" / "train", "of other data"):
        status, error = status_and_error(prepare.main, experiment, capsys=capsys)
    assert status == 2 and says(error, "other-data-prepared", str(tmp_path / "data"))
    assert tree(tmp_path / "data") == {"lock": OWNER.mark, "train": False}


def test_prepared_data_that_nobody_may_write_to_are_still_prepared(prepared, capsys):
    data = prepared.parent / "data"
    before = tree(data)
    (data / LOCK).unlink()  # which nobody copied
    assert prepare.main([str(prepared)]) == 0
    assert "already prepared" in capsys.readouterr().out
    assert tree(data) == {name: content for name, content in before.items() if name != LOCK}


# train


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_train_takes_no_directory_that_holds_something_of_the_users(experiment, trained, tmp_path, capsys, kind):
    written = [*names_in(trained), "model", "evaluation", "tensorboard", "notes.txt"]
    assert len(written) > 14
    for number, name in enumerate(written):
        top = tmp_path / str(number)
        place(top / "run" / name, kind, top / "victim")
        (top / "victim").write_bytes(b"mine\n")
        assert_refused(train.main, experiment, f"run_dir={top / 'run'}", names=[name], top=top, capsys=capsys)


def test_train_does_not_take_a_directory_for_the_configuration_in_it(experiment, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    shutil.copy(experiment, tmp_path / "run" / "config.yaml")
    arguments = [tmp_path / "run" / "config.yaml", f"run_dir={tmp_path / 'run'}"]
    assert_refused(train.main, *arguments, names=["config.yaml"], top=tmp_path, capsys=capsys)


def test_train_goes_on_with_notes_in_a_run(experiment, run):
    (run / "notes.txt").write_bytes(b"mine\n")
    assert train.main([str(experiment), f"run_dir={run}", "training.max_steps=13"]) == 0
    assert checkpoint_path(run, 13).is_dir()
    assert (run / "notes.txt").read_bytes() == b"mine\n"
    assert (run / LOCK).read_bytes() == train.OWNER.mark


def test_the_data_may_lie_in_the_run(tmp_path):
    experiment, run = write_experiment(tmp_path), tmp_path / "run"
    places = [str(experiment), f"data_dir={run / 'data'}", "training.max_steps=1"]
    assert prepare.main(places) == train.main(places) == 0


# average


@pytest.mark.parametrize("kind", KINDS)
def test_average_takes_no_model_of_the_users(run, tmp_path, capsys, kind):
    for name in ("config.yaml", "model.safetensors", "tokenizer.model", "training_lines.json", "notes.txt"):
        place(run / "model" / name, kind, run / "log.jsonl")
        assert_refused(average.main, run, "choose=last", names=["model", name], top=run, capsys=capsys)
        shutil.rmtree(run / "model")
    place(run / "model", kind, run / "log.jsonl" if kind == "link" else None)
    names = [str(run / "model")]
    assert_refused(average.main, run, "choose=last", names=names, top=run, capsys=capsys)


@pytest.mark.parametrize("kind", KINDS)
def test_average_leaves_what_lies_under_the_name_in_between(run, capsys, kind):
    place(run / own_name("model"), kind, run / "log.jsonl")
    arguments = [run, "choose=last", "data_dir=nowhere"]  # unvalidated, quick
    assert_refused(average.main, *arguments, names=[own_name("model")], top=run, capsys=capsys)


def test_what_a_killed_average_left_is_taken_over_and_notes_stay(run):
    arguments = [str(run), "choose=last", "data_dir=nowhere"]
    with hold(run / own_name("model"), Owner("temporary", "", "")):  # as before the first model was whole
        place(run / own_name("model") / "new" / "model.safetensors", "file", None)
    place(run / "model" / "SHA256SUMS", "file", None)  # which it puts there first
    assert average.main(arguments) == 0
    place(run / "model" / "notes.txt", "file", None)
    assert average.main([*arguments, "checkpoints=1"]) == 0
    assert (run / "model" / "notes.txt").read_bytes() == b"mine\n"
    assert not (run / own_name("model")).exists()


@contextmanager
def ends_soon():
    """Who waits for a pipe fails after 10 seconds."""

    def fail(*_):
        raise AssertionError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(10)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["deep", "pipe"])
def test_a_strange_export_json_and_a_strange_scores_json_end_in_their_own_words(kind, tmp_path):
    for name in ("export.json", "scores.json"):
        if kind == "deep":
            (tmp_path / name).write_text("[" * 100_000)
        else:
            os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=message("directory-not-by-export", "export.json")), ends_soon():
        export.check_output(tmp_path)
    if kind == "deep":
        with pytest.raises(EvaluationError, match=message("scores-file-not-ours")):
            read_scores(tmp_path / "scores.json")
    else:
        with ends_soon():
            assert read_scores(tmp_path / "scores.json") == {}
