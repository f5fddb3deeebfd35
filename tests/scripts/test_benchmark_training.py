"""How the training benchmark runs a contender, reads its log, and compares it with ours."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.contenders import timed_training
from benchmarks.contenders.training import TRAINERS
from benchmarks.environment import SCRIPTS, PeerError
from benchmarks.training_process import Contender, Race, Result, read_log, run
from benchmarks.training_race import IMPORTED, OWN_LOG, check_first_loss, summary

from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig

BENCHMARKS = Path(SCRIPTS) / "benchmarks"


@pytest.fixture
def race(tmp_path):
    return Race(tmp_path, TransformerConfig(), TrainingConfig(), 6, warm_up=2, updates=2, threads=1, device="cpu")


RESULT = Result(100.0, 5.0, None, 3.0, 2.0, 6.5)


def contender(name="x", precision="fp32", command=("true",), progress=OWN_LOG):
    return Contender(name, precision, command, IMPORTED, progress)


def test_ratios_of_training_are_of_the_same_round_and_precision():
    def results(*speeds):
        return [replace(RESULT, tokens_per_second=speed, megabytes=speed) for speed in speeds]

    report = summary({
        contender("ours"): results(100, 200, 300),
        contender("ours", "bf16"): results(1000, 1000, 1000),
        contender("peer"): results(50, 200, 100),
        contender("peer", "bf16"): results(500, 100, 200),
    })  # fmt: skip
    assert report["peer, fp32"]["ratios"] == [2, 1, 3]
    assert report["peer, fp32"]["ratio"] == 2
    assert report["peer, bf16"]["ratios"] == [2, 10, 5]
    assert report["peer, bf16"]["tokens_per_second"] == 200
    assert report["peer, bf16"]["megabytes"] == 500
    assert "ratio" not in report["ours, fp32"]


# What the trainers printed, shortened: each after the seconds at which it came here, and its speed.
FAIRSEQ = """\
2026-11-21 11:30:12 | INFO | fairseq.tasks.text_to_speech | Please install tensorboardX: pip install tensorboardX
2026-11-21 11:30:13 | INFO | fairseq_cli.train | task: TranslationTask
2026-11-21 11:30:14 | INFO | train_inner | {"epoch": 1, "update": 0.008, "loss": "13.558", "wps": "0", "ups": "0", \
"wpb": "3808", "bsz": "224", "num_updates": "1", "lr": "0.0001", "gnorm": "0.637", "train_wall": "0", "wall": "1"}
2026-11-21 11:30:14 | INFO | train_inner | {"epoch": 1, "update": 0.015, "loss": "13.585", "wps": "14490.3", \
"ups": "3.66", "wpb": "3961", "bsz": "272", "num_updates": "2", "lr": "0.0001", "gnorm": "0.736", "wall": "2"}
2026-11-21 11:30:14 | INFO | train_inner | {"epoch": 1, "update": 0.023, "loss": "13.607", "wps": "29686.5", \
"ups": "7.82", "wpb": "3798", "bsz": "160", "num_updates": "3", "lr": "0.0001", "gnorm": "0.619", "wall": "2"}
2026-11-21 11:30:15 | INFO | train_inner | {"epoch": 1, "update": 0.03, "loss": "13.555", "wps": "24574.7", \
"ups": "9.56", "wpb": "2571", "bsz": "208", "num_updates": "4", "lr": "0.0001", "gnorm": "0.762", "wall": "2"}
2026-11-21 11:30:15 | INFO | train | {"epoch": 1, "train_wps": "23576.2", "train_ups": "6.54", "train_wpb": \
"3636.2", "train_num_updates": "6", "train_lr": "0.0001", "train_gnorm": "0.717", "train_train_wall": "1"}"""
EOLE = """\
  from eole.ops import _CPP_OPS_AVAILABLE, gelu_and_mul, silu_and_mul, gelu_tanh_and_mul
