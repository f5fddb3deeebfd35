"""run.json: an entry for each start, which training never depends on. And docs/run_files.md, which describes it:
the page names every file of an experiment and every field of its records, and no other.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import torch
from helpers.messages import says
from helpers.tiny import ROOT, assert_same_weights, log_records, train_tiny, weights_at

from transformer_mt import average, evaluate
from transformer_mt.base.cores import num_cores
from transformer_mt.kernels.device import choose_device
from transformer_mt.storage.files import own_name
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.progress import Progress
from transformer_mt.training.run import run_log
from transformer_mt.training.run.run_log import record_start

DOC = (ROOT / "docs" / "run_files.md").read_text(encoding="utf-8")
# Those that this experiment has no reason to write.
OTHER_FILES = {
    "tokenizer.source.model",
    "tokenizer.target.model",
    "checkpoints/best",
    "model/",
    "train/NAME/",
    "train/NAME/00000/keys",
    "train/kept.rows",
    "evaluation/",
    "tensorboard/",
}
OTHER_FIELDS = {"versions.cuda", "versions.datasets", "git.commit", "git.changed"}


def starts(run_dir):
    return json.loads((run_dir / "run.json").read_text(encoding="utf-8"))


def record(run_dir, ranks=Ranks(), step=0):  # noqa: B008  # frozen
    record_start(run_dir, Progress(step=step), 5, choose_device("cpu", "fp32", 1), ranks)


def test_a_start_says_what_it_was(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    record(tmp_path, step=7)
    [start] = starts(tmp_path)
    assert before <= datetime.fromisoformat(start["time"]) <= datetime.now(UTC)
    assert shlex.split(start["command"]) == sys.orig_argv
    assert (start["from_update"], start["seed"], start["precision"]) == (7, 5, "fp32")
    assert (start["num_ranks"], start["num_threads"], start["gpu"], start["num_gpus"]) == (1, 1, None, 0)
    assert start["num_cores"] == num_cores()
    assert len(start["processor"]) > 2
    assert start["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]


@pytest.mark.thorough
def test_a_run_that_was_interrupted_has_an_entry_for_each_start_and_the_same_end(experiment, trained, tmp_path):
    train_tiny(experiment, tmp_path, "training.max_steps=6")
    train_tiny(experiment, tmp_path)
    assert [start["from_update"] for start in starts(tmp_path)] == [0, 6]
    train_tiny(experiment, tmp_path)  # already trained: nothing starts
    assert len(starts(tmp_path)) == 2
    assert_same_weights(weights_at(tmp_path, 12), weights_at(trained, 12))


def test_the_first_rank_alone_writes(tmp_path):
    record(tmp_path, Ranks(rank=1, size=2))
    assert list(tmp_path.iterdir()) == []
    record(tmp_path, Ranks(rank=0, size=2))
    assert [start["num_ranks"] for start in starts(tmp_path)] == [2]


@pytest.mark.parametrize("content", [b"[{", b"{}", b"\xff"])
def test_a_damaged_record_is_said_and_kept(tmp_path, capsys, content):
    (tmp_path / "run.json").write_bytes(content)
    record(tmp_path)
    assert f"warning: {tmp_path / 'run.json'}: cannot be read (" in capsys.readouterr().err
    assert (tmp_path / "run.json").read_bytes() == content


@pytest.mark.thorough
def test_a_record_that_cannot_be_written_is_said_and_training_goes_on(experiment, tmp_path, capsys):
    train_tiny(experiment, tmp_path, "training.max_steps=1")
    (tmp_path / "run.json").unlink()
    (tmp_path / own_name("run.json")).mkdir()  # where it would be written
    train_tiny(experiment, tmp_path, "training.max_steps=2")
    error = capsys.readouterr().err
    assert says(error, "partial-in-the-way", f"warning: {tmp_path / own_name('run.json')}")
    assert "training continues" in error
    assert not (tmp_path / "run.json").exists()


@pytest.fixture
def checkout(tmp_path):
    """A repository of one commit, with a file that it knows and one that it does not."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    (directory / "known").write_text("1")
    identity = ["-c", "user.name=n", "-c", "user.email=e@x.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "known"], [*identity, "commit", "-qm", "m"]):
        subprocess.run(["git", "-C", str(directory), *arguments], check=True)
    (directory / "unknown").write_text("1")
    return directory


def test_of_a_checkout_it_says_commit_and_changes(checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))  # as within a hook of git
    head = (checkout / ".git" / (checkout / ".git" / "HEAD").read_text().split()[1]).read_text().strip()
    assert run_log._git(checkout) == {"commit": head, "changed": False}
    (checkout / "known").write_text("2")
    assert run_log._git(checkout) == {"commit": head, "changed": True}


