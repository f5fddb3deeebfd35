"""Puts all filters of a split together: decides of one pair after another whether it stays."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from transformer_mt.corpora.corpus import BAD_LINE, BadPair, Corpus
from transformer_mt.corpora.duplicates import pair_key
from transformer_mt.corpora.filters import Languages, PieceFilters, TextFilters
from transformer_mt.corpora.held_out import HeldOut, Overlaps
from transformer_mt.data.pair_counts import EncodedPair, PairCounts
from transformer_mt.data.tokenizer import clean
from transformer_mt.errors import CorpusError
from transformer_mt.settings.corpus import CorpusConfig
from transformer_mt.settings.filters import FiltersConfig

Pair = tuple[tuple[str, str], EncodedPair]  # text and ids
Encoded = tuple[str, Pair | BadPair]  # the place of a pair, and its text and ids


@dataclass
class PairFilter:
    """The filters of a split. It remembers which pairs there were, and what it found of the held-out sets."""

    settings: FiltersConfig
    text: TextFilters
    pieces: PieceFilters
    overlaps: Overlaps
    seen: set[bytes] = field(default_factory=set)

    @classmethod
    def of(cls, settings: FiltersConfig, corpus: CorpusConfig, held_out: HeldOut) -> "PairFilter":
        """Make the filters. Raises ConfigError as `TextFilters.of` does."""
        text = TextFilters.of(settings, corpus, held_out)
        return cls(settings, text, PieceFilters.of(corpus), Overlaps(held_out))

    @classmethod
    def of_validation(cls, corpus: CorpusConfig) -> "PairFilter":
        """Make the filters of the validation set, of which only blank and too long pairs are left out."""
        settings = FiltersConfig(held_out=False)
        no_text = TextFilters.of(settings, corpus, HeldOut())
        return cls(settings, no_text, PieceFilters.of_validation(corpus), Overlaps(HeldOut()))

    def reason(
        self,
        pair: tuple[str, str] | BadPair,
        pieces: tuple[int, int] | None,
        place: str,
        tag: str = "",
        languages: Languages | None = None,
    ) -> str | None:
        """Return why a pair is left out, one of REASONS; None if it stays.

        `pieces` are the numbers of subword pieces, ends of sentences not included; None if they are not known. `place`
        is the file and line; `languages` are as in `TextFilters.reason`. Raises CorpusError at a pair that cannot be
        read, unless filters.on_bad_line=skip.
        """
        if isinstance(pair, BadPair):
            if pair.reason == BAD_LINE and self.settings.on_bad_line == "stop":
                raise bad_line(pair, place)
            return pair.reason
        source, target = clean(pair[0]), clean(pair[1])
        reason = self.text.reason(source, target, languages)
        if reason is None and pieces is not None:
            reason = self.pieces.reason(*pieces)
        if reason is None and self.settings.duplicates:
            key, num_seen = pair_key(f"{tag} {source}", target), len(self.seen)
            self.seen.add(key)
            reason = "duplicate" if len(self.seen) == num_seen else None
        if reason == ("held_out" if self.settings.held_out else None):
            self.overlaps.add(source, target, place)
        return reason


def held_out_of(sets: Mapping[str, Corpus]) -> HeldOut:
    """Read the validation and test sets. Raises CorpusError at a pair that cannot be read."""
    return HeldOut.of({name: ((clean(a), clean(b)) for a, b in corpus.pairs()) for name, corpus in sets.items()})


def kept_pairs(pairs: Iterable[Encoded], filters: PairFilter, counts: PairCounts) -> Iterator[Pair]:
    """Yield the pairs that stay; `counts` says what became of the others. Raises CorpusError if none stays."""
    for place, pair in pairs:
        if isinstance(pair, BadPair):
            reason = filters.reason(pair, None, place)
        else:
            text, ids = pair
            reason = filters.reason(text, (len(ids[0]) - 1, len(ids[1]) - 1), place)
            if reason is None:
                counts.keep(ids)
                yield pair
        if reason is not None:
            counts.dropped[reason] += 1
    check_some_left(counts)


def check_some_left(counts: PairCounts) -> None:
    """Raises CorpusError if no pair is left."""
    if not counts.kept:
        raise CorpusError(
            f"none of {counts.read:,} pairs is left (left out: {counts.drops}); look at the text that "
            "corpus.train and corpus.valid name; or raise corpus.max_length or corpus.max_ratio, or switch filters "
            "off, as by filters.held_out=false"
        )


def good_pairs(pairs: Iterable[Encoded]) -> Iterator[Pair]:
    """Yield the pairs of a test set, which is scored whole. Raises CorpusError at one that cannot be read."""
    for place, pair in pairs:
        if not isinstance(pair, BadPair):
            yield pair
        elif pair.reason == BAD_LINE:
            raise bad_line(pair, place)


def bad_line(pair: BadPair, place: str) -> CorpusError:
    """Return the error about a pair that cannot be read."""
    return CorpusError(f"{place}: {pair.fault}")
