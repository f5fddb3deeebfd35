"""Properties of translated subtitles (SubRip, WebVTT): only texts change, and tags stay with their words."""

import random
import re

import pytest

from transformer_mt.documents.document import translate_document
from transformer_mt.documents.subtitles import translate_subtitles

TIMES = "00:00:01,000 --> 00:00:02,500"


def echo(lines: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(line, [(i, i) for i in range(len(line.split()))]) for line in lines]


def backwards(lines: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    """The words from the last to the first."""
    words = [line.split() for line in lines]
    return [(" ".join(own[::-1]), [(len(own) - 1 - i, i) for i in range(len(own))]) for own in words]


def asked_of(text):
    asked = []
    translate_subtitles(text, lambda lines: asked.extend(lines) or echo(lines))
    return asked


def cue(text: str) -> str:
    return f"1\n{TIMES}\n{text}\n\n"


def test_with_the_identity_a_file_stays_as_it_is():
    draw = random.Random(1)
    texts = [
        "Hello.",
        "<i>So it is.</i>",
        "- Yes.\n- No.",
        "aa bb\ncc dd",
        "♪",
        "{\\an8}Up <b>here</b> now",
        "12",
        "",
        "<i></i>",
    ]
    for _ in range(200):
        cues = [f"{n}\n{TIMES}{draw.choice(['', ' X1:40'])}\n{draw.choice(texts)}\n" for n in range(draw.randint(0, 5))]
        text = draw.choice(["", "\ufeff", "WEBVTT\n\n"]) + draw.choice(["\n", "\n\n"]).join(cues)
        text = (text + draw.choice(["", "\n\n"])).replace("\n", draw.choice(["\n", "\r\n"]))
        assert translate_subtitles(text, echo) == text


def test_the_lines_of_a_cue_are_one_text_and_those_of_a_dialogue_are_not():
    assert asked_of(cue("I think that\nit is <i>late</i>.")) == ["I think that it is late."]
    assert asked_of(cue("- Yes.\n<i>- No.</i>")) == ["- Yes.", "- No."]
    assert asked_of(cue("One.") + cue("Two.")) == ["One.", "Two."]
    assert asked_of(f"1\n{TIMES}\nOne.\n2\n{TIMES}\nTwo.") == ["One.", "Two."]
    assert asked_of("No subtitles.\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb", "b\na"),
        ("<i>a b</i>", "<i>b a</i>"),
        ("a <i>b c</i> d", "d <i>c b</i> a"),
        ("<b>a <i>b</i></b> c", "c <b><i>b</i> a</b>"),
        ("{\\an8}a <font color='x y'>b</font>", "{\\an8}<font color='x y'>b</font> a"),
        ("a b <i>c d", "b a <i>d c"),
        ("R&B &lt;i&gt; <3 a", "a <3 &lt;i&gt; R&B"),
        ("a</p><p>b c", "c a</p><p>b"),
        ("see <!-- that", "that <!-- see"),
    ],
)
def test_tags_move_with_their_words(text, expected):
    assert translate_subtitles(cue(text), backwards) == cue(expected)


def test_a_tag_around_a_cue_stays_around_it():
    assert translate_subtitles(cue("<i>a b</i>"), lambda lines: [("c d", [(0, 1)])]) == cue("<i>c d</i>")


def test_a_translation_is_broken_near_the_middle_between_words():
    assert translate_subtitles(cue("x\ny"), lambda lines: [("aaaa bb cccc dd", [])]) == cue("aaaa bb\ncccc dd")
    assert translate_subtitles(cue("x\ny\nz"), lambda lines: [("aaaaaa bbb ccc dd", [])]) == cue("aaaaaa\nbbb\nccc dd")
    assert translate_subtitles(cue("x\ny"), lambda lines: [("word", [])]) == cue("word")


def test_a_translation_without_spaces_or_words_keeps_its_tags():
    characters = [(0, 0), (0, 1), (1, 2)]
    assert translate_subtitles(cue("<i>a</i> b"), lambda lines: [("一二三", characters)]) == cue("<i>一二三</i>")
    assert translate_subtitles(cue("<i>a</i>"), lambda lines: [("", [])]) == cue("<i></i>")


