"""The decoding benchmark by device and precision: who takes part, with which options, and how it is stopped."""

import signal
import subprocess
import sys

import pytest
from benchmarks.contenders import decoding
from benchmarks.decoding_process import megabytes_of_session
from benchmarks.environment import PeerError, environment_of, killed_after


@pytest.fixture
def exports(monkeypatch):
    """The exports that are asked for, which are not made."""
    asked = []

    def export(model_dir, output, format, quantization):
        asked.append((format, quantization))
        return output

    monkeypatch.setattr(decoding, "export", export)
    return asked


def test_on_a_gpu_all_compute_there_in_the_same_precisions(exports, tmp_path):
    found = decoding.line_up(tmp_path, tmp_path, {"huggingface": "python"}, 8, "cuda", [])
    assert [one.title for one in found] == [
        f"{name}, {precision}" for name in ("ours", "CTranslate2", "Hugging Face") for precision in ("fp32", "fp16")
    ]
    assert {one.settings["device"] for one in found} == {"cuda"}
    assert [one.settings.get("dtype") for one in found] == ["fp32", "fp16", None, None, "fp32", "fp16"]
    assert [one.settings["compute_type"] for one in found if one.name == "CTranslate2"] == ["float32", "float16"]
    assert exports == [("ctranslate2", "float32"), ("ctranslate2", "float16"), ("huggingface", "float32")]
    assert "--device cuda --dtype fp16" in " ".join(found[1].line_command)
    bf16 = decoding.line_up(tmp_path, tmp_path, {}, 8, "cuda", ["bf16"])
    assert [one.title for one in bf16] == ["ours, bf16", "CTranslate2, bf16"]


def test_on_a_cpu_the_precisions_that_are_asked_for_take_part(exports, tmp_path):
    found = decoding.line_up(tmp_path, tmp_path, {"huggingface": "python"}, 2, "cpu", ["bf16"])
    assert {one.precision for one in found} == {"bf16"}
    names = {one.name for one in found}
    assert names == {"ours", "ours, 1 worker", "CTranslate2, 1 × 2", "CTranslate2, 2 × 1", "Hugging Face"}
    assert "--device cpu --dtype bf16" in " ".join(found[0].line_command)
    usual = decoding.line_up(tmp_path, tmp_path, {}, 2, "cpu", [])
    assert {one.precision for one in usual} == {"fp32", "int8"}
    assert "ours by CTranslate2, fp32" in [one.title for one in usual]


@pytest.mark.parametrize(("device", "precision"), [("cpu", "fp16"), ("cuda", "int8")])
def test_a_precision_that_a_device_does_not_decode_in_is_refused(tmp_path, device, precision):
    with pytest.raises(PeerError, match=f"--precision {precision} is not for decoding on {device}: leave it out"):
        decoding.line_up(tmp_path, tmp_path, {}, 1, device, ["fp32", precision])


@pytest.mark.thorough
def test_a_contender_that_does_not_end_is_stopped(tmp_path):
    """And its children, which would keep the GPU."""
    pid_file = tmp_path / "pid"
    code = f"import os, time; pid = os.fork(); pid and open({str(pid_file)!r}, 'w').write(str(pid)); time.sleep(60)"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, start_new_session=True) as process, killed_after(process, 1.0):
        assert process.wait() == -signal.SIGKILL
    assert megabytes_of_session(process.pid) == 0
    assert pid_file.read_text() > "0"


def test_a_contender_ends_with_the_command(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, start_new_session=True) as process:
        with pytest.raises(KeyboardInterrupt), killed_after(process, None):
            raise KeyboardInterrupt
        assert process.wait() == -signal.SIGKILL


def test_libraries_of_a_contender_come_before_others(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/b")
    assert environment_of("x", 1, "/a")["LD_LIBRARY_PATH"] == "/a:/b"
    assert environment_of("x", 1)["LD_LIBRARY_PATH"] == "/b"
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert environment_of("x", 1, "/a")["LD_LIBRARY_PATH"] == "/a"
    assert "LD_LIBRARY_PATH" not in environment_of("x", 1)
