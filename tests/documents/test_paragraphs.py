"""Properties of plain text with broken lines: its paragraphs are translated, and all else in it stays."""

import random
import re
import textwrap
import unicodedata
from pathlib import Path

import pytest
from helpers.hostile import time_limit

from transformer_mt.documents.document import translate_document
from transformer_mt.documents.paragraphs import looks_wrapped, translate_paragraphs

ROOT = Path(__file__).parents[2]
WORDS = "the dog house garden is sleeping often, today. Perhaps they (and we) see it; a well-known fact: 12".split()

MAIL = """\
From: Ann
Subject: The dogs

On Monday, Bob wrote:
> > I think that the big dogs in the garden are sleeping now, because it is
> > late and they have run the whole day.
>
> No, they are not. They are still running around in the garden, and the cat
> sits on the roof.

- food for the big dogs, which eat a lot more than the small ones do, as you
  know from last year
- water
1. A house that is large enough for all of the dogs, and in which it is warm
   in winter.
2. A garden.

    name      age     colour
    ------------------------
    Rex         3     brown

+------+
| dogs |
+------+

  The first line of this paragraph is indented, as in many books, and others
are not.
  The next one follows it at once, and it is just as long as the first one is,
or longer.

-x, --example   tries it with an example, which is of no use to anybody except
                to the reader

Kind regards
Ann
--\x20
Ann Example, Head of Dogs
12 Main Street
"""
TEXTS = [
    "From: Ann",
    "Subject: The dogs",
    "On Monday, Bob wrote:",
    "I think that the big dogs in the garden are sleeping now, because it is late and they have run the whole day.",
    "No, they are not. They are still running around in the garden, and the cat sits on the roof.",
    "food for the big dogs, which eat a lot more than the small ones do, as you know from last year",
    "water",
    "A house that is large enough for all of the dogs, and in which it is warm in winter.",
    "A garden.",
    "The first line of this paragraph is indented, as in many books, and others are not.",
    "The next one follows it at once, and it is just as long as the first one is, or longer.",
    "tries it with an example, which is of no use to anybody except to the reader",
    *("Kind regards", "Ann"),
]


def identity(texts):
    return [(text, []) for text in texts]


def swap(texts):
    return [(text.swapcase(), []) for text in texts]


def asked_of(text, languages=("en", "de")):
    asked = []
    translate_paragraphs(text, lambda texts: asked.extend(texts) or identity(texts), languages)
    return asked


def columns(line):
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in line)


def test_the_texts_of_a_mail_are_its_paragraphs():
    assert asked_of(MAIL) == TEXTS


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_mail_keeps_its_width_and_all_that_is_no_text(end):
    found = translate_document(MAIL.replace("\n", end), "paragraphs", swap, ("en", "de"))
    left = ("name", "----", "Rex", "+-", "| dogs", "Ann Example", "12 Main")
    lines = [line if line.strip().startswith(left) else line.swapcase() for line in MAIL.split("\n")]
    expected = "\n".join(lines).replace("-X, --EXAMPLE", "-x, --example").replace("\n", end)
    assert found == expected


def document(rng):
    """Paragraphs with prefixes, wrapped by another program; what they are; the width."""
    width = rng.randrange(50, 100)
    blocks, texts = [], []
    for _ in range(rng.randrange(2, 8)):
        first, then = rng.choice(
            [("", ""), ("  ", ""), ("> ", "> "), ("- ", "  "), (" 2) ", "    "), (">> * ", ">>   ")]
        )
        words = [rng.choice(WORDS) for _ in range(rng.randrange(30, 90))]
        text = " ".join(["It", *words, "ends."])
        lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)
        blocks.append("\n".join(lines))
        texts.append(text)
    return "\n\n".join(blocks) + "\n", texts, width


@pytest.mark.parametrize("seed", range(60))
def test_wrapped_text_gives_its_paragraphs_and_is_wrapped_as_before(seed):
    text, texts, width = document(random.Random(seed))
    assert asked_of(text) == texts
    assert translate_paragraphs(text, identity) == text
    longer = translate_paragraphs(text, lambda texts: [(f"Longer {one}", []) for one in texts])
    assert all(len(line) <= width for line in longer.split("\n"))
    assert asked_of(longer) == [f"Longer {one}" for one in texts]
    assert marks(longer) == marks(text)


def marks(text):
    """What stands before the words of the first line of each paragraph."""
    return [re.match(r"[ >*-]*(?:2\) )?", block)[0] for block in text.split("\n\n")]


def test_wrapped_text_looks_wrapped():
    text = " ".join(["A dog that sleeps in the garden of the house is often happy, and so am I."] * 20)
    for width in (50, 72, 100):
        assert looks_wrapped(textwrap.wrap(text, width)) and looks_wrapped(textwrap.wrap(text.lower(), width))
    assert not looks_wrapped(textwrap.wrap(text, 200)) and not looks_wrapped(text.replace(". ", ".\n").split("\n"))
    assert looks_wrapped((CHINESE * 4).split("\n"))


