"""Opens a corpus of any form, takes shares of it as validation and test sets, and an even sample of several corpora."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.remote import Place
from transformer_mt.corpora.corpus import BadPair, Corpus, blocks_of_file, local_files
from transformer_mt.corpora.parallel import files_of, open_parallel, open_zip
from transformer_mt.corpora.rows import digest_of_hub, open_hub, open_jsonl, open_parquet
from transformer_mt.corpora.tables import open_csv, open_tsv
from transformer_mt.corpora.text_files import survey
from transformer_mt.corpora.tmx import open_tmx
from transformer_mt.settings.corpus_settings import Form, PairedText
from transformer_mt.settings.section import fingerprint

_OPEN: dict[Form | None, Callable[[PairedText], Corpus]] = {
    None: open_parallel,
    "prefix": open_parallel,
    "tsv": open_tsv,
    "csv": open_csv,
    "jsonl": open_jsonl,
    "parquet": open_parquet,
    "tmx": open_tmx,
    "zip": open_zip,
    "hub": open_hub,
}


def open_corpus(text: PairedText) -> Corpus:
    """Open a corpus that has values for source and target (see `CorpusConfig.text_of`).

    Reads local files once to their end, for the digest and the number of pairs. Raises CorpusError if files, split or
    columns are missing, if a file cannot be read, or if there are no pairs.
    """
    return _OPEN[text.form](text)


def corpus_files(text: PairedText) -> tuple[Place, ...]:
    """Return the files of a corpus, without opening them. Raises CorpusError if one is missing."""
    if text.form == "hub":
        return ()
    if text.form in (None, "prefix"):
        return tuple(path for both in files_of(text) for path in both)
    return local_files(text.place)


def corpus_digest(text: PairedText) -> str:
    """Return the digest of a corpus, without checking the corpus."""
    if text.form == "hub":
        return digest_of_hub(text)
    if text.form == "zip":
        return open_zip(text).digest()
    return fingerprint(*(survey(path).digest for path in corpus_files(text)))


Range = tuple[float, float]
"""The numbers of `place_of` from the first on, below the second."""


def place_of(source: str) -> float:
    """Return a number in [0, 1) that depends on this text alone: a pair stays in its set when a corpus grows."""
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=6).digest()) / 2**48


def parts_of(corpora: Sequence[Corpus], ranges: Mapping[str, Range], clean: Callable[[str], str]) -> dict[str, Corpus]:
    """Read the corpora once, and return for each range the pairs whose source has a place in it, by the same names.

    The texts are as `clean` returns them. The function leaves out pairs with a blank side, and of pairs with the same
    source all but the first: training text may repeat a sentence, but a test should not count it twice. Raises
    CorpusError if a range has no pair.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in ranges}
    highest, num_good, first_bad = max(high for _, high in ranges.values()), 0, ""
    for block in chain.from_iterable(corpus.blocks() for corpus in corpora):
        for index, pair in enumerate(block.pairs):
            if isinstance(pair, BadPair):
                first_bad = first_bad or f"{block.place(index)}: {pair.fault}"
                continue
            num_good += 1
            place = place_of(source := clean(pair[0]))
            if place < highest and source and (target := clean(pair[1])):
                name = next(name for name, (low, high) in ranges.items() if low <= place < high)
                found[name].setdefault(source, target)
    if not num_good and first_bad:
        raise CorpusError(f"corpus.train: no line can be read as a pair. {first_bad}")
    for name, pairs in found.items():
        if not pairs:
            raise CorpusError(f"corpus.{name.replace('/', '.')}: its share of corpus.train has no pair; raise it")
    digests = [corpus.digest() for corpus in corpora]
    return {
        name: Corpus(
            blocks=partial(blocks_of_file, f"{name} (a share of corpus.train)", [*pairs.items()], unit="pair"),
            digest=partial(digest_of_part, digests, ranges[name]),
            num_pairs=len(pairs),
        )
        for name, pairs in found.items()
    }


def digest_of_part(corpora: Iterable[str], bounds: Range) -> str:
    """Return the digest of a part, from those of the complete corpora."""
    return fingerprint(*corpora, *map(repr, bounds))


Line = tuple[str, str]  # source and target


@dataclass
class _Sample:
    """Every `step`-th pair of a corpus, beginning with the first."""

    step: int
    pairs: list[Line] = field(default_factory=list)
    num_bytes: int = 0
    """The sum over all pairs of the bytes of the longer side."""


def sample_of(
    corpora: Sequence[tuple[Iterable[Line], int | None]],
    most_lines: int,
    most_bytes: int,
    stays: Callable[[int, Line], bool] = lambda corpus, pair: True,
) -> tuple[list[str], list[str]]:
    """Return sources and targets: at most `most_lines` pairs, and at most `most_bytes` of UTF-8 in each language.

    Each corpus comes with its number of pairs, or None if that is unknown. It is read once. Every k-th pair is taken,
    so that the pairs are spread over the corpus, if `stays` is true for the number of the corpus, from 0, and the pair.
    If there are too many pairs, the function drops every second pair of the corpus with the most. So large corpora
    contribute about the same number of pairs, and small ones contribute all of theirs.
    """
    samples: list[_Sample] = []
    for corpus, (pairs, num_pairs) in enumerate(corpora):
        sample = _Sample(step=-(-(num_pairs or 1) // most_lines))
        samples.append(sample)
        for number, pair in enumerate(pairs):
            if number % sample.step or not stays(corpus, pair):
                continue
            sample.pairs.append(pair)
            sample.num_bytes += _num_bytes(pair)
            while (too_many := sum(len(each.pairs) for each in samples) > most_lines) or (
                sum(each.num_bytes for each in samples) > most_bytes
            ):
                # Prefer samples of more than one pair, which can be thinned out.
                largest = max(samples, key=lambda s: (len(s.pairs) > 1, len(s.pairs) if too_many else s.num_bytes))
                if len(largest.pairs) == 1:  # even one line of each corpus is too much: keep one
                    break
                largest.step *= 2  # keep only every second of its pairs, and of all that follow
                del largest.pairs[1::2]
                largest.num_bytes = sum(map(_num_bytes, largest.pairs))
    sampled = [pair for sample in samples for pair in sample.pairs]
    return [source for source, _ in sampled], [target for _, target in sampled]


def _num_bytes(pair: Line) -> int:
    return max(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in pair)
