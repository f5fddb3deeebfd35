"""Lists every error message for users in tests/messages.yaml, each with a short code for use in tests.

    python scripts/list_messages.py          shows what has changed
    python scripts/list_messages.py --write  writes the file

Messages that are reworded keep their codes, if a file has as many of them as before. You may change a code. A text that
becomes part of a message, because another place begins or ends it, is between {…} and {…}.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_mt"
LIST = ROOT / "tests" / "messages.yaml"
PARTS = {"ValueError": 0, "BadPair": 0, "BadLine": 0, "Fault": 1}  # what holds part of a message, in which argument
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


class FileOfCode:
    """Finds the texts of messages in the code of one file."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self._functions = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}
        self._scope = {id(node): each for each in self._functions.values() for node in ast.walk(each)}

    def messages(self, errors: set[str]) -> list[str]:
        """The texts that these errors, and what holds parts of messages, are made with, in their order in the file."""
        texts = list[str]()
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
            name = ast.unparse(call.func).split(".")[-1]
            index = 0 if name in errors else PARTS.get(name, len(call.args))
            for argument in call.args[index : index + 1]:
                texts.extend(self._texts(argument, whole=name in errors))
        return list(dict.fromkeys(texts))

    def _texts(self, node: ast.expr, whole: bool, seen: tuple[ast.AST, ...] = ()) -> Iterator[str]:
        """Give the text that an expression makes, and those of its parts.

        A part is what a function of the same file returns; and what a variable holds, if the text has no words itself.
        """
        match node:
            case ast.IfExp(body=body, orelse=other):
                yield from self._texts(body, whole, seen)
                yield from self._texts(other, whole, seen)
                return
            case ast.Call(func=ast.Attribute(value=ast.JoinedStr() as text)):
                yield from self._texts(text, whole, seen)
                return
        text = template(node)
        words = re.sub(r"\{.*?\}", "", text)
        has_words = re.search(r"\b[a-z]{2,}\b", words) is not None
        if has_words and (whole or " " in words):
            yield text if whole else f"{{…}}{text}{{…}}"
        for each, value in self._parts(node):
            if each not in seen and not (has_words and isinstance(each, ast.Name)):
                yield from self._texts(value, whole and each is node, (*seen, each))

    def _parts(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
        """Give the variables and calls in an expression, each with the values that it may have."""
        values: list[ast.expr | None] = []
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name)):
                if name in self._functions:
                    values = [each.value for each in ast.walk(self._functions[name]) if isinstance(each, ast.Return)]
            case ast.Name(id=name):
                nodes = [*ast.walk(self._scope.get(id(node), self.tree)), *self.tree.body]
                values = [each.value for each in nodes if _assigns(each, name)]
        yield from ((node, value) for value in values if value)
        for child in ast.iter_child_nodes(node) if not values else ():
            yield from self._parts(child)


def _assigns(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Assign(targets=targets):
            return any(isinstance(target, ast.Name) and target.id == name for target in targets)
        case ast.NamedExpr(target=ast.Name(id=assigned)) | ast.AugAssign(target=ast.Name(id=assigned)):
            return assigned == name
    return False


def messages() -> dict[str, list[str]]:
    """The messages of each file, and the parts of those that are put together of texts from several places."""
    errors, paths = error_classes() | {"cls"}, sorted(PACKAGE.rglob("*.py"))
    found = {path.relative_to(PACKAGE).as_posix(): FileOfCode(path).messages(errors) for path in paths}
    return {file: texts for file, texts in found.items() if texts}


def code_of(text: str, taken: set[str]) -> str:
    """A code, made of a message's first words, that no other message has."""
    words = re.findall(r"[a-z]+", re.sub(r"\{.*?\}", "", text).lower())
    words = ([word for word in words if word not in NOT_IN_A_CODE] or words)[:WORDS_OF_A_CODE]
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
