"""`prepare --look`: shows which pairs of a sample the filters would leave out, and writes nothing."""

import shutil
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from transformer_mt.base.wording import counted
from transformer_mt.corpora.corpus import BAD_LINE, BadPair, Corpus
from transformer_mt.corpora.filters import REASONS, Languages, PieceFilters, TextFilters
from transformer_mt.corpora.repeated import pair_key
from transformer_mt.preparing.corpus_warnings import header_warnings
from transformer_mt.preparing.fill_data_dir import held_out_of, open_splits, splits_of
from transformer_mt.preparing.pair_counts import KEPT, drop_table
from transformer_mt.preparing.prepared import is_training
from transformer_mt.settings.corpus_settings import CorpusConfig, FiltersConfig, TokenizerConfig
from transformer_mt.text.existing_tokenizer import open_existing
from transformer_mt.text.tokenizer import Tokenizer, clean, holds_tokenizer

MOST_PAIRS = 10_000  # the default for the size of the sample of each corpus
_SHOWN = 3  # example pairs for each reason

Examples = dict[str, list[tuple[str, tuple[str, str] | BadPair]]]
"""Pairs with their places, by the reason for leaving them out, or under KEPT."""


@dataclass
class Sample:
    """Pairs of a corpus, spread evenly over it or from its beginning, each with its file and line."""

    pairs: list[tuple[str, tuple[str, str] | BadPair]] = field(default_factory=list)
    num_read: int = 0
    num_bad: int = 0
    """How many of the lines, rows or units that were read are not readable pairs."""
    first_bad: str = ""
    """The place of the first of these, and what is wrong with it."""

    @classmethod
    def of(cls, corpus: Corpus, most: int, only_first: bool = False) -> "Sample":
        """Take at most `most` pairs of a corpus: spread evenly over all of it, or only from its beginning."""
        sample, every = cls(), 1
        for block in corpus.blocks():
            for index, pair in enumerate(block.pairs):
                if only_first and sample.num_read == most:
                    return sample
                if isinstance(pair, BadPair) and pair.reason == BAD_LINE:
                    sample.num_bad += 1
                    sample.first_bad = sample.first_bad or f"{block.place(index)}: {pair.fault}"
                if sample.num_read % every == 0:
                    sample.pairs.append((block.place(index), pair))
                sample.num_read += 1
                if len(sample.pairs) > 2 * most:  # the size of the corpus is not known before its end
                    sample.pairs, every = sample.pairs[::2], 2 * every
        held = len(sample.pairs)
        sample.pairs = [sample.pairs[i * held // most] for i in range(most)] if held > most else sample.pairs
        return sample


@dataclass
class _Filters:
    """All filters together. They remember the pairs that they have seen, to find duplicates."""

    settings: FiltersConfig
    texts: TextFilters
    pieces: PieceFilters
    seen: set[bytes] = field(default_factory=set)

    def reason(
        self, pair: tuple[str, str], pieces: tuple[int, int] | None, tag: str, languages: Languages
    ) -> str | None:
        """Return the reason to leave out a pair, or None. `pieces` are its numbers of subword pieces, if known."""
        source, target = clean(pair[0]), clean(pair[1])
        reason = self.texts.reason(source, target, languages)
        if reason is None and pieces is not None:
            reason = self.pieces.reason(*pieces)
        if reason is None and self.settings.duplicates:
            key, num_seen = pair_key(f"{tag} {source}", target), len(self.seen)
            self.seen.add(key)
            reason = "duplicate" if len(self.seen) == num_seen else None
        return reason


def look(
    corpus: CorpusConfig, settings: FiltersConfig, tokenizer_settings: TokenizerConfig, data_dir: Path, most: int
) -> None:
    """Print what the filters find in at most `most` pairs of each training corpus. Raises UserError.

    Lengths in pieces are computed with the tokenizer of the settings or of the data_dir; if there is none, not at all.
    """
    splits, opened = splits_of(corpus), open_splits(corpus)
    for warning in header_warnings(corpus, [(splits[name], pairs) for name, pairs in opened.items()]):
        print(f"warning: {warning}", file=sys.stderr)
    held_out = held_out_of({name: pairs for name, pairs in opened.items() if not is_training(name)})
    trained = [pairs for name, pairs in opened.items() if is_training(name)]
    filters = _Filters(settings, TextFilters.of(settings, corpus, held_out), PieceFilters.of(corpus))
    tokenizer = _tokenizer(tokenizer_settings, data_dir)
    found: dict[str, Examples] = {}
    is_part = False
    for text, corpus_pairs in zip(corpus.training_corpora, trained, strict=True):
        name = str(text.name)
        sample = Sample.of(corpus_pairs, most, only_first=bool(text.streaming))
        found[name] = _examples_of(sample, filters, tokenizer, text.tag or "", corpus.languages_of(text))
        is_part = is_part or bool(text.streaming) or len(sample.pairs) < sample.num_read
        _describe(name, sample, bool(text.streaming), settings.on_bad_line == "stop")
    if settings.duplicates and is_part:
        print("note: this looks for duplicates only among these pairs, so the complete text may have more")
    print()
    print(drop_table({name: Counter({key: len(one) for key, one in each.items()}) for name, each in found.items()}))
    width = shutil.get_terminal_size((100, 24)).columns
    for line in _examples(found, width):
        print(line)


def _tokenizer(settings: TokenizerConfig, data_dir: Path) -> Tokenizer | None:
    """Return the tokenizer of the configuration or of its data_dir. If there is none, print a note."""
    if settings.from_ is not None:
        return open_existing(Path(settings.from_))
    if holds_tokenizer(data_dir):
        return Tokenizer.load(data_dir)
    print(
        "note: this does not check lengths in subword pieces (corpus.max_length, corpus.max_ratio), because there is "
        "no tokenizer yet; you can name one with tokenizer.from=PATH",
        file=sys.stderr,
    )
    return None


def _examples_of(
    sample: Sample, filters: _Filters, tokenizer: Tokenizer | None, tag: str, languages: Languages
) -> Examples:
    """Return the pairs of a sample, grouped by the reason for leaving them out, or under KEPT."""
    found: Examples = {}
    good = [pair for _, pair in sample.pairs if not isinstance(pair, BadPair)]
    lengths: Iterator[tuple[int, int] | None] = iter([None] * len(good))
    if tokenizer is not None:
        tagged = [f"{tag} {source}" if tag else source for source, _ in good]
        sides = tokenizer.encode_source(tagged), tokenizer.encode_target([target for _, target in good])
        lengths = ((len(source) - 1, len(target) - 1) for source, target in zip(*sides, strict=True))
    for place, pair in sample.pairs:
        reason = pair.reason if isinstance(pair, BadPair) else filters.reason(pair, next(lengths), tag, languages)
        found.setdefault(reason or KEPT, []).append((place, pair))
    return found


def _describe(name: str, sample: Sample, only_first: bool, stops: bool) -> None:
    """Print how large the sample is, and whether a bad line would stop `prepare`."""
    looked, read = counted(len(sample.pairs), "pair"), f"{sample.num_read:,}"
    spread = ", spread evenly over it" if len(sample.pairs) < sample.num_read else ""
    of = ", the first of a streamed data set, which is not read further" if only_first else f" of {read}{spread}"
    print(f"{name}: looked at {looked}{of}; nothing is written")
    if sample.num_bad and stops:
        lines = counted(sample.num_bad, "unreadable line")
        print(
            f"note: `prepare` would stop at {sample.first_bad.rstrip('.')}. {name} has {lines}; to leave such lines "
            "out, set filters.on_bad_line=skip"
        )


def _examples(found: dict[str, Examples], width: int) -> Iterator[str]:
    """Yield lines that show a few kept pairs and a few for each reason, spread over the corpora and the sample."""
    for reason, words in {KEPT: "kept, each source above its target", **REASONS}.items():
        examples = [pair for of_corpus in found.values() for pair in of_corpus.get(reason, [])]
        if examples:
            yield ""
            yield f"{words}:"
        for number in range(min(_SHOWN, len(examples))):
            place, pair = examples[number * len(examples) // _SHOWN if len(examples) > _SHOWN else number]
            yield f"  {place}"
            for text in [pair.fault] if isinstance(pair, BadPair) else pair:
                yield f"      {_cut(text, width - 6)}"


def _cut(text: str, width: int) -> str:
    """Return the beginning of a text that fits into `width` columns. Control characters get the form \\x1b."""
    shown, used = "", 0
    for char in text:
        seen = char if char.isprintable() else repr(char)[1:-1]
        used += len(seen) + sum(unicodedata.east_asian_width(each) in "WF" for each in seen)
        if used > width - 1:
            return shown + "…"
        shown += seen
    return shown or "(blank)"
