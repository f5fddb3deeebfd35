"""Suggests what a user may have meant by a key that does not exist."""

import difflib
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel

from transformer_mt.settings.bounds import Section, keys_of
from transformer_mt.settings.corpus import CorpusConfig, PairedText
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model import ConvolutionalConfig, RnnConfig, TransformerConfig

MODELS: dict[str, type[Section]] = {
    "transformer": TransformerConfig,
    "rnn": RnnConfig,
    "convolutional": ConvolutionalConfig,
}
_FEW_KEYS = 9


@cache
def synonyms() -> tuple[dict[str, str], dict[str, str]]:
    """Return, by names of other trainers, the keys that mean the same, and the advice where no single key does."""
    data = yaml.safe_load(Path(__file__).with_name("synonyms.yaml").read_text(encoding="utf-8"))
    keys = {name: key for key, names in data["keys"].items() for name in names.split()}
    return keys, {name: each["say"] for each in data["advice"] for name in each["names"].split()}


def suggestion(path: tuple[str, ...], kind: str) -> str:
    """Return a sentence about an unknown key, or an empty text. `kind` is the kind of the model in the configuration.

    `path` is where the key stands, such as ("training", "lr"). The sentence names the same key in another section; or
    the name that this program has for a setting of another trainer; or the key with the most similar spelling; or the
    command that lists all keys.
    """
    sections, (keys, advice) = sections_of(kind), synonyms()
    *above, name = path
    section = ".".join(above)
    if section not in sections:
        if above[:1] != ["corpus"]:
            return ""
        return _nearest(name, keys_of(PairedText)) or _list("corpus.train", keys_of(PairedText))
    plain = name.lower().replace("-", "_")
    if key := keys.get(f"{section}.{plain}"):
        return _did_you_mean([key], section)
    elsewhere = [f"{other}.{plain}" for other, model in sections.items() if other and plain in keys_of(model)]
    if elsewhere:
        return _did_you_mean(elsewhere, section)
    if key := keys.get(plain):
        return _did_you_mean([key], section)
    return advice.get(plain) or _nearest(name, keys_of(sections[section])) or _list(section, keys_of(sections[section]))


def other_kind(path: tuple[str, ...]) -> str | None:
    """Return the model.kind that has this key of section model; None if no kind has it."""
    return next((kind for kind, model in MODELS.items() if path[1:] and path[1] in keys_of(model)), None)


def sections_of(kind: str) -> dict[str, type[BaseModel]]:
    """Return the sections of a configuration by their names, with this kind of model; the keys at the top have none."""
    defaults = {name: type(field.default) for name, field in Config.model_fields.items()}
    others = {name: found for name, found in defaults.items() if issubclass(found, Section)}
    return {"": Config, "corpus": CorpusConfig, **others, "model": MODELS[kind]}


def _did_you_mean(keys: list[str], section: str) -> str:
    """Ask whether one of these keys was meant. Keys of the section that was searched are named without it."""
    shown = [f"'{key.removeprefix(section + '.') if section else key}'" for key in keys]
    return f"Did you mean {' or '.join(shown)}?"


def _nearest(name: str, keys: list[str]) -> str:
    nearest = difflib.get_close_matches(name, keys, n=1)
    return f"Did you mean '{nearest[0]}'?" if nearest else ""


def _list(section: str, keys: list[str]) -> str:
    if len(keys) <= _FEW_KEYS:
        return f"The keys there are: {', '.join(keys)}."
    return f"`python -m transformer_mt settings {section}` lists the keys of {section}."
