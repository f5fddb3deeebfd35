"""Sentences of test sets are found in the training text, wherever it lies and whatever is like them."""

from pathlib import Path

import numpy as np
import pytest

from transformer_mt.data import seen_sentences
from transformer_mt.data.encoded import EncodedCorpus, write_encoded
from transformer_mt.data.encoded_text import EncodedText, Part, ShardedText
from transformer_mt.data.seen_sentences import Wanted, find_seen
from transformer_mt.vocabulary import EOS

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
    kept = np.arange(0, 600, 2, dtype=np.int32)
    sides = []
    for side in ("source", "target"):
        parts = [getattr(text, side) for text in texts]
        assert all(isinstance(part, EncodedText) for part in parts)
        sides.append(ShardedText(tuple(Part(part, kept) for part in parts), 0, 0))
    return EncodedCorpus(*sides)


@pytest.mark.parametrize("at_a_time", [7, 500_000])
def test_what_is_found_is_what_a_plain_search_finds(corpus, monkeypatch, at_a_time):
    monkeypatch.setattr(seen_sentences, "_AT_A_TIME", at_a_time)
    wanted = Wanted.in_corpus(corpus)
    for name, pairs in TESTS.items():
        wanted.add_sources(name, [source for source, _ in pairs])
        wanted.add_targets(name, [target for _, target in pairs])
    lines = [((name, line), pair) for name, pairs in TESTS.items() for line, pair in enumerate(pairs, start=1)]
    lines = [(line, pair) for line, pair in lines if len(pair[0]) > 1]
    sources, pairs = [source for source, _ in TRAINING], TRAINING
    expected_sources = {line: sources.index(pair[0]) for line, pair in lines if pair[0] in sources}
    expected_pairs = {line: pairs.index(pair) for line, pair in lines if pair in pairs}
    seen = find_seen(corpus, wanted)
    assert (seen.sources, seen.pairs) == (expected_sources, expected_pairs)
    assert len(lines) > len(seen.sources) > len(seen.pairs) >= 15


def test_nothing_is_found_of_blank_lines(corpus):
    wanted = Wanted.in_corpus(corpus)
    wanted.add_sources("blank", [[EOS]])
    assert find_seen(corpus, wanted).sources == {}
