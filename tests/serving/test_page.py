"""The page of the translation server in a real browser: what a person can do, with the mouse and with the keyboard.

If the environment variable AXE_CORE is the path of axe.min.js (of the package axe-core), the page is also checked for
barriers to people who use a screen reader, the keyboard alone, or large letters.
"""

import os
import time
from pathlib import Path

import pytest
from helpers.browser import NAMES, installed, opened
from helpers.page_server import serving

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(installed() is None, reason=f"needs a browser: one of {', '.join(NAMES)}"),
]

TEXT = "The child is sleeping in the old house. The dog waits at the door."
CONTROL, SHIFT = 2, 8
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "z": 90}
KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
AXE = os.environ.get("AXE_CORE", "")


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


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def person(tab):
    with serving() as server:
        tab.call("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)
        tab.call("Emulation.setEmulatedMedia", features=[])
        person = Person(tab, server)
        opens(person)
        yield person
        assert tab.value("1") == 1  # all events before this one have come
        told = [event for event in tab.complaints() if "Failed to load resource" not in str(event)]
        assert told == [], "the page itself complains of nothing"
        assert all(url.startswith((server.url, "data:")) for url in tab.requested())


def opens(person: Person) -> None:
    person.tab.open(person.server.url)
    person.sees("document.getElementById('target-language').length > 0")


# ---- Typing


def test_a_text_is_translated_as_soon_as_no_key_is_pressed_any_more(person):
    person.server.settings["frontendTimeout"] = 1500  # longer than a busy machine takes between two keys
    opens(person)
    person.tab.value(f"{SOURCE}.focus()")
    for letters in TEXT.partition("child"):
        person.types(letters)
    person.sees(OUTPUT, GERMAN)
    person.sees(STATUS, "2 sentences")
    assert [asked["texts"] for asked in person.server.translations()] == [[TEXT]]


def test_only_the_changed_sentence_is_sent_again(person):
    person.writes(TEXT, GERMAN)
    person.tab.value(f"{SOURCE}.setSelectionRange({len(TEXT) - 1}, {len(TEXT) - 1})")
    person.types(" now")
    person.sees(OUTPUT, GERMAN.replace("Der Hund wartet an der Tür.", "THE DOG WAITS AT THE DOOR NOW."))
    assert person.server.translations()[-1]["texts"] == ["The dog waits at the door now."]
    asked = len(person.server.translations())
    person.tab.value(f"{SOURCE}.setSelectionRange({len(TEXT) - 1}, {len(TEXT) + 3})")
    person.tab.call("Input.dispatchKeyEvent", type="keyDown", key="Delete", code="Delete", windowsVirtualKeyCode=46)
    person.sees(OUTPUT, GERMAN)
    assert len(person.server.translations()) == asked, "the page remembers the former sentence"


def test_an_answer_that_comes_too_late_is_not_shown(person):
    person.server.delay = 0.5
    person.tab.value(f"{SOURCE}.focus()")
    person.types("Slow")
    person.sees("1", 1)
    while not person.server.translations():
        time.sleep(0.01)
    person.server.delay = 0
    person.writes("er", "SLOWER")
    time.sleep(0.7)
    person.sees(OUTPUT, "SLOWER")


def test_lines_and_white_space_stay_and_are_copied(person):
    person.tab.value(f"{SOURCE}.focus()")
    person.types("One.  Two.\n\n  Three")
    person.sees(OUTPUT, "ONE. TWO.//THREE")
    catch = "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }"
    person.tab.value(catch)
    person.clicks(button("Copy"))
    person.sees("window.copied", "ONE.  TWO.\n\n  THREE")
    person.sees(STATUS, "Copied.")


def test_markup_is_text(person):
    person.writes("<img src=x onerror=alert(1)>", "<IMG SRC=X ONERROR=ALERT(1)>")
    assert person.tab.value("document.images.length") == 0


def test_the_text_is_still_there_after_loading_the_page_again(person):
    person.writes(TEXT, GERMAN)
    opens(person)
    person.sees(OUTPUT, GERMAN)
    assert person.tab.value(f"{SOURCE}.value") == TEXT


# ---- Languages


def test_languages_are_swapped_with_the_text(person):
    person.writes(TEXT, GERMAN)
    person.clicks("document.getElementById('swap')")
    person.sees(f"{SOURCE}.value", GERMAN)
    person.sees(OUTPUT, GERMAN.upper())
    asked = person.server.translations()[-1]
    assert (asked["source"], asked["target"]) == ("de", "en")


def chooses(person: Person, field: str, value: str) -> None:
    person.tab.value(
        f"(f => {{ f.value = '{value}'; f.dispatchEvent(new Event('change')) }})(document.getElementById('{field}'))"
    )


def test_the_language_is_detected(person):
    chooses(person, "source-language", "auto")
    person.writes(TEXT, GERMAN)
    person.sees("document.querySelector('#source-language :checked').textContent", "Detected: English")
    assert person.server.translations()[-1]["source"] == "en"


def test_a_pair_of_languages_that_the_server_does_not_have_is_said_in_words(person):
    chooses(person, "source-language", "auto")
    chooses(person, "target-language", "zh")
    person.writes("Das Haus und der Garten", "")
    person.sees(f"({PROBLEM}).includes('The text seems to be in German')")
    assert person.server.translations() == []


def test_words_of_a_language_without_spaces_are_found_by_characters(person):
    translations = {"I am Chinese.": [("我是中国人。", "0-0 1-1 2-2 2-3 2-4 2-5")]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("helpers.page_server.TRANSLATIONS", translations)
        chooses(person, "target-language", "zh")
        person.tab.value(f"{SOURCE}.focus()")
        person.types("I am Chinese.")
        person.sees("document.querySelectorAll('#output .word').length > 2")
    person.points("[...document.querySelectorAll('#output .word')].find(w => w.textContent.includes('国'))")
    person.sees(marked("mirror"), "Chinese.")


def test_each_line_has_its_direction(person):
    person.writes("hello\nשלום", "HELLO/שלום")  # noqa: RUF001
    direction = "[...document.querySelectorAll('#output p')].map(p => getComputedStyle(p).direction).join()"
    assert person.tab.value(direction) == "ltr,rtl"


# ---- Words that belong together


def test_the_source_words_of_a_word_are_marked_and_the_other_way_round(person):
    person.writes(TEXT, GERMAN)
    person.points(word("schläft"))
    person.sees(marked("mirror"), "is sleeping")
    person.points(word("old", "mirror"))
    person.sees(marked("output"), "alten")
    person.points("document.querySelector('h1')")
    person.sees("document.querySelectorAll('.on').length", 0)


def test_the_word_at_the_cursor_is_marked_with_its_translation(person):
    person.writes(TEXT, GERMAN)
    person.presses("Home", CONTROL)
    person.presses("ArrowRight", times=5)
    person.sees(marked("output"), "Kind")


def test_marks_lie_behind_the_words_that_a_person_sees(person):
    """The field shows the text, and what lies behind it the marks: both break their lines alike."""
    long = f"{TEXT} " * 6 + "x" * 200 + f"\n\n{TEXT}"
    person.tab.value(f"{SOURCE}.focus()")
    person.types(long)
    person.sees(STATUS, "15 sentences, 1 doubtful")
    heights = f"[{SOURCE}.scrollHeight, document.getElementById('mirror').offsetHeight]"
    field, behind = person.tab.value(heights)
    assert abs(field - behind) <= 1 and behind > 400


# ---- Corrections and other translations


def test_a_corrected_word_and_what_stands_before_it_begin_the_new_translation(person):
    person.writes(TEXT, GERMAN)
    person.clicks(word("Kind"))
    person.sees("document.activeElement.value", "Kind")
    person.types("Baby")
    person.presses("Enter")
    person.sees(OUTPUT, GERMAN.replace("Kind", "Baby").replace("in dem", "im"))
    asked = person.server.translations()[-1]
    assert asked["texts"] == ["The child is sleeping in the old house."] and asked["prefixes"] == ["Das Baby"]
    person.sees(FOCUS, "schläft")
    assert person.tab.value("[...document.querySelectorAll('.held')].map(w => w.textContent).join(' ')") == "Das Baby"
    person.writes(" Yes.", GERMAN.replace("Kind", "Baby").replace("in dem", "im") + " YES.")
    person.clicks(button("Undo"))
    person.sees(OUTPUT, GERMAN + " YES.")
    assert person.tab.value("document.getElementById('undo').hidden")


def test_escape_leaves_the_translation_as_it_is(person):
    person.writes(TEXT, GERMAN)
    person.clicks(word("Kind"))
    person.types("Baby")
    person.presses("Escape")
    person.sees(PANEL_IS_OPEN, False)
    person.sees(FOCUS, "Kind")
    person.sees(OUTPUT, GERMAN)
    assert not any("prefixes" in asked for asked in person.server.translations())


def test_a_correction_that_the_server_does_not_answer_is_not_lost(person):
    person.writes(TEXT, GERMAN)
    person.clicks(word("Kind"))
    person.sees(NUM_OTHERS, 4)
    person.types("Baby")
    person.server.failures.append((503, {}, "no model is ready"))
    person.presses("Enter")
    person.sees("document.getElementById('panel-problem').textContent.includes('no model is ready')")
    assert person.tab.value("document.getElementById('correction').value") == "Baby"
    person.presses("Enter")
    person.sees("document.querySelectorAll('.held').length", 2)


def test_another_translation_is_chosen_by_its_text_and_score(person):
    person.writes(TEXT, GERMAN)
    person.clicks(word("Der"))
    person.sees(NUM_OTHERS, 3)
    shown = person.tab.value("[...document.querySelectorAll('#panel li')].map(l => l.textContent)")
    assert shown[1] == "Der Hund wartet vor der Tür.−0.58"
    person.clicks(button("Der Hund wartet vor der Tür."))
    person.sees(OUTPUT, GERMAN.replace("an der", "vor der"))
    assert person.server.translations()[-1]["n_best"] > 1


def test_all_of_it_works_with_the_keyboard_alone(person):
    person.tab.value(f"{SOURCE}.focus()")
    person.types(TEXT)
    person.sees(OUTPUT, GERMAN)
    person.presses("Tab", times=2)
    person.sees(FOCUS, "Das")
    person.presses("ArrowRight")
    person.sees(FOCUS, "Kind")
    person.sees("document.activeElement.getAttribute('aria-description')", "from child")
    person.sees(marked("mirror"), "child")
    person.presses("ArrowDown")
    person.sees(FOCUS, "Der")
    person.presses("Enter")
    person.sees(NUM_OTHERS, 3)
    person.presses("Tab", times=4)
    person.sees("document.activeElement.firstChild.data", "Der Hund wartet vor der Tür.")
    person.presses(" ")
    person.sees(OUTPUT, GERMAN.replace("an der", "vor der"))
    person.presses("z", CONTROL)
    person.sees(OUTPUT, GERMAN)
    assert person.tab.value("document.querySelectorAll('#output [tabindex]').length") == 1
    person.presses("Tab", SHIFT, times=2)
    person.sees("document.activeElement.id", "source")


# ---- Doubts


def test_a_doubtful_sentence_says_why(person):
    person.writes("Nobody has opened its windows since 1987.", "Seit 1978 hat niemand seine Fenster geöffnet.")
    person.sees(
        "document.querySelector('.doubtful .doubt').textContent", "⚠ number lost: 1987; number not in the source: 1978"
    )
    person.sees(STATUS, "1 sentence, 1 doubtful")


# ---- Terms


def test_terms_are_sent_with_each_request_and_kept(person):
    person.writes("The cat sleeps.", "THE CAT SLEEPS.")
    person.clicks("document.querySelector('#terms summary')")
    person.clicks(button("Add a term"))
    person.types("cat")
    person.presses("Tab")
    person.types("Mieze|Katze")
    person.sees(OUTPUT, "THE Mieze SLEEPS.")
    assert person.server.translations()[-1]["terms"] == [{"source": "cat", "targets": ["Mieze", "Katze"]}]
    opens(person)
    person.sees(OUTPUT, "THE Mieze SLEEPS.")
    person.clicks("document.querySelector('#terms summary')")
    person.clicks(button("Remove"))
    person.sees(OUTPUT, "THE CAT SLEEPS.")


# ---- Files


def test_a_file_is_sent_and_its_translation_offered(person, tmp_path):
    path = tmp_path / "letter.txt"
    path.write_text("Dear friend", encoding="utf-8")
    person.clicks("document.querySelector('#files summary')")
    node = person.tab.call("Runtime.evaluate", expression="document.getElementById('file')")["result"]["objectId"]
    person.tab.call("DOM.setFileInputFiles", files=[str(path)], objectId=node)
    person.clicks(button("Translate the file"))
    person.sees("document.querySelector('#file-status a')?.pathname", "/download_file/translated.txt")
    [(path, body, _)] = person.server.asked
    assert path == "/translate_file" and b"Dear friend" in body and b'name="source"\r\n\r\nen' in body
    person.server.failures.append((400, {}, "this form of file is not known"))
    person.clicks(button("Translate the file"))
    person.sees("document.getElementById('file-status').textContent", "this form of file is not known")


# ---- Keys and problems


def test_a_key_is_asked_for_and_sent(person):
    person.server.settings["keyRequired"] = True
    opens(person)
    person.writes("Hello", "")
    person.sees(f"({PROBLEM}).includes('asks for an API key')")
    person.clicks("document.getElementById('key')")
    person.types("secret")
    person.presses("Enter")
    person.sees(OUTPUT, "HELLO")
    assert person.server.asked[-1][2]["Authorization"] == "Bearer secret"
    assert person.tab.value("JSON.stringify(localStorage)").count("secret") == 0


@pytest.mark.parametrize("status", [429, 503])
def test_a_problem_is_shown_in_place_and_another_try_succeeds(person, status):
    person.server.failures.append((status, {"Retry-After": "1"} if status == 429 else {}, "please wait"))
    person.writes("Hello", "")
    person.sees(f"({PROBLEM}).includes('please wait')")
    assert person.tab.value(f"{SOURCE}.value") == "Hello"
    if status != 429:  # in that case the page itself tries again
        person.clicks(button("Try again"))
    person.sees(OUTPUT, "HELLO")
    person.sees(PROBLEM, "")


def test_without_a_network_the_text_stays_and_is_translated_later(person):
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    person.tab.call("Network.emulateNetworkConditions", offline=True, **network)
    try:
        person.writes("Hello", "")
        person.sees(PROBLEM, "You are offline. Your text stays here.")
    finally:
        person.tab.call("Network.emulateNetworkConditions", offline=False, **network)
    person.sees(OUTPUT, "HELLO")


def test_a_text_that_is_too_long_is_not_sent(person):
    person.server.settings["charLimit"] = 10
    opens(person)
    person.writes("twelve signs", "")
    person.sees(PROBLEM, "The text is 2 characters longer than this server allows.")
    assert person.server.asked == []


# ---- Looks


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_wider_than_the_window(person, width):
    person.tab.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=740, deviceScaleFactor=1, mobile=width < 500
    )
    person.writes("x" * 300, "X" * 300)
    person.clicks("document.querySelector('#output .word')")
    person.sees(NUM_OTHERS, 1)
    person.tab.value("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert person.tab.value("document.documentElement.scrollWidth") <= width


@pytest.mark.skipif(not Path(AXE).is_file(), reason="needs AXE_CORE, the path of axe.min.js")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 360), ("dark", 360)])
def test_there_are_no_barriers(person, scheme, width):
    person.tab.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
    )
    person.tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    text = "The child is sleeping in the old house. Nobody has opened its windows since 1987."
    person.tab.value("document.querySelectorAll('details').forEach(d => { d.open = true })")
    person.tab.value("document.getElementById('add-term').click()")
    person.tab.value("document.getElementById('key-form').hidden = false")
    person.tab.value(f"{SOURCE}.focus()")
    person.types(text)
    person.sees(STATUS, "2 sentences, 1 doubtful")
    assert_no_barriers(person)
    person.clicks(word("Kind"))
    person.sees(NUM_OTHERS, 4)
    assert_no_barriers(person)
    person.presses("Escape")
    person.server.failures.append((503, {}, "no model is ready"))
    person.tab.value(f"{SOURCE}.focus()")
    person.types(" And then")
    person.sees(f"({PROBLEM}).includes('no model')")
    assert_no_barriers(person)


