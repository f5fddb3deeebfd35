"""Runs all stages from prepare to evaluate, one after another, on the demo corpus."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from transformer_mt.copy_configs import copy_config
from transformer_mt.demo_corpus.corpus import write_corpus
from transformer_mt.settings.reading import load_config
from transformer_mt.terminal import cli

CONFIG = Path("configs/demo_en_de.yaml")


def main(argv: Sequence[str] | None = None) -> int:
    """Run all stages. Returns the exit status of the first that failed, or 0. Raises UserError."""
    parser = cli.parser(
        "demo",
        "Makes a small English-German corpus (data/demo_corpus), prepares it, trains a small Transformer on it,\n"
        "averages its checkpoints, and evaluates the model. All files are written below the working directory.\n"
        f"The configuration is {CONFIG}; if it does not exist, it is copied from the package.\n"
        "The demo takes some minutes on a CPU. If it is stopped, the same command continues where it stopped.",
        "python -m transformer_mt.demo training.max_steps=300",
    )
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", help="change a setting, for example training.max_steps=300"
    )
    overrides = parser.parse_args(argv).overrides
    copy_config(CONFIG.name, CONFIG.parent)
    run_dir = load_config(CONFIG, overrides).run_dir
    write_corpus()
    status = run_all(stages(overrides, run_dir))
    if status == 0:
        print(cli.as_typed(f"Settings: {CONFIG}; python -m transformer_mt settings says what each means"))
    elif status > 128:  # a signal ended it
        print(f"To go on with the demo: {shlex.join(cli.command('demo', *overrides))}")
    return status


def stages(overrides: Sequence[str], run_dir: str) -> list[list[str]]:
    """Return the commands of the stages, in order."""
    return [
        cli.command("prepare", str(CONFIG), *overrides),
        cli.command("train", str(CONFIG), *overrides),
        cli.command("average", run_dir),
        cli.command("evaluate", run_dir),
    ]


def run_all(commands: Sequence[Sequence[str]]) -> int:
    """Run commands one after another until one fails. Returns its exit status (above 128 after a signal), or 0."""
    for command in commands:
        with subprocess.Popen(command) as process, _signals_are_for(process) as received:
            status = process.wait()
        if status:
            if received and status == 1:  # the signal came before Python could handle it
                return 128 + received[0]
            return status if status > 0 else 128 - status
    return 0


@contextmanager
def _signals_are_for(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Let the stage end itself after a signal. The terminal sends Ctrl-C to it as well; SIGTERM is passed on to it.

    Yields the numbers of the signals that have come.
    """
    received: list[int] = []

    def on_signal(signum: int, frame: FrameType | None) -> None:
        received.append(signum)
        if signum == signal.SIGTERM:
            process.send_signal(signum)

    before = {signum: signal.signal(signum, on_signal) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


if __name__ == "__main__":
    sys.exit(cli.run(main))
