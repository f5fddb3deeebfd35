"""Runs the stages from text to scores, one after another."""

import importlib
import shlex
import sys
from collections.abc import Sequence


def run_all_stages(
    config: str, overrides: Sequence[str], run_dir: str, has_test_sets: bool, command: Sequence[str]
) -> int:
    """Prepare, train and average; evaluate if there are test sets. A stage resumes, or finds that it is done already.

    Returns the exit status of the first stage that was stopped, or 0. If one is stopped, prints `command`, which
    resumes it and runs the later ones, too. Raises UserError.
    """
    resume = f"To resume, and to run the later stages, too: {shlex.join(command)}"
    for name, arguments in stages(config, overrides, run_dir, has_test_sets):
        # Imported here, because most of them import PyTorch.
        main = importlib.import_module(f"transformer_mt.{name}").main
        try:
            status: int = main(arguments)
        except KeyboardInterrupt:
            print(resume, file=sys.stderr)
            raise
        if status:
            print(resume)
            return status
    return 0


def stages(config: str, overrides: Sequence[str], run_dir: str, has_test_sets: bool) -> list[tuple[str, list[str]]]:
    """Return the names of the stages, in order, with their arguments."""
    named, of_run = [config, *overrides], [run_dir]
    found = [("prepare", named), ("train", named), ("average", of_run)]
    return [*found, ("evaluate", of_run)] if has_test_sets else found
