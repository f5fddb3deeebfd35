"""Suggests the right key for an unknown one, and shows what every key means."""

import difflib
import json
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from transformer_mt.base.errors import ConfigError
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText, StageConfig
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model_settings import ConvolutionalConfig, RnnConfig, TransformerConfig
from transformer_mt.settings.section import Section, keys_of
from transformer_mt.settings.training_settings import ModifiersConfig

MODELS: dict[str, type[Section]] = {
    "transformer": TransformerConfig,
    "rnn": RnnConfig,
    "convolutional": ConvolutionalConfig,
}
_FEW_KEYS = 9


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("synonyms.yaml").read_text(encoding="utf-8"))
    return tables


def remove_former_keys(values: dict[str, Any], *, is_trained: bool = False) -> None:
    """Remove settings of former versions from a configuration, if their values are what the program does now.

    In the configuration of a trained model (`is_trained`), the values of settings of training do not matter.
    """
    removed = _tables()["removed"]
    for key, value in (removed | (_tables()["removed_values"] if is_trained else {})).items():
        *sections, name = key.split(".")
        found: Any = values
        for section in sections:
            found = found.get(section) if isinstance(found, dict) else None
        matters_no_more = is_trained and sections[0] == "training" and key in removed
        if isinstance(found, dict) and name in found and (matters_no_more or found[name] == value):
            del found[name]


@cache
def synonyms() -> tuple[dict[str, str], dict[str, str]]:
    """Return two tables by the names of other trainers: the key that means the same; or advice, if no key does."""
    data = _tables()
    keys = {name: key for key, names in data["keys"].items() for name in names.split()}
    return keys, {name: each["say"] for each in data["advice"] for name in each["names"].split()}


def suggestion(path: tuple[str, ...], kind: str) -> str:
    """Return a sentence about an unknown key, or an empty text. `kind` is the kind of the model in the configuration.

    `path` is the key with its sections, such as ("training", "lr").
    """
    sections, (keys, advice) = sections_of(kind), synonyms()
    *above, name = path
    section = ".".join(above)
    if section not in sections:
        if above[:1] != ["corpus"]:
            return ""
        if above[:2] == ["corpus", "stages"]:
            return _nearest(name, "corpus.stages", keys_of(StageConfig))
        if key := keys.get(f"corpus.train.{name}"):
            return _did_you_mean([key], "corpus.train")
        return _nearest(name, "corpus.train", keys_of(PairedText))
    plain = name.lower().replace("-", "_")
    if key := keys.get(f"{section}.{plain}"):
        return _did_you_mean([key], section)
    if elsewhere := [f"{other}.{plain}" for other, model in sections.items() if other and plain in keys_of(model)]:
        return _did_you_mean(elsewhere, section)
    if key := keys.get(plain):
        return _did_you_mean([key], section)
    return advice.get(plain) or _nearest(name, section, keys_of(sections[section]))


def sections_of(kind: str) -> dict[str, type[BaseModel]]:
    """Return the section classes by name, with this kind of model. The name of the top level is an empty text."""
    defaults = {name: type(field.default) for name, field in Config.model_fields.items()}
    others = {name: found for name, found in defaults.items() if issubclass(found, Section)}
    modifiers = {"training.modifiers": ModifiersConfig}
    return {"": Config, "corpus": CorpusConfig, **others, **modifiers, "model": MODELS[kind]}


def _did_you_mean(keys: list[str], section: str) -> str:
    """Return a question that names these keys. Keys of `section` itself appear without its name."""
    shown = [f"'{key.removeprefix(section + '.') if section else key}'" for key in keys]
    return f"Did you mean {' or '.join(shown)}?"


def _nearest(name: str, section: str, keys: list[str]) -> str:
    """Return a question that names the key with the most similar spelling; if there is none, where all keys are."""
    if nearest := difflib.get_close_matches(name, keys, n=1):
        return f"Did you mean '{nearest[0]}'?"
    if len(keys) <= _FEW_KEYS:
        return f"The keys are: {', '.join(keys)}."
    return f"`python -m transformer_mt settings {section}` lists the keys of {section}."


_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}


def settings_text(name: str = "") -> str:
    """Return the text about a section, a key, or all settings. Raises ConfigError for an unknown name."""
    found = []
    for section, title, keys in parts():
        entries = {f"{section}.{key}".removeprefix("."): schema for key, schema in keys.items()}
        # A corpus has many keys, so the text shows them only if the user asks for them.
        if name == section or (name == "" and section != "corpus.train"):
            found.append("\n".join([_filled(title), "", *(_entry(*each) for each in entries.items())]))
        elif name in entries:
            kind = f"{title.partition(':')[0].partition(', ')[2].capitalize()}: " if section == "model" else ""
            found.append(_entry(name, entries[name], kind))
    if not found:
        raise ConfigError(f"{name}: no such section or key. {suggestion(tuple(name.split('.')), 'transformer')}")
    return "\n\n".join(found)


def parts() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the name, the title and the keys of each section. Each key has its JSON schema."""
    for kind in MODELS:
        sections = sections_of(kind)
        for name in sections if kind == "transformer" else ["model"]:
            schema, shown_name = sections[name].model_json_schema(), name
            if name == "model":
                shown_name = f"model, with model.kind={kind}"
            title = f"{shown_name}: {schema['description']}" if name else "At the top of the file:"
            full_keys = {key: f"{name}.{key}".removeprefix(".") for key in schema["properties"]}
            yield name, title, {key: schema["properties"][key] for key in full_keys if full_keys[key] not in sections}
    schema = PairedText.model_json_schema()
    yield "corpus.train", f"Keys below corpus.train: {schema['description']}", schema["properties"]


def _entry(key: str, schema: dict[str, Any], before: str = "") -> str:
    """Return a line with key, default and allowed values, and indented below it `before` and the key's meaning."""
    default = f"= {shown(schema['default'])}" if "default" in schema else "(required)"
    head = _filled(f"{key} {default}   [{allowed(schema)}]", indent=2, below=8)
    return f"{head}\n{_filled(before + schema.get('description', ''), indent=6, below=6)}"


def allowed(schema: dict[str, Any]) -> str:
    """Return in words which values a JSON schema allows."""
    if forms := schema.get("anyOf", schema.get("oneOf")):
        return ", or ".join(allowed(each) for each in forms)
    if "$ref" in schema:
        return "keys such as {source: FILE, target: FILE}"
    if schema.get("type") == "array":
        return "a list of them" if "$ref" in schema["items"] else "a list of texts"
    if "const" in schema or "enum" in schema:
        *values, last = [shown(value) for value in schema.get("enum", [schema.get("const")])]
        return f"{', '.join(values)} or {last}" if values else last
    if schema["type"] == "object":
        [values_of] = [*schema.get("patternProperties", {}).values()] or [schema["additionalProperties"]]
        return f"{{name: {allowed(values_of)}}}"
    bounds = [f"{sign} {shown(schema[bound])}" for bound, sign in _BOUNDS.items() if bound in schema]
    return " ".join([_TYPES[schema["type"]], ", ".join(bounds)]).strip()


def shown(value: Any) -> str:
    """Return a value as it is written in YAML."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _filled(text: str, indent: int = 0, below: int = 0) -> str:
    """Wrap a text at 98 columns. The first line is indented by `indent` spaces, the others by `below`."""
    first, others = " " * indent, " " * below
    return textwrap.fill(text, 98, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
