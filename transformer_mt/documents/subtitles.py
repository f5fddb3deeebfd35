"""Translates subtitles (SubRip, .srt): numbers, times and tags stay, and long lines are broken again."""

import html
import re
from itertools import accumulate

from transformer_mt.documents.markup import Translate, translate_markup

# A line with times, and the lines of text up to a blank line or, where that is missing, the next cue.
_CUE = re.compile(
    r"(?P<times>^[^\n]*-->[^\n]*\n)"
    r"(?P<text>(?:(?!(?:\d+\s*\n)?[^\n]*-->)[^\S\n]*+\S[^\n]*(?:\n|\Z))+)",
    re.MULTILINE,
)
_POSITION = re.compile(r"(?:\{\\[^{}]*\})*")  # as in {\an8}
_DASH = re.compile(r"(?:<[^<>]*>|\s)*[-–—]")
_WORD = re.compile(r"(?:<[^<>]*>|\S)+")


def translate_srt(text: str, translate: Translate, languages: tuple[str, str] = ("", "")) -> str:
    """Translate a file of subtitles; tags such as <i> move as `translate_markup` moves them.

    The lines of a cue are one text; its translation is broken into as many lines, of about the same length, between
    words. If each line begins with a dash, a speaker's line is a text of its own. A file without cues stays as it is.
    """
    cues = [_texts(match["text"]) for match in _CUE.finditer(text)]
    # Only these are tags of subtitles. All else, as an arrow <- or a comment, is text.
    plain = [" ".join(lines).replace("&", "&amp;") for texts in cues for lines in texts]
    sources = [re.sub(r"<(?!/?(?:b|i|u|s|font)\b)", "&lt;", text) for text in plain]
    page = "".join(f"<p>{source}</p>" for source in sources)
    found = iter(re.findall("<p>(.*?)</p>", translate_markup(page, "html", translate, languages), re.DOTALL))
    pieces, end = list[str](), 0
    for match, texts in zip(_CUE.finditer(text), cues, strict=True):
        lines = [line for own in texts for line in _broken(html.unescape(next(found)), len(own))]
        between = "\r\n" if "\r\n" in match["times"] else "\n"
        position = _POSITION.match(match["text"].lstrip())
        kept = match["text"][len(match["text"].rstrip()) :]  # the end of its last line
        pieces += [text[end : match.start("text")], position[0] if position else "", between.join(lines), kept]
        end = match.end()
    return "".join(pieces) + text[end:]


def _texts(cue: str) -> list[list[str]]:
    """The texts of a cue, each as its lines: one text or, if each line begins with a dash, one for each line."""
    lines = [line.strip() for line in _POSITION.sub("", cue.strip(), count=1).split("\n")]
    return [[line] for line in lines] if all(map(_DASH.match, lines)) else [lines]


def _broken(text: str, num_lines: int) -> list[str]:
    """Break a text into at most this many lines of about the same length, tags not counted."""
    words = _WORD.findall(text) or [""]
    ends = list(accumulate(len(re.sub("<[^<>]*>", "", word)) + 1 for word in words))
    lines, start = [], 0
    for number in range(1, num_lines):
        after = range(start + 1, len(words))
        if after:
            stop = min(after, key=lambda word: abs(ends[word - 1] - ends[-1] * number / num_lines))
            lines.append(" ".join(words[start:stop]))
            start = stop
    return [*lines, " ".join(words[start:])]
