"""What the micro-batches of each update are: within their bounds, in one order, to be taken up anywhere."""

from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from helpers.corpora import MakeCorpus, lognormal, sentence_of
from helpers.tiny import demo_pairs

from transformer_mt.batches.batching import Pairs, collate, epoch_batches
from transformer_mt.batches.loader import BatchLayout, Loader, Position, split_evenly
from transformer_mt.batches.modifier_sampling import ModifierSampler
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.settings.training_settings import ModifiersConfig
from transformer_mt.text.tokenizer import Tokenizer

TOKENS_PER_BATCH = 300


def num_targets(loader: Loader, pairs: Pairs) -> int:
    return sum(int(loader.corpus.target.offsets[pair + 1] - loader.corpus.target.offsets[pair]) for pair in pairs)


def pairs_of(updates: list[tuple[list[Pairs], Position]]) -> list[list[int]]:
    """Of each micro-batch, without regard to updates."""
    return [pairs.tolist() for update, _ in updates for pairs in update]


@pytest.mark.parametrize("tokens_per_update", [0, 300, 301, 550, 1000, 10_000])
def test_an_update_has_as_many_micro_batches_as_have_its_tokens_and_at_least_one(
    make_corpus: MakeCorpus, tokens_per_update: int
) -> None:
    loader = Loader(make_corpus(*lognormal(200, seed=1)), TOKENS_PER_BATCH, tokens_per_update, seed=1)
    updates = [update for update, _ in islice(loader.updates(Position()), 60)]
    tokens = [sum(num_targets(loader, pairs) for pairs in update) for update in updates]
    assert all(updates)
    assert max(tokens) <= max(tokens_per_update, TOKENS_PER_BATCH)
    for number, following in zip(tokens, updates[1:], strict=False):
        assert number + num_targets(loader, following[0]) > tokens_per_update, "one more would have had room"
    assert (max(map(len, updates)) > 1) == (tokens_per_update > 0)


@pytest.mark.parametrize("tokens_per_update", [0, 300, 550, 1000, 10_000])
def test_however_updates_are_cut_the_order_is_that_of_the_epochs(
    make_corpus: MakeCorpus, tokens_per_update: int
) -> None:
    corpus = make_corpus(*lognormal(200, seed=2))
    epochs = [epoch_batches(corpus, TOKENS_PER_BATCH, 7, epoch) for epoch in range(4)]
    expected = [pairs.tolist() for epoch in epochs for pairs in epoch]
    updates = Loader(corpus, TOKENS_PER_BATCH, tokens_per_update, seed=7).updates(Position())
    found: list[list[int]] = []
    while len(found) < len(expected):
        found += pairs_of([next(updates)])
    assert found[: len(expected)] == expected


