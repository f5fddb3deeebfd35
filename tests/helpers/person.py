"""A person at the page of the translation server: types, points, clicks, and sees what is shown."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers.browser import NAMES, Tab, installed
from helpers.page_server import serving

NEEDS_BROWSER = [
    pytest.mark.thorough,
    pytest.mark.skipif(installed() is None, reason=f"needs a browser: one of {', '.join(NAMES)}"),
]

TEXT = "The child is sleeping in the old house. The dog waits at the door."
CONTROL, SHIFT = 2, 8
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "z": 90}
KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Person:
    """Does in the browser what a person does, and sees what a person sees."""

    def __init__(self, tab, server) -> None:
        self.tab, self.server = tab, server

    def sees(self, expression: str, wanted=True) -> None:
        """Wait until an expression of JavaScript has a value."""
        end = time.monotonic() + 60
        while (found := self.tab.value(expression)) != wanted:
            assert time.monotonic() < end, f"{expression} is {found!r}, not {wanted!r}"
            time.sleep(0.02)

    def types(self, text: str) -> None:
        self.tab.call("Input.insertText", text=text)

    def writes(self, text: str, wanted: str) -> None:
        """Write into the field of the text, at its end, and wait for the translation."""
        self.tab.value("(s => { s.focus(); s.setSelectionRange(1e6, 1e6) })(document.getElementById('source'))")
        self.types(text)
        self.sees(OUTPUT, wanted)

    def presses(self, key: str, modifiers: int = 0, times: int = 1) -> None:
        for _ in range(times):
            pressed = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": modifiers}
            text = {"Enter": "\r", " ": " "}.get(key)
            self.tab.call("Input.dispatchKeyEvent", type="keyDown", **pressed, **({"text": text} if text else {}))
            self.tab.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def points(self, element: str) -> None:
        box = f"(r => [r.x + r.width / 2, r.y + r.height / 2])({element}.getClientRects()[0])"
        x, y = self.place = self.tab.value(box)
        self.tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def clicks(self, element: str) -> None:
        self.tab.value(f"{element}.scrollIntoView({{block: 'nearest'}})")
        self.points(element)
        for kind in ("mousePressed", "mouseReleased"):
            x, y = self.place
            self.tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


# The words of the translation; lines are separated by /.
OUTPUT = (
    "[...document.querySelectorAll('#output p')]"
    ".map(p => [...p.querySelectorAll('.word, .waiting')].map(w => w.textContent).join(' ')).join('/')"
)
GERMAN = "Das Kind schläft in dem alten Haus. Der Hund wartet an der Tür."
SOURCE = "document.getElementById('source')"
STATUS = "document.getElementById('status').textContent"
PANEL_IS_OPEN = "!document.getElementById('panel').hidden"
NUM_OTHERS = "document.querySelectorAll('#panel li').length"
FOCUS = "document.activeElement.textContent"
PROBLEM = "document.getElementById('problem').hidden ? '' : document.querySelector('#problem p').textContent"


def word(text: str, place: str = "output") -> str:
    return f"[...document.querySelectorAll('#{place} .word')].find(w => w.textContent === '{text}')"


def button(text: str) -> str:
    return f"[...document.querySelectorAll('button')].find(b => b.checkVisibility() && b.firstChild?.data === '{text}')"


def marked(place: str) -> str:
    return f"[...document.querySelectorAll('#{place} .on')].map(w => w.textContent).join(' ')"


def opens(person: Person) -> None:
    person.tab.open(person.server.url)
    person.sees("document.getElementById('target-language').length > 0")


def chooses(person: Person, field: str, value: str) -> None:
    person.tab.value(
        f"(f => {{ f.value = '{value}'; f.dispatchEvent(new Event('change')) }})(document.getElementById('{field}'))"
    )


@contextmanager
def at_the_page(tab: Tab) -> Iterator[Person]:
    """A person at a page just loaded. The page must not complain, and must load nothing from outside."""
    with serving() as server:
        tab.call("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)
        tab.call("Emulation.setEmulatedMedia", features=[])
        person = Person(tab, server)
        opens(person)
        yield person
        assert tab.value("1") == 1  # all events before this one have come
        assert [event for event in tab.complaints() if "Failed to load resource" not in str(event)] == []
        assert all(url.startswith((server.url, "data:")) for url in tab.requested())
