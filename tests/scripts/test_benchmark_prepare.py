"""The benchmark of prepare: every contender encodes the whole text, and speeds are per core."""

import shutil
from pathlib import Path

import pytest
from benchmarks import prepare_race
from benchmarks.environment import PeerError
from benchmarks.prepare_race import IN_MEMORY, PROGRAM, Timed, measure_prepare
from helpers.messages import message
from helpers.tiny import demo_pairs


@pytest.fixture
def text(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "text.en", tmp_path / "text.de"
    for path, side in zip(paths, zip(*demo_pairs(300), strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return paths


@pytest.mark.slow
def test_all_take_part_in_every_round(
    text: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measure_prepare(text, tmp_path / "race", 2, vocab_size=500)
    against = PROGRAM if shutil.which(PROGRAM) else IN_MEMORY
    assert {IN_MEMORY, against, "prepare --workers 1"} <= set(found)
    assert all(result["compared_with"] == against for result in found.values())
    assert all(len(result["rounds"]) == len(result["ratios_per_core"]) == 2 for result in found.values())
    assert found[against]["ratios_per_core"] == [1.0, 1.0]
    assert found["prepare --workers 1"]["megabytes"] > 10
    printed = capsys.readouterr().out
    assert "300 pairs" in printed
    assert PROGRAM in found or "spm_encode: left out" in printed


def test_a_speed_is_divided_by_the_number_of_processes(capsys: pytest.CaptureFixture[str]) -> None:
    alone, ours = [Timed(10.0, 10.0), Timed(20.0, 20.0)], [Timed(5.0, 12.5, 90.0), Timed(20.0, 40.0, 100.0)]
    result = prepare_race._result("prepare --workers 2", ours, IN_MEMORY, alone, 1000)
    assert result["ratios_per_core"] == [1.0, 0.5]
    assert result["ratios_of_processor_time"] == [0.8, 0.5]
    assert (result["pairs_per_second"], result["megabytes"]) == (125.0, 100.0)
    assert "125 pairs/s; per core 0.75 times sentencepiece alone" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_contender_that_fails_is_shown(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=message("part-cannot-be-read", "has failed", "no such")):
        prepare_race._timed([*prepare_race._OURS, str(tmp_path / "no such.yaml")])
