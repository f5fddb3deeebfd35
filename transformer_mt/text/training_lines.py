"""Records how long the lines of the training text are, how many sentences they have, and which words begin them."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt

from transformer_mt.base.errors import CheckpointError
from transformer_mt.base.wording import counted
from transformer_mt.storage.files import read_json, write_whole
from transformer_mt.text.sentences import MARKS, WIDE_MARKS, first_word, later_words, split_sentences

if TYPE_CHECKING:  # translating needs no NumPy
    import numpy as np
    from numpy.typing import NDArray

_KEPT_WORDS = 50_000
_MARK = re.compile(f"[{MARKS}{WIDE_MARKS}]")


@dataclass(frozen=True)
class LineWords:
    """Counts over many lines. Only the most frequent words are kept, so memory does not grow with their number."""

    sentences: Counter[int] = field(default_factory=Counter)
    """How many lines have so many sentences."""
    first_words: Counter[str] = field(default_factory=Counter)
    later_words: Counter[str] = field(default_factory=Counter)

    def merge(self, later: "LineWords", weight: int = 1) -> None:
        """Count what was counted of later lines, each `weight` times."""
        for ours, theirs in zip(self._counters(), later._counters(), strict=True):
            for value, number in theirs.items():
                ours[value] += weight * number
        for words in (self.first_words, self.later_words):
            if len(words) > 2 * _KEPT_WORDS:
                kept = dict(words.most_common(_KEPT_WORDS))
                words.clear()
                words.update(kept)

    @property
    def content(self) -> dict[str, Any]:
        """All counts, for JSON."""
        return {"sentences": list(self.sentences.items()), "first": self.first_words, "later": self.later_words}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "LineWords":
        """Make it of what `content` gave."""
        sentences: Counter[int] = Counter(dict(content["sentences"]))
        return cls(sentences, Counter(content["first"]), Counter(content["later"]))

    def _counters(self) -> tuple[Counter[Any], Counter[Any], Counter[Any]]:
        return self.sentences, self.first_words, self.later_words


def count_words(lines: Iterable[str], language: str) -> LineWords:
    """Count the sentences and words of some lines of a language. A mark before or after a first word makes it empty."""
    found = LineWords()
    for line in lines:
        found.sentences[1 if _has_no_mark_inside(line) else len(split_sentences(line, language))] += 1
        found.first_words[first_word(line)] += 1
        # Most lines of many languages have no capital behind their first letter, and to see that takes less time.
        if not line[1:].islower():
            found.later_words.update(word for word in later_words(line) if word != word.lower())
    return found


def _has_no_mark_inside(line: str) -> bool:
    """Whether no sentence can end before the last character, which is quicker to see than where one does."""
    mark = _MARK.search(line)
    return mark is None or mark.end() == len(line)


FILE = "training_lines.json"  # it lies in a data_dir, a run and a model

# This share of lines has at most the usual number of sentences, or of pieces. Rare examples are not enough to learn
# from: where 1.1 % of 164,634 lines had two sentences, two sentences that were translated together had BLEU 12.7, and
# 24.5 if each was translated on its own.
USUAL = 0.9
RARE = 0.001  # share of pairs whose ratio of target to source pieces is below the least ratio
OFTEN, OFTEN_ENOUGH = 10, 0.0005  # an opener begins at least this many lines, and this share of them
ELSEWHERE = 0.005  # an opener stands inside lines at most this often, relative to how often it begins one
LONG_ENOUGH = 8  # source pieces; the ratio of shorter lines says nothing

Number = TypeVar("Number", int, float)


class TrainingLines(BaseModel):
    """What was usual in the training text. Lengths are in subword pieces of the source, EOS not counted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    pairs: PositiveInt
    usual_sentences: NonNegativeInt
    """90 % of the source lines have no more sentences."""
    most_sentences: NonNegativeInt
    usual_pieces: NonNegativeInt
    """90 % of the source lines have no more pieces."""
    most_pieces: NonNegativeInt
    least_ratio: NonNegativeFloat
    """The least usual ratio of target to source pieces: 99.9 % of the pairs with 8 or more source pieces have at least
    this one. 0 if there are no such pairs."""
    openers: tuple[str, ...] = ()
    """Words that begin many source lines and are rare inside lines. Where one is inside a line, a sentence begins."""

    @classmethod
    def load(cls, directory: Path) -> "TrainingLines":
        """Load what `save` wrote. Raises CheckpointError if it is missing or damaged."""
        path = directory / FILE
        try:
            return cls.model_validate(read_json(path))
        except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
            raise CheckpointError(
                f"{path}: cannot be read, or is not as it was written; copy it again from the data_dir, the run or the "
                "model that it came from"
            ) from None

    def save(self, directory: Path) -> None:
        """Write training_lines.json."""
        write_whole(directory / FILE, self.model_dump_json(indent=2) + "\n")

    @property
    def description(self) -> str:
        """A line that describes it to the user."""
        sentences, most = counted(self.usual_sentences, "sentence"), counted(self.most_sentences, "sentence")
        return (
            f"source lines: 90 % have at most {sentences} and {self.usual_pieces} pieces; "
            f"all have at most {most} and {self.most_pieces} pieces"
        )

    def is_short(self, num_source: int, num_target: int) -> bool:
        """Whether a translation of `num_target` pieces is unusually short for a source of `num_source` pieces."""
        return num_source >= LONG_ENOUGH and num_target < self.least_ratio * num_source


class TrainingLinesCounter:
    """Counts the pieces of pairs, and takes what was counted of their words. Memory does not grow with their number."""

    def __init__(self) -> None:
        self.num_pairs = 0
        self.words = LineWords()
        self.pieces: Counter[int] = Counter()
        self.ratios: Counter[float] = Counter()

    def add_lengths(self, sources: "NDArray[np.int64]", targets: "NDArray[np.int64]") -> None:
        """Count the pieces of pairs, given their numbers on both sides, EOS not counted."""
        import numpy as np

        both, numbers = np.unique((sources << 32) | targets, return_counts=True)
        for lengths, number in zip(both.tolist(), numbers.tolist(), strict=True):
            num_source, num_target = lengths >> 32, lengths & (2**32 - 1)
            self.num_pairs += number
            self.pieces[num_source] += number
            if num_source >= LONG_ENOUGH:
                self.ratios[round(num_target / num_source, 2)] += number

    def result(self) -> TrainingLines:
        """Return what was usual in all pairs so far. There must be at least one."""
        openers = [word for word, number in self.words.first_words.items() if self._is_opener(word, number)]
        return TrainingLines(
            pairs=self.num_pairs,
            usual_sentences=_quantile(self.words.sentences, USUAL),
            most_sentences=max(self.words.sentences),
            usual_pieces=_quantile(self.pieces, USUAL),
            most_pieces=max(self.pieces),
            least_ratio=_quantile(self.ratios, RARE) if self.ratios else 0.0,
            openers=tuple(sorted(openers)),
        )

    def _is_opener(self, word: str, number: int) -> bool:
        often = number >= max(OFTEN, OFTEN_ENOUGH * self.words.sentences.total())
        return often and word != word.lower() and self.words.later_words[word] <= ELSEWHERE * number


def _quantile(counts: Counter[Number], share: float) -> Number:
    """Return the least value that is not exceeded by at least this share of all values."""
    rising = sorted(counts)
    return rising[bisect_left(list(accumulate(counts[value] for value in rising)), share * counts.total())]
