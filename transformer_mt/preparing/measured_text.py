"""Measures the training text before anything is made of it: how much there is, how long its lines are, what is odd.

The text is read once. Each pair takes 33 bytes of memory, and the text itself none.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import wrap

import numpy as np
from numpy.typing import NDArray

from transformer_mt.base.languages import has_spaces, split_units
from transformer_mt.base.wording import LineProgress, counted
from transformer_mt.corpora.corpus import BAD_LINE, BadPair, Block
from transformer_mt.corpora.filters import TextFilters, letters_by_script
from transformer_mt.corpora.text_traits import ENTITY, PIECE, TOKENISED, telling_words
from transformer_mt.preparing.corpus_warnings import header_warnings
from transformer_mt.preparing.fill_data_dir import held_out_of, open_texts, splits_of
from transformer_mt.preparing.pair_counts import PairCounts
from transformer_mt.preparing.prepared import is_training
from transformer_mt.settings.corpus_settings import CorpusConfig, FiltersConfig
from transformer_mt.text.tokenizer import clean

_KEPT, _EQUAL = 1, 2  # flags of a pair
_LEAST_SPREAD = 0.25  # standard deviation of the lengths, for each character of their mean
_SCRIPTS_SHOWN, _RARE = 3, 0.001
_WIDTH = 78  # of the cells of the table


@dataclass
class SideMeasures:
    """Measures of one side of the pairs. Lines are counted as `clean` returns them, where neither side is blank."""

    language: str
    other_language: str
    """The language of the other side."""
    lengths: Counter[int] = field(default_factory=Counter)
    """How many lines have each number of units: words, or characters in a language without spaces."""
    characters: Counter[str] = field(default_factory=Counter)
    """How many times each character occurs."""
    num_own_words: int = 0
    """How many units are frequent words of the language, but not of the other one (see `telling_words`)."""
    num_other_words: int = 0
    """How many units are frequent words of the other language, but not of this one."""
    num_tokenised: int = 0
    num_in_pieces: int = 0
    num_with_entities: int = 0
    keys: "array[int]" = field(default_factory=lambda: array("q"))
    """A hash of each line. Python's hashes differ from process to process, but equal lines have equal ones."""

    def add(self, lines: Sequence[str]) -> None:
        """Measure lines, which are results of `clean`."""
        units = [split_units(line, self.spaced) for line in lines]
        self.lengths.update(map(len, units))
        self.keys.extend(map(hash, lines))
        self.characters.update("".join(lines))
        words = Counter(" ".join(lines).lower().split() if self.spaced else "".join(lines))
        self.num_own_words += sum(words[word] for word in self._telling_words[0])
        self.num_other_words += sum(words[word] for word in self._telling_words[1])
        self.num_tokenised += sum(TOKENISED.search(line) is not None for line in lines)
        self.num_with_entities += sum("&" in line and ENTITY.search(line) is not None for line in lines)

    @cached_property
    def _telling_words(self) -> tuple[frozenset[str], frozenset[str]]:
        return telling_words(self.language, self.other_language)

    @cached_property
    def spaced(self) -> bool:
        """Whether lengths are numbers of words, and not of characters."""
        return has_spaces(self.language)

    @property
    def units(self) -> str:
        """What the lengths count."""
        return "words" if self.spaced else "characters"

    @property
    def num_lines(self) -> int:
        """The number of lines."""
        return len(self.keys)

    @property
    def mean_length(self) -> float:
        """The mean number of units of a line."""
        return sum(length * number for length, number in self.lengths.items()) / max(1, self.num_lines)

    @property
    def mean_words(self) -> float:
        """The mean number of words of a line; two characters count as a word in a language without spaces."""
        return self.mean_length if self.spaced else self.mean_length / 2

    @property
    def mean_characters(self) -> float:
        """The mean number of characters of a line, spaces included."""
        return self.characters.total() / max(1, self.num_lines)

    def length_of(self, share: float) -> int:
        """Return the length, in units, that this share of the lines does not exceed. With 1.0, that of the longest."""
        seen = 0
        for length in sorted(self.lengths):
            seen += self.lengths[length]
            if seen >= share * self.num_lines:
                return length
        return 0

    @cached_property
    def scripts(self) -> dict[str, float]:
        """The share of the letters that each script has, the largest first. Complete only after the last `add`."""
        counts = letters_by_script(self.characters)
        return {name: number / counts.total() for name, number in counts.items()}

    @cached_property
    def num_different(self) -> int:
        """The number of different lines. Complete only after the last `add`."""
        return len(np.unique(np.frombuffer(self.keys, np.int64)))


