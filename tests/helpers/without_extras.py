"""Runs stages of the package in a Python that seems to have only the packages that `make train` installs.

Each line of standard input is a script or a stage with its arguments. Modules of all other packages cannot be found.
"""

import importlib
import runpy
import sys
import tomllib
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent


def with_all_they_need(requirements: list[str]) -> set[str]:
    """The names of the packages that pip installs for these requirements on this machine."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(each), "") for each in requirements]
    while waiting:
        requirement, extra_of_parent = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra_of_parent}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) not in found:
                found.add((name, extra))
                waiting += [(Requirement(each), extra) for each in needed(name)]
    return {name for name, _ in found}


def needed(name: str) -> list[str]:
    """The requirements of a package; of one that this machine lacks, none."""
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


def hidden_modules() -> set[str]:
    """The importable names that come only with packages that `make train` does not install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    there = with_all_they_need(project["dependencies"]) | {canonicalize_name(project["name"])}
    owners = packages_distributions().items()
    return {module for module, names in owners if there.isdisjoint(map(canonicalize_name, names))}


class WithoutExtras(PathFinder):
    """Finds modules as Python does, except for hidden ones."""

    hidden: frozenset[str] = frozenset()

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname.partition(".")[0] in cls.hidden else super().find_spec(fullname, path, target)


def main() -> None:
    WithoutExtras.hidden = frozenset(hidden_modules())
    already = WithoutExtras.hidden & sys.modules.keys()
    assert not already, already
    sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutExtras
    print(*sorted(WithoutExtras.hidden))
    sys.path.insert(0, str(ROOT / "scripts"))
    for what, *arguments in [line.split() for line in sys.stdin.read().splitlines()]:
        if what.endswith(".py"):
            main_of = runpy.run_path(what)["main"]
        else:
            main_of = importlib.import_module(f"transformer_mt.{what}").main
        status = importlib.import_module("transformer_mt.terminal.cli").run(main_of, arguments)
        assert status == 0, (what, *arguments)


if __name__ == "__main__":
    main()