@pytest.mark.parametrize("path", sorted(ROOT.glob("*")) + sorted(ROOT.glob("docs/*.md")), ids=lambda path: path.name)
def test_any_file_comes_back_with_the_identity(path):
    if path.is_file():
        text = path.read_bytes().decode()
        assert translate_paragraphs(text, identity) == text


@pytest.mark.parametrize(
    "text",
    ["", "\n", "a", "\r\n \n\t\n", "- \n>\n> -\n1.\n", "\ufeffA b\n", "a\x0cb\n\n\x0c\n", "-- \n", "> -- \nx\n\ny"],
)
def test_odd_text_comes_back_with_the_identity(text):
    assert translate_paragraphs(text, identity) == text


CHINESE = (
    "\u3000\u3000我们认为下面这些真理是不言而喻的：人人生而平等，造物主赋予他们若干不可剥\n"  # noqa: RUF001
    "夺的权利，其中包括生命权、自由权和追求幸福的权利。为了保障这些权利，人们才在\n"  # noqa: RUF001
    "他们之间建立政府。\n"
)


def test_text_without_spaces_gets_none_where_lines_end():
    assert translate_paragraphs(CHINESE, identity, ("zh", "en")) == CHINESE
    [text] = asked_of(CHINESE, ("zh", "en"))
    assert asked_of(CHINESE, ("", "")) == [text]
    assert text == "".join(CHINESE.split())
    wrapped = translate_paragraphs(CHINESE, lambda texts: [(f"但是{text}", []) for text in texts], ("zh", "ja"))
    assert "".join(wrapped.split()) == f"但是{text}"
    lines = wrapped.splitlines()
    assert all(66 < columns(line) <= 76 for line in lines[:-1]) and lines[0].startswith("\u3000\u3000但")
    assert not any(line[0] in "，。：、" for line in lines)  # noqa: RUF001
    english = translate_paragraphs(CHINESE, lambda texts: [("We hold these truths " * 9, [])], ("zh", "en"))
    assert all(len(line) <= 76 for line in english.splitlines()) and english.count("truths") == 9
    korean = "우리는 다음과 같은 사실을 자명한 진리로 받아들이며, 모든 사람은 평등하게\n창조되었고\n"
    assert asked_of(korean, ("ko", "en")) == [" ".join(korean.split())]


def test_words_that_were_parted_are_joined():
    line = "This line is long enough to show that the text is broken at its {}\n{} and goes on.\n"
    assert "its well-known and" in asked_of(line.format("well-", "known"))[0]
    assert "its wellknown and" in asked_of(line.format("well\u2010", "known"))[0]
    assert "its well - known and" in asked_of(line.format("well -", "known"))[0]


def test_another_quotation_mark_parts_paragraphs():
    inner, outer = (
        "> > This is a line that is as long as the next one and goes",
        "> on, but in a mail that quotes it, word by word, as it is",
    )
    assert asked_of(f"{inner}\n{outer}\n") == [inner[4:], outer[2:]]


def test_lines_that_end_early_stay_alone():
    text = "Jane Doe\n12 Main Street\nExample Town\n\n" + "This is a line that shows how wide a line is here,\nso.\n"
    assert asked_of(text)[:3] == ["Jane Doe", "12 Main Street", "Example Town"]
    long = "".join(
        f"Paragraph {number} is one line, {'and so on, ' * number}as in most programs.\n" for number in range(30)
    )
    assert asked_of(long) == long.splitlines()
    assert translate_paragraphs(long, swap) == long.swapcase(), "no line is broken"


def test_what_stays_is_counted(caplog):
    translate_paragraphs(MAIL, identity)
    assert caplog.text.rstrip().endswith(": 6")


def test_corpora_do_not_look_wrapped():
    rng = random.Random(1)
    for is_lower in (True, False):
        lines = [" ".join(rng.choices(WORDS, k=max(1, round(rng.gauss(12, 6))))) for _ in range(500)]
        assert not looks_wrapped([line.lower() if is_lower else line.capitalize() for line in lines])
    assert not looks_wrapped(["12 dogs sleep"] * 100) and not looks_wrapped([]) and not looks_wrapped(["", "a"] * 9)
    assert not looks_wrapped((["a dog sleeps in the garden of the old house and it"] * 4 + ["a cat"] * 8) * 9)
    assert not looks_wrapped(CHINESE.replace("\n", "。\n").split("\n") * 9)


@pytest.mark.parametrize(
    "text", ["a -" * 20000, " " * 50000, "> " * 20000, "-a " * 20000 + "x", "-- \n" * 5000, "a" + " " * 50000 + "b"]
)
def test_hostile_text_takes_seconds(text):
    with time_limit(20):
        assert translate_paragraphs(text, identity) == text
