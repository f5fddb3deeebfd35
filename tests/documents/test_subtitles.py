"""Properties of translated subtitles: only texts change, and tags stay with their words."""

import random

import pytest

from transformer_mt.documents.subtitles import translate_srt

TIMES = "00:00:01,000 --> 00:00:02,500"


def echo(lines: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(line, [(i, i) for i in range(len(line.split()))]) for line in lines]


def backwards(lines: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    """The words from the last to the first."""
    words = [line.split() for line in lines]
    return [(" ".join(own[::-1]), [(len(own) - 1 - i, i) for i in range(len(own))]) for own in words]


def asked_of(text):
    asked = []
    translate_srt(text, lambda lines: asked.extend(lines) or echo(lines))
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
        assert translate_srt(text, echo) == text


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
    assert translate_srt(cue(text), backwards) == cue(expected)


def test_a_tag_around_a_cue_stays_around_it():
    assert translate_srt(cue("<i>a b</i>"), lambda lines: [("c d", [(0, 1)])]) == cue("<i>c d</i>")


def test_a_translation_is_broken_near_the_middle_between_words():
    assert translate_srt(cue("x\ny"), lambda lines: [("aaaa bb cccc dd", [])]) == cue("aaaa bb\ncccc dd")
    assert translate_srt(cue("x\ny\nz"), lambda lines: [("aaaaaa bbb ccc dd", [])]) == cue("aaaaaa\nbbb\nccc dd")
    assert translate_srt(cue("x\ny"), lambda lines: [("word", [])]) == cue("word")


def test_a_translation_without_spaces_or_words_keeps_its_tags():
    characters = [(0, 0), (0, 1), (1, 2)]
    assert translate_srt(cue("<i>a</i> b"), lambda lines: [("一二三", characters)]) == cue("<i>一二三</i>")
    assert translate_srt(cue("<i>a</i>"), lambda lines: [("", [])]) == cue("<i></i>")
