"""Shows every setting as text: its key, its default, the values it can have, and what it means."""

import difflib
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from transformer_mt.errors import ConfigError
from transformer_mt.settings import synonyms
from transformer_mt.settings.corpus import PairedText
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.suggestions import MODELS
from transformer_mt.terminal import cli

_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
_A_TEXT = "corpus.train"


@dataclass(frozen=True)
class Part:
    """A section of the configuration, for one kind of model if it is `model`. The keys at the top have no name."""

    name: str
    title: str
    keys: dict[str, dict[str, Any]]
    """The JSON schema of each key."""

    def full_key(self, key: str) -> str:
        """Return a key as it is written in an override, such as training.seed."""
        return f"{self.name}.{key}" if self.name else key


def main(argv: Sequence[str] | None = None) -> int:
    """Print all settings, the settings of a section, or a single one."""
    parser = cli.parser(
        "settings",
        "Shows settings: key, default, [values it can have], and what it means. Set them in the configuration file,\n"
        "or as key=value after the name of that file on the command line.",
        "python -m transformer_mt settings training\n  python -m transformer_mt settings training.peak_lr",
    )
    parser.add_argument(
        "name",
        metavar="SECTION",
        nargs="?",
        default="",
        help="a section such as training, or a key such as training.peak_lr",
    )
    print(settings_text(parser.parse_args(argv).name))
    return 0


def settings_text(name: str = "") -> str:
    """Return the text about a section, a key, or all settings. Raises ConfigError for an unknown name."""
    parts = [*_parts(), *([_keys_of_a_text()] if name.startswith(_A_TEXT) else [])]
    chosen = [part for part in parts if name in ("", part.name)]
    entries = [_entry(part, key, part.title) for part in parts for key in part.keys if part.full_key(key) == name]
    sections = ["\n".join([part.title, "", *(_entry(part, key) for key in part.keys)]) for part in chosen]
    if not entries and not sections:
        raise ConfigError(f"{name}: no such section or key.{_suggestion(name, [*_parts(), _keys_of_a_text()])}")
    return "\n\n".join(["\n".join(entries), *sections] if entries else sections)


def _parts() -> Iterator[Part]:
    top = Config.model_json_schema()
    keys = {key: schema for key, schema in top["properties"].items() if not _is_section(key)}
    yield Part("", "At the top of the file:", keys)
    for name in filter(_is_section, top["properties"]):
        kinds = MODELS if name == "model" else {"": Config.model_fields[name].annotation}
        for kind, section in kinds.items():
            assert section is not None
            schema = section.model_json_schema()
            of_kind = f", with model.kind={kind}" if kind else ""
            title = _filled(f"{name}{of_kind}: {schema['description']}")
            yield Part(name, title, schema["properties"])


def _keys_of_a_text() -> Part:
    """Return the keys that each of several corpora can have. They are many, so only who asks for them is shown them."""
    schema = PairedText.model_json_schema()
    return Part(_A_TEXT, _filled(f"Keys below {_A_TEXT}: {schema['description']}"), schema["properties"])


def _is_section(key: str) -> bool:
    annotation = Config.model_fields[key].annotation
    return key == "model" or (isinstance(annotation, type) and issubclass(annotation, BaseModel))


def _entry(part: Part, key: str, title: str = "") -> str:
    """Return key, default and allowed values, and below them, indented, the meaning.

    If `title` is given and the key is of `model`, the meaning begins with the kind of model.
    """
    schema = part.keys[key]
    default = f"= {_shown(schema['default'])}" if "default" in schema else "(required)"
    head = f"{part.full_key(key)} {default}   [{_allowed(schema)}]"
    meaning = schema.get("description", "")
    if title and part.name == "model":
        meaning = f"{title.partition(':')[0].partition(', ')[2].capitalize()}: {meaning}"
    return f"{_filled(head, indent=2, below=8)}\n{_filled(meaning, indent=6, below=6)}"


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


def _suggestion(name: str, parts: Sequence[Part]) -> str:
    """Return a suggestion for an unknown name.

    It is the name that this program has for a setting of another trainer, or the nearest section or key. If there is
    none, all sections are listed.
    """
    sections = list(dict.fromkeys(part.name for part in parts if part.name))
    full_keys = {key: part.full_key(key) for part in reversed(parts) for key in part.keys}
    plain = name.rpartition(".")[2].lower().replace("-", "_")
    if plain not in full_keys and plain in synonyms.KEYS:
        return f" Did you mean '{synonyms.KEYS[plain]}'?"
    if plain not in full_keys and plain in synonyms.ADVICE:
        return f" {synonyms.ADVICE[plain]}"
    places = {name: name for name in [*sections, *full_keys.values()]} | full_keys
    for wanted in (name.rpartition(".")[2], name):
        if nearest := difflib.get_close_matches(wanted, places, n=1):
            return f" Did you mean '{places[nearest[0]]}'?"
    return f" Sections: {', '.join(sections)}."
