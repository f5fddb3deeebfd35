"""A text in several parts is the same text: whatever is asked of it, the answer is that of one part."""

import numpy as np
import pytest

from transformer_mt.batches.encoded import EncodedText, ShardedText


def text_of(sentences: list[list[int]]) -> EncodedText:
    offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
    return EncodedText(np.array([i for ids in sentences for i in ids], np.uint16), offsets)


@pytest.fixture
def sentences() -> list[list[int]]:
    random = np.random.default_rng(1)
    return [random.integers(4, 90, random.integers(1, 12)).tolist() for _ in range(300)]


def sharded(sentences: list[list[int]], cuts: list[int], dropped: set[int]) -> ShardedText:
    """The text in parts that end at these cuts, without the sentences that are dropped."""
    parts = [text_of(sentences[start:end]) for start, end in zip([0, *cuts], [*cuts, len(sentences)], strict=True)]
    rows = [i for i in range(len(sentences)) if i not in dropped]
    left = [sentences[i] for i in rows]
    kept = np.array(rows) if dropped else None
    return ShardedText(tuple(parts), sum(map(len, left)), max(map(len, left)), kept)


@pytest.mark.parametrize("dropped", [set(), {0, 17, 99, 100, 101, 299}, set(range(100, 200))])
@pytest.mark.parametrize("count", [0, 1, 40, 3000])
def test_parts_are_the_whole(sentences: list[list[int]], dropped: set[int], count: int) -> None:
    """For few sentences, which are found one by one, and for many; a part may have none left, or none at all."""
    text = sharded(sentences, [100, 200, 200], dropped)
    whole = text_of([ids for i, ids in enumerate(sentences) if i not in dropped])
    assert len(text) == len(whole)
    assert (text.num_tokens, text.longest) == (whole.num_tokens, whole.longest)
    for kind in (np.int64, np.int32):
        pairs = np.random.default_rng(count).integers(0, len(whole), count).astype(kind)
        assert text.lengths(pairs).tolist() == whole.lengths(pairs).tolist()
        for ours, theirs in zip(text.gather(pairs), whole.gather(pairs), strict=True):
            assert ours.tolist() == theirs.tolist() and ours.dtype == theirs.dtype


def test_where_a_sentence_lies_is_known(sentences: list[list[int]]) -> None:
    text = sharded(sentences, [100, 200], {0, 150})
    parts, rows = text.rows(np.array([0, 98, 99, 148, 149, 297]))
    assert parts.tolist() == [0, 0, 1, 1, 1, 2]
    assert rows.tolist() == [1, 99, 0, 49, 51, 99]


def test_the_longest_sentence_is_found_behind_the_first_million(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_mt.batches.encoded._AT_A_TIME", 2)
    assert text_of([[1], [1], [1], [1, 2, 3], [1]]).longest == 3
    assert text_of([]).longest == 0
