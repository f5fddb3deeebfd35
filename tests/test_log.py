import io
import json
import math
import re

import pytest
import torch

from transformer_mt.config import TrainingConfig
from transformer_mt.data.batching import Position
from transformer_mt.training.checkpoint import Progress
from transformer_mt.training.log import RunLog
from transformer_mt.training.update import Update
from transformer_mt.training.validation import ValidationScores

SETTINGS = TrainingConfig(max_steps=6, log_every=2)
SECONDS = 0.5  # of each update


def update(step):
    """An update whose every number tells which it is."""
    num_labels = 10 * step
    return Update(
        smoothed=torch.tensor(4.0 * num_labels + step**2),
        nll=torch.tensor(3.0 * num_labels - step**2),
        num_labels=num_labels,
        num_positions=num_labels + step**2,
        gradient_norm=torch.tensor(0.25 * step),
        learning_rate=0.125 / step,
    )


def progress_at(step, **changes):
    tokens = sum(10 * each for each in range(1, step + 1))
    return Progress(step=step, position=Position(3, step), tokens=tokens, seconds=SECONDS * step, **changes)


def log_updates(run_dir, first, last, settings=SETTINGS):
    with RunLog(run_dir, settings, progress_at(first - 1)) as log:
        for step in range(first, last + 1):
            log.update(progress_at(step), update(step))


def records(run_dir):
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().split("\n")[:-1]]


def test_a_record_tells_the_means_over_the_tokens_of_its_updates(tmp_path):
    log_updates(tmp_path, 1, 5)
    first, second = records(tmp_path)
    assert (first["step"], second["step"]) == (2, 4)
    assert second == pytest.approx(
        {
            "step": 4,
            "epoch": 3,
            "loss": (4 * 70 + 25) / 70,
            "nll": (3 * 70 - 25) / 70,
            "perplexity": math.exp((3 * 70 - 25) / 70),
            "learning_rate": 0.125 / 4,
            "gradient_norm": 0.25 * 4,
            "tokens_per_second": 70 / (2 * SECONDS),
            "padding": 25 / (70 + 25),
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
    with RunLog(tmp_path, TrainingConfig(log_every=1), Progress()) as log:
        lost = Update(torch.tensor(1e6), torch.tensor(1e6), 10, 10, torch.tensor(1.0), 0.1)
        log.update(progress_at(1), lost)
        log.validation(progress_at(1), ValidationScores(nll=1e5, bleu=0.0, seconds=1.0))
    assert all(math.isfinite(value) for record in records(tmp_path) for value in record.values())


@pytest.mark.parametrize("best", [True, False])
def test_a_validation_is_written_and_said(tmp_path, capsys, best):
    with RunLog(tmp_path, SETTINGS, progress_at(3)) as log:
        scores = ValidationScores(nll=math.log(8.0), bleu=12.345, seconds=7.0)
        log.validation(progress_at(4, best_step=4 if best else 2), scores)
    assert records(tmp_path) == [
        pytest.approx(
            {
                "step": 4,
                "valid_nll": math.log(8.0),
                "valid_perplexity": 8.0,
                "valid_bleu": 12.345,
                "valid_seconds": 7.0,
                "best": best,
            }
        )
    ]
    said = ", the best so far" if best else ""
    assert capsys.readouterr().err == f"update 4: validation perplexity 8.00, BLEU 12.35{said} (7 s)\n"


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
        f"update {step}/6  loss {loss:.3f}  perplexity {perplexity:.2f}  {rate} tokens/s"
        for step, loss, perplexity, rate in [
            (2, 125 / 30, math.exp(85 / 30), 30),
            (4, 305 / 70, math.exp(185 / 70), 70),
        ]
    ]


def test_a_terminal_shows_a_bar_and_no_plain_lines(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    log_updates(tmp_path, 3, 6)
    shown = terminal.getvalue()
    assert "update 4/6" not in shown
    assert re.search(r"2/6 \[", shown), "it begins where the run does"
    assert re.search(r"6/6 \[.*updates/s, loss 4\.555, 110 tokens/s\]", shown)
    assert len(records(tmp_path)) == 2
