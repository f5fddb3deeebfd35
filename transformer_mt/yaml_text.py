"""YAML as configurations are written in it: floats such as 3e-4, no key twice, the line of each key."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from transformer_mt.errors import ConfigError


class _Reader(yaml.SafeLoader):
    """YAML 1.1, but 3e-4 is a number and a key given twice is an error."""

    numbered = True

    def place(self, node: yaml.Node) -> str:
        """The text's name, and the line of this node if there is more than one."""
        return f"{self.name}:{node.start_mark.line + 1}" if self.numbered else str(self.name)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{self.place(key_node)}: a key must be a word")
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
    """Quotes the texts that _Reader would take for numbers."""


for dialect in (_Reader, _Writer):
    dialect.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def dump_yaml(values: dict[str, Any]) -> str:
    """A text that `parse_yaml` reads back as these values."""
    return yaml.dump(values, Dumper=_Writer, sort_keys=False, allow_unicode=True)


def parse_yaml(text: str, name: str) -> tuple[Any, dict[tuple[str, ...], int]]:
    """The values of a YAML text, and the line of each key. Raises ConfigError, which calls the text `name`."""
    try:
        loader = _Reader(text)
        loader.name, loader.numbered = name, "\n" in text
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), dict(_lines(node, ()))
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"{name}: is not YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{name}: a value contains itself (an alias, *, inside of its anchor, &)") from None


def _lines(node: yaml.Node | None, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, str(key.value)), key.start_mark.line + 1
            yield from _lines(value, (*path, str(key.value)))
