"""Hostile values of settings, drawn with a seed: of every key, from every road."""

import json
import random
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transformer_mt.settings.experiment import Config

# As they stand in YAML: other types, numbers, texts that are no names, tags, lists and sections. Two spaces part them.
_PLAIN = r"""
null  true  no  ''  'x'  auto  []  {}  [1, 2]  {a: b}  - a  2024-01-01  1:30  ~  =  ä  ../../x  %s  ${HOME}  `id`
0  1  -1  2  3  100  5000  1000000  1e9  -1e9  0x7fffffffffffffff  9223372036854775807  9223372036854775808  1_0  0b1
0.5  1.0  1.5  1e-6  1e-300  5e-324  1e308  1e400  -1e400  .inf  -.inf  .nan  -0.0  18446744073709551616
"a\0b"  "\n"  "\x1b[2J"  "\ud800"  "\U0001F600"  /dev/zero  /dev/stdin  x: y: z  &a [*a]  *a  &a  !x y
!!timestamp x  !!bool x  !!int ''  !!float x  !!binary x  !!set {a}  !!omap [a]  !!null x  !!str 3  !!int 3
!!python/object/apply:os.system [id]  !!map [a]  !!seq {a: b}  {<<: {a: 1}}  <<: 3  {a: 1, a: 2}  {? [a] : b}
{kind: bogus}  {kind: rnn}  {kind: [a]}  {kind: null}  {source: a}  {source: 3, target: []}  {'a/b': c}  {1: 2}
"""
_LONG = ["1" + "0" * 60, "1" + "0" * 5000, "0x" + "f" * 4000, "x" * 5000, "a/" * 3000, "1" + ":59" * 30_000]
_DEEP = ["[" * 40, "[" * 3000, "[" * 60 + "]" * 60, "{a: " * 60]
VALUES = [*re.split(r"  |\n", _PLAIN.strip()), *_LONG, *_DEEP, "\u202e", "\x00", "\x07"]
_SIGNS = ["\n", "\t", ": ", "- ", *"{}[]'\"#%|>\x00ä\ufeff", "&a ", "*a", "!!", "? ", "---\n"]
_UNKNOWN = "x beam lr . .. a.b.c model.kind __class__ from_ << 0".split() + ["", "\x00", "ä" * 3000, "k" * 9000]


@dataclass(frozen=True)
class Case:
    """A configuration file, and the overrides of a command."""

    text: str
    overrides: list[str]


def settings() -> dict[str, dict[str, Any]]:
    """The JSON schema of every setting; of a model those of both kinds."""
    schema = Config.model_json_schema()
    found = {key: each for key, each in schema["properties"].items() if "type" in each}
    for name, definition in schema["$defs"].items():
        section = {"transformer": "model", "rnn": "model"}.get(of := name.removesuffix("Config").lower(), of)
        if section in schema["properties"]:
            found |= {f"{section}.{key}": each for key, each in definition["properties"].items()}
    return found


def bounds(schema: dict[str, Any]) -> list[str]:
    """Values at the bounds of what a schema allows, and the default."""
    found = [*schema.get("enum", []), schema.get("const"), schema.get("default")]
    found += [schema.get(bound) for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    found += {"boolean": [True, False], "integer": [1, 2], "number": [0.5, 1.0]}.get(schema.get("type", ""), [])
    found += [value for form in schema.get("anyOf", []) for value in bounds(form)]
    return [value if isinstance(value, str) else json.dumps(value) for value in found if value is not None]


def configurations(base: str, number: int, seed: int) -> Iterator[Case]:
    """Of every kind of mistake as many: in overrides, in the place of a line, and anywhere in the text."""
    draw, schemas = random.Random(seed), settings()
    for index in range(number):
        names = draw.choices([*schemas, *(draw.choice(_UNKNOWN) for _ in range(4))], k=draw.randint(1, 3))
        match index % 3:
            case 0:
                allowed = [bounds(schemas.get(name, {})) for name in names]
                values = [draw.choice(good if good and draw.random() < 0.7 else VALUES) for good in allowed]
                yield Case(base, [f"{name}={value}" for name, value in zip(names, values, strict=True)])
            case 1:
                lines = base.splitlines()
                for _ in names:
                    at = draw.randrange(len(lines))
                    lines[at] = f"{lines[at].partition(':')[0]}: {draw.choice(VALUES)}"
                    lines.insert(at, draw.choice(lines))
                yield Case("\n".join(lines), [])
            case _:
                text = base
                for _ in range(draw.randint(1, 6)):
                    at = draw.randrange(len(text))
                    text = text[:at] + draw.choice([*_SIGNS, draw.choice(VALUES)]) + text[at + draw.randrange(8) :]
                yield Case(text, [])


def decodings(number: int, seed: int, sizes: dict[str, int]) -> Iterator[list[str]]:
    """Overrides of decoding; most values are those at the bounds, but `sizes` are the largest that are drawn."""
    draw, schemas = random.Random(seed), settings()
    names = [name.partition(".")[2] for name in schemas if name.startswith("decoding.")]
    for _ in range(number):
        overrides = []
        for name in draw.sample(names, k=draw.randint(1, 4)):
            schema = schemas[f"decoding.{name}"] | ({"maximum": sizes[name]} if name in sizes else {})
            value = draw.choice((bounds(schema) if draw.random() < 0.9 else []) or VALUES)  # a text has no bounds
            overrides.append(f"{name}={value}")
        yield overrides + draw.choice([[], ["sampling=true"]])


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """TimeoutError where what is done inside hangs. It measures nothing."""
    assert threading.current_thread() is threading.main_thread()

    def stop(*_: object) -> None:
        raise TimeoutError(f"hangs: not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
