"""Error messages by their codes, so that a test does not repeat the words of one."""

import re
from functools import cache
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
    """A regular expression for `pytest.raises(match=…)`: the message of this code, with these facts somewhere in it."""
    parts = re.split(r"\{[^{}]*\}", _templates()[code])
    named = "".join(f"(?=.*{re.escape(fact)})" for fact in facts)
    return f"(?s)^{named}" + ".*".join(map(re.escape, parts)) + "$"
