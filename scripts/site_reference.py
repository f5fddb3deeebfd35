"""Writes two pages of the documentation's site when it is built: all settings, and all error messages.

This is a hook of MkDocs (see mkdocs.yml). Each page has the comment of its name in MADE, which is replaced by HTML.
"""

import re
from collections.abc import Callable
from html import escape

import list_messages
import list_modules

from transformer_mt.settings import suggestions

FORM = '<dt id="{id}">{head}</dt>\n<dd>{text}</dd>'


def settings() -> str:
    """All settings by section: key, default, allowed values and meaning."""
    parts = []
    for name, title, keys in suggestions.parts():
        words = title.partition(":")[0].rstrip(":")
        entries = []
        for key, schema in keys.items():
            full = f"{name}.{key}".removeprefix(".")
            default = f" = <code>{escape(suggestions.shown(schema['default']))}</code>" if "default" in schema else ""
            head = f"<code>{full}</code>{default} <small>{escape(suggestions.allowed(schema))}</small>"
            place = f"{words.split('=')[-1]}.{key}" if name == "model" else full
            entries.append(FORM.format(id=place, head=head, text=_with_code(escape(schema.get("description", "")))))
        parts.append(f"## {words}\n\n{title.partition(':')[2].strip()}\n\n{_listed(entries)}")
    return "\n\n".join(parts)


def messages() -> str:
    """All error messages by folder of the package: code, file and text."""
    folders: dict[str, list[str]] = {}
    seen = set[str]()
    for file, texts in list_messages.listed().items():
        entries = folders.setdefault(file.rpartition("/")[0], [])
        for code in [each for each in texts if each not in seen]:
            seen.add(code)
            head = f"<code>{code}</code> <small>{file}</small>"
            entries.append(FORM.format(id=code, head=head, text=_message(texts[code])))
    parts = []
    for folder, entries in folders.items():
        about = list_modules.docstring(list_modules.PACKAGE / folder / "__init__.py").splitlines()[0]
        title, about = (f"{folder}/", about) if folder else ("The commands", "")
        parts.append(f"## {title}\n\n{about}\n\n{_listed(entries)}")
    return "\n\n".join(parts)


def _message(text: str) -> str:
    """A message with its values in italics, under their names without the code's dots."""
    parts = re.split(r"\{([^{}]*)\}", text)
    names = [f"<var>{escape(name.split('.')[-1].strip('_').lower())}</var>" for name in parts[1::2]]
    return _with_code("".join(f"{escape(text)}{name}" for text, name in zip(parts[::2], [*names, ""], strict=True)))


def _with_code(text: str) -> str:
    """HTML with code where the text has it between backticks."""
    return re.sub("`(.+?)`", r"<code>\1</code>", text)


def _listed(entries: list[str]) -> str:
    return '<dl class="entries">\n' + "\n".join(entries) + "\n</dl>"


MADE: dict[str, Callable[[], str]] = {"settings": settings, "messages": messages}


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page with what is made for it. MkDocs passes further keyword arguments."""
    return re.sub(r"<!-- made when the site is built: (\w+) -->", lambda found: MADE[found[1]](), markdown)
