"""Encodes the pairs of a block for training: what a worker process does, and what it gives back."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_mt.corpora.corpus import BAD_LINE, BadPair, Block
from transformer_mt.corpora.duplicates import pair_key
from transformer_mt.corpora.filters import Languages, PieceFilters, TextFilters
from transformer_mt.data.encoded_files import Side
from transformer_mt.data.line_words import LineWords, count_words
from transformer_mt.data.tokenizer import Tokenizer, clean
from transformer_mt.errors import CorpusError

Found = tuple[str, str, str]
"""Place, source and target of a pair; the texts are as `clean` returns them."""


class Task(NamedTuple):
    """A block, and what its place in the corpus says about it."""

    block: Block
    tag: str
    """What is put before each source; empty: nothing."""
    languages: Languages
    shard: int
    """The number of the shard that it belongs to."""
    counts_words: bool
    """Whether the sentences and words of its lines are counted."""


@dataclass(frozen=True)
class EncodedBlock:
    """What became of a block."""

    source: Side
    target: Side
    """The pairs that stay."""
    lines: NDArray[np.int64]
    """Their lines, rows or units in the file."""
    dropped: Counter[str]
    """How many pairs were left out for each reason."""
    keys: bytes
    """The keys of the pairs that stay, one after another, if duplicates are looked for."""
    found: list[Found]
    """The pairs that have a text of the held-out sets: of those left out because of it, or else, if it is no reason, of
    those that stay."""
    words: LineWords
    """What was counted of the lines of the pairs that stay; nothing unless it should be."""
    digest: bytes
    """That of the block (`block_digest`)."""


@dataclass(frozen=True)
class BlockEncoder:
    """Filters and encodes blocks. What comes out depends on the task alone, not on the process or on earlier tasks."""

    tokenizer: Tokenizer
    texts: TextFilters
    pieces: PieceFilters
    held_out: frozenset[str]
    """The texts of validation and test sets."""
    skips_bad_lines: bool = False
    with_keys: bool = False
    leaves_held_out: bool = False
    """Whether a pair is left out because it has a text of `held_out`."""

    def encode(self, task: Task) -> EncodedBlock:
        """Return what becomes of a block. Raises CorpusError at a pair that cannot be read, unless it is skipped."""
        block, dropped, found = task.block, Counter[str](), list[Found]()
        texts = list(self._passed_by_text(task, dropped, found))
        tagged = [f"{task.tag} {source}" if task.tag else source for _, source, _ in texts]
        source_ids, target_ids = self.tokenizer.encode_cleaned(tagged, [target for _, _, target in texts])
        both = zip(source_ids, target_ids, strict=True)
        reasons = [self.pieces.reason(len(source) - 1, len(target) - 1) for source, target in both]
        if any(reasons):
            dropped.update(reason for reason in reasons if reason)
            stays = [reason is None for reason in reasons]
            texts, tagged = list(compress(texts, stays)), list(compress(tagged, stays))
            source_ids, target_ids = list(compress(source_ids, stays)), list(compress(target_ids, stays))
        if not self.leaves_held_out:
            held = self.held_out
            found += [(block.place(row), a, b) for row, a, b in texts if a in held or b in held]
        # The words are those of the text itself, before `clean`.
        pairs = [block.pairs[row] for row, _, _ in texts] if task.counts_words else []
        looked_at = [pair[0] for pair in pairs if not isinstance(pair, BadPair)]
        return EncodedBlock(
            source=Side.of(source_ids, self.tokenizer.source_vocab_size),
            target=Side.of(target_ids, self.tokenizer.target_vocab_size),
            lines=np.array([block.first + row for row, _, _ in texts], np.int64),
            dropped=dropped,
            keys=b"".join(map(pair_key, tagged, (target for _, _, target in texts))) if self.with_keys else b"",
            found=found,
            words=count_words(looked_at, task.languages[0]),
            digest=block_digest(block),
        )

    def _passed_by_text(self, task: Task, dropped: Counter[str], found: list[Found]) -> Iterator[tuple[int, str, str]]:
        """Yield the pairs that the text filters let pass: their row in the block, source and target, cleaned."""
        block = task.block
        for row, pair in enumerate(block.pairs):
            if isinstance(pair, BadPair):
                if pair.reason == BAD_LINE and not self.skips_bad_lines:
                    raise CorpusError(f"{block.place(row)}: {pair.fault}")
                dropped[pair.reason] += 1
                continue
            source, target = clean(pair[0]), clean(pair[1])
            if reason := self.texts.reason(source, target, task.languages):
                dropped[reason] += 1
                if reason == "held_out":
                    found.append((block.place(row), source, target))
            else:
                yield row, source, target


def block_digest(block: Block) -> bytes:
    """Return the SHA-256 of the pairs of a block, bad ones included."""
    sides = chain.from_iterable((pair.fault,) if isinstance(pair, BadPair) else pair for pair in block.pairs)
    return hashlib.sha256("\n".join(sides).encode()).digest()
