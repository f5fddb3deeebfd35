"""Writes the list of all modules in docs/design.md.

    python scripts/list_modules.py

It contains the first line of each docstring, and the names that modules of other folders import.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_mt"
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- made by scripts/list_modules.py -->\n", "<!-- end of what scripts/list_modules.py made -->\n"


def docstring(path: Path) -> str:
    """The docstring of a module."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def rooms() -> list[Path]:
    """The folders inside the package."""
    return sorted(path.parent for path in PACKAGE.rglob("*/__init__.py"))


def used_elsewhere() -> dict[Path, dict[str, set[str]]]:
    """For each folder and each of its modules, the names that modules of other folders import."""
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
    """Return docs/design.md with a new table for each folder; the stages come first."""
    used, parts = used_elsewhere(), []
    for folder in [PACKAGE, *rooms()]:
        name = folder.relative_to(ROOT).as_posix()
        if folder == PACKAGE:
            about, head = "The stages.", "| file | what it is |\n|---|---|\n"
        else:
            about = docstring(folder / "__init__.py").strip()
            head = "| file | what it is | what other folders use of it |\n|---|---|---|\n"
        rows = [row(path, used.get(folder)) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        parts.append(f"### {name}/\n\n{about}\n\n{head}" + "\n".join(rows) + "\n")
    before, _, rest = page.partition(BEGIN)
    listed = "\n".join(parts)
    return f"{before}{BEGIN}\n{listed}\n{END}{rest.partition(END)[2]}"


def row(path: Path, used: dict[str, set[str]] | None) -> str:
    """The row of one module. `used` are the used names of each module of its folder; the stages have none."""
    text = f"| `{path.name}` | {docstring(path).splitlines()[0].rstrip('.:')} |"
    if path.parent == PACKAGE:
        return text
    names = sorted((used or {}).get(path.stem, set()), key=lambda name: (name.lower(), name))
    return f"{text} {', '.join(f'`{name}`' for name in names)} |"


if __name__ == "__main__":
    PAGE.write_text(page_with_modules(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
