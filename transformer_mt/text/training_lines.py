"""Computes statistics of the training text: the lengths of lines, and their numbers of sentences."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt

from transformer_mt.base.errors import CheckpointError
from transformer_mt.base.wording import counted
from transformer_mt.storage.files import read_json, write_whole
from transformer_mt.text.sentences import MARKS, WIDE_MARKS, split_sentences

if TYPE_CHECKING:  # translating needs no NumPy
    import numpy as np
    from numpy.typing import NDArray

_MARK = re.compile(f"[{MARKS}{WIDE_MARKS}]")


def count_sentences(lines: Iterable[str], language: str) -> list[int]:
    """Return how many sentences each of these lines has. `language` is a language code."""
    # If no mark comes before the last character, there is one sentence: this check is faster than splitting the line.
    marks = ((line, _MARK.search(line)) for line in lines)
    return [len(split_sentences(line, language)) if mark and mark.end() < len(line) else 1 for line, mark in marks]


FILE = "training_lines.json"  # in a data_dir, a run and a model

# This share of lines has at most the usual number of sentences, or of pieces. A model does not learn long lines from
# rare examples: in a corpus where 1.1 % of 164,634 lines had two sentences, two sentences had BLEU 12.7 when they were
# translated together, and 24.5 when each was translated separately.
USUAL = 0.9
RARE = 0.001  # share of pairs with a ratio of target to source pieces below the least usual ratio
LONG_ENOUGH = 8  # source pieces; the ratios of shorter lines vary too much

Number = TypeVar("Number", int, float)


class TrainingLines(BaseModel):
    """Statistics of the training text. Lengths are in subword pieces of the source, EOS not counted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    pairs: PositiveInt
    usual_sentences: NonNegativeInt
    """90 % of the source lines have at most this number of sentences."""
    most_sentences: NonNegativeInt
    usual_pieces: NonNegativeInt
    """90 % of the source lines have at most this number of pieces."""
    most_pieces: NonNegativeInt
    least_ratio: NonNegativeFloat
    """The least usual ratio of target to source pieces: 99.9 % of the pairs with 8 or more source pieces have at least
    this ratio. 0 if there are no such pairs."""

    @classmethod
    def load(cls, directory: Path) -> "TrainingLines":
        """Load the file that `save` wrote. Raises CheckpointError if it is missing or damaged."""
        path = directory / FILE
        try:
            return cls.model_validate(read_json(path))
        except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
            raise CheckpointError(
                f"{path}: is missing or damaged; copy it again from the data_dir, the run or the model that it came "
                "from"
            ) from None

    def save(self, directory: Path) -> None:
        write_whole(directory / FILE, self.model_dump_json(indent=2) + "\n")

    @property
    def description(self) -> str:
        """A line of text with these numbers, for the user."""
        sentences, most = counted(self.usual_sentences, "sentence"), counted(self.most_sentences, "sentence")
        return (
            f"source lines: 90 % have at most {sentences} and {self.usual_pieces} pieces; "
            f"all have at most {most} and {self.most_pieces} pieces"
        )

    def is_short(self, num_source: int, num_target: int) -> bool:
        """Whether a translation of `num_target` pieces is unusually short for a source of `num_source` pieces."""
        return num_source >= LONG_ENOUGH and num_target < self.least_ratio * num_source


class TrainingLinesCounter:
    """Counts the pieces of pairs. The caller adds their numbers of sentences to `sentences`."""

    def __init__(self) -> None:
        self.sentences: Counter[int] = Counter()
        self.pieces: Counter[int] = Counter()
        self.ratios: Counter[float] = Counter()

    def add_lengths(self, sources: "NDArray[np.int64]", targets: "NDArray[np.int64]") -> None:
        """Add pairs, given the numbers of their source and target pieces, EOS not counted."""
        import numpy as np

        both, numbers = np.unique((sources << 32) | targets, return_counts=True)
        for lengths, number in zip(both.tolist(), numbers.tolist(), strict=True):
            num_source, num_target = lengths >> 32, lengths & (2**32 - 1)
            self.pieces[num_source] += number
            if num_source >= LONG_ENOUGH:
                self.ratios[round(num_target / num_source, 2)] += number

    def result(self) -> TrainingLines:
        """Return the statistics of all pairs so far. There must be at least one pair."""
        return TrainingLines(
            pairs=self.pieces.total(),
            usual_sentences=quantile(self.sentences, USUAL),
            most_sentences=max(self.sentences),
            usual_pieces=quantile(self.pieces, USUAL),
            most_pieces=max(self.pieces),
            least_ratio=quantile(self.ratios, RARE),
        )


def quantile(counts: Counter[Number], share: float) -> Number | int:
    """Return the smallest value that at least this share of all values do not exceed; 0 if there are no values."""
    rising = sorted(counts) or [0]
    return rising[bisect_left(list(accumulate(counts[value] for value in rising)), share * counts.total())]
