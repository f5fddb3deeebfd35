"""Shows settings as text: the key, its default, the values it can have, and what it means."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from transformer_mt.errors import ConfigError
from transformer_mt.settings.corpus import PairedText
from transformer_mt.settings.suggestions import MODELS, sections_of, suggestion

_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}


def settings_text(name: str = "") -> str:
    """Return the text about a section, a key, or all settings. Raises ConfigError for an unknown name."""
    found = []
    for section, title, keys in _parts():
        entries = {f"{section}.{key}".removeprefix("."): schema for key, schema in keys.items()}
        # The keys of a corpus are many, so only who asks for them is shown them.
        if name == section or (name == "" and section != "corpus.train"):
            found.append("\n".join([_filled(title), "", *(_entry(*each) for each in entries.items())]))
        elif name in entries:
            kind = f"{title.partition(':')[0].partition(', ')[2].capitalize()}: " if section == "model" else ""
            found.append(_entry(name, entries[name], kind))
    if not found:
        raise ConfigError(f"{name}: no such section or key. {suggestion(tuple(name.split('.')), 'transformer')}")
    return "\n\n".join(found)


def _parts() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give the name, the title and the keys of each section: for each key, its JSON schema."""
    for kind in MODELS:
        for name, section in sections_of(kind).items():
            schema = section.model_json_schema()
            if name == "model":
                yield name, f"model, with model.kind={kind}: {schema['description']}", schema["properties"]
            elif kind == "transformer" and name:
                yield name, f"{name}: {schema['description']}", schema["properties"]
            elif kind == "transformer":
                at_top = {key: each for key, each in schema["properties"].items() if key not in sections_of(kind)}
                yield "", "At the top of the file:", at_top
    schema = PairedText.model_json_schema()
    yield "corpus.train", f"Keys below corpus.train: {schema['description']}", schema["properties"]


def _entry(key: str, schema: dict[str, Any], before: str = "") -> str:
    """Return key, default and allowed values, and below them, indented, the meaning, with some words before it."""
    default = f"= {_shown(schema['default'])}" if "default" in schema else "(required)"
    head = _filled(f"{key} {default}   [{_allowed(schema)}]", indent=2, below=8)
    return f"{head}\n{_filled(before + schema.get('description', ''), indent=6, below=6)}"


def _allowed(schema: dict[str, Any]) -> str:
    """Return the values that a JSON schema allows, in words."""
    if forms := schema.get("anyOf", schema.get("oneOf")):
        return ", or ".join(_allowed(each) for each in forms)
    if "$ref" in schema:
        return "keys such as {source: FILE, target: FILE}"
    if schema.get("type") == "array":
        return "a list of them" if "$ref" in schema["items"] else "a list of texts"
    if "const" in schema or "enum" in schema:
        *values, last = [_shown(value) for value in schema.get("enum", [schema.get("const")])]
        return f"{', '.join(values)} or {last}" if values else last
    if schema["type"] == "object":
        [values_of] = [*schema.get("patternProperties", {}).values()] or [schema["additionalProperties"]]
        return f"{{name: {_allowed(values_of)}}}"
    bounds = [f"{sign} {_shown(schema[bound])}" for bound, sign in _BOUNDS.items() if bound in schema]
    return " ".join([_TYPES[schema["type"]], ", ".join(bounds)]).strip()


def _shown(value: Any) -> str:
    """Return a value as it is written in YAML."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _filled(text: str, indent: int = 0, below: int = 0) -> str:
    """Break a text into lines of at most 98 columns, the first indented by `indent` spaces, the others by `below`."""
    first, others = " " * indent, " " * below
    return textwrap.fill(text, 98, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
