"""Properties of where sentences end."""

import random

import pytest
from helpers.tiny import demo_pairs

from transformer_mt.text.sentences import split_sentences


def sentences(line: str, language: str = "en") -> list[str]:
    return [text for text, _ in split_sentences(line, language)]


@pytest.mark.parametrize(
    ("line", "language"),
    [
        ("He left.| She came.", "en"),
        ("What?| Nothing!| Wait...| And…| Then.| Yes", "en"),
        ('"Whose dogs are these?"| "They are mine."| He left.', "en"),
        ("(He left.)| [She came.]| «Bon.»| Oui.", "fr"),
        ("¿Cómo estás?| ¡Bien!", "es"),
        ("Was?| – Ja.", "de"),
        ("I don't.| He does.", "en"),
        ("Es war 1990.| Er ging.", "de"),
        ("He is 25.| She is 30.", "en"),
        ("He is not here.| 5 men are.", "en"),
        ("1. Mix.| 2. Bake.", "en"),
        ("a man is here .| he runs .", "en"),
        ("No.| He is not.", "en"),
        ("See example.com.| He did.", "en"),
        ("你好。|我是谁？|很好!", "zh"),  # noqa: RUF001
        ("なに？|はい。|「そう。」と言った。", "ja"),  # noqa: RUF001
        ("كيف حالك؟| بخير.", "ar"),
        ("तुम कौन हो?| मैं राम हूँ।| अच्छा।", "hi"),
    ],
)  # fmt: skip
def test_sentences_are_parted(line, language):
    parts = line.split("|")
    assert sentences("".join(parts), language) == [part.lstrip() for part in parts]


@pytest.mark.parametrize(
    ("line", "language"),
    [
        ("Mr. Smith and Dr. J. R. Jones live in St. Paul.", "en"),
        ("a woman in a U.S. Army uniform", "en"),
        ("No. 5 is alive, see Fig. 3 of Jan. 5", "en"),
        ("Am 3. Mai kam z. B. Haus, d.h. Er, ca. 5 Mal.", "de"),
        ("Dr. med. Meyer, Berliner Str. 5, and Mt. Fuji", "de"),
        ("Sono l'Ing. Mengozzi", "it"),
        ("проф. Семенов, ул. 1 Мая", "ru"),
        ('"Go!" he said.', "en"),
        ("Yahoo! is here... and there", "en"),
        ("I use Yahoo! Mail, and he met Yahoo!Mail.", "en"),
        ("I see it.Mt. Fuji is high", "en"),
        ("It costs 3.5 or 1.000 or .5", "en"),
        ("1. Introduction", "en"),
        ("“你好。”他说。", "zh"),
        ("「はい。」と言った。", "ja"),
        ("a man (e.g. a boy) runs , vs. a woman", "en"),
        ("...", "en"),
        ("", "en"),
        ("   ", "en"),
    ],
)
def test_one_sentence_stays_one(line, language):
    assert len(split_sentences(line, language)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "I read a book.|I like it.|It's good.",
        "Ich lese ein Buch.|Ich mag es.|Er auch!|Nein?|Doch, ja.",
        "Il est là.|C'est bien.",
        "¿Y tú?|Bien.|¿Cómo estás?|¡Bien!",
        "(He left.)|She came (late.)|Then they ate.",
        "Он пришёл.|Она ушла домой.",
        "We saw Tom.|He left the U.S.A. today.",
    ],
)
def test_sentences_without_a_space_between_them_are_parted(line):
    assert sentences(line.replace("|", "")) == line.split("|")


@pytest.mark.parametrize(
    "line",
    [
        "z.B.Haus ist, d.h.Er ist, e.g.Something is, the U.S.A.Then he, Ph.D.Then he",
        "example.com, www.example.Org and www.example.De are, see https://example.com/index.Html now, booking.Com is",
        "Node.js is, Node.Js is, the file readme.Md",
        "Write to jane.Doe@example.com today, or @jane.Doe now",
        "Version 3.5 is v1.2.Final or 4.Beta now",
        "J.R.R.Tolkien, J.Tolkien and Tom.A are",
        "Well...Then he, and…Then she, what?..No way",
        "Mr.Smith and Dr.Brown saw vs.Germany play",
        "org.Example.Class is what we call(net.Socket) is",
        "`net.Socket` is",
        "a = os.Path of",
        "iPhone.iPad is, a.Then b, and so.on and USA.Then he",
        "It costs 5.Then he",
    ],
)
def test_names_and_abbreviations_with_stops_inside_stay_whole(line):
    assert sentences(line) == [line]


def test_the_white_space_belongs_to_the_sentence_before_it():
    assert split_sentences("A dog.\t  He runs.\u3000 So?  ") == [
        ("A dog.", "\t  "),
        ("He runs.", "\u3000 "),
        ("So?", "  "),
    ]


def test_any_line_is_its_sentences_again():
    draw = random.Random(1)
    for _ in range(2000):
        line = "".join(draw.choices("abcd AB.!?…。」\"'(¿) \t1", k=draw.randint(0, 30)))
        found = split_sentences(line, draw.choice(["en", "de", "ja"]))
        assert "".join(text + space for text, space in found) == line
        assert all(text.strip() for text, _ in found) or not line.strip()


def test_ten_sentences_of_the_demo_are_found_again():
    for side, language in enumerate(["en", "de"]):
        ten = [pair[side] for pair in demo_pairs(10)]
        assert sentences(" ".join(ten), language) == ten
        assert sentences("".join(ten), language) == ten


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("." * 10**6, 1),
        ("。" * 10**6, 1),
        ('."' * 10**5, 1),
        (". " * 10**5, 1),
        ("。" + " " * 10**5, 1),
        ("A1. " * 10**5, 10**5),
        ("aa.Bb" * 10**5, 1),
        ("aa.Bb c" * 10**4, 10**4 + 1),
    ],
    ids=["stops", "wide stops", "quotes", "spaced stops", "spaces", "sentences", "words", "without spaces"],
)
def test_a_long_line_of_marks_takes_no_longer_than_others(line, number):
    # Minutes or hours each, if every mark looked at all that follow it.
    assert len(split_sentences(line)) == number
