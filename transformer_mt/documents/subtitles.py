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
_MARKUP = re.compile(r"<(/?)([^\s<>/.]*)[^<>]*>(?:(?<=<rt>)[^<>]*(?:</rt>)?)?|[<&]")
_SRT_TAGS = {name: name for name in ("b", "i", "u", "s", "font")}
# The elements of HTML that move as the tags of WebVTT. Others are like a <wbr>: times, and <rt>, which says how to read
# the word before it, and stays as it is.
_VTT_TAGS = {**_SRT_TAGS, "ruby": "ruby", "c": "span", "v": "q", "lang": "bdi"}


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
    sources = [_in_html(" ".join(lines), is_vtt, tags) for of_cue in texts for lines in of_cue]
    page = "".join(f"<p>{source}</p>" for source in sources)
    found = re.findall("<p>(.*?)</p>", translate_markup(page, "html", translate, languages), re.DOTALL)
    pairs = iter(zip(sources, found, strict=True))
    pieces, end = list[str](), 0
    for cue, of_cue in zip(cues, texts, strict=True):
        now = [(lines, *next(pairs)) for lines in of_cue]
        if all(_plain(source) == _plain(one) for _, source, one in now):
            continue
        written = [line for lines, _, one in now for line in _broken(_in_cue(one, is_vtt, tags), len(lines))]
        between = "\r\n" if "\r\n" in cue["times"] else "\n"
        position = _POSITION.match(cue["text"].lstrip())
        kept = cue["text"][len(cue["text"].rstrip()) :]  # the end of its last line
        pieces += [text[end : cue.start("text")], position[0] if position else "", between.join(written), kept]
        end = cue.end()
    return "".join(pieces) + text[end:]


def _in_html(text: str, is_vtt: bool, tags: list[str]) -> str:
    """Return the text of a cue as HTML, in which each tag is a number of `tags`, to which this function adds."""

    def replaced(found: re.Match[str]) -> str:
        name = (_VTT_TAGS if is_vtt else _SRT_TAGS).get(found[2] or "")
        if found[0] == "&" or not (name or (is_vtt and found[2] is not None)):
            return found[0] if is_vtt and found[0] == "&" else html.escape(found[0], quote=False)
        tags.append(found[0])
        return f"<{found[1] if name else ''}{name or 'wbr'} {len(tags) - 1}>"

    return _MARKUP.sub(replaced, text)


def _in_cue(page: str, is_vtt: bool, tags: list[str]) -> str:
    """Return a translation from HTML with the tags of its cue; times keep their order.

    WebVTT needs the same entities as HTML.
    """
    numbers = map(int, re.findall(r"<wbr (\d+)>", page))
    times = iter(sorted(number for number in numbers if not tags[number].startswith("<rt>")))

    def replaced(found: re.Match[str]) -> str:
        if found[2]:
            tag = tags[int(found[2])]
            return tags[next(times)] if found[1] == "wbr" and not tag.startswith("<rt>") else tag
        return found[0] if is_vtt else html.unescape(found[0])

    return re.sub(r"<(\S+) (\d+)>|[^<]+", replaced, page)


def _plain(page: str) -> str:
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
