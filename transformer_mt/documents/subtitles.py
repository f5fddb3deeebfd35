"""Translates subtitles (SubRip, WebVTT): numbers, times and tags stay, and long lines are broken again."""

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
_SPEAKS = re.compile(r"(?:<[^<>]*>|\s)*[-–—]|<v\b")
_WORD = re.compile(r"(?:<[^<>]*>|\S)+")
# < that begins no tag. In SubRip, a comment or an arrow <- is text.
_VTT_TEXT, _SRT_TEXT = re.compile("<(?![^<>]+>)"), re.compile(r"<(?!/?(?:b|i|u|s|font)\b)")


def translate_subtitles(text: str, translate: Translate, languages: tuple[str, str] = ("", "")) -> str:
    """Translate a file of subtitles; tags such as <i> move as `translate_markup` moves them.

    A file that begins with WEBVTT has this form, any other that of SubRip. The lines of a cue are one text; its
    translation is broken into as many lines, of about the same length, between words. If each line begins with a dash
    or the tag of a speaker, it is a text of its own. Cues that do not change stay byte for byte, and so does a file
    without cues.
    """
    if "\n" not in text and "\r" in text:  # these end lines in WebVTT, too
        return translate_subtitles(text.replace("\r", "\n"), translate, languages).replace("\n", "\r")
    is_vtt = text.removeprefix("\ufeff").startswith("WEBVTT")
    cues = [*_CUE.finditer(text)]
    texts = [_texts(cue["text"]) for cue in cues]
    plain = [" ".join(lines) for of_cue in texts for lines in of_cue]
    sources = [_in_html(one, is_vtt) for one in plain]
    page = "".join(f"<p>{source}</p>" for source in sources)
    found = re.findall("<p>(.*?)</p>", translate_markup(page, "html", translate, languages), re.DOTALL)
    translated = iter(zip(plain, sources, found, strict=True))
    pieces, end = list[str](), 0
    for cue, of_cue in zip(cues, texts, strict=True):
        now = [(len(lines), *next(translated)) for lines in of_cue]
        if all(_letters(source) == _letters(one) for *_, source, one in now):
            continue
        written = [line for number, one, _, page in now for line in _broken(_in_cue(page, one, is_vtt), number)]
        between = "\r\n" if "\r\n" in cue["times"] else "\n"
        position = _POSITION.match(cue["text"].lstrip())
        kept = cue["text"][len(cue["text"].rstrip()) :]  # the end of its last line
        pieces += [text[end : cue.start("text")], position[0] if position else "", between.join(written), kept]
        end = cue.end()
    return "".join(pieces) + text[end:]


def _in_html(text: str, is_vtt: bool) -> str:
    """Write a text of a cue as HTML, in which times, and how to read the word before (<rt>), are points."""
    if not is_vtt:
        return _SRT_TEXT.sub("&lt;", text.replace("&", "&amp;"))
    text = re.sub("<rt>([^<>]*)(?:</rt>)?", r"<wbr @\1>", _VTT_TEXT.sub("&lt;", text))
    return re.sub(r"<(\w+)\.", r"<\1 .", re.sub(r"<(\d[^<>]*)>", r"<wbr \1>", text))  # and <c.red> as <c .red>


def _in_cue(page: str, source: str, is_vtt: bool) -> str:
    """Undo `_in_html`; times keep their order. WebVTT has the entities of HTML."""
    if not is_vtt:
        return html.unescape(page)
    times = iter(re.findall(r"<\d[^<>]*>", source))
    page = re.sub("<wbr @([^<>]*)>", r"<rt>\1</rt>", re.sub(r"<wbr \d[^<>]*>", lambda _: next(times), page))
    return re.sub(r"<(\w+) \.", r"<\1.", page)


def _letters(page: str) -> str:
    return "".join(html.unescape(re.sub("<[^<>]*>", "", page)).split())


def _texts(cue: str) -> list[list[str]]:
    """The texts of a cue, each as its lines: one text or, if each line begins with a dash, one for each line."""
    lines = [line.strip() for line in _POSITION.sub("", cue.strip(), count=1).split("\n")]
    return [[line] for line in lines] if all(map(_SPEAKS.match, lines)) else [lines]


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
