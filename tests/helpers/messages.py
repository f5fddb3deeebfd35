"""Error messages by their codes, so that a test does not repeat the words of one."""

import re
from functools import cache
from itertools import permutations
from pathlib import Path

import yaml

LIST = Path(__file__).parent.parent / "messages.yaml"


@cache
def _templates() -> dict[str, str]:
    return {
        code: text
        for codes in yaml.safe_load(LIST.read_text(encoding="utf-8")).values()
        for code, text in codes.items()
    }


def message(code: str, *facts: str) -> str:
    """A regular expression for `pytest.raises(match=…)`: the message of this code, with these facts somewhere in it.

    Each fact has a place of its own: the facts "0" and "at least 0" are two zeros. Before the message may stand, with a
    colon, where the mistake was made.
    """
    return f"(?s)^{_facts(facts)}(?:.*: )?{_text(code)}$"


def says(text: str, code: str, *facts: str) -> bool:
    """Whether the output of a command has the message of this code, and these facts."""
    return re.search(f"(?s)^{_facts(facts)}.*{_text(code)}", text) is not None


def _facts(facts: tuple[str, ...]) -> str:
    orders = (".*".join(map(re.escape, order)) for order in permutations(facts))
    return f"(?=.*(?:{'|'.join(orders)}))"


def _text(code: str) -> str:
    return ".*".join(map(re.escape, re.split(r"\{[^{}]*\}", _templates()[code])))
