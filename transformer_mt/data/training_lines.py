"""How long the lines of the training text are, and how many sentences they hold."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt

from transformer_mt.data.sentences import first_word, later_words, split_sentences
from transformer_mt.errors import CheckpointError
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.wording import counted

FILE = "training_lines.json"  # in a data_dir, a run and a model

# Of the lines have no more sentences, or pieces, than is usual. Rare examples are not enough to learn from: where 1.1 %
# of 164,634 lines had two sentences, two were translated together with BLEU 12.7, and apart with 24.5.
USUAL = 0.9
RARE = 0.001  # of the pairs have fewer target pieces by source pieces than the least ratio
OFTEN, OFTEN_ENOUGH = 10, 0.0005  # lines, and the share of them, that begin with an opener
ELSEWHERE = 0.005  # so much of it, at most, an opener stands inside lines
_KEPT_WORDS = 50_000
LONG_ENOUGH = 8  # source pieces: of shorter lines the ratio tells nothing

Number = TypeVar("Number", int, float)


class TrainingLines(BaseModel):
    """What was usual in the training text. Lengths are subword pieces of the source, EOS not counted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    pairs: PositiveInt
    usual_sentences: NonNegativeInt
    """90 % of the source lines have no more sentences."""
    most_sentences: NonNegativeInt
    usual_pieces: NonNegativeInt
    """90 % of the source lines have no more pieces."""
    most_pieces: NonNegativeInt
    least_ratio: NonNegativeFloat
    """Target pieces by source pieces: of the pairs with 8 source pieces and more, 99.9 % have no fewer. 0 without such
    pairs."""
    openers: tuple[str, ...] = ()
    """Words that many source lines begin with, and that hardly ever stand elsewhere: there a sentence begins."""

    @classmethod
    def load(cls, directory: Path) -> "TrainingLines | None":
        """What `save` wrote; None where there is no such file, as in models of older versions.

        Raises CheckpointError if it is damaged.
        """
        path = directory / FILE
        try:
            return cls.model_validate(read_json(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):  # pydantic's ValidationError is one, too
            raise CheckpointError(
                f"{path}: cannot be read, or is not as it was written; copy it again from the data_dir, the run or the "
                "model that it came from"
            ) from None

    def save(self, directory: Path) -> None:
        """Write training_lines.json, whole."""
        write_whole(directory / FILE, self.model_dump_json(indent=2) + "\n")

    @property
    def description(self) -> str:
        """A line of output about it."""
        sentences, most = counted(self.usual_sentences, "sentence"), counted(self.most_sentences, "sentence")
        return (
            f"source lines: 90 % have at most {sentences} and {self.usual_pieces} pieces; "
            f"all have at most {most} and {self.most_pieces} pieces"
        )

    def is_short(self, num_source: int, num_target: int) -> bool:
        """Whether a translation of `num_target` pieces is much shorter than training had for `num_source` of them."""
        return num_source >= LONG_ENOUGH and num_target < self.least_ratio * num_source


class TrainingLinesCounter:
    """Counts pairs as they pass; memory does not grow with their number.

    Pieces are counted of all of them, sentences and words of every `step`-th, because that takes longer.
    """

    def __init__(self, source_language: str, step: int = 1) -> None:
        self.source_language, self.step = source_language, step
        self.num_pairs = 0
        self.sentences: Counter[int] = Counter()
        self.pieces: Counter[int] = Counter()
        self.ratios: Counter[float] = Counter()
        self.first_words: Counter[str] = Counter()
        self.later_words: Counter[str] = Counter()

    def add(self, source: str, num_source: int, num_target: int) -> None:
        """Count a pair: its source text, and the pieces of both sides, EOS not counted."""
        if self.num_pairs % self.step == 0:
            self.sentences[len(split_sentences(source, self.source_language))] += 1
            _count(self.first_words, [first_word(source)])
            _count(self.later_words, (word for word in later_words(source) if word != word.lower()))
        self.num_pairs += 1
        self.pieces[num_source] += 1
        if num_source >= LONG_ENOUGH:
            self.ratios[round(num_target / num_source, 2)] += 1

    def result(self) -> TrainingLines:
        """Of all pairs so far, at least one."""
        return TrainingLines(
            pairs=self.num_pairs,
            usual_sentences=_quantile(self.sentences, USUAL),
            most_sentences=max(self.sentences),
            usual_pieces=_quantile(self.pieces, USUAL),
            most_pieces=max(self.pieces),
            least_ratio=_quantile(self.ratios, RARE) if self.ratios else 0.0,
            openers=tuple(sorted(word for word, number in self.first_words.items() if self._is_opener(word, number))),
        )

    def _is_opener(self, word: str, number: int) -> bool:
        often = number >= max(OFTEN, OFTEN_ENOUGH * self.sentences.total())
        return often and word != word.lower() and self.later_words[word] <= ELSEWHERE * number


def copy_training_lines(source: Path, target: Path) -> None:
    """From one directory into another; where the first has none, the second has none either."""
    lines = TrainingLines.load(source)
    if lines is None:
        (target / FILE).unlink(missing_ok=True)
    else:
        lines.save(target)


def _count(words: Counter[str], more: Iterable[str]) -> None:
    """Count words; the rare ones are forgotten where there are too many of them."""
    words.update(more)
    if len(words) > 2 * _KEPT_WORDS:
        kept = dict(words.most_common(_KEPT_WORDS))
        words.clear()
        words.update(kept)


def _quantile(counts: Counter[Number], share: float) -> Number:
    """The least value that at least this share of all do not exceed."""
    rising = sorted(counts)
    return rising[bisect_left(list(accumulate(counts[value] for value in rising)), share * counts.total())]
