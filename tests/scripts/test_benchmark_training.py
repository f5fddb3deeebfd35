"""How the training benchmark runs a contender, reads its log, and compares it with ours."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.contenders import timed_training
from benchmarks.contenders.training import eole
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


# What trainers printed, shortened.
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
OURS = """\
imported
update 1: 5032.0 target tokens/s
update 2: 5122.8 target tokens/s
update 4: 765.3 target tokens/s
GPU megabytes: 123
first loss: 9.607031"""


@pytest.fixture
def of_eole(race):
    for name, text in {"pieces.txt": "a\nb\n", "train.source": "a b\n"}.items():
        (race.directory / name).write_text(text, encoding="utf-8")
    return eole("python", "fp32", race)


def timed(text):
    """Lines that come after 0, 1, 3, 6, 10 … seconds."""
    return [(at * (at + 1) / 2, line) for at, line in enumerate(text.splitlines())]


def test_the_log_of_eole_is_understood(of_eole, race):
    """The seconds before the lines are 1, 3, 6, 10 and so on; the third and the fourth update are timed."""
    result = read_log(of_eole, timed(EOLE), race, kibibytes=2000)
    at = next(i for i, (_, line) in enumerate(timed(EOLE)) if of_eole.progress.search(line))
    assert result.tokens_per_second == pytest.approx((18718 * (at + 2) + 29972 * (at + 3)) / (2 * at + 5))
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


def test_a_log_that_stops_early_or_says_nothing_is_refused(of_eole, race):
    for trainer, log in [(of_eole, EOLE), (contender(), OURS)]:
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
    assert {"train_ours", "train_plain", "decode_ours"} <= started
    for name in started:
        program = (BENCHMARKS / "contenders" / f"{name}.py").read_text(encoding="utf-8")
        assert 'if __name__ == "__main__":' in program, name
