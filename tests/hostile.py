"""Hostile values of settings, drawn with a seed: of every key, from every road."""

import json
import random
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from transformer_mt.config import json_schema

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
_ALIASES = ",".join(f"&{b} [{','.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdefgh"))  # 9 ** 8 values
_LONG = ["1" + "0" * 60, "1" + "0" * 5000, "0x" + "f" * 4000, "x" * 5000, "a/" * 3000, "1" + ":59" * 30_000]
_DEEP = ["[" * 40, "[" * 3000, "[" * 60 + "]" * 60, "{a: " * 60, f"[&a [x,x,x,x,x,x,x,x,x],{_ALIASES}]"]
VALUES = [*re.split(r"  |\n", _PLAIN.strip()), *_LONG, *_DEEP, "\u202e", "\x00", "\x07"]
_SIGNS = ["\n", "\t", ": ", "- ", *"{}[]'\"#%|>\x00ä\ufeff", "&a ", "*a", "!!", "? ", "---\n"]
_UNKNOWN = "x beam lr . .. a.b.c model.kind __class__ from_ << 0".split() + ["", "\x00", "ä" * 3000, "k" * 9000]
_ALLOWED = """
0 1 2 3 0.0 0.5 1.0 1e-6 10.0 100.0 1e6 true false gnmt average none always never auto 63 1000000 1000000000
9223372036854775807
""".split()


@dataclass(frozen=True)
class Case:
    """A configuration file, and the overrides of a command."""

    text: str
    overrides: list[str]


def keys(section: str = "") -> list[str]:
    """Every key of a section, or of all; of a model those of both kinds."""
    schema = json.loads(json_schema())
    found = list(schema["properties"])
    for name, definition in schema["$defs"].items():
        above = name.removesuffix("Config").lower()
        above = "model" if above in ("transformer", "rnn") else above
        found += [f"{above}.{key}" for key in definition["properties"] if above in schema["properties"]]
    return sorted({key for key in found if key.startswith(section)})


def configurations(base: str, number: int, seed: int) -> Iterator[Case]:
    """Of every kind of mistake as many: in overrides, in the place of a line, and anywhere in the text."""
    draw, all_keys = random.Random(seed), keys()
    for index in range(number):
        names = draw.choices([*all_keys, *(draw.choice(_UNKNOWN) for _ in range(4))], k=draw.randint(1, 3))
        match index % 3:
            case 0:
                yield Case(base, [f"{name}={draw.choice(VALUES)}" for name in names])
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


def decodings(number: int, seed: int, largest: int) -> Iterator[list[str]]:
    """Overrides of decoding; most values are allowed somewhere, and hardly one of the sizes is above `largest`."""
    draw, names = random.Random(seed), [key.partition(".")[2] for key in keys("decoding.")]
    sizes = ["1", "7", str(largest)]
    for _ in range(number):
        overrides = []
        for name in draw.sample(names, k=draw.randint(1, 5)):
            allowed = sizes if name in ("beam_size", "n_best") else _ALLOWED
            overrides.append(f"{name}={draw.choice(allowed if draw.random() < 0.8 else VALUES)}")
        yield overrides


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
