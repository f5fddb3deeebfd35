"""How commands begin and end, and the command of all stages."""

import errno
import os
import re
import subprocess
import sys

import pytest
from tiny import ROOT

from transformer_mt import __main__ as commands
from transformer_mt import cli
from transformer_mt.errors import UserError


@pytest.mark.parametrize("status", [0, 143])
def test_a_command_ends_with_its_own_status_and_gets_its_arguments(status):
    got = []

    def main(argv):
        got.append(argv)
        return status

    assert cli.run(main, ["a", "b=1"]) == status
    assert got == [["a", "b=1"]]


def ends_with(error, capsys):
    def main(argv):
        raise error

    return cli.run(main, []), *capsys.readouterr()


@pytest.mark.parametrize("kind", [UserError, *UserError.__subclasses__()])
def test_a_mistake_of_the_users_is_2_and_its_message(capsys, kind):
    assert ends_with(kind("x.yaml:3: is wrong; mend it"), capsys) == (2, "", "error: x.yaml:3: is wrong; mend it\n")


def test_control_c_is_130_without_a_traceback(capsys):
    assert ends_with(KeyboardInterrupt(), capsys) == (130, "", "interrupted\n")


def test_what_the_system_refuses_is_2_and_names_the_file(capsys):
    refused = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "log.jsonl")
    assert ends_with(refused, capsys) == (2, "", "error: log.jsonl: No space left on device\n")


@pytest.mark.parametrize("kind", [ValueError, OSError, AssertionError])
def test_a_mistake_of_ours_keeps_its_traceback(capsys, kind):
    with pytest.raises(kind, match="ours"):
        ends_with(kind("ours"), capsys)


@pytest.mark.parametrize("flush", [True, False])
def test_a_reader_that_has_gone_ends_the_command_quietly_as_sigpipe_does(flush):
    program = (
        "import sys; from transformer_mt import cli\n"
        "def main(argv):\n"
        "    while True: print('line', flush=" + str(flush) + ")\n"
        "sys.exit(cli.run(main))"
    )
    # Buffered, as by default: what the buffer still holds at the end must not be said to be lost.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def run_commands(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["transformer-mt", *arguments])
    try:
        status = commands.main()
    except SystemExit as ended:
        status = ended.code
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "expected"), [((), 0), (("-h",), 0), (("--help",), 0), (("tarin",), 2), (("--version", "x"), 2)]
)
def test_without_a_stage_all_are_listed_and_an_unknown_one_is_an_error(monkeypatch, capsys, arguments, expected):
    status, output, error = run_commands(monkeypatch, capsys, *arguments)
    assert (status, error) == (expected, f"error: no such stage: {arguments[0]}\n" if expected else "")
    for stage, purpose in commands.STAGES.items():
        assert re.search(f"^  {stage} +{purpose}$", output, re.MULTILINE)


def test_the_stages_are_the_modules_that_are_commands():
    modules = {path.stem for path in (ROOT / "transformer_mt").glob("*.py") if "cli.run(main)" in path.read_text()}
    assert set(commands.STAGES) == modules


@pytest.mark.parametrize("stage", commands.STAGES)
def test_the_help_of_each_stage_ends_with_an_example_of_it(monkeypatch, capsys, stage):
    status, output, error = run_commands(monkeypatch, capsys, stage, "--help")
    assert (status, error) == (0, "")
    assert output.startswith(f"usage: python -m transformer_mt.{stage} ")
    example = output.rpartition("example:\n  ")[2]
    assert f"python -m transformer_mt.{stage} " in example
    for config in re.findall(r"configs/\S+", example):
        assert (ROOT / config).is_file()


def test_arguments_and_mistakes_pass_through_to_the_stage_and_back(monkeypatch, capsys, tmp_path):
    status, _, error = run_commands(monkeypatch, capsys, "average", str(tmp_path))
    assert status == 2
    assert error.startswith(f"error: {tmp_path} holds no config.yaml")
