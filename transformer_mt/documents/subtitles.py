"""Translates subtitles (SubRip, .srt): numbers, times and tags stay, and long lines are broken again."""

import re
from itertools import accumulate

from transformer_mt.documents import Translate

# A line with times, and the lines of text up to a blank line or, where that is missing, the next cue.
_CUE = re.compile(
    r"(?P<times>^[^\n]*-->[^\n]*\n)"
    r"(?P<text>(?:(?!(?:\d+\s*\n)?[^\n]*-->)[^\S\n]*+\S[^\n]*(?:\n|\Z))+)",
    re.MULTILINE,
)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|\{\\[^{}]*\}")  # of HTML, as in <i>, or of SubStation Alpha, as in {\an8}
_DASH = re.compile(r"[-–—]")


def translate_srt(text: str, translate: Translate) -> str:
    """Translate a file of subtitles.

    The lines of a cue are one text; its translation is broken into as many lines, of about the same length, between
    words. If each line begins with a dash, a speaker's line is a text of its own. Tags move with the words that they
    surround. A file without cues comes back as it is.
    """
    cues = [_texts(match["text"]) for match in _CUE.finditer(text)]
    sources = [" ".join(lines) for texts in cues for lines in texts]
    plain = [_TAG.sub("", source) for source in sources]
    found = iter(translate([line for line in plain if line.strip()]))
    pieces, end = list[str](), 0
    for match, texts in zip(_CUE.finditer(text), cues, strict=True):
        lines = []
        for own in texts:
            source = " ".join(own)
            is_blank = not _TAG.sub("", source).strip()
            lines += own if is_blank else _broken(_with_tags(source, *next(found)), len(own))
        between = "\r\n" if "\r\n" in match["times"] else "\n"
        kept = match["text"][len(match["text"].rstrip()) :]  # the end of its last line
        pieces += [text[end : match.start("text")], between.join(lines), kept]
        end = match.end()
    return "".join(pieces) + text[end:]


def _texts(cue: str) -> list[list[str]]:
    """The texts of a cue, each as its lines: one text or, if each line begins with a dash, one for each line."""
    lines = [line.strip() for line in cue.strip().split("\n")]
    is_dialogue = all(_DASH.match(_TAG.sub("", line).lstrip()) for line in lines)
    return [[line] for line in lines] if is_dialogue else [lines]


def _with_tags(source: str, translation: str, alignment: list[tuple[int, int]]) -> list[str]:
    """The words of the translation, with the tags of the source before and after the words to which they belong."""
    words = translation.split() or [""]
    num_source = len(_TAG.sub("", source).split())
    before, after = [""] * len(words), [""] * len(words)

    def span(start: int, stop: int) -> tuple[int, int]:
        """The first and the last word of the translation for the words of the source from start to stop."""
        if start == 0 and stop == num_source:
            return 0, len(words) - 1
        # In a language without spaces, the numbers count characters.
        found = [min(target, len(words) - 1) for word, target in alignment if start <= word < stop]
        # Without alignment, at the same share of the translation.
        first = min(found, default=min(start * len(words) // num_source, len(words) - 1))
        return first, max(found, default=first)

    opened = list[tuple[str, int]]()
    for tag in _TAG.finditer(source):
        place = len(_TAG.sub("", source[: tag.start()]).split())
        if not tag[0].startswith("</"):
            opened.append((tag[0], place))
            continue
        opening, start = opened.pop() if opened else ("", 0)
        first, last = span(start, place)
        before[first] = opening + before[first]
        after[last] += tag[0]
    for opening, start in reversed(opened):
        first, _ = span(start, num_source)
        before[first] = opening + before[first]
    return [a + word + b for a, word, b in zip(before, words, after, strict=True)]


def _broken(words: list[str], num_lines: int) -> list[str]:
    """Join words into at most this many lines of about the same length."""
    ends = list(accumulate(len(_TAG.sub("", word)) + 1 for word in words))
    lines, start = [], 0
    for number in range(1, num_lines):
        after = range(start + 1, len(words))
        if after:
            stop = min(after, key=lambda word: abs(ends[word - 1] - ends[-1] * number / num_lines))
            lines.append(" ".join(words[start:stop]))
            start = stop
    return [*lines, " ".join(words[start:])]