def test_the_position_says_how_many_micro_batches_of_the_epoch_are_taken(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(200, seed=3))
    per_epoch = len(epoch_batches(corpus, TOKENS_PER_BATCH, 1, 0))
    assert per_epoch == len(epoch_batches(corpus, TOKENS_PER_BATCH, 1, 1))
    taken = 0
    for update, position in islice(Loader(corpus, TOKENS_PER_BATCH, 550, 1).updates(Position()), 2 * per_epoch // 3):
        taken += len(update)
        assert position == Position(*divmod(taken, per_epoch))
    assert taken > per_epoch


@pytest.mark.parametrize("tokens_per_update", [0, 550, 10_000])
def test_going_on_from_any_position_is_going_on(make_corpus: MakeCorpus, tokens_per_update: int) -> None:
    loader = Loader(make_corpus(*lognormal(150, seed=4)), TOKENS_PER_BATCH, tokens_per_update, seed=1)
    unbroken = list(islice(loader.updates(Position()), 30))
    assert unbroken[-1][1].epoch > 1
    for done, (_, position) in enumerate(unbroken[:-3], start=1):
        resumed = list(islice(loader.updates(position), 3))
        assert pairs_of(resumed) == pairs_of(unbroken[done : done + 3])
        assert [after for _, after in resumed] == [after for _, after in unbroken[done : done + 3]]


def test_the_seed_chooses_the_order(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(150, seed=5))
    orders = [pairs_of(list(islice(Loader(corpus, 300, 0, seed).updates(Position()), 9))) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_a_batch_is_of_its_pairs(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(30, seed=6))
    pairs = np.array([7, 3, 29])
    found, expected = Loader(corpus, 300, 0, 1).batch(pairs, step=1, number=0), collate(corpus, pairs)
    assert found.pairs_B.tolist() == [7, 3, 29]
    assert (found.source_BS == expected.source_BS).all() and (found.labels_BT == expected.labels_BT).all()


class TestSplitEvenly:
    @pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 7, 8])
    @pytest.mark.parametrize("sizes", [[40], [40, 3], [5, 5, 5], [1, 30, 2, 9], [8] * 8, [1, 1, 12]])
    def test_every_pair_stays_once_and_every_rank_has_as_many(self, sizes: list[int], num_ranks: int) -> None:
        pairs = np.random.default_rng(1).permutation(sum(sizes))
        batches = np.split(pairs, np.cumsum(sizes)[:-1])
        parts = split_evenly(batches, num_ranks)
        assert len(parts) % num_ranks == 0
        assert len(parts) - len(batches) < num_ranks, "no more are split than need be"
        assert sorted(np.concatenate(parts).tolist()) == list(range(sum(sizes)))
        assert all(len(part) for part in parts), "there are pairs enough for all"
        assert all(part.dtype == np.int64 for part in parts)

    def test_what_needs_no_splitting_is_left_as_it_is(self) -> None:
        batches = [np.array([4, 1]), np.array([2]), np.array([0, 3]), np.array([5])]
        for num_ranks in (1, 2, 4):
            parts = split_evenly(batches, num_ranks)
            assert [part.tolist() for part in parts] == [[4, 1], [2], [0, 3], [5]]

    def test_the_largest_is_halved_every_other_pair_to_each(self) -> None:
        # A batch is sorted by length: halves of its ends would be unequal work.
        parts = split_evenly([np.arange(3), np.arange(3, 13)], 3)
        assert sorted(part.tolist() for part in parts) == [[0, 1, 2], [3, 5, 7, 9, 11], [4, 6, 8, 10, 12]]
        parts = split_evenly([np.arange(8)], 4)
        assert sorted(part.tolist() for part in parts) == [[0, 4], [1, 5], [2, 6], [3, 7]]

    @pytest.mark.parametrize(
        ("sizes", "num_ranks", "empty"), [([1], 4, 3), ([2, 1], 4, 1), ([3], 3, 0), ([1, 1], 3, 1)]
    )
    def test_empty_ones_are_added_only_where_single_pairs_are_left(
        self, sizes: list[int], num_ranks: int, empty: int
    ) -> None:
        batches = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        parts = split_evenly(batches, num_ranks)
        assert sorted(map(len, parts)) == [0] * empty + [1] * (num_ranks - empty)
        assert sorted(np.concatenate(parts).tolist()) == list(range(sum(sizes)))


def sampler_for(share: float) -> ModifierSampler:
    """Of pieces learnt from the demo corpus, in which any ids of `make_corpus` are some text."""
    sources, targets = zip(*demo_pairs(300), strict=True)
    tokenizer = Tokenizer.train(sources, targets, TokenizerConfig(vocab_size=500))
    return ModifierSampler(tokenizer, ModifiersConfig(typos=share), [True])