VTT = """\
WEBVTT - A film about dogs
Kind: captions

NOTE
One thing -> another.
This is a note, and stays.

STYLE
::cue(v[voice="Roger"]) { color: red }

REGION
id:below
lines:3

intro
00:01.000 --> 00:04.000 line:63% position:72% align:start
<v.loud Roger Bingham>We are in <i.big>New  York</i>
 City &amp; near   it.

NOTE 00:05.000 is the next one

2 and more
00:00:05.000 --> 00:00:09.000
-<v Ann>Hi, <c.cyan.bg_blue>you</c>
- <lang en-GB>there</lang>, <b>a &lt; b</b> > c

00:00:10.000 --> 00:00:12.000
<ruby>\u6f22<rt>kan</rt>\u5b57<rt>ji</rt></ruby> a&nbsp;b &lrm;c\u200e

00:00:13.000 --> 00:00:14.000
<00:00:13.200><c>One </c><00:00:13.500><c>two </c><00:00:13.800>three
<c></c>

99:00:00.000 --> 99:00:01.000
The <unknown tag>end
"""


def swap(lines: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(line.swapcase(), pairs) for line, pairs in echo(lines)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_webvtt_comes_back_byte_for_byte_with_the_identity(form, end):
    for text in (VTT, "\ufeff" + VTT, VTT.rstrip(), "WEBVTT\n\n", "WEBVTT", VTT.replace("\n\n", "\n \n\n")):
        given = text.replace("\n", end)
        assert translate_document(given, form, echo, ("en", "de")) == given


@pytest.mark.parametrize("translate", [backwards, swap, lambda lines: [("", [])] * len(lines)])
def test_what_is_no_text_of_a_cue_stays_in_webvtt_and_no_tag_is_lost(translate):
    found = translate_subtitles(VTT, translate)
    blocks, expected = found.split("\n\n"), VTT.split("\n\n")
    assert len(blocks) == len(expected)
    for block, source in zip(blocks, expected, strict=True):
        head, arrow, text = source.partition(".000 -->")
        settings = text.split("\n", 1)[0]
        assert block.startswith(head + arrow + settings) if arrow else block == source
        tags = r"</?[^<>]*>"
        assert sorted(re.findall(tags, block)) == sorted(re.findall(tags, source))


def test_the_texts_of_webvtt_are_asked_for_without_tags_and_escapes():
    assert asked_of(VTT) == [
        "We are in New York City & near it.",
        *("Hi, you", "- there, a < b > c"),
        "\u6f22\u5b57 a\xa0b \u200ec\u200e",
        *("One two three", "The", "end"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<v Roger>a <c.cyan>b c</c> d", "<v Roger>d <c.cyan>c b</c> a"),
        ("<v A>a b\n<v B>c d", "<v A>b a\n<v B>d c"),
        ("<v A>a b</v> <v B>c d</v>", "<v B>d c</v> <v A>b a</v>"),
        ("a<00:01.200> b <00:01.300>c", "<00:01.200>c b a<00:01.300>"),
        ("R&amp;B a&lt;b x", "x a&lt;b R&amp;B"),
        ("<ruby>a<rt>b c</rt></ruby> d", "d <ruby>a<rt>b c</rt></ruby>"),
        ("<lang fr>a b</lang> 1 > 0", "0 &gt; 1 <lang fr>b a</lang>"),
    ],
)
def test_tags_of_webvtt_move_with_their_words(text, expected):
    times = "WEBVTT\n\n00:01.000 --> 00:02.000\n"
    assert translate_subtitles(f"{times}{text}\n", backwards) == f"{times}{expected}\n"


def test_a_translation_cannot_end_a_cue_of_webvtt():
    times = "WEBVTT\n\n00:01.000 --> 00:02.000\n"
    found = translate_subtitles(times + "a\n", lambda lines: [("<i> 1 --> 2 & <v 0>", [])])
    assert found == times + "&lt;i&gt; 1 --&gt; 2 &amp; &lt;v 0&gt;\n"


def test_a_cue_that_does_not_change_keeps_its_lines():
    text = cue("a\n  bbbbbbbbbbbbbbb cc \n d")
    assert translate_subtitles(text, echo) == text
