"""Sentences of test sets are found in the training text, wherever it lies and whatever is like them."""

from pathlib import Path

import numpy as np
import pytest

from transformer_mt.base.languages import EOS
from transformer_mt.batches.encoded import EncodedCorpus, EncodedText, ShardedText
from transformer_mt.evaluation import evaluated_texts
from transformer_mt.evaluation.evaluated_texts import find_seen, lines_by_ids
from transformer_mt.preparing.data_files import write_encoded

VOCAB = 9  # so few pieces that many sentences have the same length and the same first, middle and last piece
RANDOM = np.random.default_rng(4)


def sentences(count: int) -> list[list[int]]:
    return [[*RANDOM.integers(EOS + 1, VOCAB, RANDOM.integers(0, 7)).tolist(), EOS] for _ in range(count)]


TRAINING = list(zip(sentences(600), sentences(600), strict=True))
TESTS = {"news": [*TRAINING[40:50], *zip(sentences(40), sentences(40), strict=True)], "talks": TRAINING[500:510]}


@pytest.fixture(params=["one file", "shards"])
def corpus(request, tmp_path: Path) -> EncodedCorpus:
    """The pairs of TRAINING; in shards, every third row does not belong to the training text."""
    if request.param == "one file":
        write_encoded(tmp_path / "train", TRAINING, VOCAB, VOCAB)
        return EncodedCorpus.load(tmp_path / "train")
    texts = []
    for begin in (0, 300):
        other = iter(sentences(1000))
        rows = [row for pair in TRAINING[begin : begin + 300] for row in (pair, (next(other), next(other)))]
        write_encoded(tmp_path / str(begin), rows, VOCAB, 70_000)
        texts.append(EncodedCorpus.load(tmp_path / str(begin)))
    kept = np.arange(0, 1200, 2)
    sides = []
    for side in ("source", "target"):
        parts = [getattr(text, side) for text in texts]
        assert all(isinstance(part, EncodedText) for part in parts)
        sides.append(ShardedText(tuple(parts), 0, 0, kept))
    return EncodedCorpus(*sides)


@pytest.mark.parametrize("at_a_time", [7, 500_000])
def test_what_is_found_is_what_a_plain_search_finds(corpus, monkeypatch, at_a_time):
    monkeypatch.setattr(evaluated_texts, "_AT_A_TIME", at_a_time)
    lines = [((name, line), pair) for name, pairs in TESTS.items() for line, pair in enumerate(pairs, start=1)]
    lines = [(line, pair) for line, pair in lines if len(pair[0]) > 1]
    sources, pairs = [source for source, _ in TRAINING], TRAINING
    expected_sources = {line: sources.index(pair[0]) for line, pair in lines if pair[0] in sources}
    expected_pairs = {line: pairs.index(pair) for line, pair in lines if pair in pairs}
    wanted = [lines_by_ids((name, [pair[side] for pair in pairs]) for name, pairs in TESTS.items()) for side in (0, 1)]
    assert find_seen(corpus, *wanted) == (expected_sources, expected_pairs)
    assert len(lines) > len(expected_sources) > len(expected_pairs) >= 15


def test_nothing_is_found_of_blank_lines(corpus):
    assert find_seen(corpus, lines_by_ids([("blank", [[EOS]])]), {}) == ({}, {})