@dataclass
class TextMeasures:
    """Measures of all training corpora together."""

    place: str
    """The files or data sets, as the configuration names them."""
    source: SideMeasures
    target: SideMeasures
    filters: FiltersConfig
    num_read: int = 0
    """The number of pairs, those that cannot be read included."""
    first_bad: str = ""
    """The place of the first line, row or unit that cannot be read as a pair, and what is wrong with it."""
    header_warnings: list[str] = field(default_factory=list)
    """What `header_warnings` says about the corpora, and about the validation and test sets."""
    by_text: Counter[str] = field(default_factory=Counter)
    """How many pairs the filters leave out for each of REASONS, without those that they leave out as duplicates."""
    keys: "array[int]" = field(default_factory=lambda: array("q"))
    """A hash of each pair with text on both sides."""
    flags: bytearray = field(default_factory=bytearray)
    """Of each of these pairs: _KEPT unless a reason in `by_text` counts it, and _EQUAL if its sides are equal."""
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(5))
    """Of the numbers of characters x and y of both sides of these pairs: the sums of x, y, x², y² and xy."""

    @property
    def num_pairs(self) -> int:
        """The number of pairs with text on both sides."""
        return len(self.keys)

    @cached_property
    def num_different(self) -> int:
        """The number of different pairs with text on both sides. Complete only after the last `add`."""
        return len(self._different())

    @property
    def num_repeated(self) -> int:
        """The number of pairs with text on both sides that repeat an earlier one."""
        return self.num_pairs - self.num_different

    @property
    def num_equal(self) -> int:
        """The number of pairs with the same text on both sides."""
        return sum(flags & _EQUAL > 0 for flags in self.flags)

    @property
    def num_usable(self) -> int:
        """The number of different pairs with different text on their sides, of those that the filters keep."""
        return len(self._different(_KEPT | _EQUAL, _KEPT))

    @property
    def left_out(self) -> Counter[str]:
        """How many pairs the filters leave out for each of REASONS.

        Filters by numbers of subword pieces (corpus.max_length, corpus.max_ratio) need a tokenizer, and do not count.
        """
        if not self.filters.duplicates:
            return self.by_text
        kept = sum(flags & _KEPT for flags in self.flags)
        return self.by_text + Counter({"duplicate": kept - len(self._different(_KEPT, _KEPT))})

    @property
    def reasons(self) -> str:
        """The numbers of `left_out`, as text."""
        return PairCounts(dropped=self.left_out).drops

    @property
    def correlation(self) -> float:
        """The correlation of the numbers of characters of source and target; 1 if the lengths of a side hardly vary."""
        n = self.num_pairs
        x, y, xx, yy, xy = self.sums.tolist()
        spread_x, spread_y = n * xx - x * x, n * yy - y * y
        if spread_x <= (_LEAST_SPREAD * x) ** 2 or spread_y <= (_LEAST_SPREAD * y) ** 2:
            return 1.0
        return float((n * xy - x * y) / (spread_x * spread_y) ** 0.5)

    def _different(self, flags: int = 0, values: int = 0) -> NDArray[np.int64]:
        """Return the hashes of the pairs whose `flags` have these values, each once."""
        chosen = np.frombuffer(self.flags, np.uint8) & flags == values
        return np.unique(np.frombuffer(self.keys, np.int64)[chosen])

    def add(self, block: Block, texts: TextFilters, languages: tuple[str, str]) -> None:
        """Measure the pairs of a block, whose corpus has these languages."""
        self.num_read += len(block.pairs)
        sources, targets = list[str](), list[str]()
        for index, pair in enumerate(block.pairs):
            if isinstance(pair, BadPair):
                self.by_text[pair.reason] += 1
                if pair.reason == BAD_LINE and not self.first_bad:
                    self.first_bad = f"{block.place(index)}: {pair.fault}"
                continue
            for side, text in ((self.source, pair[0]), (self.target, pair[1])):
                side.num_in_pieces += PIECE.search(text) is not None  # `clean` removes some of their marks
            source, target = clean(pair[0]), clean(pair[1])
            reason = texts.reason(source, target, languages)
            if reason is not None:
                self.by_text[reason] += 1
            if reason != "blank":
                sources.append(source)
                targets.append(target)
                self.keys.append(hash((source, target)))
                self.flags.append(_KEPT * (reason is None) | _EQUAL * (source == target))
        self.source.add(sources)
        self.target.add(targets)
        x, y = (np.array([len(line) for line in lines], np.float64) for lines in (sources, targets))
        self.sums += [x.sum(), y.sum(), x @ x, y @ y, x @ y]


