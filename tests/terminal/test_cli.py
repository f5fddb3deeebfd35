"""How commands begin and end, and the command of all stages."""

import errno
import importlib
import logging
import os
import re
import subprocess
import sys

import pytest
from helpers.tiny import ROOT

from transformer_mt import __main__ as commands
from transformer_mt import __version__, evaluate, rerank, score, translate
from transformer_mt.errors import ConfigError, UserError
from transformer_mt.terminal import cli


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


def test_an_option_that_is_no_option_may_be_meant_as_a_setting(capsys):
    with pytest.raises(SystemExit):
        translate.main(["a", "--beam", "5"])
    assert "unrecognized arguments: --beam" in (said := capsys.readouterr().err) and "written key=value" in said
    with pytest.raises(SystemExit):
        score.main(["a", "--beam", "5"])
    assert "key=value" not in capsys.readouterr().err, "it takes none"


@pytest.mark.parametrize(
    ("stage", "advice"),
    [
        (translate, "beam_size=5. To translate a file, write --input t.en"),
        (evaluate, "beam_size=5. To score a file of translations, write --hypothesis FILE --reference FILE"),
        (rerank, "channel=0.5. To choose weights by a file of references, write --tune t.en"),
    ],
)
def test_a_file_in_the_place_of_a_setting_is_told_how_it_is_given(stage, advice):
    with pytest.raises(ConfigError) as refused:
        stage.main(["a", "t.en"])
    assert str(refused.value) == f"t.en: is not a setting; write key=value, as in {advice}"


def test_control_c_is_130_without_a_traceback(capsys):
    assert ends_with(KeyboardInterrupt(), capsys) == (130, "", "interrupted\n")


def test_what_the_system_refuses_is_2_and_names_the_file(capsys):
    refused = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "log.jsonl")
    assert ends_with(refused, capsys) == (2, "", "error: log.jsonl: No space left on device\n")


def test_a_name_that_the_locale_cannot_write_is_2_and_names_the_cure(capsys):
    status, _, error = ends_with(UnicodeEncodeError("ascii", "däta", 1, 2, "ordinal not in range(128)"), capsys)
    assert status == 2 and error.startswith("error: däta: ") and "the encoding ascii" in error
    assert "LC_ALL=C.UTF-8" in error


