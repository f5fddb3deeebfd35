"""Lists every error message for users in tests/messages.yaml, each with a short code for use in tests.

    python scripts/list_messages.py          shows what has changed
    python scripts/list_messages.py --write  writes the file

If you reword a message, it keeps its code, as long as its file has the same number of messages. You may change a code.
"""

import ast
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_mt"
LIST = ROOT / "tests" / "messages.yaml"
WORDS_OF_A_CODE = 4
NOT_IN_A_CODE = {"a", "an", "and", "are", "as", "has", "in", "is", "it", "of", "or", "that", "the", "this", "to", "was"}


def error_classes() -> set[str]:
    """The names of UserError and of all classes that inherit from it."""
    names, grows = {"UserError"}, True
    nodes = [node for path in PACKAGE.rglob("*.py") for node in ast.parse(path.read_text(encoding="utf-8")).body]
    while grows:
        found = {
            node.name
            for node in nodes
            if isinstance(node, ast.ClassDef) and {ast.unparse(base).split(".")[-1] for base in node.bases} & names
        }
        grows = not found <= names
        names |= found
    return names


def template(node: ast.expr) -> str:
    """The text of an expression; values that are known only at run time are in braces."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(template(part) for part in parts)
        case ast.FormattedValue(value=value):
            return template(value) if isinstance(value, ast.Constant) else placeholder(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
        case _:
            return placeholder(node)


def placeholder(node: ast.expr) -> str:
    """The placeholder of a value: its name, such as {path.name}, or {…} if it has no name."""
    text = ast.unparse(node)
    return "{" + (text if re.fullmatch(r"[\w.]+", text) else "…") + "}"


def messages() -> dict[str, list[str]]:
    """The messages of each file, in their order there, without those that consist of placeholders only."""
    classes, found = error_classes(), {}
    for path in sorted(PACKAGE.rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        of_errors = [each for each in calls if ast.unparse(each.func).split(".")[-1] in classes | {"cls"} and each.args]
        ordered = sorted(of_errors, key=lambda each: (each.lineno, each.col_offset))
        texts = [template(each.args[0]) for each in ordered]
        if texts := [text for text in dict.fromkeys(texts) if re.search(r"\w", re.sub(r"\{.*?\}", "", text))]:
            found[path.relative_to(PACKAGE).as_posix()] = texts
    return found


def code_of(text: str, taken: set[str]) -> str:
    """A code, made of a message's first words, that no other message has."""
    words = re.findall(r"[a-z]+", re.sub(r"\{.*?\}", "", text).lower())
    words = [word for word in words if word not in NOT_IN_A_CODE][:WORDS_OF_A_CODE]
    code, number = "-".join(words), 2
    while code in taken:
        code, number = f"{'-'.join(words)}-{number}", number + 1
    return code


def listed() -> dict[str, dict[str, str]]:
    """The messages of each file, by code, in tests/messages.yaml."""
    return yaml.safe_load(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}


def renewed() -> dict[str, dict[str, str]]:
    """The messages that are now in the package, by code; codes are kept where possible."""
    before, now = listed(), messages()
    taken = {code for codes in before.values() for code in codes}
    moved = {text: code for codes in before.values() for code, text in codes.items()}
    result: dict[str, dict[str, str]] = {}
    for file, texts in now.items():
        gone = [code for code, text in before.get(file, {}).items() if text not in texts]
        new = [text for text in texts if text not in moved]
        codes = {text: moved[text] for text in texts if text in moved}
        if len(gone) == len(new):
            codes |= dict(zip(new, gone, strict=True))
        for text in new:
            moved[text] = codes.setdefault(text, code_of(text, taken))
            taken.add(codes[text])
        result[file] = {codes[text]: text for text in texts}
    return result


def main(arguments: list[str]) -> int:
    """Write the list, or print the differences. Returns 1 if there are any, else 0."""
    now, before = renewed(), listed()
    if arguments == ["--write"]:
        text = yaml.safe_dump(now, sort_keys=False, allow_unicode=True, width=120)
        LIST.write_text("# Made by scripts/list_messages.py --write.\n" + text, encoding="utf-8")
        return 0
    for file in sorted(now.keys() | before.keys()):
        for sign, these, others in (("-", before, now), ("+", now, before)):
            for code, text in these.get(file, {}).items():
                if others.get(file, {}).get(code) != text:
                    print(f"{sign} {file}: {code}: {text}")
    return int(now != before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
