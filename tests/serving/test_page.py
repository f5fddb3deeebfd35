"""The page of the translation server in a real browser: typing, languages, words, corrections, doubts."""

import time

import pytest
from helpers.person import (
    CONTROL,
    FOCUS,
    GERMAN,
    NEEDS_BROWSER,
    NUM_OTHERS,
    OUTPUT,
    PANEL_IS_OPEN,
    PROBLEM,
    SHIFT,
    SOURCE,
    STATUS,
    TEXT,
    button,
    chooses,
    marked,
    opens,
    word,
)

pytestmark = NEEDS_BROWSER


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
