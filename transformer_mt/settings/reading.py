"""Reads configurations from YAML files and `key=value` overrides. Errors name file and line."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.wording import cut, hidden
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.section import keys_of
from transformer_mt.settings.suggestions import MODELS, remove_former_keys, suggestion

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$", re.IGNORECASE
)
_MOST_VALUES = 100_000
_MOST_CHARACTERS = 10_000_000


class _Reader(yaml.SafeLoader):
    """Reads YAML with numbers as people write them: 3e-4 is a number, but 1:30 and 2024-01-01 are texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, form) for tag, form in resolvers if not tag.endswith((":int", ":float", ":timestamp"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    has_lines = True

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Read a section. Raises ConfigError if a key is given twice, or if the space after its colon is missing."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, value in node.value:
            name, place = key.value, self.place(key.start_mark.line + 1)
            if not isinstance(name, str):  # of which aliases could make an endless text
                raise ConfigError(f"{place}: a key must be a word, and not a list or a section; correct it")
            if name in seen:
                raise ConfigError(f"{place}: {name} is given twice; keep one of them")
            if node.flow_style and ":" in name and value.value == "":
                right = name.replace(":", ": ", 1)
                raise ConfigError(f"{place}: YAML reads {name} as one word; put a space after the colon: {{{right}}}")
            seen.add(name)
        return node

    def place(self, line: int) -> str:
        return f"{self.name}:{line}" if self.has_lines else self.name


class Writer(yaml.SafeDumper):
    """Writes YAML, with quotes around texts that _Reader would read as numbers."""


for _dialect in (_Reader, Writer):
    _dialect.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
    _dialect.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def parse_yaml(text: str, name: str) -> tuple[Any, dict[tuple[str, ...], int]]:
    """Return the values of a YAML text, and the line of each key. List entries count from 0. Raises ConfigError."""
    try:
        loader = _Reader(text)
        loader.name, loader.has_lines = name, "\n" in text
        node = loader.get_single_node()
        lines = dict(islice(_lines(node, ()), _MOST_VALUES + 1))
        if len(lines) > _MOST_VALUES:  # a few aliases can stand for billions
            section = [line for path, line in lines.items() if len(path) == 1][-1]
            raise ConfigError(
                f"{loader.place(section)}: has more than {_MOST_VALUES:,} values, counting those that "
                "aliases (*NAME) repeat; no configuration needs so many: remove aliases or values"
            )
        return (None if node is None else loader.construct_document(node)), lines
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else cut(str(error), 500)
        raise ConfigError(f"{name}: is not YAML: {reason}") from None  # not all are YAMLError


def _lines(node: yaml.Node | None, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, str(key.value)), key.start_mark.line + 1
            yield from _lines(value, (*path, str(key.value)))
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield (*path, str(index)), entry.start_mark.line + 1
            yield from _lines(entry, (*path, str(index)))


# Pydantic puts these names into the path of an error, below a key whose value can have several forms.
_BRANCHES = ("(text)", "(where)", "(several)", "(number)", "constrained-int", "literal[")
_WEIGHTS = ("model.safetensors", "model.bin")  # beside the configuration of a trained model
SECTIONS = ("corpus", "filters", "tokenizer", "model", "training", "averaging", "decoding")


def load_config(path: str | Path, overrides: Sequence[str] = (), section: str | None = None) -> Config:
    """Read a YAML file and apply `key=value` overrides in order. The value {key: value, …} replaces a complete section.

    If `section` is given, overrides can change only its keys (with or without its name before them) and the keys at the
    top level. Raises ConfigError, which names the file and line, or the override, and says what is wrong and allowed.
    """
    values, lines = parse_yaml(_text(Path(path)), str(path))
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: has no lines of the form `key: value`; name a YAML file, such as those in configs/")
    where = {key: f"{path}:{line}" for key, line in lines.items()}
    for override in overrides:
        place = f"override {cut(hidden(override), 200)}"
        key, value = _override(override, section, place)
        _assign(values, key, value)
        # Values below this key were replaced together with it.
        where = {at: place for at, place in where.items() if at[: len(key)] != key}
        where[key] = place
    remove_former_keys(values, is_trained=any((Path(path).parent / name).is_file() for name in _WEIGHTS))
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(each, where, str(path)) for each in error.errors())) from None