def measure(corpus: CorpusConfig, filters: FiltersConfig) -> TextMeasures:
    """Read all training corpora once, and measure them together. Tags do not count.

    The lengths and words of all corpora are measured as those of the languages of the configuration. Raises CorpusError
    if a file, not only a line, cannot be read, or at a bad line of a validation or test set.
    """
    opened, splits = open_texts(corpus), splits_of(corpus)
    held_out = held_out_of({name: pairs for name, pairs in opened.items() if not is_training(name)})
    texts = TextFilters.of(filters, corpus, held_out)
    source, target = corpus.source_language, corpus.target_language
    place = ", ".join(text.place for text in corpus.training_corpora)
    found = TextMeasures(place, SideMeasures(source, target), SideMeasures(target, source), filters)
    found.header_warnings = header_warnings(corpus, [(splits[name], pairs) for name, pairs in opened.items()])
    trained = {name: pairs for name, pairs in opened.items() if is_training(name)}
    sizes = [pairs.num_pairs for pairs in trained.values()]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    with LineProgress(total, doing="reading the text: ", unit="pairs") as progress:
        for name, pairs in trained.items():
            for block in pairs.blocks():
                found.add(block, texts, corpus.languages_of(splits[name]))
                progress.more(len(block.pairs))
    return found


def table(measures: TextMeasures) -> str:
    """Return the measures as a table of few lines, none wider than 100 columns."""
    num_left_out = measures.left_out.total()
    share = num_left_out / max(1, measures.num_read)
    rows = [
        ("pairs", f"{measures.num_read:,}"),
        ("", f"repeat an earlier pair: {measures.num_repeated:,}; have equal sides: {measures.num_equal:,}"),
        *_rows_of_side(measures.source, "source"),
        *_rows_of_side(measures.target, "target"),
        ("filters leave out", f"{num_left_out:,} ({100 * share:.1f} %)"),
        *(("", line) for line in wrap(measures.reasons, _WIDTH) if num_left_out),
    ]
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:{width}}   {text}".rstrip() for label, text in rows)


def _rows_of_side(side: SideMeasures, name: str) -> Iterator[tuple[str, str]]:
    short, long, longest = (f"{side.length_of(share):,}" for share in (0.9, 0.99, 1.0))
    mean = f"{side.mean_length:.1f} {side.units} a line"
    yield f"{side.language} ({name})", f"{mean}; 90 % have at most {short}, 99 % at most {long}; longest {longest}"
    shown = [f"{name} {100 * share:.1f} %" for name, share in side.scripts.items() if share >= _RARE][:_SCRIPTS_SHOWN]
    characters = f"{side.mean_characters:,.0f} characters a line; " if side.spaced else ""
    yield "", f"{characters}{counted(side.num_different, 'different line')}; letters: {', '.join(shown) or 'none'}"
