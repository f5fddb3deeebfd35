"""Encodes the pairs of a block for training: what a worker process does, and what it gives back."""

import hashlib
from collections import Counter
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
        dropped: Counter[str] = Counter()
        found: list[Found] = []
        texts = self._passed_by_text(task, dropped, found)
        tagged = [f"{task.tag} {source}" for source in texts.sources] if task.tag else texts.sources
        source_ids, target_ids = self.tokenizer.encode_cleaned(tagged, texts.targets)
        reasons = [
            self.pieces.reason(len(source) - 1, len(target) - 1)
            for source, target in zip(source_ids, target_ids, strict=True)
        ]
        if any(reasons):
            dropped.update(reason for reason in reasons if reason)
            stays = [reason is None for reason in reasons]
            texts = texts.only(stays)
            tagged = list(compress(tagged, stays))
            source_ids, target_ids = list(compress(source_ids, stays)), list(compress(target_ids, stays))
        if not self.leaves_held_out:
            found += self._held_out_of(task.block, texts)
        return EncodedBlock(
            source=Side.of(source_ids, self.tokenizer.source_vocab_size),
            target=Side.of(target_ids, self.tokenizer.target_vocab_size),
            lines=np.array(texts.lines, np.int64),
            dropped=dropped,
            keys=b"".join(map(pair_key, tagged, texts.targets)) if self.with_keys else b"",
            found=found,
            words=count_words(_sources(task.block, texts.lines) if task.counts_words else [], task.languages[0]),
            digest=block_digest(task.block),
        )

    def _passed_by_text(self, task: Task, dropped: Counter[str], found: list[Found]) -> "_Texts":
        """Return the pairs that the text filters let pass."""
        block, texts = task.block, _Texts([], [], [])
        for line, pair in enumerate(block.pairs, start=block.first):
            if isinstance(pair, BadPair):
                if pair.reason == BAD_LINE and not self.skips_bad_lines:
                    raise CorpusError(f"{block.place(line - block.first)}: {pair.fault}")
                dropped[pair.reason] += 1
                continue
            source, target = clean(pair[0]), clean(pair[1])
            if reason := self.texts.reason(source, target, task.languages):
                dropped[reason] += 1
                if reason == "held_out":
                    found.append((block.place(line - block.first), source, target))
                continue
            texts.lines.append(line)
            texts.sources.append(source)
            texts.targets.append(target)
        return texts

    def _held_out_of(self, block: Block, texts: "_Texts") -> list[Found]:
        held = self.held_out
        found = [pair for pair in zip(*texts, strict=True) if pair[1] in held or pair[2] in held]
        return [(block.place(line - block.first), source, target) for line, source, target in found]


class _Texts(NamedTuple):
    """Pairs by their lines in the file and their texts after `clean`, without tags."""

    lines: list[int]
    sources: list[str]
    targets: list[str]

    def only(self, stays: list[bool]) -> "_Texts":
        """Return the pairs for which `stays` is true."""
        texts = (list(compress(each, stays)) for each in (self.sources, self.targets))
        return _Texts(list(compress(self.lines, stays)), *texts)


def _sources(block: Block, lines: list[int]) -> list[str]:
    """Return the sources of the pairs in these lines, as they are in the text."""
    pairs = [block.pairs[line - block.first] for line in lines]
    return [pair[0] for pair in pairs if not isinstance(pair, BadPair)]


def block_digest(block: Block) -> bytes:
    """Return the SHA-256 of the pairs of a block, bad ones included."""
    sides = chain.from_iterable((pair.fault,) if isinstance(pair, BadPair) else pair for pair in block.pairs)
    return hashlib.sha256("\n".join(sides).encode()).digest()