[2026-11-21 11:30:23,489 INFO] Logging initialized (log_file: )
[2026-11-21 11:30:33,450 INFO] Step  1/    4; acc: 0.0; ppl: 8048.52; xent: 8.99; aux: 0.000; mtp: 0.000; \
attn_ent: 0.000; lr: 1.00e-04; sents:     341; bsz: 3751/3447/341; 419/385 tok/s;      9 sec;
[2026-11-21 11:30:33,587 INFO] Step  2/    4; acc: 0.0; ppl: 8038.66; xent: 8.99; aux: 0.000; mtp: 0.000; \
attn_ent: 0.000; lr: 1.00e-04; sents:     240; bsz: 3360/3840/240; 24411/27898 tok/s;      9 sec;
[2026-11-21 11:30:33,788 INFO] Step  3/    4; acc: 0.0; ppl: 8018.73; xent: 8.99; aux: 0.000; mtp: 0.000; \
attn_ent: 0.000; lr: 1.00e-04; sents:     186; bsz: 3162/3743/186; 15813/18718 tok/s;      9 sec;
[2026-11-21 11:30:33,917 INFO] Step  4/    4; acc: 0.0; ppl: 8020.59; xent: 8.99; aux: 0.000; mtp: 0.000; \
attn_ent: 0.000; lr: 1.00e-04; sents:     204; bsz: 3264/3876/204; 25239/29972 tok/s;      9 sec;
[2026-11-21 11:30:35,152 INFO] Saving optimizer and weights to step_4, and symlink to eole.model"""
JOEYNMT = """\
Matplotlib is building the font cache; this may take a moment.
2026-11-21 11:31:56,504 - INFO - root - Hello! This is Joey-NMT (version 2.3.0).
2026-11-21 11:31:59,222 - INFO - joeynmt.training - Epoch   1, Step:        1, Batch Loss:     7.759456, \
Batch Acc: 0.000000, Tokens per Sec:     1648, Lr: 0.000000
2026-11-21 11:31:59,625 - INFO - joeynmt.training - Epoch   1, Step:        2, Batch Loss:     7.756745, \
Batch Acc: 0.000000, Tokens per Sec:     3868, Lr: 0.000000
2026-11-21 11:31:59,939 - INFO - joeynmt.training - Epoch   1, Step:        3, Batch Loss:     7.757662, \
Batch Acc: 0.000000, Tokens per Sec:     5145, Lr: 0.000000
2026-11-21 11:32:00,350 - INFO - joeynmt.training - Epoch   1, Step:        4, Batch Loss:     7.757502, \
Batch Acc: 0.000000, Tokens per Sec:     4848, Lr: 0.000000
2026-11-21 11:32:00,351 - INFO - joeynmt.training - Training ended since maximum num. of updates 4 was reached."""
SOCKEYE = """\
/site-packages/torch/jit/_trace.py:1000: DeprecationWarning: `torch.jit.trace` is deprecated.
[INFO:sockeye.utils] Sockeye: 3.1.34, commit 4c30942ddb523533bccb4d2cbb3e894e45b1db93, path __init__.py
[INFO:sockeye.training] E=0 B=2	s/sec=2717.72 tok/sec=51564.73 u/sec=7.99	ppl=7979.424139
[INFO:sockeye.training] E=0 B=3	s/sec=1338.59 tok/sec=25086.83 u/sec=7.87	ppl=7971.431543
[INFO:sockeye.training] E=0 B=4	s/sec=960.11 tok/sec=18100.93 u/sec=5.65	ppl=7962.423021
[INFO:sockeye.training] Checkpoint [1]	Updates=4 Epoch=0 Samples=1106 Time-cost=1.004 Updates/sec=5.978"""
OURS = """\
imported
update 1: 5032.0 target tokens/s
update 2: 5122.8 target tokens/s
update 4: 765.3 target tokens/s
GPU megabytes: 123
first loss: 9.607031"""


@pytest.fixture
def trainers(race):
    """Each with its log, the speeds of its timed updates, and the number of the first update that it tells of."""
    for name, text in {"pieces.txt": "a\nb\n", "train.source": "a b\n"}.items():
        (race.directory / name).write_text(text, encoding="utf-8")
    (race.directory / "fairseq").mkdir()  # as if preprocessed
    logs = {"fairseq": FAIRSEQ, "eole": EOLE, "joeynmt": JOEYNMT, "sockeye": SOCKEYE}
    speeds = {
        "fairseq": [29686.5, 24574.7],
        "eole": [18718, 29972],
        "joeynmt": [5145, 4848],
        "sockeye": [25086.83, 18100.93],
    }
    assert logs.keys() == TRAINERS.keys()
    return [(TRAINERS[name]("python", "fp32", race), logs[name], speeds[name]) for name in TRAINERS]


def timed(text):
    """Lines that come after 0, 1, 3, 6, 10 … seconds."""
    return [(at * (at + 1) / 2, line) for at, line in enumerate(text.splitlines())]


def test_logs_of_the_trainers_are_understood(trainers, race):
    for trainer, log, (third, fourth) in trainers:
        result = read_log(trainer, timed(log), race, kibibytes=2000)
        lines = [line for _, line in timed(log)]
        at = next(i for i, line in enumerate(lines) if trainer.progress.search(line))
        last = at + 3 if trainer.name != "Sockeye" else at + 2  # Sockeye says nothing of its first update
        expected = (third * (last - 1) + fourth * last) / (2 * last - 1)
        assert result.tokens_per_second == pytest.approx(expected), trainer.name
        assert result.seconds_to_first_update == at * (at + 1) / 2
        assert result.seconds_after_imports == at * (at + 1) / 2 - 1
        assert (result.megabytes, result.gpu_megabytes, result.first_loss) == (2.048, None, None)


def test_our_own_log_is_understood(race):
    result = read_log(contender(), timed(OURS), race, kibibytes=3000)
    assert result == Result(pytest.approx(765.3), 3.072, 123.0, 1.0, 1.0, 9.607031)


def test_pace_is_of_the_updates_since_the_line_before(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(timed_training.time, "perf_counter", lambda: now)
    of_updates = timed_training.Pace(warm_up=2, updates=2, device=torch.device("cpu"))
    for target_tokens in (10, 20, 30, 50):
        now += 2.0
        of_updates.updated(target_tokens)
    of_updates.finish(first_loss=6.5)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"update {n}: {speed} target tokens/s" for n, speed in ((1, 5.0), (2, 10.0), (4, 20.0))] + [
        "first loss: 6.500000"
    ]


def test_a_log_that_stops_early_or_says_nothing_is_refused(trainers, race):
    for trainer, log, _ in [*trainers, (contender(), OURS, None)]:
        lines = timed(log)
        last = max(i for i, (_, line) in enumerate(lines) if trainer.progress.search(line))
        for bad in (lines[:last], lines[last:], []):
            with pytest.raises(ValueError, match="does not tell of its imports and of 4 updates"):
                read_log(trainer, bad, race, kibibytes=0)


def python(code):
    return contender(command=(sys.executable, "-c", code))


@pytest.mark.thorough
def test_a_contender_runs_alone_under_the_conditions_of_all(race, monkeypatch):
    """Its environment, where it runs, and the memory that it held; nothing of ours is on its path."""
    monkeypatch.setenv("PYTHONPATH", "/ours")
    code = """
