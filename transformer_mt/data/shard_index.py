"""The list of the shards of a training set, by which training opens all of them as one corpus."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from transformer_mt.data.encoded_text import EncodedText, Part, ShardedText
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json

INDEX = "shards.json"


class IndexedShard(BaseModel):
    """A shard, and how much of it belongs to the training set."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    path: str
    """Its directory, from that of the index."""
    pairs: int
    tokens: tuple[int, int]
    """Of source and target, EOS included, of the pairs that belong to the training set."""
    longest: tuple[int, int]
    kept: str | None = None
    """The file with the rows that belong to the training set, as int32; none: all of them do."""


class ShardIndex(BaseModel):
    """All shards, by corpus and in order."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    corpora: dict[str, tuple[IndexedShard, ...]] = Field(min_length=1)
    """In the order of the configuration."""

    @property
    def shards(self) -> list[IndexedShard]:
        """Those of all corpora, in order."""
        return [shard for shards in self.corpora.values() for shard in shards]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of pairs of each corpus."""
        return tuple(sum(shard.pairs for shard in shards) for shards in self.corpora.values())

    @classmethod
    def load(cls, directory: Path) -> "ShardIndex":
        """Read what `save` wrote. Raises OSError or ValueError if it cannot be read."""
        return cls.model_validate(read_json(directory / INDEX))

    def save(self, directory: Path) -> None:
        """Write shards.json."""
        content = self.model_dump(mode="json", exclude_none=True)
        write_whole(directory / INDEX, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def text(self, directory: Path, side: int, parts: Sequence[EncodedText]) -> EncodedText | ShardedText:
        """Return the text of a side (0 source, 1 target), of whose shards these are the texts."""
        shards = self.shards
        if len(shards) == 1 and shards[0].kept is None:
            return parts[0]
        kept = [_kept(directory, shard) for shard in shards]
        both = tuple(Part(part, rows) for part, rows in zip(parts, kept, strict=True))
        tokens, longest = sum(shard.tokens[side] for shard in shards), max(shard.longest[side] for shard in shards)
        return ShardedText(both, tokens, longest)


def _kept(directory: Path, shard: IndexedShard) -> NDArray[np.int32] | None:
    if shard.kept is None:
        return None
    if not shard.pairs:
        return np.empty(0, np.int32)
    path = directory / shard.kept
    if path.stat().st_size != 4 * shard.pairs:
        raise ValueError(f"{shard.kept} has {path.stat().st_size:,} bytes instead of {4 * shard.pairs:,}")
    return np.asarray(np.memmap(path, dtype=np.int32, mode="r"))
