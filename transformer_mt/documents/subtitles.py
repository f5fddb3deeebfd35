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
# In WebVTT, an arrow in a comment begins no cue.
_VTT_CUE = re.compile(
    _CUE.pattern.replace(r"^[^\n]*-->", r"^[^\S\n]*(?:\d+:)?\d\d:\d\d[.,]\d+[^\S\n]*-->", 1), re.MULTILINE
)
_POSITION = re.compile(r"(?:\{\\[^{}]*\})*")  # as in {\an8}
_SPEAKS = re.compile(r"(?:<[^<>]*>|\s)*[-–—]|<v\b")
_WORD = re.compile(r"(?:<[^<>]*>|\S)+")
# A tag, and < that begins none. In SubRip, a comment or an arrow <- is text.
_TAG = re.compile(r"<(/?)([^\s<>/.]*)[^<>]*>(?:(?<=<rt>)[^<>]*(?:</rt>)?)?")
_VTT_TEXT, _SRT_TEXT = re.compile("<(?![^<>]+>)"), re.compile(r"<(?!/?(?:b|i|u|s|font)\b[^<>]*>)")
# The elements of HTML that move as tags of subtitles. Others are like a <wbr>: times, and <rt>, which says how to read
# the word before it, and stays as it is.
_IN_HTML = dict(zip("b i u s font ruby c v lang".split(), "b i u s font ruby span q bdi".split(), strict=True))


def translate_subtitles(text: str, translate: Translate, languages: tuple[str, str] = ("", "")) -> str:
    """Translate a file of subtitles; tags such as <i> move as `translate_markup` moves them.

    A file that begins with WEBVTT has this form, any other that of SubRip. The lines of a cue are one text; its
    translation is broken into as many lines, of about the same length, between words. If each line begins with a dash
    or the tag of a speaker, it is a text of its own. Cues that do not change stay byte for byte, and so does a file
    without cues.
    """
    if "\n" not in text and "\r" in text:  # these end lines in WebVTT, too
        return translate_subtitles(text.replace("\r", "\n"), translate, languages).replace("\n", "\r")
    is_vtt, tags = text.removeprefix("\ufeff").startswith("WEBVTT"), list[str]()
    cues = [*(_VTT_CUE if is_vtt else _CUE).finditer(text)]
    texts = [_texts(cue["text"]) for cue in cues]
    plain = [" ".join(lines) for of_cue in texts for lines in of_cue]
    if not is_vtt:  # WebVTT has the entities of HTML
        plain = [one.replace("&", "&amp;") for one in plain]
    sources = [_in_html((_VTT_TEXT if is_vtt else _SRT_TEXT).sub("&lt;", one), tags) for one in plain]
    page = "".join(f"<p>{source}</p>" for source in sources)
    found = re.findall("<p>(.*?)</p>", translate_markup(page, "html", translate, languages), re.DOTALL)
    is_same = [_letters(one) == _letters(other) for one, other in zip(sources, found, strict=True)]
    found = [_in_cue(one, tags) if is_vtt else html.unescape(_in_cue(one, tags)) for one in found]
    translated = iter(zip(found, is_same, strict=True))
    pieces, end = list[str](), 0
    for cue, of_cue in zip(cues, texts, strict=True):
        now = [(lines, *next(translated)) for lines in of_cue]
        if all(same for *_, same in now):
            continue
        written = [line for lines, one, _ in now for line in _broken(one, len(lines))]
        between = "\r\n" if "\r\n" in cue["times"] else "\n"
        position = _POSITION.match(cue["text"].lstrip())
        kept = cue["text"][len(cue["text"].rstrip()) :]  # the end of its last line
        pieces += [text[end : cue.start("text")], position[0] if position else "", between.join(written), kept]
        end = cue.end()
    return "".join(pieces) + text[end:]


def _in_html(text: str, tags: list[str]) -> str:
    """Write each tag of a cue as a number of `tags`, to which this function adds the tag."""

    def numbered(found: re.Match[str]) -> str:
        tags.append(found[0])
        name = _IN_HTML.get(found[2])
        return f"<{found[1] if name else ''}{name or 'wbr'} {len(tags) - 1}>"

    return _TAG.sub(numbered, text)


def _in_cue(page: str, tags: list[str]) -> str:
    """Write the tags again; times keep their order."""
    numbers = sorted(int(number) for number in re.findall(r"<wbr (\d+)>", page))
    times = (tags[number] for number in numbers if not tags[number].startswith("<rt>"))

    def tag(found: re.Match[str]) -> str:
        own = tags[int(found[2])]
        return next(times) if found[1] == "wbr" and not own.startswith("<rt>") else own

    return re.sub(r"<(\S+) (\d+)>", tag, page)


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
