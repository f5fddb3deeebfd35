"""How commands begin and end, and the command of all stages."""

import errno
import os
import re
import shlex
import subprocess
import sys

import pytest
from helpers.messages import says
from helpers.tiny import ROOT

from transformer_mt import __main__ as commands
from transformer_mt import __version__, average, evaluate, export, prepare, rerank, score, train, translate
from transformer_mt.base.errors import ConfigError, UserError
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
    assert (
        "unrecognized arguments: --beam" in (said := capsys.readouterr().err) and "Write settings as key=value" in said
    )
    with pytest.raises(SystemExit):
        score.main(["a", "--beam", "5"])
    assert "key=value" not in capsys.readouterr().err, "it takes none"


@pytest.mark.parametrize(
    ("stage", "advice"),
    [
        (translate, "beam_size=5. To translate a file, write --input t.en"),
        (evaluate, "beam_size=5. To score a file of translations, write --hypothesis FILE --reference FILE"),
        (rerank, "channel=0.5. To find weights with a file of references, write --tune t.en"),
    ],
)
def test_a_file_in_the_place_of_a_setting_is_told_how_it_is_given(stage, advice):
    with pytest.raises(ConfigError) as refused:
        stage.main(["a", "t.en"])
    assert says(str(refused.value), "argument-not-setting", "t.en:", advice)


@pytest.mark.parametrize(
    ("stage", "first"),
    [
        *((stage, "CONFIG") for stage in (train, prepare)),
        *((stage, "MODEL_DIR") for stage in (translate, export)),
        (average, "RUN_DIR"),
        (evaluate, "RUN_DIR|MODEL_DIR|EXPORT_DIR"),
    ],
)
def test_a_setting_before_the_file_or_directory_is_told_what_comes_first(stage, first):
    with pytest.raises(ConfigError) as refused:
        stage.main(["a.b=3", "x", *(["--format", "huggingface"] if stage is export else [])])
    assert str(refused.value) == f"a.b=3: is a setting, but {first} comes first: write {first} a.b=3"


@pytest.mark.parametrize("stage", [train, prepare, average])
def test_a_name_may_look_like_a_setting(stage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3").mkdir()
    with pytest.raises(UserError) as refused:
        stage.main(["lr=3"])
    assert not says(str(refused.value), "setting-before-place")


def test_control_c_is_130_without_a_traceback(capsys):
    assert ends_with(KeyboardInterrupt(), capsys) == (130, "", "interrupted\n")


def test_what_the_system_refuses_is_2_and_names_the_file(capsys):
    refused = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "log.jsonl")
    assert ends_with(refused, capsys) == (2, "", "error: log.jsonl: No space left on device\n")


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


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [[], ["--version"], ["frobnicate"], ["settings"]])
def test_the_commands_and_the_settings_are_listed_quietly_although_nobody_reads_them(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "transformer_mt", *arguments]
    with os.fdopen(writer, "w") as nobody:
        done = subprocess.run(command, cwd=ROOT, stdout=nobody, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def run_commands(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["transformer-mt", *arguments])
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


def test_arguments_and_mistakes_pass_through_to_the_stage_and_back(monkeypatch, capsys, tmp_path):
    status, _, error = run_commands(monkeypatch, capsys, "average", str(tmp_path))
    assert status == 2
    assert error.startswith("error: ") and says(error, "run-without-config", str(tmp_path))


@pytest.mark.parametrize("name", [*commands.STAGES, *commands.OTHERS])
def test_help_shows_an_example_that_can_be_run(monkeypatch, capsys, name):
    status, output, error = run_commands(monkeypatch, capsys, name, "--help")
    assert (status, error) == (0, "")
    assert re.match(rf"usage: python -m transformer_mt[. ]{name} ", output)
    example = output.rpartition("example:\n  ")[2]
    assert re.search(rf"python -m transformer_mt[. ]{name} ", example)
    for config in re.findall(r"configs/\S+yaml", example):
        assert (ROOT / config).is_file()


def test_a_command_to_resume_with_can_be_run(monkeypatch, tmp_path):
    assert shlex.split(cli.command("average", "x y"))[1:] == ["-m", "transformer_mt.average", "x y"]
    python = tmp_path / "venv" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    assert shlex.split(cli.command("average"))[0] == str(python)
    monkeypatch.chdir(tmp_path)
    assert shlex.split(cli.command("average"))[0] == "venv/python"