def test_a_character_that_utf_8_lacks_is_no_fault_of_the_terminal():
    program = "import sys; from transformer_mt.terminal import cli; cli.run(lambda _: open('d\\ud800ta'), [])"
    command = [sys.executable, "-X", "utf8", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("surrogates not allowed\n") and "terminal lacks" not in done.stderr


@pytest.mark.parametrize(
    ("terminal", "said"),
    [
        ({"PYTHONIOENCODING": "ascii"}, rb"\xfc\u20ac"),
        ({"PYTHONIOENCODING": "latin-1"}, b"\xfc" + rb"\u20ac"),
        ({"PYTHONIOENCODING": "utf-8"}, "ü€".encode()),
        ({"PYTHONIOENCODING": "ascii:surrogateescape"}, rb"\xfc\u20ac"),  # as Python opens it with LC_ALL=C
    ],
)
def test_a_terminal_without_a_character_shows_it_escaped_and_lines_stay_utf_8(terminal, said):
    program = (
        "import sys; from transformer_mt.terminal import cli\n"
        "def main(argv):\n"
        "    for stream in (sys.stdout, sys.stderr): print('\\xfc\\u20ac', file=stream)\n"
        "    with cli.output() as lines: lines.write('\\xfc\\u20ac'.encode())\n"
        "    return 0\n"
        "sys.exit(cli.run(main))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=os.environ | terminal, capture_output=True, check=True
    )
    assert done.stderr.rstrip() == said
    assert done.stdout.splitlines() == [said, "ü€".encode()]


@pytest.mark.parametrize("kind", [ValueError, OSError, AssertionError])
def test_a_mistake_of_ours_keeps_its_traceback(capsys, kind):
    with pytest.raises(kind, match="ours"):
        ends_with(kind("ours"), capsys)


@pytest.mark.parametrize("flush", [True, False])
def test_a_reader_that_has_gone_ends_the_command_quietly_as_sigpipe_does(flush):
    program = (
        "import sys; from transformer_mt.terminal import cli\n"
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


@pytest.mark.parametrize("arguments", [[], ["--version"], ["frobnicate"], ["settings"]])
def test_the_commands_and_the_settings_are_listed_quietly_although_nobody_reads_them(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "transformer_mt", *arguments]
    with os.fdopen(writer, "w") as nobody:
        done = subprocess.run(command, cwd=ROOT, stdout=nobody, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


CONSOLE, PACKAGE, STAGE = "/usr/bin/transformer-mt", "/x/transformer_mt/__main__.py", "/x/transformer_mt/train.py"


def run_commands(monkeypatch, capsys, *arguments, typed=CONSOLE):
    monkeypatch.setattr(sys, "argv", [typed, *arguments])
    try:
        status = commands.main()
    except SystemExit as ended:
        status = ended.code
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [((), None), (("-h",), None), (("--help",), None), (("tarin",), ". Did you mean 'train'?"), (("--quiet", "x"), "")],
)
def test_without_a_command_all_are_listed_and_an_unknown_one_is_an_error(monkeypatch, capsys, arguments, advice):
    status, output, error = run_commands(monkeypatch, capsys, *arguments)
    expected = (0, "") if advice is None else (2, f"error: no such command: {arguments[0]}{advice}\n")
    assert (status, error) == expected
    purposes = commands.STAGES | commands.OTHERS
    for name, purpose in purposes.items():
        assert re.search(f"^  {name} +{purpose}$", output, re.MULTILINE)


def test_the_version_is_the_packages(monkeypatch, capsys):
    assert run_commands(monkeypatch, capsys, "--version") == (0, f"transformer-mt {__version__}\n", "")


def test_the_stages_are_the_modules_that_are_commands():
    modules = {path.stem for path in (ROOT / "transformer_mt").glob("*.py") if "cli.run(main)" in path.read_text()}
    assert set(commands.STAGES) == modules


@pytest.mark.parametrize(
    ("typed", "prefix"),
    [(CONSOLE, "transformer-mt"), (PACKAGE, "python -m transformer_mt")],
    ids=["console", "package"],
)
@pytest.mark.parametrize("name", [*commands.STAGES, *commands.OTHERS])
def test_help_and_its_example_have_the_form_that_was_typed(monkeypatch, capsys, typed, prefix, name):
    status, output, error = run_commands(monkeypatch, capsys, name, "--help", typed=typed)
    assert (status, error) == (0, "")
    assert output.startswith(f"usage: {prefix} {name} ")
    example = output.rpartition("example:\n  ")[2]
    assert f"{prefix} {name} " in example
    assert "transformer_mt." not in output
    assert output.count("python -m") == output.count("python -m transformer_mt ") * (prefix != "transformer-mt")
    for config in re.findall(r"configs/\S+yaml", example):
        assert (ROOT / config).is_file()


@pytest.mark.parametrize("name", commands.STAGES)
def test_help_of_a_module_names_the_module(monkeypatch, capsys, name):
    monkeypatch.setattr(sys, "argv", [f"/x/transformer_mt/{name}.py", "--help"])
    with pytest.raises(SystemExit):
        importlib.import_module(f"transformer_mt.{name}").main(["--help"])
    output = capsys.readouterr().out
    assert output.startswith(f"usage: python -m transformer_mt.{name} ")
    assert f"python -m transformer_mt.{name} " in output.rpartition("example:\n  ")[2]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (CONSOLE, "run `transformer-mt prepare`, see transformer-mt settings training"),
        (PACKAGE, "run `python -m transformer_mt prepare`, see python -m transformer_mt settings training"),
        (STAGE, "run `python -m transformer_mt.prepare`, see python -m transformer_mt settings training"),
    ],
)
def test_an_error_names_commands_in_the_form_that_was_typed(monkeypatch, capsys, typed, said):
    monkeypatch.setattr(sys, "argv", [typed])
    error = UserError("run `python -m transformer_mt.prepare`, see python -m transformer_mt settings training")
    assert ends_with(error, capsys) == (2, "", f"error: {said}\n")


def test_a_command_to_go_on_with_has_the_form_that_was_typed_and_can_be_run(monkeypatch, tmp_path):
    script = tmp_path / "bin" / "transformer-mt"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    for typed, expected in [
        (str(script), [str(script), "average", "runs/x y"]),
        (PACKAGE, [cli.python(), "-m", "transformer_mt", "average", "runs/x y"]),
        (STAGE, [cli.python(), "-m", "transformer_mt.average", "runs/x y"]),
    ]:
        monkeypatch.setattr(sys, "argv", [typed])
        assert cli.command("average", "runs/x y") == expected
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", str(script.parent))
    assert cli.command("average") == ["transformer-mt", "average"], "where the shell finds it"
    monkeypatch.chdir(script.parent.parent)
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.command("average") == ["bin/transformer-mt", "average"]


def test_arguments_and_mistakes_pass_through_to_the_stage_and_back(monkeypatch, capsys, tmp_path):
    status, _, error = run_commands(monkeypatch, capsys, "average", str(tmp_path))
    assert status == 2
    assert error.startswith(f"error: {tmp_path} holds no config.yaml")


def test_a_command_in_a_warning_has_the_form_that_was_typed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["transformer-mt"])
    assert cli.run(lambda _: 0, []) == 0
    record = logging.makeLogRecord({"msg": "warning: `python -m transformer_mt.average runs/x` makes a new model"})
    assert logging.lastResort.format(record) == "warning: `transformer-mt average runs/x` makes a new model"
