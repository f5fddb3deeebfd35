"""Checks that this Python has the packages that pyproject.toml requires, and prints those that are missing or too old.

The exit status is 2 if there are any, else 0.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
# Packages that only some corpora need. Without them, other corpora work, and these give an error.
ONLY_FOR = {
    "datasets": "corpora from the Hugging Face hub",
    "lxml": "translation memories (TMX)",
    "pyarrow": "Parquet and .zst files",
}


def stop(error: ModuleNotFoundError) -> NoReturn:
    """Print that this Python lacks a module that a script imports, and what to do; end with exit status 2."""
    root = PYPROJECT.parent
    print(
        f"error: {sys.executable} lacks the package {error.name}; run `make setup` in {root} once, and run this script "
        f"with {root}/.venv/bin/python; or install this project: {sys.executable} -m pip install -e {root}",
        file=sys.stderr,
    )
    sys.exit(2)


def unmet(requirements: list[str]) -> list[str]:
    """Return the requirements `name>=version` that are not met, each with the installed version."""
    problems = []
    for requirement in requirements:
        name, floor = requirement.split(">=")
        try:
            found = version(name)
        except PackageNotFoundError:
            problems.append(f"{requirement} (missing)")
            continue
        if _numbers(found) < _numbers(floor):
            problems.append(f"{requirement} (found {found})")
    return problems


def _numbers(text: str) -> list[int]:
    """Return the numbers of a version: [2, 13, 0] for 2.13.0+cpu."""
    return [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]


def main() -> int:
    """Check the packages for running. Tools of `make check` are not checked: they give their own errors."""
    import tomllib  # imported here, because Python 3.10 lacks it, and `stop` must work in any Python

    problems = unmet(tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"])
    for problem in [problem for problem in problems if problem.partition(">=")[0] in ONLY_FOR]:
        problems.remove(problem)
        use = ONLY_FOR[problem.partition(">=")[0]]
        print(f"note: {sys.executable} lacks {problem}. Only {use} need it", file=sys.stderr)
    if not problems:
        return 0
    names = " ".join(f'"{problem.split(" ")[0]}"' for problem in problems)
    print(f"error: {sys.executable} lacks {', '.join(problems)}", file=sys.stderr)
    print(f"Install them: {sys.executable} -m pip install -c constraints.txt {names}", file=sys.stderr)
    print("Or run `make setup`, which creates a virtual environment in .venv.", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
