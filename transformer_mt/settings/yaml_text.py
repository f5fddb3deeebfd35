"""Reads and writes YAML for configurations: 3e-4 is a number, no key may come twice, and each key has its line.

The text may come from a stranger, so its length, its nesting and the size to which its aliases expand are limited.
"""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from transformer_mt.errors import ConfigError
from transformer_mt.wording import cut

MOST_CHARACTERS = 250_000  # of a text; reading this many takes a few seconds
_MOST_NESTED = 50  # levels of lists and sections inside each other
_MOST_VALUES = 100_000  # values of a text after its aliases are written out
_LONGEST_NUMBER = 100  # characters; reading a number in base 60, such as 1:30:00, takes quadratic time
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}
_PLAIN = {f"tag:yaml.org,2002:{name}" for name in "str int float bool null timestamp seq map merge value".split()}


class _Reader(yaml.SafeLoader):
    """Reads YAML 1.1, except that 3e-4 is a number, and that a key given twice is an error."""

    numbered = True
    nested = 0

    def place(self, node: yaml.Node) -> str:
        """Return the name of the text, and the line of this node if the text has several lines."""
        return f"{self.name}:{node.start_mark.line + 1}" if self.numbered else str(self.name)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.nested == _MOST_NESTED:
            place = f"{self.name}:{self.line + 1}" if self.numbered else self.name
            raise ConfigError(f"{place}: values are nested more than {_MOST_NESTED} levels deep; no setting needs that")
        self.nested += 1
        node = super().compose_node(parent, index)
        self.nested -= 1
        if node is not None and node.tag not in _PLAIN:
            tag = cut(node.tag.replace("tag:yaml.org,2002:", "!!"))
            raise ConfigError(
                f"{self.place(node)}: the tag {tag} has no meaning here; leave it out, or put a text that begins with "
                "! in quotes"
            )
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise ConfigError(
                f"{self.place(node)}: {cut(node.value)} is a number of {len(node.value):,} characters; put it "
                "in quotes if it is a text"
            )
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{self.place(key_node)}: a key must be a word, not a list or a section")
            if node.flow_style and ":" in key_node.value and value_node.tag == "tag:yaml.org,2002:null":
                key, _, value = key_node.value.partition(":")
                raise ConfigError(
                    f"{self.place(key_node)}: YAML reads {key_node.value} as one word; put a space after the colon: "
                    f"{{{key}: {value}}}"
                )
            if key_node.value in seen:
                raise ConfigError(f"{self.place(key_node)}: {key_node.value} is given twice; keep one of them")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


class _Writer(yaml.SafeDumper):
    """Puts quotes around texts that _Reader would read as numbers."""


for dialect in (_Reader, _Writer):
    dialect.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


_Reader.add_constructor("tag:yaml.org,2002:value", lambda reader, node: str(node.value))  # a bare =


def dump_yaml(values: dict[str, Any]) -> str:
    """Return a YAML text that `parse_yaml` reads back as these values."""
    return yaml.dump(values, Dumper=_Writer, sort_keys=False, allow_unicode=True)


def parse_yaml(text: str, name: str) -> tuple[Any, dict[tuple[str, ...], int]]:
    """Return the values of a YAML text, and the line of each key; an entry of a list has its index, from 0, as its key.

    Raises ConfigError, which calls the text `name`.
    """
    try:
        if len(text) > MOST_CHARACTERS:
            raise ConfigError(f"{name}: has more than {MOST_CHARACTERS:,} characters, which no configuration needs")
        loader = _Reader(text)
        loader.name, loader.numbered = name, "\n" in text
        node = loader.get_single_node()
        if node is not None and _num_values(node, {}) > _MOST_VALUES:
            raise ConfigError(
                f"{name}: its aliases (*) stand for more than {_MOST_VALUES:,} values; write out what they stand for"
            )
        return (None if node is None else loader.construct_document(node)), dict(_lines(node, ()))
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(
            f"{name}: a value contains itself (an alias, *, inside its own anchor, &), or aliases are nested too deeply"
        ) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"{name}: is not YAML: {cut(str(error), 500)}") from None
    except (LookupError, AttributeError):  # PyYAML raises these for a value that does not fit its tag
        raise ConfigError(f"{name}: is not YAML: a value does not fit its tag (!!); leave the tag out") from None


def _num_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values in a node after its aliases are written out. Raises RecursionError if there is no end."""
    if id(node) in known:
        if not known[id(node)]:
            raise RecursionError
        return known[id(node)]
    known[id(node)] = 0  # counting has begun
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    inside = 0 if isinstance(node, yaml.ScalarNode) else sum(_num_values(part, known) for part in parts)
    known[id(node)] = 1 + inside
    return 1 + inside


def _lines(node: yaml.Node | None, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, str(key.value)), key.start_mark.line + 1
            yield from _lines(value, (*path, str(key.value)))
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield (*path, str(index)), entry.start_mark.line + 1
            yield from _lines(entry, (*path, str(index)))
