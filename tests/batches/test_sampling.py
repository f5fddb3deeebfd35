"""Sampled pieces spell the same text, are drawn as the papers say, and depend on seed, step and batch alone."""

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import combinations, pairwise, product
from math import exp, prod
from pathlib import Path
from random import Random

import numpy as np
import pytest
from helpers import text
from helpers.processes import python_path
from helpers.text import ODD, of_syllables, settings
from helpers.thorough import thorough
from helpers.tiny import ROOT

from transformer_mt.base.languages import EOS
from transformer_mt.batches.batching import collate, epoch_batches
from transformer_mt.batches.encoded import EncodedCorpus, EncodedText
from transformer_mt.batches.subword_sampling import BpeDropout, SubwordSampler
from transformer_mt.preparing.data_files import write_encoded
from transformer_mt.text.tokenizer import Tokenizer

ENGLISH, GERMAN = [*text.ENGLISH, *of_syllables(seed=3)], [*text.GERMAN, *of_syllables(seed=4)]
UNLIMITED = {"longest": 2**40, "total": (2**60, 2**60)}
ALGORITHMS = ["bpe", "unigram"]
DRAWS = 20_000


def prepared(directory, algorithm, joint=True, more=()):
    tokenizer = Tokenizer.train(ENGLISH, GERMAN, settings(algorithm=algorithm, joint=joint, vocab_size=420))
    tokenizer.save(directory)
    sources, targets = [*ENGLISH, *more], [*GERMAN[: len(ENGLISH)], *more]
    rows = zip(tokenizer.encode_source(sources), tokenizer.encode_target(targets), strict=True)
    write_encoded(directory / "train", rows, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    return tokenizer, EncodedCorpus.load(directory / "train")


@pytest.fixture(scope="module", params=ALGORITHMS)
def algorithm(request):
    return request.param


@pytest.fixture(scope="module")
def directory(algorithm, tmp_path_factory):
    directory = tmp_path_factory.mktemp(algorithm)
    prepared(directory, algorithm)
    return directory


@pytest.fixture(scope="module")
def tokenizer(directory):
    return Tokenizer.load(directory)


@pytest.fixture(scope="module")
def corpus(directory):
    return EncodedCorpus.load(directory / "train")


def sentences(text: EncodedText) -> list[list[int]]:
    return [text.ids[start:end].tolist() for start, end in pairwise(text.offsets)]


def both(corpus: EncodedCorpus) -> list[list[int]]:
    return sentences(corpus.source) + sentences(corpus.target)


def draw(sampler, corpus, pairs=None, seed=1, step=0, batch=0, **room):
    pairs = np.arange(len(corpus)) if pairs is None else pairs
    return sampler.sampled(corpus, pairs, seed=seed, step=step, batch=batch, **UNLIMITED | room)


@pytest.mark.parametrize("joint", [*thorough(True), False])
@pytest.mark.parametrize("alpha", [*thorough(0.1), 0.5, *thorough(0.97)])
def test_the_text_does_not_change(tmp_path, algorithm, joint, alpha):
    tokenizer, corpus = prepared(tmp_path, algorithm, joint, more=ODD)
    sampler = SubwordSampler(tokenizer, algorithm, alpha)
    sampled = draw(sampler, corpus, step=3)
    for processor, before, after in [
        (tokenizer.source, corpus.source, sampled.source),
        (tokenizer.target, corpus.target, sampled.target),
    ]:
        others = sentences(after)
        assert processor.decode(others) == processor.decode(sentences(before))
        assert all(ids[-1] == EOS and min(ids[:-1], default=EOS + 1) > EOS for ids in others)
        assert after.ids.dtype == before.ids.dtype
        assert others != sentences(before)


def test_what_is_no_text_stays_as_it_is(tokenizer, corpus, algorithm):
    """Special ids and bytes, in whatever order: also bytes that spell no character, between letters."""
    letters = sentences(corpus.source)[0][:3]
    odd = [letters + [1, 2, 0, 4 + 0xFF] + letters[::-1] + [4 + 0x80, EOS], [EOS]]
    text = EncodedText(np.array([*odd[0], *odd[1]], np.uint16), np.array([0, len(odd[0]), len(odd[0]) + 1]))
    sampler = SubwordSampler(tokenizer, algorithm, 0.3)
    for batch in range(50):
        drawn = sentences(draw(sampler, EncodedCorpus(text, text), batch=batch).source)
        fixed = [i for i in drawn[0] if i < 4 + 256]
        assert fixed == [1, 2, 0, 4 + 0xFF, 4 + 0x80, EOS]
        assert tokenizer.source.decode(drawn[0]) == tokenizer.source.decode(odd[0])
        assert drawn[1] == [EOS]


def test_pairs_are_those_asked_for_in_their_order(tokenizer, corpus, algorithm):
    pairs = np.array([7, 3, 3, 250, 0])
    sampled = draw(SubwordSampler(tokenizer, algorithm, 0.3), corpus, pairs)
    assert len(sampled) == 5
    for ours, theirs in [(sampled.source, corpus.source), (sampled.target, corpus.target)]:
        expected = [sentences(theirs)[pair] for pair in pairs]
        assert tokenizer.source.decode(sentences(ours)) == tokenizer.source.decode(expected)


def test_a_draw_depends_on_seed_epoch_and_batch_alone(tokenizer, corpus, algorithm):
    """Not on what was drawn before, nor on what a sampler remembers."""
    sampler = SubwordSampler(tokenizer, algorithm, 0.3)
    keys = list(product((1, 11), (1, 11), (0, 1, 10)))

    def drawn(sampler, key):
        return both(draw(sampler, corpus, np.arange(40), *key))

    first = {key: drawn(sampler, key) for key in keys}
    Random(1).shuffle(keys)
    for key in keys:
        assert drawn(sampler, key) == first[key]
        assert drawn(SubwordSampler(tokenizer, algorithm, 0.3), key) == first[key]
    assert len({json.dumps(ids) for ids in first.values()}) == len(keys)


@pytest.mark.thorough
def test_another_process_draws_the_same(directory, tokenizer, corpus, algorithm):
    script = """if True:
        import json, sys
        from pathlib import Path
        from test_sampling import SubwordSampler, Tokenizer, EncodedCorpus, both, draw
        directory = Path(sys.argv[1])
        sampler = SubwordSampler(Tokenizer.load(directory), sys.argv[2], 0.3)
        print(json.dumps(both(draw(sampler, EncodedCorpus.load(directory / "train"), seed=5, step=6, batch=7))))
    """
    environment = os.environ | {
        "PYTHONPATH": python_path(ROOT, ROOT / "tests", Path(__file__).parent),
        "PYTHONHASHSEED": "9",
    }
    command = [sys.executable, "-c", script, str(directory), algorithm]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    ours = both(draw(SubwordSampler(tokenizer, algorithm, 0.3), corpus, seed=5, step=6, batch=7))
    assert json.loads(found.stdout) == ours


@pytest.mark.parametrize("seed", [0, *thorough(1, 2, 3, 4)])
def test_what_has_no_room_keeps_its_pieces_and_the_rest_is_drawn_as_ever(tokenizer, corpus, algorithm, seed):
    generator = np.random.default_rng(seed)
    # Of words of syllables: others may be spelt already, and cannot grow.
    pairs = len(text.ENGLISH) + generator.permutation(len(corpus) - len(text.ENGLISH))[:60]
    sampler = SubwordSampler(tokenizer, algorithm, 0.2)
    free = draw(sampler, corpus, pairs)
    lengths = [np.diff(side.offsets)[pairs] for side in (corpus.source, corpus.target)]
    grown = [np.diff(side.offsets) for side in (free.source, free.target)]
    longest = generator.integers(max(map(np.max, lengths)), max(map(np.max, grown)))
    total = generator.integers(max(map(np.sum, lengths)), max(map(np.sum, grown)))
    for room in ({"longest": longest}, {"total": (total, total)}, {"longest": longest, "total": (total, total)}):
        limited = draw(sampler, corpus, pairs, **room)
        kept = 0
        for ours, wild, best in [
            (limited.source, free.source, corpus.source),
            (limited.target, free.target, corpus.target),
        ]:
            assert len(ours.ids) <= room.get("total", UNLIMITED["total"])[0]
            assert np.diff(ours.offsets).max() <= room.get("longest", 2**60)
            spare = room.get("total", UNLIMITED["total"])[0] - sum(len(sentences(best)[pair]) for pair in pairs)
            for found, wanted, pair in zip(sentences(ours), sentences(wild), pairs, strict=True):
                least = sentences(best)[pair]
                fits = len(wanted) <= room.get("longest", 2**60) and len(wanted) - len(least) <= spare
                assert found == (wanted if fits else least)
                spare -= len(found) - len(least)
                kept += not fits
        assert kept > 0


def test_batches_cut_by_the_budget_have_room_for_nineteen_of_twenty_sentences(tokenizer, corpus, algorithm):
    sampler = SubwordSampler(tokenizer, algorithm, 0.2)
    budget = sampler.budget(corpus, 2000)
    assert budget < 2000
    drawn = kept = 0
    for number, pairs in enumerate(epoch_batches(corpus, budget, 1, 0)):
        room = {"longest": 2000 // len(pairs), "total": (2000, 2000)}
        sampled = draw(sampler, corpus, pairs, batch=number, **room)
        batch = collate(sampled, np.arange(len(sampled)))
        assert len(pairs) * max(batch.source_BS.shape[1], batch.labels_BT.shape[1]) <= 2000
        free = draw(sampler, corpus, pairs, batch=number)
        drawn += 2 * len(pairs)
        kept += sum(ours != wild for ours, wild in zip(both(sampled), both(free), strict=True))
    assert kept <= 0.05 * drawn


def test_the_budget_has_room_for_the_longest_sentence(tokenizer, corpus, algorithm):
    longest = int(max(np.diff(corpus.source.offsets).max(), np.diff(corpus.target.offsets).max()))
    assert SubwordSampler(tokenizer, algorithm, 0.2).budget(corpus, longest) == longest


def test_a_larger_alpha_draws_more_pieces_of_bpe_and_fewer_of_unigram(tokenizer, corpus, algorithm):
    pairs = np.arange(0, len(corpus), 4)
    lengths = [
        sum(map(len, both(draw(SubwordSampler(tokenizer, algorithm, alpha), corpus, pairs))))
        for alpha in (0.1, 0.4, 0.9)
    ]
    assert sorted(lengths, reverse=algorithm == "unigram") == lengths
    assert min(lengths) > sum(np.diff(side.offsets)[pairs].sum() for side in (corpus.source, corpus.target))


def shares(tokenizer, algorithm, alpha, word):
    """How often each segmentation of a word was drawn."""
    ids = [*tokenizer.encode_source([word])[0]]
    text = EncodedText(np.array(ids * DRAWS, np.uint16), np.arange(DRAWS + 1) * len(ids))
    drawn = draw(SubwordSampler(tokenizer, algorithm, alpha), EncodedCorpus(text, text)).source
    counts = Counter(tuple(tokenizer.source.id_to_piece(ids[:-1])) for ids in sentences(drawn))
    return {pieces: count / DRAWS for pieces, count in counts.items()}


def assert_close(found, expected):
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) > 3
    difference = sum(abs(found.get(pieces, 0) - expected.get(pieces, 0)) for pieces in found | expected) / 2
    assert difference < 0.005 * len(expected) ** 0.5  # a sample of 20,000 differs by about half of that


@pytest.fixture(scope="module")
def scores(tokenizer):
    processor = tokenizer.source
    ordinary = range(4 + 256, processor.get_piece_size())
    return {processor.id_to_piece(i): processor.get_score(i) for i in ordinary}


@pytest.fixture(scope="module")
def word(scores):
    """Of five letters, with the most pieces in it."""
    words = {word.lower() for line in ENGLISH for word in line.strip(".").split()}

    def num_pieces(word):
        return sum(("\u2581" + word)[start:end] in scores for start, end in combinations(range(7), 2))

    return max((word for word in sorted(words) if len(word) == 5), key=num_pieces)


@pytest.mark.parametrize("algorithm", ["bpe"], indirect=True)
@pytest.mark.parametrize("dropout", [*thorough(0.1), 0.5, *thorough(0.9)])
def test_merges_are_left_out_as_in_algorithm_1_of_bpe_dropout(tokenizer, scores, word, algorithm, dropout):
    """Its outcomes written out: at each step any set of the possible merges may be left out."""

    @cache
    def outcomes(symbols):
        merges = [(scores[a + b], -at) for at, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        total = Counter()
        for stays in product((True, False), repeat=len(merges)):
            chance = prod(1 - dropout if stay else dropout for stay in stays)
            left = [merge for merge, stay in zip(merges, stays, strict=True) if stay]
            at = -max(left)[1] if left else None
            after = symbols if at is None else (*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :])
            for pieces, share in ({after: 1.0} if at is None else outcomes(after)).items():
                total[pieces] += chance * share
        return total

    assert_close(shares(tokenizer, algorithm, dropout, word), outcomes(("\u2581", *word)))


@pytest.mark.parametrize("algorithm", ["unigram"], indirect=True)
@pytest.mark.parametrize("alpha", [*thorough(0.01), 0.1, *thorough(0.4)])
def test_segmentations_are_drawn_by_the_power_of_their_probability(tokenizer, scores, word, algorithm, alpha):
    def segmentations(text):
        if not text:
            yield ()
        for end in range(1, len(text) + 1):
            if text[:end] in scores:
                yield from ((text[:end], *rest) for rest in segmentations(text[end:]))

    weights = {pieces: exp(alpha * sum(scores[p] for p in pieces)) for pieces in segmentations("\u2581" + word)}
    expected = {pieces: weight / sum(weights.values()) for pieces, weight in weights.items()}
    assert_close(shares(tokenizer, algorithm, alpha, word), expected)


@pytest.mark.parametrize("algorithm", ["bpe"], indirect=True)
def test_with_all_merges_allowed_the_pieces_are_those_of_sentencepiece(tokenizer, scores):
    processor = tokenizer.source
    pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
    ordinary = {piece: (processor.piece_to_id(piece), score) for piece, score in scores.items()}
    bpe = BpeDropout(pieces, ordinary, 0.1)
    for word in sorted({word for line in ENGLISH + GERMAN for word in line.split()} | {"a" * 40, "lalala" * 9}):
        ids = tuple(tokenizer.encode_source([word])[0][:-1])
        if min(ids) >= 4 + 256:  # bytes are not merged
            assert bpe.merge(ids, ()) == ids


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_symbols_are_never_sampled(algorithm, tmp_path):
    # All letters of the symbol are pieces, so nothing but its being a symbol keeps it whole.
    symbol = "<2de>"
    lines = [f"{symbol} The {symbol} dog{symbol} < 2 d e >" for _ in range(50)]
    tokenizer = Tokenizer.train(
        [*ENGLISH, *lines], GERMAN, settings(algorithm=algorithm, vocab_size=430, character_coverage=1.0), [symbol]
    )
    assert set(symbol) <= set(tokenizer.source_pieces(range(430)))
    rows = zip(tokenizer.encode_source(lines), tokenizer.encode_target(lines), strict=True)
    write_encoded(tmp_path / "train", rows, 430, 430)
    corpus = EncodedCorpus.load(tmp_path / "train")
    sampler = SubwordSampler(tokenizer, algorithm, 0.5)
    found = sampler.sampled(corpus, np.arange(50), seed=1, step=1, batch=0, **UNLIMITED)
    assert not np.array_equal(found.source.ids, corpus.source.ids)
    the_symbol = int(tokenizer.source.piece_to_id(symbol))
    for start, end in pairwise(found.source.offsets.tolist()):
        assert found.source.ids[start:end].tolist().count(the_symbol) == 3
