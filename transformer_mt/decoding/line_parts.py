"""The parts of a line that are translated apart: its sentences, and what of a sentence has too many pieces."""

import logging
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformer_mt.data.sentences import split_at_openers, split_sentences
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.data.training_lines import TrainingLines
from transformer_mt.decoding.engine import Sentence
from transformer_mt.decoding.segments import segments, together
from transformer_mt.decoding.words import units_of
from transformer_mt.errors import TranslationError
from transformer_mt.languages import has_spaces, short_code
from transformer_mt.settings import SplitSentences
from transformer_mt.vocabulary import EOS

_log = logging.getLogger(__name__)

_NO_SPACE_BETWEEN_SENTENCES = ("zh", "ja")


@dataclass(frozen=True)
class Part:
    """A line, or a part of one."""

    line: int
    """From 0."""
    sentence: Sentence
    first_unit: int = 0
    """The number in the line of the word that its first piece belongs to; or of the character, without spaces."""
    space: str = ""
    """What stands between the translation of the part before it and its own."""


@dataclass(frozen=True)
class LineCutter:
    """Cuts lines into parts that a model can translate, as far as it has to."""

    tokenizer: Tokenizer
    max_positions: int
    """Of the model: no part has more pieces, EOS included."""
    longest: int
    """Pieces of a part of a sentence that has more than max_positions."""
    languages: tuple[str, str] = ("", "")
    """Codes of source and target."""
    trained: TrainingLines | None = None
    """What was usual in training; None where that is not known: then split_sentences=auto splits nothing."""

    def parts(
        self, lines: Sequence[str], prefixes: Sequence[str] | None, split: SplitSentences, first_line: int
    ) -> list[Part]:
        """Of the lines that are not blank, in order; a prefix belongs to the first part of its line.

        Raises TranslationError for a prefix that is too long.
        """
        found: list[Part] = []
        sources = self.tokenizer.encode_source(lines)
        targets = self.tokenizer.encode_target(prefixes) if prefixes else [[EOS]] * len(lines)
        for line, (source, [*prefix, _]) in enumerate(zip(sources, targets, strict=True)):
            if source == [EOS]:
                continue
            number = first_line + line
            if len(prefix) >= self.max_positions:
                raise TranslationError(
                    f"the prefix of line {number} has {len(prefix)} subword pieces, and a translation has at most "
                    f"{self.max_positions} (model.max_positions): shorten it"
                )
            sentences = self._sentences(lines[line], source, prefixes[line] if prefixes else "", split)
            first_units = self._first_units(sentences)
            for index, ((ids, space), first_unit) in enumerate(zip(sentences, first_units, strict=True)):
                part = Part(line, Sentence(ids, [] if index else prefix, number), first_unit, space)
                found += [part] if len(ids) <= self.max_positions else self._segments(part)
        return found

    def _first_units(self, sentences: list[tuple[list[int], str]]) -> list[int]:
        """The number in the line of each sentence's first word, or character."""
        numbers = [0]
        for ids, _ in sentences[:-1]:
            numbers.append(numbers[-1] + self._units(ids[:-1])[-1].stop)
        return numbers

    def _units(self, ids: list[int]) -> list[range]:
        """The words, or characters, of each piece."""
        return units_of(self.tokenizer.source_pieces(ids), has_spaces(self.languages[0]))

    def _sentences(
        self, line: str, source: list[int], prefix: str, split: SplitSentences
    ) -> list[tuple[list[int], str]]:
        """The pieces of what is translated apart, each with what stands before its translation.

        If the prefix has several sentences, nobody knows which source sentences they belong to: the line stays whole.
        """
        if split == "never" or (split == "auto" and self.trained is None):
            return [(source, "")]
        sentences = split_sentences(line, self.languages[0])
        if split == "auto" and self.trained is not None:
            sentences = self._as_in_training(sentences, len(source) - 1, self.trained)
        if len(sentences) == 1 or (prefix and len(split_sentences(prefix, self.languages[1])) > 1):
            return [(source, "")]
        ids = self.tokenizer.encode_source([text for text, _ in sentences])
        spaces = ["", *(self._space_between(space) for _, space in sentences[:-1])]
        return [(pieces, space) for pieces, space in zip(ids, spaces, strict=True) if pieces != [EOS]]

    def _as_in_training(
        self, sentences: list[tuple[str, str]], num_pieces: int, trained: TrainingLines
    ) -> list[tuple[str, str]]:
        """Groups of as many sentences as were usual in training, each with the white space after it.

        In a line that has to be split, sentences are parted that have no mark between them, too.
        """
        if len(sentences) <= trained.usual_sentences and num_pieces <= trained.usual_pieces:
            return [("".join(text + space for text, space in sentences), "")]
        if len(sentences) > 1 or num_pieces > trained.most_pieces:
            sentences = [
                (part, between or space)
                for text, space in sentences
                for part, between in split_at_openers(text, trained.openers)
            ]
        lengths = [len(ids) - 1 for ids in self.tokenizer.encode_source([text for text, _ in sentences])]
        groups = [sentences[a:b] for a, b in together(lengths, trained.usual_sentences, trained.usual_pieces)]
        # All but the last white space of a group is inside it.
        return [("".join(text + space for text, space in group[:-1]) + group[-1][0], group[-1][1]) for group in groups]

    def _space_between(self, space: str) -> str:
        """The line's own white space, as far as it may stand in a line of output, where tabs part columns."""
        if short_code(self.languages[1]) in _NO_SPACE_BETWEEN_SENTENCES:
            return ""
        return "".join(sign if unicodedata.category(sign) == "Zs" else " " for sign in space) or " "

    def _segments(self, part: Part) -> Iterator[Part]:
        """Cut a part that has too many pieces, and log a warning."""
        *ids, end = part.sentence.source
        pieces = self.tokenizer.source_pieces(ids)
        units = self._units(ids)
        found = list(segments(pieces, self.longest))
        _log.warning(
            "warning: line %d: %s subword pieces would be translated together, and the model takes at most %s "
            "(model.max_positions): they are translated in %d parts",
            part.sentence.number,
            f"{len(part.sentence.source):,}",
            f"{self.max_positions:,}",
            len(found),
        )
        for start, stop in found:
            sentence = Sentence([*ids[start:stop], end], [] if start else part.sentence.prefix, part.sentence.number)
            yield Part(part.line, sentence, part.first_unit + units[start].start, " " if start else part.space)
