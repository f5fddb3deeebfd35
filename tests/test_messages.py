"""The list of all messages is that of the package, and its codes find them."""

import re

import list_messages
import pytest
from helpers.messages import message


def test_the_list_holds_every_message_as_the_package_has_it():
    assert list_messages.renewed() == list_messages.listed(), "python scripts/list_messages.py shows the difference"


@pytest.mark.thorough
def test_reworded_messages_keep_their_codes(monkeypatch):
    before, now = list_messages.listed(), list_messages.messages()
    file, codes = next((file, codes) for file, codes in before.items() if len(codes) > 2)
    reworded = {code: f"{text} indeed" for code, text in list(codes.items())[::2]}
    now[file] = list((codes | reworded).values())
    monkeypatch.setattr(list_messages, "messages", lambda: now)
    assert list_messages.renewed()[file] == codes | reworded


def test_a_code_finds_its_message_with_the_facts_in_it_and_no_other():
    code, text = next((c, t) for codes in list_messages.listed().values() for c, t in codes.items() if "{path}" in t)
    written = re.sub(r"\{[^{}]*\}", "x.en: line 3", text)
    assert re.search(message(code, "x.en", "line 3"), written)
    assert not re.search(message(code, "y.en"), written)
    assert not re.search(message(code), written + " and more" if not text.endswith("}") else "more " + written[1:])
    with pytest.raises(KeyError):
        message("no-such-code")


def test_a_message_that_is_put_together_is_listed_in_parts(tmp_path):
    (tmp_path / "a.py").write_text(
        "CURE = f'mend it in {place}'\n"
        "def use(x):\n"
        "    if x: raise UserError(f'{x}: {found(x)}; {CURE}')\n"
        "    if broken := f'{x} is broken': raise UserError(broken)\n"
        "    raise ValueError('has no end' if x else f'has no {x}'.rstrip())\n"
        "def found(x):\n"
        "    return f'{x} is too long' + (found(x) if x else '')\n"
    )
    file = list_messages.FileOfCode(tmp_path / "a.py")
    assert file.messages({"UserError"}) == [
        *("{…}{x} is too long{…}{…}", "{…}mend it in {place}{…}", "{x} is broken"),
        *("{…}has no end{…}", "{…}has no {x}{…}"),
    ]