import os, time
words = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_", "PYTHONPATH")]
print(*words, os.getcwd())
print("imported")
held = b"x" * 300_000_000
for update in (1, 2, 4):
    print(f"update {update}: 10.0 target tokens/s")
print(f"first loss: {len(words)}")
time.sleep(1)  # so that its memory can be read on a busy machine, too
"""
    result = run(python(code), race)
    assert 300 < result.megabytes < 330
    assert 0 < result.seconds_after_imports < result.seconds_to_first_update
    assert (result.tokens_per_second, result.first_loss) == (10, 3)
    with pytest.raises(PeerError, match=re.escape(f"\n  1 4294967296 {SCRIPTS} {race.directory}\n")):
        run(python(code + "raise SystemExit(3)"), race)
    own = replace(python(code + "raise SystemExit(3)"), pythonpath="/theirs")
    with pytest.raises(PeerError, match=r"x, fp32: it ended with status 3.*\n  1 4294967296 /theirs "):
        run(own, race)


def test_another_first_loss_is_refused():
    same = replace(RESULT, first_loss=6.50009)
    check_first_loss(contender(), same, RESULT)
    check_first_loss(contender(), replace(RESULT, first_loss=None), RESULT)
    with pytest.raises(PeerError, match=r"x, fp32: the first loss is 6.500110 and ours 6.500000"):
        check_first_loss(contender(), replace(RESULT, first_loss=6.50011), RESULT)


def test_every_module_that_a_command_starts_is_a_program():
    """Those of peers, too, which no test here can start."""
    sources = [path.read_text(encoding="utf-8") for path in BENCHMARKS.rglob("*.py")]
    started = {name for text in sources for name in re.findall(r'"benchmarks\.contenders\.(\w+)"', text)}
    started |= {name for text in sources for name in re.findall(r'"(decode_\w+)"', text)}
    assert {"train_ours", "train_plain", "train_sockeye", "run_fairseq", "decode_ours"} <= started
    for name in started:
        program = (BENCHMARKS / "contenders" / f"{name}.py").read_text(encoding="utf-8")
        assert 'if __name__ == "__main__":' in program, name
