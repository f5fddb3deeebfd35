"""Measures the training text before anything is made of it: how much there is, what is odd, what filters leave out.

The text is read once. Each pair takes about 130 bytes of memory, and the text itself none.
"""

import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

import numpy as np

from transformer_mt.base.languages import has_spaces, split_units
from transformer_mt.base.wording import LineProgress, counted
from transformer_mt.corpora.corpus import BAD_LINE, BadPair, Block, Corpus
from transformer_mt.corpora.filters import KEPT, Languages, PairCounts, PieceFilters, TextFilters, drop_table
from transformer_mt.corpora.text_traits import ENTITY, PIECE, TOKENISED, letters_by_script, telling_words
from transformer_mt.preparing.fill_data_dir import held_out_of, splits_of
from transformer_mt.preparing.prepared import is_training
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText
from transformer_mt.settings.text_settings import FiltersConfig
from transformer_mt.text.tokenizer import Tokenizer, clean, tagged
from transformer_mt.text.training_lines import quantile

_LEAST_SPREAD = 0.25  # standard deviation of the lengths, for each character of their mean
_WORDS_KEPT = 50_000
_SCRIPTS_SHOWN, _RARE = 3, 0.001
_EXAMPLES = 3  # of each reason


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
    words: set[str] = field(default_factory=set)
    """The different words, in lower case. In a text with very many of them, not all."""
    num_own_words: int = 0
    """How many units are frequent words of the language, but not of the other one (see `telling_words`)."""
    num_other_words: int = 0
    """How many units are frequent words of the other language, but not of this one."""
    num_tokenised: int = 0
    num_in_pieces: int = 0
    num_with_entities: int = 0
    keys: "array[int]" = field(default_factory=lambda: array("q"))
    """A hash of each line. Python's hashes differ from process to process, but equal lines have equal ones."""
    sizes: "array[int]" = field(default_factory=lambda: array("i"))
    """The number of characters of each line."""

    def add(self, lines: Sequence[str]) -> None:
        """Measure lines, which are results of `clean`."""
        units = [split_units(line, self.spaced) for line in lines]
        self.lengths.update(map(len, units))
        self.keys.extend(map(hash, lines))
        self.sizes.extend(map(len, lines))
        self.characters.update("".join(lines))
        words = Counter(" ".join(lines).lower().split() if self.spaced else "".join(lines))
        own, others = telling_words(self.language, self.other_language)
        if self.spaced and len(self.words) < _WORDS_KEPT:
            self.words.update(words)
        self.num_own_words += sum(words[word] for word in own)
        self.num_other_words += sum(words[word] for word in others)
        self.num_tokenised += sum(TOKENISED.search(line) is not None for line in lines)
        self.num_with_entities += sum("&" in line and ENTITY.search(line) is not None for line in lines)

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
    def num_merges(self) -> int:
        """At least so many pieces of several characters can be made by BPE (we saw 0.21 to 2 for each letter)."""
        return sum(map(len, self.words)) // 6 if self.spaced else 10**6

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
    """Measures of all training corpora together, and how many pairs of each corpus the filters leave out."""

    place: str
    """The files or data sets, as the configuration names them."""
    source: SideMeasures
    target: SideMeasures
    texts: TextFilters
    pieces: PieceFilters
    tokenizer: Tokenizer | None = None
    """If it is None, `pieces` leaves out no pair."""
    num_target_tokens: int = 0
    """The target tokens of all pairs that pass the filters of texts, if there is a tokenizer."""
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """How many pairs of each corpus the filters keep (KEPT), and leave out for each of REASONS."""
    by_reason: Counter[str] = field(default_factory=Counter)
    """The sums of `counts`."""
    examples: dict[str, list[tuple[str, tuple[str, str] | BadPair]]] = field(default_factory=dict)
    """For KEPT and each reason, a few pairs from all parts of the text, each with its file and line."""
    seconds: float = 0.0
    """The time of measuring."""
    first_bad: str = ""
    """The place of the first line, row or unit that cannot be read as a pair, and what is wrong with it."""
    num_equal: int = 0
    """How many pairs have the same text on both sides, which is not blank."""
    num_usable: int = 0
    """How many different pairs have different texts on their sides, of those that the filters keep."""
    keys: set[int] = field(default_factory=set)
    """A hash of each different pair with text on both sides, and of its tag."""
    random: Random = field(default_factory=lambda: Random(1))

    @property
    def num_read(self) -> int:
        """The number of pairs, those that cannot be read included."""
        return self.by_reason.total()

    @property
    def num_pairs(self) -> int:
        """The number of pairs with text on both sides."""
        return self.source.num_lines

    @property
    def num_different(self) -> int:
        """The number of different pairs with text on both sides."""
        return len(self.keys)

    @property
    def num_repeated(self) -> int:
        """The number of pairs with text on both sides that repeat an earlier one."""
        return self.num_pairs - self.num_different

    @property
    def reasons(self) -> str:
        """How many pairs the filters leave out for each reason, as text."""
        return PairCounts(dropped=self.by_reason).drops

    @property
    def correlation(self) -> float:
        """The correlation of the numbers of characters of source and target; 1 if the lengths of a side hardly vary."""
        x, y = (np.frombuffer(side.sizes, np.int32) for side in (self.source, self.target))
        if not self.num_pairs or any(each.std() <= _LEAST_SPREAD * each.mean() for each in (x, y)):
            return 1.0
        return float(np.corrcoef(x, y)[0, 1])

    def add(self, block: Block, text: PairedText, languages: Languages) -> None:
        """Measure the pairs of a block of this corpus, which has these languages."""
        sides, own = (self.source, self.target), (self.source.language, self.target.language)
        if languages == own[::-1] != own:  # the same languages in the other direction
            sides = sides[::-1]
        pairs = [("", "") if isinstance(pair, BadPair) else (clean(pair[0]), clean(pair[1])) for pair in block.pairs]
        reasons, good = self._reasons(pairs, text.tag, languages), list[tuple[str, str]]()
        for index, (pair, cleaned, found) in enumerate(zip(block.pairs, pairs, reasons, strict=True)):
            reason = found
            if isinstance(pair, BadPair):
                reason = pair.reason
                if reason == BAD_LINE and not self.first_bad:
                    self.first_bad = f"{block.place(index)}: {pair.fault}"
            elif all(cleaned):
                good.append(cleaned)
                key, is_equal = hash((text.tag, *cleaned)), cleaned[0] == cleaned[1]
                if not reason and key in self.keys and self.texts.settings.duplicates:
                    reason = "duplicate"
                self.num_equal += is_equal
                self.num_usable += not (reason or is_equal or key in self.keys)
                self.keys.add(key)
                for side, line in zip(sides, pair, strict=True):
                    side.num_in_pieces += PIECE.search(line) is not None  # `clean` removes some of their marks
            self._count(str(text.name), reason or KEPT, block, index)
        for number, side in enumerate(sides):
            side.add([pair[number] for pair in good])

    def _reasons(self, pairs: Sequence[tuple[str, str]], tag: str | None, languages: Languages) -> list[str | None]:
        """Return for each pair the first reason to leave it out, apart from repeats; None if there is none."""
        reasons = [self.texts.reason(*pair, languages) for pair in pairs]
        if self.tokenizer is not None:
            passed = [index for index, reason in enumerate(reasons) if reason is None]
            sources = [tagged(tag, pairs[index][0]) for index in passed]
            ids = self.tokenizer.encode_cleaned(sources, [pairs[index][1] for index in passed])
            for index, source, target in zip(passed, *ids, strict=True):
                reasons[index] = self.pieces.reason(len(source) - 1, len(target) - 1)
                self.num_target_tokens += len(target)
        return reasons

    def _count(self, name: str, reason: str, block: Block, index: int) -> None:
        """Count a pair of this corpus. Of each reason keep some pairs; all pairs have the same chance to be kept."""
        self.counts.setdefault(name, Counter())[reason] += 1
        self.by_reason[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) == _EXAMPLES and (drawn := self.random.randrange(self.by_reason[reason])) < _EXAMPLES:
            del examples[drawn]
        if len(examples) < _EXAMPLES:
            examples.append((block.place(index), block.pairs[index]))


