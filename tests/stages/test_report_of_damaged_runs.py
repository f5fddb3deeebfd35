"""`report`: whatever is damaged in a run, there is a page that says so, or an error for the user."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from helpers.damaged_files import Damage, damaged_files, damaged_json, damaged_lines
from helpers.thorough import thorough
from helpers.tiny import renew_sums, status_and_error
from helpers.web_page import WebPage

from transformer_mt import report
from transformer_mt.settings.reading import load_config

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def own(evaluated, tmp_path_factory):
    """A directory with a copy of the run and of its data."""
    directory = tmp_path_factory.mktemp("own")
    shutil.copytree(evaluated, directory / "run", symlinks=True)
    data = Path(load_config(evaluated / "config.yaml").data_dir)
    shutil.copytree(data, directory / "data")
    for config in (directory / "run" / "config.yaml", directory / "run" / "model" / "config.yaml"):
        config.write_text(config.read_text().replace(str(data), str(directory / "data")))
    renew_sums(directory / "run" / "model")
    return directory


@pytest.fixture
def reported(own, tmp_path, capsys):
    """A function that gives the text of the page of a run; after an error its message. It fails where there is none."""

    def woken(*_):
        pytest.fail("it waits")

    def made(run=own / "run"):
        page = tmp_path / "report.html"
        page.unlink(missing_ok=True)
        signal.alarm(120)  # only a pipe takes so long
        status, error = status_and_error(report.main, run, "--output", page, capsys=capsys)
        signal.alarm(0)
        assert (status, page.exists()) == ((2, False) if error.startswith("error: ") else (0, True))
        return error or WebPage.read(page).text

    before = signal.signal(signal.SIGALRM, woken)
    yield made
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def all_damage(own):
    run, data = own / "run", own / "data"
    yield from damaged_files(own, lambda file: "checkpoints" not in file.parts)
    yield from damaged_lines(run / "log.jsonl")
    for file in (run / "run.json", run / "evaluation" / "scores.json", data / "prepare.json"):
        yield from damaged_json(file)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "every",
    [
        pytest.param(2999, id="some"),
        pytest.param(241, id="many", marks=pytest.mark.slow),
        pytest.param(19, id="most", marks=pytest.mark.slow),
    ],
)
def test_every_damaged_run_gives_a_page_or_an_error(every, own, reported):
    broken = []
    damage = list(all_damage(own))
    for each in damage[::every]:
        with each.done():
            try:
                reported()
            except Exception as error:
                broken.append(f"{each.file.relative_to(own)}, {each.what}: {error!r}")
    assert len(damage) > 3_000
    assert broken == []


def changed(file, change):
    content = json.loads(file.read_text())
    change(content)
    return Damage(file, "changed", json.dumps(content).encode())


def test_a_last_line_of_the_log_without_a_field_is_shown_without_it(own, reported):
    lines = (own / "run" / "log.jsonl").read_text().splitlines()
    last = json.loads(next(line for line in reversed(lines) if "tokens_per_second" in line))
    with Damage(own / "run" / "log.jsonl", "", (json.dumps({"step": 12, "loss": last["loss"]}) + "\n").encode()).done():
        assert "loss in training" in reported()


@pytest.mark.thorough
def test_git_without_a_commit_is_named(own, reported):
    with changed(own / "run" / "run.json", lambda starts: starts[0].update(git={})).done():
        assert f"{own / 'run' / 'run.json'} is damaged, or was not written by train" in reported()


@pytest.mark.thorough
@pytest.mark.parametrize("number", ["1e999", *thorough("1" + "0" * 400)])
def test_numbers_that_are_too_large_are_no_numbers_of_the_log(number, own, reported):
    log = (own / "run" / "log.jsonl").read_text().splitlines()
    too_large = f'{{"step": 99, "loss": {number}}}'
    with Damage(own / "run" / "log.jsonl", "", "".join(f"{line}\n" for line in [*log, too_large]).encode()).done():
        assert f"1 line of the log of {own / 'run'} cannot be read: " in reported()


@pytest.mark.thorough
def test_translations_in_a_pipe_are_not_waited_for(own, reported):
    file = own / "run" / "evaluation" / "tiny.hypotheses.txt"
    with Damage(file, "", os.mkfifo).done():
        assert f"The translations of {own / 'run'} are left out: {file}: is missing" in reported()


@pytest.mark.thorough
def test_a_run_whose_path_is_not_utf_8_is_reported(own, reported, tmp_path):
    run = Path(os.fsdecode(os.fsencode(tmp_path / "run") + b"\xff"))
    shutil.copytree(own / "run", run, symlinks=True)
    assert f"Report of {tmp_path / 'run'}?" in reported(run)