def assert_no_barriers(person: Person) -> None:
    person.tab.value(Path(AXE).read_text(encoding="utf-8") + "; 1")
    person.tab.value("window.found = null; axe.run().then(found => { window.found = found }); 1")
    person.sees("window.found !== null")
    kinds = "['serious', 'critical'].includes(v.impact)"
    listed = (
        f"window.found.violations.filter(v => {kinds}).map(v => [v.id, v.nodes.map(n => n.html + n.failureSummary)])"
    )
    assert person.tab.value(listed) == []
    assert person.tab.value("window.found.passes.length") > 15


# ---- The server itself


def test_the_page_and_the_server_understand_each_other(tab, server):
    """Of untrained models, only the form of the answers counts."""
    person = Person(tab, server)
    person.tab.open(server.url)
    person.sees("document.getElementById('target-language').length > 0")
    person.tab.value(f"{SOURCE}.focus()")
    person.types("The child sleeps. He sees the house.\n\nThe dog waits.")
    person.sees(f"{STATUS}.startsWith('3 sentences')")
    assert person.tab.value("document.querySelectorAll('#output .sentence').length") == 3
    person.clicks("document.querySelector('#output .word')")
    person.sees(f"{NUM_OTHERS} > 1")
    person.types("Kind")
    person.presses("Enter")
    person.sees("document.querySelector('.held')?.textContent.startsWith('Kind')")
    assert person.tab.value(PROBLEM) == ""
