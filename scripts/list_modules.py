"""Writes two kinds of lists: all modules, in docs/design.md, and the names in each room that other rooms use.

    python scripts/list_modules.py

A room is a folder of the package. The list of modules contains the first line of each docstring. The names that other
rooms use are at the end of the docstring of a room's `__init__.py`.
"""

import ast
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_mt"
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- made by scripts/list_modules.py -->\n", "<!-- end of what scripts/list_modules.py made -->\n"
USED = "Other rooms use:\n"


def docstring(path: Path) -> str:
    """The docstring of a module."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def rooms() -> list[Path]:
    """The folders inside the package."""
    return sorted(path.parent for path in PACKAGE.rglob("*/__init__.py"))


def used_elsewhere() -> dict[Path, dict[str, set[str]]]:
    """For each room and each of its modules, the names that modules of other rooms import."""
    found: dict[Path, dict[str, set[str]]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(f"{PACKAGE.name}."):
                continue
            target = ROOT / node.module.replace(".", "/")
            for alias in node.names:
                is_module = target.is_dir()
                room, module = (target, alias.name) if is_module else (target.parent, target.name)
                if room != path.parent and room != PACKAGE:
                    names = found.setdefault(room, {}).setdefault(module, set())
                    names |= set() if is_module else {alias.name}
    return found


def page_with_modules(page: str) -> str:
    """Return docs/design.md with a new table for each room; the stages come first."""
    parts = []
    for folder in [PACKAGE, *rooms()]:
        name = folder.relative_to(ROOT).as_posix()
        about = "The stages." if folder == PACKAGE else docstring(folder / "__init__.py").partition(USED)[0].strip()
        files = sorted(path for path in folder.glob("*.py") if folder == PACKAGE or path.name != "__init__.py")
        rows = [f"| `{path.name}` | {docstring(path).splitlines()[0].rstrip('.:')} |" for path in files]
        parts.append(f"### {name}/\n\n{about}\n\n| file | what it is |\n|---|---|\n" + "\n".join(rows) + "\n")
    before, _, rest = page.partition(BEGIN)
    listed = "\n".join(parts)
    return f"{before}{BEGIN}\n{listed}\n{END}{rest.partition(END)[2]}"


def room_with_uses(room: Path, used: dict[str, set[str]]) -> str:
    """Return the `__init__.py` of a room with a new list of the names that other rooms use."""
    about, lines = docstring(room / "__init__.py").partition(USED)[0].strip(), []
    for module, names in sorted(used.items()):
        text = f"{module}: {', '.join(sorted(names, key=lambda name: (name.lower(), name)))}" if names else module
        lines += textwrap.wrap(text, 116, initial_indent="    ", subsequent_indent="        ")
    return f'"""{about}\n\n{USED}\n' + "\n".join(lines) + '\n"""\n'


def written() -> dict[Path, str]:
    """Return the right content of all files that this script writes."""
    used = used_elsewhere()
    files = {room / "__init__.py": room_with_uses(room, used.get(room, {})) for room in rooms()}
    return files | {PAGE: page_with_modules(PAGE.read_text(encoding="utf-8"))}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
