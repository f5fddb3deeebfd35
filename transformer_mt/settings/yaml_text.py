"""Reads and writes YAML for configurations: 3e-4 is a number, no key may come twice, and each key has its line."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from transformer_mt.errors import ConfigError
from transformer_mt.wording import cut

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$", re.IGNORECASE
)


class _Reader(yaml.SafeLoader):
    """Reads YAML with numbers as people write them: 3e-4 is one, but 1:30 and 2024-01-01 are texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, form) for tag, form in resolvers if not tag.endswith((":int", ":float", ":timestamp"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    has_lines = True

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Read a section. Raises ConfigError for a key given twice, or without a space after its colon."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, value in node.value:
            name = str(key.value)
            place = f"{self.name}:{key.start_mark.line + 1}" if self.has_lines else self.name
            if name in seen:
                raise ConfigError(f"{place}: {name} is given twice; keep one of them")
            if node.flow_style and ":" in name and value.value == "":
                right = name.replace(":", ": ", 1)
                raise ConfigError(f"{place}: YAML reads {name} as one word; put a space after the colon: {{{right}}}")
            seen.add(name)
        return node


class _Writer(yaml.SafeDumper):
    """Puts quotes around texts that _Reader would read as numbers."""


for _dialect in (_Reader, _Writer):
    _dialect.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
    _dialect.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def dump_yaml(values: dict[str, Any]) -> str:
    """Return a YAML text that `parse_yaml` reads back as these values."""
    return yaml.dump(values, Dumper=_Writer, sort_keys=False, allow_unicode=True)


def parse_yaml(text: str, name: str) -> tuple[Any, dict[tuple[str, ...], int]]:
    """Return the values of a YAML text, and the line of each key; an entry of a list has its index, from 0, as its key.

    Raises ConfigError, which calls the text `name`.
    """
    try:
        loader = _Reader(text)
        loader.name, loader.has_lines = name, "\n" in text
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), dict(_lines(node, ()))
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{name}: is not YAML: {cut(str(error), 500)}") from None  # not all are YAMLError


def _lines(node: yaml.Node | None, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*path, str(key.value)), key.start_mark.line + 1
            yield from _lines(value, (*path, str(key.value)))
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            yield (*path, str(index)), entry.start_mark.line + 1
            yield from _lines(entry, (*path, str(index)))
