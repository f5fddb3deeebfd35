"""Finds doubtful translations by rules that need only texts: empty, copied, repeated, other numbers, placeholders."""

import re
import unicodedata
from collections import Counter

DOUBTS = {
    "empty": "is empty",
    "copied": "is identical to the source",
    "untranslated": "consists mostly of words of the source",
    "repeated": "repeats the same words or letters again and again",
    "numbers": "has other numbers than the source",
    "placeholders": "has other placeholders than the source, such as %s or {name}",
}
"""The kinds of doubtful translations, in words that can follow `the translation of 3 lines`."""

_FIELD = r"%(?:\d+\$)?[-+#0']*+(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[qjztL])?[sdifuxXeEgGcop@]"
PLACEHOLDERS = (
    r"\{\{[^{}]*\}\}|\$?\{ ?[\w.,!\[\]-]*(?::[\w.:,!<>^+=%#-]*)? ?\}",  # {{count}}, {name}, ${HOME}, {0:d}
    r"%%|%<\w+>|(?<!\d)%[A-Za-z_]{3,}%(?![\w%])",  # %%, %<PRIu64>, %name%
    r"%\(\w+\)[-+#0]*\d*(?:\.\d+)?[a-z]",  # %(name)s, %(share).2f
    rf"(?<![\d-]){_FIELD}|{_FIELD}(?![^\W_])",  # %s, %1$s, %.2f, %dx%d, but not 100%ige
    r"(?<!\d)%[A-Za-z1-9](?![^\W_])",  # %Y, %1
    r"\$[A-Za-z_]\w*",  # $HOME
)
"""Regular expressions, without groups, for what a program puts other text in place of."""
_PLACEHOLDER, _SIGN = re.compile("|".join(PLACEHOLDERS)), re.compile("[%{$]")

# One to four words three times in a row, or two to four letters four times, as in "strestrestrestre".
_REPEATED = re.compile(r"(?<!\S)(\S++(?: \S++){0,3})(?: \1){2,}(?!\S)|(\S{2,4})\2{3,}")
_GROUPED = re.compile(r"(?<!\d)\d{1,3}(?:[.,'’\s]\d{3})+(?!\d)")  # as in 2,200,112
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"(?<![\w{$%</])\w(?:\S*\w)?")  # without the marks around it; not in {name} or <b>
_OF_ADDRESS = re.compile(r"[\d./:@()\\_]")  # a word with one of these is a number, an address or code


def doubts(source: str, translation: str, reference: str | None = None) -> list[str]:
    """Return the keys of DOUBTS that apply to a translation. What is also in the reference is not doubtful."""
    found = []
    if source.strip() and not translation.strip():
        found.append("empty")
    elif _is_copied(source, translation, reference):
        found.append("copied")
    elif _is_untranslated(source, translation, reference):
        found.append("untranslated")
    if _is_repeated(source, translation, reference):
        found.append("repeated")
    right = [text for text in (source, reference) if text is not None]
    if not any(same_numbers(text, translation) for text in right):
        found.append("numbers")
    if placeholders(translation) not in map(placeholders, right):
        found.append("placeholders")
    return found


def placeholders(text: str) -> list[str]:
    """Return the placeholders of a text: first those without a name or number, in their order, then all others."""
    found = _PLACEHOLDER.findall(text) if _SIGN.search(text) else []
    return sorted(found, key=lambda one: "" if re.fullmatch(_FIELD, one) and "$" not in one else one)


def numbers(text: str) -> Counter[str]:
    """Count the numbers of at least two digits in a text, as ASCII digits without zeros at the beginning.

    A number is a run of digits of any script; 2,200,112 and 2.200.112 and 2 200 112 are one number. Numbers of one
    digit are left out, because many languages write them as words.
    """
    if not _DIGITS.search(text):
        return Counter()
    joined = _runs(_GROUPED.sub(lambda found: "".join(_DIGITS.findall(found[0])), text))
    return Counter(run.lstrip("0") for run in joined if len(run.lstrip("0")) > 1)


def same_numbers(one: str, other: str) -> bool:
    """Whether two texts have the same numbers, or a list of the same numbers: 100, 200 may be written as 100 200."""
    return numbers(one) == numbers(other) or sorted(_runs(one)) == sorted(_runs(other))


def _runs(text: str) -> list[str]:
    """Return the runs of digits of any script, as ASCII digits."""
    return ["".join(str(unicodedata.decimal(digit)) for digit in run) for run in _DIGITS.findall(text)]


def _is_copied(source: str, translation: str, reference: str | None) -> bool:
    if translation.casefold() != source.casefold():
        return False
    if reference is not None:
        return source.casefold() != reference.casefold()
    words = _plain_words(source)
    return len(words) > 1 or len("".join(words)) > 12  # a language without spaces, or a name


def _is_untranslated(source: str, translation: str, reference: str | None) -> bool:
    """Whether most words of a translation are in the source, but not in the reference."""
    if set(source.split()).isdisjoint(translation.split()):
        return False  # so it is with most pairs
    if reference is None:
        words, foreign = list(dict.fromkeys(_plain_words(translation))), set(_plain_words(source))
    else:
        words = translation.casefold().split()
        foreign = set(source.casefold().split()) - set(reference.casefold().split())
    return len(words) >= 3 and 2 * sum(word in foreign for word in words) > len(words)


def _is_repeated(source: str, translation: str, reference: str | None) -> bool:
    if reference is None:
        return bool(_REPEATED.search(translation)) and not _REPEATED.search(source)
    return any(repeated[0] not in reference for repeated in _REPEATED.finditer(translation))


def _plain_words(text: str) -> list[str]:
    """Return the words that a translation should change: no names with a capital letter, numbers, addresses."""
    return [word for word in _WORD.findall(text) if word == word.lower() and not _OF_ADDRESS.search(word)]