def test_without_git_it_is_left_out(checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_log._git(checkout) is None


def test_a_package_that_is_installed_within_a_checkout_does_not_ask_git(checkout):
    installed = checkout / "environment" / "site-packages"
    installed.mkdir(parents=True)
    assert run_log._git(installed) is None


def test_it_asks_of_the_checkout_that_the_package_runs_from():
    assert run_log.PACKAGE.name == "transformer_mt"
    assert (run_log.PACKAGE / "train.py").is_file()


# --- docs/run_files.md -----------------------------------------------------------------------------------


def section(title: str) -> str:
    return re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", DOC, re.MULTILINE | re.DOTALL)[1]


def first_column(text: str) -> list[str]:
    """What the rows of the tables are about."""
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def fields(value: object, prefix: str = "") -> set[str]:
    """The keys of an object and of those in it, which the name of a split stands for."""
    found: set[str] = set()
    for key, inner in value.items() if isinstance(value, dict) else ():
        found |= {prefix + key} | fields(inner, f"{prefix}{key}.")
    return {re.sub(r"\b(train|valid|test/tiny)\b", "SPLIT", field) for field in found}


@pytest.fixture(scope="module")
def run_dir(trained, tmp_path_factory):
    run_dir = shutil.copytree(trained, tmp_path_factory.mktemp("runs") / "run", symlinks=True)
    average.main([str(run_dir)])
    evaluate.main([str(run_dir), "--device", "cpu", "beam_size=1"])
    return run_dir


@pytest.mark.thorough
def test_every_file_is_named(run_dir, experiment):
    directories = [experiment.parent / "data", run_dir]
    found = [path.relative_to(top) for top in directories for path in top.rglob("*") if path.is_file()]
    names = {re.sub(r"step-\d+", "step-NNNNNNNN", path.as_posix()) for path in found if "best" not in path.parts}
    named = first_column(section("Directories")) + re.findall(r"`(tokenizer\.\w+\.model)`", DOC)
    assert {re.sub(r"\btiny\b|(?<=^train/)train\b", "NAME", name) for name in names} == set(named) - OTHER_FILES
    assert set(named) >= OTHER_FILES


def test_every_field_of_the_log_is_named_and_what_kind_of_line_has_it(run_dir):
    _, means, validations = re.split(r"^\| field .*$", section("Fields of `log.jsonl`"), flags=re.MULTILINE)
    records = log_records(run_dir)
    assert {tuple(record) for record in records} == {tuple(first_column(means)), tuple(first_column(validations))}


@pytest.mark.parametrize("file", ["run.json", "prepare.json", "training_lines.json"])
def test_every_field_is_named(run_dir, experiment, file):
    directory = run_dir if file == "run.json" else experiment.parent / "data"
    content = json.loads((directory / file).read_text(encoding="utf-8"))
    match file:
        case "run.json":
            content = content[0]
        case "prepare.json":
            content |= dict.fromkeys(("corpus", "filters", "tokenizer", "digests", "corpora"))
    named = first_column(section(f"Fields of `{file}`"))
    splits = {"counts.SPLIT", "also_in_training.SPLIT", "mean_lengths.SPLIT"}
    named = [name for name in named if name not in splits]
    found = fields(content) - splits
    assert len(set(named)) == len(named)
    assert found | OTHER_FIELDS == set(named) | OTHER_FIELDS
