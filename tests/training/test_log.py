import io
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.messages import message

from transformer_mt.base.errors import TrainingError
from transformer_mt.base.system import peak_memory
from transformer_mt.batches.loader import Position
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.progress import Progress
from transformer_mt.training.run import run_log
from transformer_mt.training.run.run_log import RunLog
from transformer_mt.training.run.validation import ValidationScores
from transformer_mt.training.update import Numbers, Update

SETTINGS = TrainingConfig(max_steps=6, log_every=2)
CPU = torch.device("cpu")
SECONDS = 0.5  # of each update


ALONE = Ranks()


def learner(settings, ranks=ALONE):
    """What a log asks of a Learner."""
    return SimpleNamespace(settings=settings, ranks=ranks, device=SimpleNamespace(torch_device=CPU))


def update(step, is_finite=True):
    """An update whose every number tells which it is."""
    num_labels = 10 * step
    return Update(
        Numbers(
            smoothed=torch.tensor(4.0 * num_labels + step**2 if is_finite else math.nan),
            nll=torch.tensor(3.0 * num_labels - step**2 if is_finite else math.inf),
            num_batches=torch.tensor(1.0),
            gradient_norm=torch.tensor(0.25 * step if is_finite else math.nan),
            is_finite=torch.tensor(is_finite),
        ),
        num_labels=num_labels,
        num_positions=num_labels + step**2,
        learning_rate=0.125 / step,
        step=step,
        num_batches=1,
        pairs=torch.tensor([step]),
    )


def progress_at(step, **changes):
    tokens = sum(10 * each for each in range(1, step + 1))
    return Progress(step=step, position=Position(3, step, stage=1), tokens=tokens, seconds=SECONDS * step, **changes)


def log_updates(run_dir, first, last, settings=SETTINGS):
    with RunLog(run_dir, learner(settings), progress_at(first - 1), 500) as log:
        for step in range(first, last + 1):
            log.update(progress_at(step), update(step))


def records(run_dir):
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().split("\n")[:-1]]


def test_a_record_tells_the_means_over_the_tokens_of_its_updates(tmp_path):
    log_updates(tmp_path, 1, 5)
    first, second = records(tmp_path)
    assert (first["step"], second["step"]) == (2, 4)
    # Of the process that the test is: as much as it has ever taken, in MB.
    most = peak_memory() / 1e6
    assert 0.5 * most < first["memory_megabytes"] <= second.pop("memory_megabytes") <= most
    assert second == pytest.approx(
        {
            "step": 4,
            "epoch": 3,
            "stage": 2,
            "loss": (4 * 70 + 25) / 70,
            "nll": (3 * 70 - 25) / 70,
            "perplexity": math.exp((3 * 70 - 25) / 70),
            "learning_rate": 0.125 / 4,
            "gradient_norm": 0.25 * 4,
            "tokens_per_second": 70 / (2 * SECONDS),
            "padding": 25 / (70 + 25),
            "skipped": 0,
            "split": 0,
            "tokens": 100,
            "seconds": 4 * SECONDS,
        }
    )
    assert first["nll"] == pytest.approx((3 * 30 - 5) / 30)
    assert first["tokens_per_second"] == pytest.approx(30 / (2 * SECONDS))


def test_the_rate_of_a_run_taken_up_counts_its_own_updates(tmp_path):
    log_updates(tmp_path, 5, 6)
    assert records(tmp_path)[0]["tokens_per_second"] == pytest.approx(110 / (2 * SECONDS))


def test_a_perplexity_beyond_all_numbers_is_still_a_number(tmp_path):
    with RunLog(tmp_path, learner(TrainingConfig(log_every=1)), Progress(), 500) as log:
        numbers = update(1).numbers._replace(smoothed=torch.tensor(1e6), nll=torch.tensor(1e6))
        log.update(progress_at(1), replace(update(1), numbers=numbers))
        log.validation(progress_at(1), ValidationScores({"nll": 1e5, "bleu": 0.0, "chrf": 0.0}, seconds=1.0))
    assert all(math.isfinite(value) for record in records(tmp_path) for value in record.values())


