"""Counts what a newcomer has to read: lines, files, settings, imports, and the layers of folders ("rooms").

    python scripts/count_house.py [DIRECTORY_OF_THE_PROJECT]

The closure of a module contains the modules of this package that it imports, the modules that these import, and so on;
imports anywhere in a file count, except under `if TYPE_CHECKING`. Floors: a room is one floor above the highest room
from which it imports.
"""

import ast
import re
import sys
from pathlib import Path

PACKAGE = "transformer_mt"
CLOSURES = ("training/loop.py", "training/update.py", "decoding/search.py", "models/transformer.py")


def module_name(root: Path, path: Path) -> str:
    """The name by which a file is imported."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.AST, known: set[str]) -> set[str]:
    """The modules of the package that this code imports, at import time or when it is called."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = {f"{node.module}.{alias.name}" for alias in node.names} & known
            found |= modules | ({node.module} if len(modules) < len(node.names) else set())
        found |= imported(node, known)
    return found & known


def closure(start: str, graph: dict[str, set[str]]) -> set[str]:
    """A module and all modules that it imports, directly or indirectly."""
    seen, waiting = set(), [start]
    while waiting:
        if (name := waiting.pop()) not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen


def room(name: str, files: dict[str, Path]) -> str:
    """The folder of a module; a module directly in the package counts as its own room."""
    parts = name.split(".")[1:]
    return ".".join(parts[:-1] if len(parts) > 1 and files[name].name != "__init__.py" else parts) or "__init__"


def floors(rooms: dict[str, set[str]]) -> tuple[dict[str, int], list[str]]:
    """The floor of each room, from 1, and the rooms that import each other in a circle, or from such rooms."""
    known: dict[str, int] = {}
    while ready := [name for name in rooms if name not in known and rooms[name] <= known.keys()]:
        known |= {name: 1 + max((known[below] for below in rooms[name]), default=0) for name in ready}
    return known, sorted(rooms.keys() - known.keys())


def reading_list(root: Path) -> list[str]:
    """The files that README asks a student to read."""
    reading = (root / "README.md").read_text(encoding="utf-8").split("**To understand the Transformer")[1]
    return re.findall(r"`(\w+/[\w/]+\.py)`", reading.split("\n## ")[0].split("\n\n1. ")[1])


def num_settings(root: Path) -> int:
    """The number of settings: fields of sections, each counted where it is defined first. Sections are not counted."""
    files = sorted((root / PACKAGE / "settings").glob("*.py"))
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def bases(name: str) -> set[str]:
        """All classes from which a class inherits."""
        own = {ast.unparse(base) for base in classes[name].bases} if name in classes else set()
        return own.union(*map(bases, own))

    sections = {name for name in classes if "BaseModel" in bases(name)}
    no_settings = ("ClassVar", "ModelConfig", *sections)
    fields = {
        name: {
            ast.unparse(node.target)
            for node in classes[name].body
            if isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith(no_settings)
        }
        for name in sections
    }
    return sum(len(own.difference(*(fields[base] for base in bases(name) & sections))) for name, own in fields.items())


def main(root: Path) -> None:
    """Print the counts."""
    files = {module_name(root, path): path for path in sorted((root / PACKAGE).rglob("*.py"))}
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in files.items()}
    graph = {
        name: imported(ast.parse(path.read_text(encoding="utf-8")), set(files)) - {name} for name, path in files.items()
    }
    print(f"package: {sum(lines.values()):,} lines in {len(files)} files")
    names = [name.split(".")[-1] for name in files if files[name].name != "__init__.py"]
    print(f"names of more than one file: {', '.join(sorted({n for n in names if names.count(n) > 1})) or 'none'}")
    listed = [f"{PACKAGE}.{file.removesuffix('.py').replace('/', '.')}" for file in reading_list(root)]
    print(f"reading list: {sum(lines[name] for name in listed):,} lines in {len(listed)} files")
    print(f"settings: {num_settings(root)}")
    for file in CLOSURES:
        seen = closure(f"{PACKAGE}.{file.removesuffix('.py').replace('/', '.')}", graph) - {PACKAGE}
        print(f"closure of {file}: {sum(lines[name] for name in seen):,} lines in {len(seen)} files")
    rooms: dict[str, set[str]] = {}
    for name, below in graph.items():
        place = room(name, files)
        rooms.setdefault(place, set()).update(room(each, files) for each in below)
        rooms[place].discard(place)
    known, circle = floors(rooms)
    print(f"floors: {max(known.values())}; rooms in a circle: {', '.join(circle) or 'none'}")
    for floor in range(1, max(known.values()) + 1):
        print(f"  {floor}: {' '.join(sorted(name for name in known if known[name] == floor))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent)
