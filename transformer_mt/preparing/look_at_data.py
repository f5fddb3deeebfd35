"""`prepare --look`: shows what the training text is like and which pairs the filters leave out, and writes nothing."""

import sys
from pathlib import Path

from transformer_mt.base.wording import cut
from transformer_mt.corpora.corpus import BadPair
from transformer_mt.corpora.filters import KEPT, REASONS
from transformer_mt.preparing.fill_data_dir import open_splits
from transformer_mt.preparing.measured_text import TextMeasures, measure, table
from transformer_mt.preparing.text_warnings import corpus_warnings, text_warnings
from transformer_mt.settings.corpus_settings import CorpusConfig, FiltersConfig, TokenizerConfig
from transformer_mt.text.existing_tokenizer import open_existing
from transformer_mt.text.tokenizer import Tokenizer, holds_tokenizer

MOST_PAIRS = 1_000_000  # the default; they take about 20 s, or 30 s with a tokenizer


def look(
    corpus: CorpusConfig, filters: FiltersConfig, tokenizer_settings: TokenizerConfig, data_dir: Path, most: int
) -> None:
    """Print what the first `most` pairs of a corpus are like, in pieces if there is a tokenizer. Raises UserError."""
    tokenizer, opened = _tokenizer(tokenizer_settings, data_dir), open_splits(corpus)
    measures = measure(corpus, filters, opened, tokenizer, most)
    print(table(measures))
    if any(count.total() == most for count in measures.counts.values()):
        print(f"note: this reads only the first {most:,} pairs of each corpus; `--look N` reads N")
    for warning in [*corpus_warnings(corpus, opened), *text_warnings(measures)]:
        print(f"warning: {warning}", file=sys.stderr)
    _print_examples(measures)


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


def _print_examples(measures: TextMeasures) -> None:
    """Print a few kept pairs and a few for each reason."""
    for reason, words in {KEPT: "kept, each source above its target", **REASONS}.items():
        if reason in measures.examples:
            print(f"\n{words}:")
        for place, pair in measures.examples.get(reason, []):
            print(f"  {place}")
            for text in [pair.fault] if isinstance(pair, BadPair) else pair:
                print(f"      {cut(text) or '(blank)'}")