class TestPacked:
    """The same of sentences that lie end to end."""

    def loader(self, make_corpus: MakeCorpus, count: int = 2000) -> Loader:
        return Loader(make_corpus(*lognormal(count, seed=2), vocab_size=500), 6000, 0, seed=1, layout="packed")

    def test_every_pair_once_an_epoch(self, make_corpus: MakeCorpus) -> None:
        loader = self.loader(make_corpus)
        assert sorted(np.concatenate(loader.order(0)).tolist()) == list(range(2000))

    def test_parts_and_halves_hold_the_same_sentences_in_fewer_rows_of_few_shapes(
        self, make_corpus: MakeCorpus
    ) -> None:
        loader, shapes = self.loader(make_corpus), set()
        for pairs in islice(loader.order(0), 3):
            whole = loader.batch(pairs, 1, 0)
            for num_ranks in (2, 4, 8):
                parts = [loader.batch(part, 1, 0) for part in split_evenly([pairs], num_ranks)]
                assert sum(part.num_labels for part in parts) == whole.num_labels
                assert sum(part.num_positions for part in parts) < 2 * whole.num_positions
                shapes |= {part.num_positions for part in parts}
            halves = whole.halves()
            assert [half.pairs_B.tolist() for half in halves] == [pairs[0::2].tolist(), pairs[1::2].tolist()]
            assert all(half.num_positions < 0.7 * whole.num_positions for half in halves)
            for half in halves:
                for pair, labels in zip(half.pairs_B.tolist(), sentences(half.labels_N, half.target_offsets)):  # noqa: B905
                    assert labels == sentence_of(loader.corpus, "target", pair)
                for pair, source in zip(half.pairs_B.tolist(), sentences(half.source_N, half.source_offsets)):  # noqa: B905
                    assert source == sentence_of(loader.corpus, "source", pair)
            shapes |= {half.num_positions for half in halves}
        assert len(shapes) <= 4

    def test_a_part_of_no_pairs_is_of_dummies_alone(self, make_corpus: MakeCorpus) -> None:
        loader = self.loader(make_corpus)
        batch = loader.batch(np.empty(0, np.int64), 1, 0)
        assert (batch.num_labels, int(batch.labels_N.sum())) == (0, 0)

    @pytest.mark.thorough
    @pytest.mark.parametrize("share", [0.1, 1.0])
    @pytest.mark.parametrize("tokens_per_batch", [0, 6000])
    def test_changed_pairs_have_room(self, make_corpus: MakeCorpus, share: float, tokens_per_batch: int) -> None:
        """Also where there is hardly room for the longest pair."""
        plain = self.loader(make_corpus, 400)
        longest = max(plain.corpus.source.longest, plain.corpus.target.longest)
        loader = replace(
            plain,
            tokens_per_batch=tokens_per_batch or longest + 2,  # dummies stand beside the longest
            sampler=sampler_for(share),
        )
        order = loader.order(0)
        assert sorted(np.concatenate(order).tolist()) == list(range(400))
        for number, pairs in enumerate(islice(order, 20)):
            assert loader.batch(pairs, 3, number).pairs_B.tolist() == pairs.tolist()


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_changed_pairs_are_a_function_of_seed_update_and_number(make_corpus: MakeCorpus, layout: BatchLayout) -> None:
    corpus = make_corpus(*lognormal(300, seed=2), vocab_size=500)
    loader = Loader(corpus, 1500, 0, seed=1, layout=layout, sampler=sampler_for(0.5))
    pairs = loader.order(0)[0]

    def tokens(loader: Loader, step: int, number: int) -> list[int]:
        batch = loader.batch(pairs, step, number)
        return (batch.source_BS if layout == "padded" else batch.source_N).flatten().tolist()

    first = tokens(loader, 1, 0)
    assert tokens(replace(loader, sampler=sampler_for(0.5)), 1, 0) == first
    for other in (tokens(loader, 2, 0), tokens(loader, 1, 1), tokens(replace(loader, seed=2), 1, 0)):
        assert other != first


def sentences(ids_N: torch.Tensor, offsets: torch.Tensor) -> list[list[int]]:
    bounds = offsets.tolist()
    return [ids_N[start:end].tolist() for start, end in pairwise(bounds)]