@pytest.mark.parametrize("best", [True, False])
def test_a_validation_is_written_and_said(tmp_path, capsys, best):
    with RunLog(tmp_path, learner(SETTINGS), progress_at(3), 500) as log:
        scores = ValidationScores(
            {"nll": math.log(8.0), "bleu": 12.345, "chrf": 34.5}, seconds=7.0, example="a dog → ein Hund"
        )
        # The second best of those that are kept is not the best.
        log.validation(progress_at(4, best=((2.0, 4), (1.0, 2)) if best else ((2.0, 2), (1.0, 4))), scores)
    assert records(tmp_path) == [
        pytest.approx(
            {
                "step": 4,
                "valid_nll": math.log(8.0),
                "valid_perplexity": 8.0,
                "valid_bleu": 12.345,
                "valid_chrf": 34.5,
                "valid_seconds": 7.0,
                "best": best,
            }
        )
    ]
    said = ", the best so far" if best else ""
    assert (
        capsys.readouterr().err == f"update 4: validation perplexity 8.00, BLEU 12.35{said} (7 s)\n  a dog → ein Hund\n"
    )


def whole(step):
    return json.dumps({"step": step, "nll": 1.5}) + "\n"


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (whole(2) + whole(4) + whole(6) + whole(8), whole(2) + whole(4)),
        (whole(2) + whole(4)[:-8], whole(2)),  # cut off by a crash
        (whole(2) + whole(4)[:-1], whole(2) + whole(4)),  # only its line end is cut off
        (whole(2) + "\0" * 40, whole(2)),  # of a file system that had not come to it
        (whole(2) + '{"valid": 1}\n' + whole(4), whole(2) + whole(4)),
        (whole(6), ""),
        ("", ""),
    ],
)
def test_taken_up_later_records_and_halves_are_dropped_and_new_ones_follow(tmp_path, found, kept):
    (tmp_path / "log.jsonl").write_text(found)
    log_updates(tmp_path, 5, 6)
    content = (tmp_path / "log.jsonl").read_text()
    assert content.startswith(kept)
    assert [json.loads(line)["step"] for line in content.removeprefix(kept).splitlines()] == [6]
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_elsewhere_than_on_a_terminal_each_record_is_a_plain_line(tmp_path, capsys):
    log_updates(tmp_path, 1, 4)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"update {step}/6  loss {loss:.3f}  perplexity {perplexity:.2f}  {rate} tokens/s  {left} s left"
        for step, loss, perplexity, rate, left in [
            (2, 125 / 30, math.exp(85 / 30), 30, 2),
            (4, 305 / 70, math.exp(185 / 70), 70, 1),
        ]
    ]


def test_the_time_that_is_left_counts_validations_and_only_updates_of_this_start(tmp_path, capsys):
    scores = ValidationScores({"nll": 1.0, "bleu": 1.0, "chrf": 1.0}, seconds=7.0)
    with RunLog(tmp_path, learner(TrainingConfig(max_steps=10, log_every=2)), progress_at(4), 500) as log:
        log.validation(progress_at(4), scores)
        for step in (5, 6, 7, 8, 9, 10):
            log.update(progress_at(step), update(step))
    lines = [line for line in capsys.readouterr().err.splitlines() if "tokens/s" in line]
    # after 6: two updates took 0.5 s each, and the validation 7 s, for four updates that are left
    assert [re.search(r"tokens/s *(.*)$", line)[1] for line in lines] == ["16 s left", "4 s left", ""]


@pytest.mark.parametrize("ranks", [Ranks(), Ranks(rank=1, size=2)])
def test_slow_updates_are_not_silent_until_the_first_record(tmp_path, capsys, ranks):
    slow = [Progress(step=step, seconds=40.0 * step) for step in range(6)]
    with RunLog(tmp_path, learner(TrainingConfig(max_steps=100_000, log_every=50), ranks), slow[0], 500) as log:
        for step in range(1, 6):
            log.update(slow[step], update(step))
    said = "update 2/100000  46 days 7 h left\nupdate 4/100000  46 days 7 h left\n" if ranks.is_first else ""
    assert capsys.readouterr().err == said


