"""Writes what can be read off the code: docs/design.md's list of modules, and what other rooms use of each room.

    python scripts/list_modules.py

The list has the first line of each module. What others use stands at the end of a room's `__init__.py`.
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
    """What a module says of itself."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def rooms() -> list[Path]:
    """The folders of the package, without the one that holds the stages."""
    return sorted(path.parent for path in PACKAGE.rglob("*/__init__.py"))


def used_elsewhere() -> dict[Path, dict[str, set[str]]]:
    """For each room, what modules outside of it import of its modules."""
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
    """docs/design.md with a table for each room as it is now, the stages first."""
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
    """The `__init__.py` of a room with what others use of it as it is now."""
    about, lines = docstring(room / "__init__.py").partition(USED)[0].strip(), []
    for module, names in sorted(used.items()):
        text = f"{module}: {', '.join(sorted(names, key=lambda name: (name.lower(), name)))}" if names else module
        lines += textwrap.wrap(text, 116, initial_indent="    ", subsequent_indent="        ")
    return f'"""{about}\n\n{USED}\n' + "\n".join(lines) + '\n"""\n'


def written() -> dict[Path, str]:
    """All files that this script writes, as they must be."""
    used = used_elsewhere()
    files = {room / "__init__.py": room_with_uses(room, used.get(room, {})) for room in rooms()}
    return files | {PAGE: page_with_modules(PAGE.read_text(encoding="utf-8"))}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
