"""The page of the translation server in a real browser: terms, files, problems, its looks, and the server itself.

If the environment variable AXE_CORE is the path of axe.min.js (of the package axe-core), the page is also checked for
barriers to people who use a screen reader, the keyboard alone, or large letters.
"""

import os
from pathlib import Path

import pytest
from helpers.person import NEEDS_BROWSER, NUM_OTHERS, OUTPUT, PROBLEM, SOURCE, STATUS, Person, button, opens, word

pytestmark = NEEDS_BROWSER

AXE = os.environ.get("AXE_CORE", "")


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
