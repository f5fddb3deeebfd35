"""Doubtful translations are found without a reference, and correct ones are left alone."""

import random

import pytest
from helpers.tiny import demo_pairs

from transformer_mt.base.doubts import DOUBTS, doubts, numbers


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("A dog.", "", ["empty"]),
        ("In 1999.", " ", ["empty", "numbers"]),
        ("A dog runs home.", "a dog runs home.", ["copied"]),
        ("我不知道你在说什么我听不见", "我不知道你在说什么我听不见", ["copied"]),
        ("The old dog runs home", "Der old dog runs heim", ["untranslated"]),
        ("A dog.", "ein Hund ein Hund ein Hund", ["repeated"]),
        ("A dog.", "Ein Hundundundundund.", ["repeated"]),
        ("It has 2,200,112 people.", "Es hat 2.201.112 Einwohner.", ["numbers"]),
        ("On 12/31/1999", "Am 31. Dezember", ["numbers"]),
        ("He left.", "Er ging um 10.", ["numbers"]),
        ("From 10 to 10", "Von 10 bis", ["numbers"]),
        ("It costs 12,000.", "Es kostet 12.", ["numbers"]),
        ("2,000,112", "3.000.112", ["numbers"]),
        ("%s: can't read %s: %s", "°C", ["placeholders"]),
        ("Delete {name}", "Löschen", ["placeholders"]),
        ("Delete", "{name} löschen", ["placeholders"]),
        ("%s has %d files", "%d Dateien von %s", ["placeholders"]),
        ("%s and %s", "%s und", ["placeholders"]),
        ("%dx%d pixels", "%d Punkte", ["placeholders"]),
        ("%(share).1f%% of ${HOME}", "%(share).1f von ${HOME}", ["placeholders"]),
    ],
)
def test_doubtful_translations_are_named(source, translation, expected):
    assert doubts(source, translation) == expected
    assert set(expected) <= DOUBTS.keys()


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("", ""),
        ("Karaoke", "Karaoke"),
        ("restaurant", "restaurant"),
        ("Angela Merkel, New York", "Angela Merkel, New York"),
        ("https://example.com/a?b=yes name@example.org", "https://example.com/a?b=yes name@example.org"),
        ("+49 170 1234567", "+49 170 1234567"),
        ("<b>{name}</b> <i>%(count)s ${home}</i>", "<b>{name}</b> <i>%(count)s ${home}</i>"),
        ("GET /index.html HTTP/1.1", "GET /index.html HTTP/1.1"),
        ("See Paris, Berlin and Rome!", "Sieh Paris, Berlin und Rom!"),
        ("Two men in black in a city", "Zwei Männer in Schwarz in einer Stadt"),
        ("no no no no", "nein nein nein nein"),
        ("Wait ........", "Warte ........"),
        ("He has 3 sons and 1 dog.", "Er hat drei Söhne und einen Hund."),
        ("%(who)s sends {what} on %m/%d/%Y", "Am %d.%m.%Y schickt %(who)s {what}"),
        ("%1$s has %2$d files", "%2$d Dateien von %1$s"),
        ("%s has %d of %zu bytes, %5.2f%%", "%s hat %d von %zu Bytes, %5.2f%%"),
        ("It costs $5, 100% of it.", "Es kostet 5 $, 100%ig."),
        ("The 100-%ige chance", "The 100% chance"),
    ],
)
def test_correct_translations_are_not_doubtful(source, translation):
    assert doubts(source, translation) == []


def test_what_is_in_the_reference_is_not_doubtful():
    cases = [
        ("the old town", "the old town"),
        ("ten ten old dogs run", "the ten old dogs run far"),
        ("dogs", "ha ha ha ha"),
        ("ten", "10"),
    ]
    for source, translation in cases:
        assert doubts(source, translation, reference=translation) == []
        assert len(doubts(source, translation, reference="etwas anderes")) == 1
    assert doubts("at 10", "um 10", reference="um zehn") == []
    assert doubts("at 10", "um 11", reference="um zehn") == ["numbers"]


SEPARATORS = [None, *",.'’ \u00a0\u202f"]
SCRIPTS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "".join(chr(0xFF10 + digit) for digit in range(10))]


def written(number, separator, script):
    digits = f"{number:,}".replace(",", separator) if separator is not None else str(number)
    return digits.translate({ord("0") + value: digit for value, digit in enumerate(script)})


def test_a_number_is_the_same_in_every_form_and_another_if_a_digit_changes():
    dice = random.Random(1)
    for _ in range(300):
        drawn = [dice.randrange(10 ** dice.randrange(2, 9)) for _ in range(dice.randrange(5))]
        one, other = (
            " and ".join(written(number, dice.choice(SEPARATORS), dice.choice(SCRIPTS)) for number in order)
            for order in (drawn, dice.sample(drawn, len(drawn)))
        )
        assert numbers(one) == numbers(other), (one, other)
        assert sorted(numbers(one).elements()) == sorted(str(number) for number in drawn if number > 9)
        if any(number > 9 for number in drawn):
            place = dice.choice([i for i, number in enumerate(drawn) if number > 9])
            changed = [*drawn[:place], drawn[place] + dice.choice([-1, 1, 10]), *drawn[place + 1 :]]
            assert numbers(" and ".join(map(str, changed))) != numbers(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12/31/1999", "31.12.1999"),
        ("10:30", "10.30"),
        ("on 05/03/2020", "am 5. 3. 2020"),
        ("$1,299.90", "1 299,90 $"),
        ("F-16, COVID-19", "F16, Covid-19"),
        ("1,000 of 10", "1000 von 10"),
    ],
)
def test_languages_write_the_same_numbers_in_their_own_forms(one, other):
    assert numbers(one) == numbers(other) != {}


def test_correct_pairs_are_hardly_ever_doubtful():
    pairs = demo_pairs(400)
    assert [(pair, found) for pair in pairs if (found := doubts(*pair))] == []
    assert sum(doubts(source, source) == ["copied"] for source, _ in pairs) > 360


def test_a_list_of_numbers_is_the_same_with_every_separator_and_another_if_a_number_changes():
    dice = random.Random(2)
    for _ in range(300):
        drawn = [dice.randrange(100, 1000) for _ in range(dice.randrange(2, 5))]
        one, other = (separator.join(map(str, drawn)) for separator in dice.choices([", ", " and ", " ", "; "], k=2))
        assert doubts(f"We have {one}.", f"Wir haben {other}.") == []
        assert doubts(f"We have {one}.", f"Wir haben {other}.", reference=f"Wir haben {one}.") == []
        changed = [*drawn[:-1], drawn[-1] % 900 + 100]
        for wrong in (", ".join(map(str, changed)), other.rsplit(maxsplit=1)[0]):
            assert doubts(f"We have {one}.", f"Wir haben {wrong}.") == ["numbers"]
