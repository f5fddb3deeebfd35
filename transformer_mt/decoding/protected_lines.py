"""Translates lines with parts that the model must not translate: URLs, placeholders, terms of a list."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from transformer_mt.base.languages import has_spaces, split_units
from transformer_mt.decoding.engine import Wanted
from transformer_mt.decoding.line_parts import LineCutter, in_one_line
from transformer_mt.decoding.translation import Translation, of_parts
from transformer_mt.text.protection import Protection, numbers_after_filling, without_pieces
from transformer_mt.text.sentences import MARKS

Translate = Callable[[Sequence[str], Sequence[str], Sequence[int], Wanted], list[list[Translation]]]
"""Translates lines, given the prefixes of their translations, and the numbers of the lines."""


def translate_protected(
    lines: Sequence[str],
    prefixes: Sequence[str],
    numbers: Sequence[int],
    wanted: Wanted,
    protection: Protection,
    cutter: LineCutter,
    translate: Translate,
) -> list[list[Translation]]:
    """Translate lines so that the translation of each has the line's protected texts, each exactly once.

    The model copies pieces that stand for these texts. If it has no such pieces, or not enough, it translates the line
    as it is. If no translation has them all, the texts between the protected ones are translated separately; if the
    line has a prefix, the line is translated without protection instead.
    """
    cut = [_Line(*each, protection, cutter) for each in zip(lines, prefixes, strict=True)]
    whole = [each.hidden_line for each in cut]
    found = translate([line for line, _ in whole], [prefix for _, prefix in whole], numbers, wanted)
    for number, each in enumerate(cut):
        found[number] = [line for one in found[number] if (line := each.restored(one)) is not None]
    lost = [number for number, translations in enumerate(found) if not translations]
    fragments = [fragment for at in lost for fragment in cut[at].fragments]
    places = [numbers[at] for at in lost for _ in cut[at].fragments]
    again = [text for text, _ in fragments], [prefix for _, prefix in fragments]
    apart = translate(*again, places, replace(wanted, progress=None)) if places else []
    best = iter([translation for translation, *_ in apart])
    for number in lost:
        found[number] = [cut[number].joined(best)]
    return found


_WORD = re.compile(r"[^\W_]")
_LAST_WORD = re.compile(r"(?<=[^\W_])[\W_]*$")


class _Line:
    """A line, and what is protected in it."""

    def __init__(self, line: str, prefix: str, protection: Protection, cutter: LineCutter) -> None:
        """`prefix` is the text with which its translation must begin."""
        self.line, self.prefix, self.protection = line, prefix, protection
        tag, text = cutter.tags.parted(line)
        self.tag = line.removesuffix(text)  # as it stands there, with the white space around it
        self.parts = protection.cut(text)  # those with odd numbers, from 0, are protected
        self.is_protected = len(self.parts) > 1
        self.hidden = protection.hidden(self.parts) if any(map(_WORD.search, self.parts[::2])) else None
        source, target = cutter.tags.languages.get(tag, cutter.languages)
        self.spaced = has_spaces(source), has_spaces(target)

    @property
    def hidden_line(self) -> tuple[str, str]:
        """The line and its prefix, with pieces for the protected texts if there are such pieces."""
        if self.hidden is None or not self.is_protected:
            return self.line, self.prefix
        return self.tag + self.hidden.text, self.hidden.hide(self.prefix)

    def restored(self, found: Translation) -> Translation | None:
        """Put the protected texts back into a translation; None if it lacks one of them, or of their pieces."""
        if not self.is_protected:
            return replace(found, text=without_pieces(found.text))
        if self.hidden is None:
            return found if self.prefix.strip() or self.protection.keeps(self.parts, found.text) else None
        if (text := self.hidden.restored(found.text)) is None:
            return None
        if found.alignment is None:
            return replace(found, text=text)
        source_spaced, target_spaced = self.spaced
        line = self.tag + self.hidden.text
        sources = numbers_after_filling(line, self.hidden.sources, spaced=source_spaced)
        targets = numbers_after_filling(found.text, self.hidden.targets, spaced=target_spaced)
        return replace(found, text=text, alignment=[(sources[s], targets[t]) for s, t in found.alignment])

    @property
    def fragments(self) -> list[tuple[str, str]]:
        """What is translated separately, and the prefix of each translation."""
        if self.prefix.strip():
            return [(self.line, self.prefix)]
        cores = [self._edges(number)[1] for number in range(0, len(self.parts), 2)]
        return [(self.tag + core, "") for core in cores if core]

    def _edges(self, number: int) -> tuple[str, str, str]:
        """Split a part into what is translated, and the white space, marks and brackets before and after it."""
        part, is_last = self.parts[number], number == len(self.parts) - 1
        first, last = _WORD.search(part), None if is_last else _LAST_WORD.search(part)
        if first is None:
            return part, "", ""
        start = first.start() if number else len(part) - len(part.lstrip())
        end = last.start() if last else len(part.rstrip())
        return part[:start], part[start:end], part[end:]

    def joined(self, translations: Iterator[Translation]) -> Translation:
        """Join the translations of its fragments and its protected texts."""
        if self.prefix.strip():
            return next(translations)
        source, text, used, pairs = "", "", list[Translation](), list[tuple[int, int]]()
        num_of_tag = len(split_units(self.tag, self.spaced[0]))
        for number, part in enumerate(self.parts):
            before, core, after = ("", "", self.protection.target(part)) if number % 2 else self._edges(number)
            places = _units_before(source + before, self.spaced[0]), _units_before(text + before, self.spaced[1])
            if core:
                best = next(translations)
                used.append(best)
                for s, t in best.alignment or []:
                    pairs.append((s if s < num_of_tag else s + places[0], t + places[1]))
                written = without_pieces(best.text)
                core = written if core[-1] in MARKS else written.rstrip(MARKS)  # most models end all with a full stop
            elif number % 2:
                pairs.append((num_of_tag + places[0], places[1]))
            source, text = source + part, text + before + core + after
        # One of the spaces after a tag belongs to the tag.
        around_tag = self.tag[: len(self.tag) - len(self.tag.lstrip())] + self.tag[len(self.tag.rstrip()) + 1 :]
        start, end = around_tag + source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
        return of_parts(used, in_one_line(start) + " ".join(text.split()) + in_one_line(end), pairs)


def _units_before(text: str, spaced: bool) -> int:
    """The number, from 0, of the word to which a letter after this text belongs; or of that character."""
    return len(split_units(text + "x", spaced)) - 1