def test_a_terminal_shows_a_bar_and_no_plain_lines(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    log_updates(tmp_path, 3, 6)
    shown = terminal.getvalue()
    assert "update 4/6" not in shown
    assert re.search(r"2/6 \[", shown), "it begins where the run does"
    assert re.search(r"6/6 \[.*updates/s, loss 4\.555, 110 tokens/s\]", shown)
    assert len(records(tmp_path)) == 2


def test_means_are_of_the_finite_updates_and_the_others_are_counted_and_said(tmp_path, capsys):
    with RunLog(tmp_path, learner(SETTINGS), progress_at(0), 500) as log:
        for step, is_finite, skipped in [(1, True, 0), (2, False, 1), (3, True, 1), (4, True, 1)]:
            log.update(progress_at(step, skipped=skipped), update(step, is_finite))
    first, second = records(tmp_path)
    assert (first["loss"], first["nll"], first["gradient_norm"]) == pytest.approx((4.1, 2.9, 0.25))
    assert (first["skipped"], second["skipped"]) == (1, 1)
    assert second["loss"] == pytest.approx(305 / 70)
    said = capsys.readouterr().err.splitlines()
    warning = "warning: 1 update skipped, because loss or gradient was not finite"
    assert [line for line in said if "warning" in line] == [warning]
    assert said[0] == warning


def test_of_updates_that_all_were_skipped_there_is_a_warning_and_no_record(tmp_path, capsys):
    with RunLog(tmp_path, learner(SETTINGS), progress_at(0, skipped=5), 500) as log:
        for step, is_finite in [(1, False), (2, False), (3, True), (4, True)]:
            log.update(progress_at(step, skipped=min(5 + step, 7)), update(step, is_finite))
    assert [record["step"] for record in records(tmp_path)] == [4]
    assert records(tmp_path)[0]["skipped"] == 7
    assert capsys.readouterr().err.startswith("warning: 2 updates skipped")


@pytest.mark.parametrize(
    ("settings", "at_end", "written"),
    [
        (TrainingConfig(max_steps=5, log_every=3), {}, [3, 5]),
        (TrainingConfig(max_steps=99, log_every=3, patience=2), {"validations_since_best": 2}, [3, 5]),
        # One that was only stopped writes its next line when it has been resumed.
        (TrainingConfig(max_steps=99, log_every=3), {}, [3]),
        (TrainingConfig(max_steps=99, log_every=5), {}, [5]),
    ],
)
def test_at_the_end_nothing_is_left_unsaid(tmp_path, capsys, settings, at_end, written):
    with RunLog(tmp_path, learner(settings), progress_at(0), 500) as log:
        for step in range(1, 6):
            log.update(progress_at(step, skipped=step > 3), update(step, step != 4))
        log.end(progress_at(5, skipped=1, **at_end))
    assert [record["step"] for record in records(tmp_path)] == written
    if written == [3, 5]:
        assert records(tmp_path)[-1]["nll"] == pytest.approx(3 - 25 / 50)
        assert records(tmp_path)[-1]["tokens_per_second"] == pytest.approx(90 / (2 * SECONDS))
    assert capsys.readouterr().err.count("warning: 1 update skipped") == 1


def test_micro_batches_that_were_split_are_counted_and_said(tmp_path, capsys):
    with RunLog(tmp_path, learner(SETTINGS), progress_at(0), 500) as log:
        for step in range(1, 5):
            log.update(progress_at(step, split=3 if step > 1 else 0), update(step))
    assert [record["split"] for record in records(tmp_path)] == [3, 3]
    assert capsys.readouterr().err.count("warning: 3 micro-batches did not fit into memory") == 1


def test_only_the_first_rank_writes_and_talks(tmp_path, capsys):
    (tmp_path / "log.jsonl").write_text(whole(9))
    with RunLog(tmp_path, learner(SETTINGS, Ranks(rank=1, size=2)), progress_at(0), 500) as log:
        for step in range(1, 5):
            log.update(progress_at(step, skipped=step), update(step))
        log.validation(progress_at(4), ValidationScores({"nll": 1.0, "bleu": 0.0, "chrf": 0.0}, seconds=1.0))
    assert (tmp_path / "log.jsonl").read_text() == whole(9)
    assert capsys.readouterr().err == ""


BOARD = SETTINGS.model_copy(update={"tensorboard": True})


def board_records(run_dir):
    """What TensorBoard shows, as records of log.jsonl."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run_dir / "tensorboard")).Reload()
    found = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            assert (event.step, tag) not in found
            found[event.step, tag] = event.value
    return found


def test_tensorboard_holds_exactly_the_numbers_of_the_log(tmp_path):
    pytest.importorskip("tensorboard")
    log_updates(tmp_path, 1, 4, BOARD)
    # Taken up from before a crash: what came after is dropped from both.
    with RunLog(tmp_path, learner(BOARD), progress_at(2), 500) as log:
        for step in range(3, 7):
            log.update(progress_at(step, skipped=1), update(step))
        log.validation(progress_at(6), ValidationScores({"nll": 1.5, "bleu": 2.5, "chrf": 3.5}, seconds=4.5))
    assert {record["step"] for record in records(tmp_path)} == {2, 4, 6}
    expected = {
        (record["step"], name): torch.tensor(float(number)).item()  # it keeps numbers in fp32
        for record in records(tmp_path)
        for name, number in record.items()
        if name != "step"
    }
    assert board_records(tmp_path) == expected


@pytest.mark.thorough
def test_a_kill_leaves_tensorboard_what_the_log_has(tmp_path):
    """Written by a thread, of which a kill leaves nothing."""
    pytest.importorskip("tensorboard")
    killed = f"""if True:
        import os, pathlib
        from test_log import *
        RunLog._say = lambda *_: os._exit(9)  # as soon as the record is written
        log = RunLog(pathlib.Path({str(tmp_path)!r}), learner(BOARD), Progress(), 500)
        for step in (1, 2):
            log.update(progress_at(step), update(step))
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    assert subprocess.run([sys.executable, "-c", killed], env=environment, check=False).returncode == 9
    [record] = records(tmp_path)
    assert board_records(tmp_path).keys() == {(2, name) for name in record if name != "step"}


def test_without_tensorboard_asking_for_it_is_an_error_that_says_what_to_install(tmp_path, monkeypatch):
    for name in ("tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(TrainingError, match=message("tensorboard-not-installed")):
        log_updates(tmp_path, 1, 2, BOARD)
    log_updates(tmp_path, 1, 2)
    assert not (tmp_path / "tensorboard").exists()


@pytest.mark.parametrize(("cores", "num_threads", "num_told"), [(0.9, 2, 1), (0.1, 2, 0), (None, 2, 0), (0.9, 1, 0)])
def test_other_programs_that_cost_speed_are_told_once(tmp_path, monkeypatch, capsys, cores, num_threads, num_told):
    monkeypatch.setattr(run_log, "OtherPrograms", lambda: SimpleNamespace(cores=lambda: cores))
    monkeypatch.setattr(run_log, "own_cores", lambda: {0, 1})
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    settings = TrainingConfig(max_steps=100, log_every=1)
    log_updates(tmp_path, 1, 60, settings)
    said = capsys.readouterr().err
    assert said.count("warning: other programs use 0.9 of 2 cores") == num_told
    if num_told:
        assert "update 19/100" in said[: said.index("warning")] and "update 20/100" not in said[: said.index("warning")]


def test_ranks_of_the_run_are_no_other_programs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_log, "OtherPrograms", lambda: SimpleNamespace(cores=lambda: 1e6))
    with RunLog(tmp_path, learner(SETTINGS, Ranks(0, 2)), Progress(), 500) as log:
        for step in range(1, 41):
            log.update(progress_at(step), update(step))
    assert "other programs" not in capsys.readouterr().err


def test_the_time_left_is_that_of_the_end_that_comes_first(tmp_path, capsys):
    settings = TrainingConfig(max_steps=1000, log_every=10, max_minutes=1)
    with RunLog(tmp_path, learner(settings), Progress(), 500) as log:
        for step in range(1, 11):
            log.update(progress_at(step, elapsed=SECONDS * step), update(step))
    assert re.search(r"update 10/120 .*  55 s left", capsys.readouterr().err)
