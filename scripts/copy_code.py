"""Copies code into the pages of the documentation that show it, so that the pages cannot become outdated.

    python scripts/copy_code.py

A page names a function, a class, a method or the diff of an exercise in a comment; the block of code below it is made:
`<!-- code: MultiHeadAttention.forward -->`, `<!-- diff: rms_norm -->`.
"""

import ast
import re
import textwrap
from functools import cache
from pathlib import Path

import count_house

ROOT = Path(__file__).parent.parent
PACKAGE, PAGES = ROOT / "transformer_mt", ROOT / "docs"
# What README asks a student to read, and the schedules of the learning rate.
FILES = dict.fromkeys([*count_house.reading_list(ROOT), "training/optimization.py"])
ASKED = re.compile(r"(<!-- (code|diff): ([\w.]+) -->\n)(?:```.*?^```\n)?", flags=re.DOTALL | re.MULTILINE)


@cache
def definitions() -> dict[str, list[str]]:
    """The code of each function, class and method of FILES, below the name of its file."""
    found: dict[str, list[str]] = {}
    for file in FILES:
        lines = (PACKAGE / file).read_text(encoding="utf-8").splitlines()
        for node in ast.parse("\n".join(lines)).body:
            of_class = node.body if isinstance(node, ast.ClassDef) else []
            for each in (node, *of_class):
                if isinstance(each, ast.FunctionDef | ast.ClassDef):
                    name = each.name if each is node else f"{node.name}.{each.name}"
                    begin = min(part.lineno for part in (each, *each.decorator_list)) - 1
                    code = textwrap.dedent("\n".join(lines[begin : each.end_lineno]))
                    where = f"# {file}" if each is node else f"# {file}, class {node.name}"
                    found.setdefault(name, []).append(f"{where}\n{code}")
    return found


def block(kind: str, name: str) -> str:
    """The block of code that a comment asks for. Raises ValueError if not exactly one thing has the name."""
    if kind == "diff":
        return f"```diff\n{(PAGES / 'exercises' / f'{name}.diff').read_text(encoding='utf-8')}```\n"
    code = definitions().get(name, [])
    if len(code) != 1:
        raise ValueError(f"{len(code)} definitions in {', '.join(FILES)} have the name {name}; a page needs one")
    return f"```python\n{code[0]}\n```\n"


def page_with_code(page: str) -> str:
    """Return a page with new blocks of code below the comments that ask for them."""
    return ASKED.sub(lambda asked: asked[1] + block(asked[2], asked[3]), page)


if __name__ == "__main__":
    for page in PAGES.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        if (made := page_with_code(text)) != text:
            page.write_text(made, encoding="utf-8")
            print(page.relative_to(ROOT))