def measure(
    corpus: CorpusConfig,
    filters: FiltersConfig,
    opened: Mapping[str, Corpus],
    tokenizer: Tokenizer | None = None,
    most: int = sys.maxsize,
) -> TextMeasures:
    """Measure the first `most` pairs of each training corpus. `opened` has the text of each split by its name.

    The lengths and words of all corpora are measured as those of the languages of the configuration. Without a
    tokenizer, no pair is left out because of its number of pieces. Raises CorpusError if a file, not only a line,
    cannot be read, or at a bad line of a validation or test set.
    """
    splits, begun = splits_of(corpus), time.perf_counter()
    texts = TextFilters.of(filters, corpus, held_out_of(opened))
    pieces = PieceFilters(corpus.max_length, corpus.max_ratio)
    source, target = corpus.source_language, corpus.target_language
    place = ", ".join(text.place for text in corpus.training_corpora)
    sides = SideMeasures(source, target), SideMeasures(target, source)
    found = TextMeasures(place, *sides, texts, pieces, tokenizer)
    for name in filter(is_training, opened):
        size, languages, left = opened[name].num_pairs, corpus.languages_of(splits[name]), most
        with LineProgress(size and min(size, most), doing=f"{name}: ", unit="pairs") as progress:
            for block in opened[name].blocks():
                found.add(replace(block, pairs=block.pairs[:left]), splits[name], languages)
                progress.more(min(left, len(block.pairs)))
                left -= len(block.pairs)
                if left <= 0:  # read no further block: a streamed data set comes through the network
                    break
    found.seconds = time.perf_counter() - begun
    return found


def table(measures: TextMeasures) -> str:
    """Return the measures as a table of few lines, none wider than 100 columns, and what the filters leave out."""
    rows = [
        ("pairs", f"{measures.num_read:,}"),
        ("", f"repeat an earlier pair: {measures.num_repeated:,}; have equal sides: {measures.num_equal:,}"),
        *_rows_of_side(measures.source, "source"),
        *_rows_of_side(measures.target, "target"),
    ]
    width = max(len(label) for label, _ in rows)
    lines = [f"{label:{width}}   {text}".rstrip() for label, text in rows]
    return "\n".join([*lines, "", drop_table(measures.counts)])


def _rows_of_side(side: SideMeasures, name: str) -> Iterator[tuple[str, str]]:
    short, long, longest = (f"{quantile(side.lengths, share):,}" for share in (0.9, 0.99, 1.0))
    mean = f"{side.mean_length:.1f} {side.units} a line"
    yield f"{side.language} ({name})", f"{mean}; 90 % have at most {short}, 99 % at most {long}; longest {longest}"
    shown = [f"{name} {100 * share:.1f} %" for name, share in side.scripts.items() if share >= _RARE][:_SCRIPTS_SHOWN]
    mean_characters = side.characters.total() / max(1, side.num_lines)
    characters = f"{mean_characters:,.0f} characters a line; " if side.spaced else ""
    yield "", f"{characters}{counted(side.num_different, 'different line')}; letters: {', '.join(shown) or 'none'}"