def _text(path: Path) -> str:
    """Read the text of a configuration file. Raises ConfigError if it cannot be read or is not text."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"it has more than {_MOST_CHARACTERS:,} characters")
        return text
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; name a YAML file, such as those in configs/") from None
    except (OSError, ValueError) as error:  # a NUL in the name is a ValueError
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: cannot be read ({reason}); name a YAML file, such as those in configs/") from None


def dump_config(config: Config) -> str:
    """Return a configuration as YAML that contains also the settings with default values."""
    return yaml.dump(config.model_dump(), Dumper=Writer, sort_keys=False, allow_unicode=True)


def differences(old: Config, new: Config) -> dict[str, str]:
    """Return by key, for each setting that differs, the text `key: old value, now new value`."""
    old_values, new_values = flat_settings(old), flat_settings(new)
    return {
        key: f"{key}: {old_values.get(key)}, now {new_values.get(key)}"
        for key in sorted(old_values.keys() | new_values.keys())
        if old_values.get(key) != new_values.get(key)
    }


def flat_settings(config: Config) -> dict[str, Any]:
    """Return the value of every setting by its full key, such as training.peak_lr."""
    return _flat(config.model_dump())


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if key == "train" and isinstance(value, list | tuple):  # several corpora, each with its name
            value = {corpus["name"]: corpus for corpus in value}
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return flat


def _override(override: str, section: str | None, place: str) -> tuple[tuple[str, ...], Any]:
    key, equals, text = override.partition("=")
    if not equals or not key:
        example = {"decoding": "beam_size=5", "averaging": "choose=best"}.get(section or "", "training.max_steps=200")
        raise ConfigError(f"{place.removeprefix('override ')}: is not a setting; write key=value, as in {example}")
    path = tuple(key.split("."))
    if section and len(path) == 1 and key not in Config.model_fields:
        path = (section, *path)
    if section and path[0] != section and (len(path) > 1 or path[0] in SECTIONS):
        raise ConfigError(f"{place}: this command takes only settings of {section}; leave it out")
    value = parse_yaml(text, place)[0]
    if isinstance(value, str) and len(text.strip().splitlines()) > 1:
        raise ConfigError(
            f"override {cut(repr(hidden(override)), 200)}: contains a line break, which YAML would turn into a space; "
            "remove it"
        )
    return path, value


def _assign(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set the value at a path of keys. A missing section on the path, or a value in its place, becomes a section."""
    for name in path[:-1]:
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    values[path[-1]] = value


def _explain(error: ErrorDetails, where: dict[tuple[str, ...], str], file: str) -> str:
    """Return a message with the place of a mistake, its key, and what is wrong. `where` has the places of keys."""
    shown, value = _shown_path(error), error["input"]
    # People count the entries of a list from 1: corpus.train[2].tsv.
    key = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in shown).removeprefix(".")
    path, key = tuple(map(str, shown)), cut(key, 200)
    if error["type"] == "kind" and isinstance(value, dict):
        path, key, value = (*path, "kind"), f"{key}.kind", value["kind"]
    # Where the key stands, or one below it, as in training.max_steps=3; otherwise where its section stands.
    below = [at for of, at in where.items() if path and of[: len(path)] == path]
    place = [*below, *(where[path[:n]] for n in range(len(path), 0, -1) if path[:n] in where), file][0]
    match error["type"]:
        case "extra_forbidden":
            return f"{place}: {key}: {_unknown(error)}"
        case "missing":
            return f"{place}: {key} is missing and has no default; add it"
        case "value_error":
            # The error is about several keys of a section. The likely cause is the last override that it names, or else
            # the last override of the section.
            message = str(error["ctx"]["error"])
            overrides = {at: of for of, at in where.items() if of[: len(path)] == path and at.startswith("override")}
            likely = sorted(overrides, key=lambda at: overrides[at][-1] in message)
            return f"{[place, *likely][-1]}: {key + ': ' if key else ''}{message}"
    if path[-1:] == ("[key]",):
        return f"{place}: {'.'.join(path[:-2])}: '{cut(path[-2])}' is not allowed as a name; {_rule(error, path)}"
    return f"{place}: {key} is {cut(hidden(repr(value)))}; {_rule(error, path)}"


