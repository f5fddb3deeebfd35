"""Runs the stages from text to scores, one after another."""

import importlib
from collections.abc import Sequence


def run_all_stages(config: str, overrides: Sequence[str], run_dir: str, has_test_sets: bool) -> int:
    """Prepare, train and average; evaluate if there are test sets. A stage resumes, or finds that it is done already.

    Returns the exit status of the first stage that was stopped, or 0. Raises UserError.
    """
    for name, arguments in stages(config, overrides, run_dir, has_test_sets):
        # Imported here, because most of them import PyTorch.
        status: int = importlib.import_module(f"transformer_mt.{name}").main(arguments)
        if status:
            return status
    return 0


def stages(config: str, overrides: Sequence[str], run_dir: str, has_test_sets: bool) -> list[tuple[str, list[str]]]:
    """Return the names of the stages, in order, with their arguments."""
    named, of_run = [config, *overrides], [run_dir]
    found = [("prepare", named), ("train", named), ("average", of_run)]
    return [*found, ("evaluate", of_run)] if has_test_sets else found
