"""Ctrl-C and SIGTERM while a command imports its modules."""

import os
import signal
import subprocess
import sys

import pytest
from helpers.processes import python_path
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import ROOT

from transformer_mt import __main__ as commands

# Sends a signal to its process just before a module is imported, from the first line of Python on.
HOOK = """
import os, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["STOP_AT"]:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.meta_path.insert(0, Stop())
"""
SCRIPT = "import sys\nfrom transformer_mt.__main__ import main\nsys.exit(main())\n"


@pytest.fixture
def stopped_at(tmp_path):
    """A function that runs Python with arguments, and sends it a signal when it is about to import a module.

    Returns its exit status, and what it has written to standard error.
    """
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook/sitecustomize.py").write_text(HOOK)

    def run(module, *arguments, signum=signal.SIGINT):
        own = {"PYTHONPATH": python_path(tmp_path / "hook", ROOT), "STOP_AT": module, "SIGNAL": str(int(signum))}
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    return run


@pytest.mark.parametrize(
    "name",
    [
        *("translate", *thorough("serve", "train")),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in sorted({*commands.STAGES} - {"translate", "serve", "train"})
        ),
    ],
)
def test_control_c_while_a_stage_is_imported_is_130_without_a_traceback(stopped_at, name):
    """The last module is the first that some stages import only when they run."""
    for module in ("transformer_mt.terminal", "argparse", f"transformer_mt.{name}"):
        assert stopped_at(module, "-m", f"transformer_mt.{name}") == (130, "interrupted\n"), module


@pytest.mark.parametrize("module", ["numpy.exceptions", "torch"])
def test_control_c_while_libraries_are_imported_is_130_without_a_traceback(stopped_at, module):
    assert stopped_at(module, "-m", "transformer_mt.train", "none.yaml") == (130, "interrupted\n")


@pytest.mark.parametrize("module", ["transformer_mt.terminal", "transformer_mt.demo"])
@pytest.mark.parametrize("command", [["-m", "transformer_mt"], ["-mtransformer_mt"], ["bin/transformer-mt"]])
def test_every_form_of_the_command_ends_alike(stopped_at, tmp_path, command, module):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/transformer-mt").write_text(SCRIPT)
    assert stopped_at(module, *command, "demo") == (130, "interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "said"), [(signal.SIGINT, "interrupted\n"), *thorough_rows((signal.SIGTERM, "terminated\n"))]
)
@pytest.mark.parametrize("module", ["numpy.exceptions", *thorough("transformer_mt.inference.fast")])
def test_a_signal_while_a_stage_imports_something_later_leaves_at_most_what_it_resumes_from(
    stopped_at, model_dir, tmp_path, module, signum, said
):
    """NumPy turns KeyboardInterrupt into an ImportError there."""
    output = tmp_path / "found" / "translations.txt"
    output.parent.mkdir()
    (tmp_path / "lines.txt").write_text("The child is sleeping.\n")
    files = ["--input", "lines.txt", "--output", output]
    command = ["-m", "transformer_mt.translate", model_dir, *files]
    assert stopped_at(module, *command, signum=signum) == (128 + signum, said)
    assert {path.name for path in output.parent.iterdir()} <= {"translations.txt.parts"}
    assert stopped_at("no such module", *command)[0] == 0
    assert [path.name for path in output.parent.iterdir()] == ["translations.txt"]


@pytest.mark.parametrize(
    "command",
    [["-c", "import program"], ["-m", "program"], ["program.py", "transformer_mt.train"], ["-m", "transformer_mt_too"]],
)
def test_a_program_that_imports_the_package_keeps_its_own_control_c(stopped_at, tmp_path, command):
    program = "import signal, transformer_mt.terminal.cli\nassert signal.getsignal(2) is signal.default_int_handler\n"
    for name in ("program", "transformer_mt_too"):
        (tmp_path / f"{name}.py").write_text(program)
    status, error = stopped_at("transformer_mt.base.errors", *command)
    assert status == -signal.SIGINT and error.endswith("KeyboardInterrupt\n")
    assert stopped_at("nothing", *command) == (0, "")


@pytest.mark.thorough
def test_control_c_that_is_ignored_stays_ignored(stopped_at):
    """As of a command that a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status, error = stopped_at("transformer_mt.terminal", "-m", "transformer_mt.average", "none")
    finally:
        signal.signal(signal.SIGINT, before)
    assert status == 2 and error.startswith("error: none")