def _rule(error: ErrorDetails, path: tuple[str, ...]) -> str:
    """Return what the value of a key must be."""
    value, rule = error["input"], (error["msg"][0].lower() + error["msg"][1:]).replace("tuple", "list")
    match error["type"]:
        case "dict_type" if path[-1:] == ("weights",):
            return "it must have a weight for the names of corpora, as in {europarl: 1, captions: 0.5}"
        case "dict_type":  # only corpus.test is a dict
            in_a_file, in_a_command = "`test: {NAME: PREFIX}` in a file", "'corpus.test={NAME: PREFIX}' in a command"
            return f"each test set needs a name: {in_a_file}, {in_a_command}"
        case "model_type" if path[:1] == ("corpus",) and isinstance(value, list):
            return "only corpus.train and corpus.valid can be lists of corpora"
        case "model_type" | "kind" if not isinstance(value, dict):
            colons = ". Put a space after each colon" if isinstance(value, str) and re.search(r"\w:\w", value) else ""
            example = ", such as {name: europarl, path: PREFIX}" if path[:2] == ("corpus", "train") else ""
            return f"it must be a section: keys with values below it{colons}{example}"
    is_text = error["type"] == "string_type"
    if is_text and isinstance(value, bool):
        return f"{rule}. YAML reads a bare no, on or yes as true or false: put it in quotes"
    if isinstance(value, bool):
        return f"{rule}, but YAML reads this as {str(value).lower()}"
    return (
        f"{rule}. YAML reads it as a number: put it in quotes" if is_text and isinstance(value, int | float) else rule
    )


def _unknown(error: ErrorDetails) -> str:
    """Return that a key does not exist, and which key the user may have meant."""
    path, kind = tuple(str(part) for part in _shown_path(error)), "transformer"
    if path[0] == "model":
        kind = str(error["loc"][1])
        if owner := next((other for other, model in MODELS.items() if path[-1] in keys_of(model)), None):
            return (
                f"belongs to model.kind={owner}, but this model has model.kind={kind}: leave it out, or replace the "
                f"complete section by an override, as in 'model={{kind: {kind}, d_model: 256}}'"
            )
    return f"no such key. {suggestion(path, kind)}".rstrip()


def _shown_path(error: ErrorDetails) -> tuple[str | int, ...]:
    """Return the path of a key as in the file, without pydantic's names of forms. List entries are indices from 0."""
    loc = error["loc"]
    if loc[:1] == ("model",) and loc[1:2] in [(kind,) for kind in MODELS]:
        loc = loc[:1] + loc[2:]
    return tuple(part for part in loc if not str(part).startswith(_BRANCHES))


ONLY_FOR_TRAINING = {"dropout", "attention_dropout"}
"""Settings that have no effect on a trained model."""
# max_positions does not change what weights mean. If positions have weights, it changes their shape, checked elsewhere.
_MAY_DIFFER = ONLY_FOR_TRAINING | {"max_positions"}


def other_meaning_than(weights: Path | Mapping[str, Any], model: ModelConfig) -> list[str]:
    """Return `key: value, now value of the model` for each setting that gives weights another meaning in this model.

    `weights` are the settings with which the weights were trained, by key, or a configuration file with them. All
    settings count except those in _MAY_DIFFER, so a setting that is added later counts, too.
    """
    trained = load_config(weights).model if isinstance(weights, Path) else model.model_copy(update=dict(weights))
    if trained.kind != model.kind:
        return [f"model.kind: {trained.kind}, now {model.kind}"]
    return [
        f"model.{key}: {value}, now {getattr(model, key)}"
        for key, value in trained
        if key not in _MAY_DIFFER and value != getattr(model, key)
    ]
