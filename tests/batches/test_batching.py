"""Every pair once an epoch, no batch over its budget, an order that depends on seed and epoch alone."""

import numpy as np
import pytest
import torch
from helpers.corpora import MakeCorpus, lognormal, sentence_of
from helpers.messages import message
from helpers.thorough import thorough

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.batches.batching import Batch, collate, epoch_batches, ordered_batches
from transformer_mt.batches.encoded import EncodedCorpus


def batch_in_plain_lists(corpus: EncodedCorpus, pairs: list[int]) -> Batch:
    """`collate`, slow and obvious."""

    def padded(rows: list[list[int]]) -> torch.Tensor:
        longest = max(len(row) for row in rows)
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])

    targets = [sentence_of(corpus, "target", pair) for pair in pairs]
    return Batch(
        source_BS=padded([sentence_of(corpus, "source", pair) for pair in pairs]),
        decoder_input_BT=padded([[BOS, *target[:-1]] for target in targets]),
        labels_BT=padded(targets),
        pairs_B=torch.tensor(pairs),
        num_labels=sum(len(target) for target in targets),
    )


def assert_same(one: Batch, other: Batch) -> None:
    for name in ("source_BS", "decoder_input_BT", "labels_BT", "pairs_B"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert ours.dtype == theirs.dtype == torch.int64
        assert torch.equal(ours, theirs), name
    assert one.num_labels == other.num_labels


def positions(batch: Batch) -> int:
    return len(batch.pairs_B) * max(batch.source_BS.shape[1], batch.labels_BT.shape[1])


def test_collate_equals_plain_lists(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(300, seed=1))
    generator = np.random.default_rng(2)
    for size in (1, 2, 7, 300):
        pairs = generator.permutation(300)[:size]
        assert_same(collate(corpus, pairs), batch_in_plain_lists(corpus, pairs.tolist()))


def test_a_batch_of_no_pairs_is_one_dummy_without_labels(make_corpus: MakeCorpus, tiny_model) -> None:
    batch = collate(make_corpus([3], [2]), np.empty(0, np.int64))
    assert_same(batch, Batch(*(torch.tensor([[token]]) for token in (EOS, BOS, PAD)), torch.empty(0).long(), 0))
    assert tiny_model().features(batch.source_BS, batch.decoder_input_BT).isfinite().all()


@pytest.mark.parametrize("seed", [*range(8), *thorough(*range(8, 20))])
def test_every_pair_once_and_no_batch_over_its_budget(make_corpus: MakeCorpus, seed: int) -> None:
    generator = np.random.default_rng(seed)
    sources, targets = lognormal(int(generator.integers(1, 3000)), seed)
    budget = max(sources + targets) + int(generator.integers(0, 400))
    corpus = make_corpus(sources, targets)
    for epoch in range(2):
        batches = epoch_batches(corpus, budget, seed, epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(corpus)))
        assert all(positions(collate(corpus, pairs)) <= budget for pairs in batches)


def test_batches_are_as_large_as_the_budget_lets_them_be(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus([10] * 95, [7] * 95)
    assert sorted(len(pairs) for pairs in epoch_batches(corpus, 209, 1, 0)) == [15] + [20] * 4
    assert [len(batch.pairs_B) for batch in ordered_batches(corpus, 209)] == [20] * 4 + [15]


def test_little_is_padding(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(20_000, seed=3))
    real = len(corpus.source.ids) + len(corpus.target.ids)
    batches = epoch_batches(corpus, 4096, 1, 0)
    padded = [collate(corpus, pairs) for pairs in batches]
    assert real / sum(batch.source_BS.numel() + batch.labels_BT.numel() for batch in padded) > 0.9
    assert sum(map(positions, padded)) / (len(padded) * 4096) > 0.95


def test_the_order_is_a_function_of_seed_and_epoch(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(2000, seed=4))
    orders = {}
    for key in [(1, 0), (1, 1), (2, 0)]:
        orders[key] = np.concatenate(epoch_batches(corpus, 500, *key)).tolist()
        np.random.default_rng().random()  # no other generator has a part in it
        assert orders[key] == np.concatenate(epoch_batches(corpus, 500, *key)).tolist()
    assert len({tuple(order) for order in orders.values()}) == 3


def test_neighbours_of_one_epoch_are_apart_in_another(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus([8] * 4000, [8] * 4000)
    first, second = ({frozenset(p.tolist()) for p in epoch_batches(corpus, 64, 1, epoch)} for epoch in (0, 1))
    assert len(first & second) == 0


def test_short_and_long_batches_are_mixed(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(5000, seed=5))
    longest = [collate(corpus, pairs).source_BS.shape[1] for pairs in epoch_batches(corpus, 1000, 1, 0)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3
    assert longest != sorted(longest)


def test_ordered_batches_have_every_pair_once_the_shortest_first(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(500, seed=8))
    batches = list(ordered_batches(corpus, 300))
    assert sorted(pair for batch in batches for pair in batch.pairs_B.tolist()) == list(range(500))
    assert all(positions(batch) <= 300 for batch in batches)
    longest = [max(batch.source_BS.shape[1], batch.labels_BT.shape[1]) for batch in batches]
    assert longest == sorted(longest)


@pytest.mark.parametrize(("sources", "targets"), [([3, 9], [3, 2]), ([3, 2], [3, 9])])
def test_a_pair_over_the_budget_is_named(make_corpus: MakeCorpus, sources: list[int], targets: list[int]) -> None:
    corpus = make_corpus(sources, targets)
    expected = message("too-few-tokens-per-batch", "training.tokens_per_batch=8", "9", "1")
    with pytest.raises(ConfigError, match=expected):
        epoch_batches(corpus, 8, 1, 0)
    with pytest.raises(ConfigError, match=expected):
        next(ordered_batches(corpus, 8))
    assert len(epoch_batches(corpus, 9, 1, 0)) == 2


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_to_a_device_and_back_is_the_same(make_corpus: MakeCorpus, name: str) -> None:
    corpus = make_corpus(*lognormal(20, seed=9))
    device = torch.device(name)
    batch = collate(corpus, np.arange(20))
    moved = batch.to(device).to(device)  # validation moves a batch, and the loss moves it again
    assert moved.source_BS.device.type == device.type
    assert_same(moved.to(torch.device("cpu")), batch)


@pytest.mark.parametrize("size", [2, 3, 20])
def test_halves_are_the_same_pairs_in_two(make_corpus: MakeCorpus, size: int) -> None:
    corpus = make_corpus(*lognormal(20, seed=10))
    batch = collate(corpus, np.arange(size)[::-1].copy())
    halves = batch.halves()
    assert sorted(pair for half in halves for pair in half.pairs_B.tolist()) == list(range(size))
    assert abs(len(halves[0].pairs_B) - len(halves[1].pairs_B)) <= 1
    for half in halves:
        # What is cut off below is what collating these pairs would not have had: padding.
        collated = batch_in_plain_lists(corpus, half.pairs_B.tolist())
        assert half.num_labels == collated.num_labels
        for name in ("source_BS", "decoder_input_BT", "labels_BT"):
            ours, theirs = getattr(half, name), getattr(collated, name)
            assert torch.equal(ours[:, : theirs.shape[1]], theirs)
            assert (ours[:, theirs.shape[1] :] == PAD).all()
