"""Prints how often the numbers of English lines come back in a model's translations, by kind of number.

    python scripts/benchmarks/number_lines.py MODEL_DIR [PROTECT_PATTERN]

The 1,000 lines are the same at each call: long numbers, dates, prices and versions, in sentences of frequent words.
After each share, there is the first line whose numbers did not come back, with its translation.
"""

import random
import sys
from calendar import month_name
from collections.abc import Callable

from transformer_mt import Translator
from transformer_mt.base.doubts import numbers

_LINES_OF_KIND = 250


def _date(dice: random.Random) -> str:
    month, day, year = dice.randint(1, 12), dice.randint(1, 28), dice.randint(1800, 2030)
    return dice.choice([f"{month}/{day}/{year}", f"{month_name[month]} {day}, {year}"])


KINDS: dict[str, tuple[Callable[[random.Random], str], list[str]]] = {
    "long numbers": (
        lambda dice: f"{dice.randrange(10**4, 10 ** dice.randint(5, 10)):,}",
        ["The city has {} people.", "He read {} books.", "They found {} stars.", "We need {} trees."],
    ),
    "dates": (_date, ["She was born on {}.", "I came here on {}.", "The war began on {}.", "We will meet on {}."]),
    "prices": (
        lambda dice: f"${dice.randrange(10, 10 ** dice.randint(2, 6)):,}.{dice.randint(10, 99)}",
        ["This book costs {}.", "I paid {} for it.", "He gave me {} yesterday.", "Can you lend me {}?"],
    ),
    "versions": (
        lambda dice: f"{dice.randint(0, 30)}.{dice.randint(10, 99)}.{dice.randint(0, 300)}",
        ["I use version {}.", "Version {} is new.", "Have you seen version {}?", "They found a bug in version {}."],
    ),
}


def number_lines(kind: str) -> list[str]:
    """Return the lines of a kind in KINDS. Each has a number of at least two digits."""
    dice, (number, sentences) = random.Random(1), KINDS[kind]
    return [dice.choice(sentences).format(number(dice)) for _ in range(_LINES_OF_KIND)]


def main(model: str, protect_pattern: str | None = None) -> None:
    """Translate the lines of each kind, with this decoding.protect_pattern if there is one, and print the shares."""
    translator = Translator.load(model)
    protect = {"protect": "always", "protect_pattern": protect_pattern} if protect_pattern else {}
    decoding = translator.decoding.model_copy(update=protect)
    for kind in KINDS:
        lines = number_lines(kind)
        pairs = zip(lines, translator.translate(lines, decoding), strict=True)
        wrong = [pair for pair in pairs if numbers(pair[0]) != numbers(pair[1])]
        print(f"{kind:13} {1 - len(wrong) / len(lines):7.1%}  {' -> '.join(wrong[0]) if wrong else ''}")


if __name__ == "__main__":
    main(*sys.argv[1:])
