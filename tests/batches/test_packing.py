"""Every pair once an epoch, room for each batch, one shape for all of them, and what padded batches say."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.corpora import MakeCorpus, lognormal, sentence_of
from helpers.messages import message
from helpers.thorough import thorough

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.languages import BOS, PAD
from transformer_mt.batches import packing
from transformer_mt.batches.batching import collate
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.packing import (
    PackedBatch,
    PackedShape,
    collate_packed,
    packed_epoch_batches,
    packed_shape,
)
from transformer_mt.models.layouts import Packed

TENSORS = (
    "source_N",
    "source_offsets",
    "source_positions_N",
    "decoder_input_N",
    "target_offsets",
    "target_positions_N",
    "labels_N",
)


def sentences_and_dummies(offsets: torch.Tensor, num_pairs: int) -> tuple[list[int], list[int]]:
    """Their lengths; what is after them has none."""
    lengths = offsets.diff().tolist()
    num_covered = max(i for i, length in enumerate(lengths, start=1) if length)
    assert all(lengths[:num_covered])
    return lengths[:num_pairs], lengths[num_pairs:num_covered]


def assert_same(one: PackedBatch, other: PackedBatch) -> None:
    for name in (*TENSORS, "pairs_B"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert (one.shape, one.num_labels) == (other.shape, other.num_labels)


def joined(sentences: list[list[int]], num_rows: int) -> list[int]:
    tokens = [token for sentence in sentences for token in sentence]
    return tokens + [PAD] * (num_rows - len(tokens))


def test_collate_equals_plain_lists(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(300, seed=1))
    shape = packed_shape(corpus, 2000)
    generator = np.random.default_rng(2)
    for size in (0, 1, 2, 7, 60):
        pairs = generator.permutation(300)[:size]
        sources = [sentence_of(corpus, "source", pair) for pair in pairs]
        targets = [sentence_of(corpus, "target", pair) for pair in pairs]
        inputs = [[BOS, *target[:-1]] for target in targets]
        source_positions, target_positions = ([list(range(len(s))) for s in side] for side in (sources, targets))
        batch = collate_packed(corpus, pairs, shape)
        assert batch.source_N.tolist() == joined(sources, shape.source_rows)
        assert batch.decoder_input_N.tolist() == joined(inputs, shape.target_rows)
        assert batch.labels_N.tolist() == joined(targets, shape.target_rows)
        assert batch.source_positions_N.tolist() == joined(source_positions, shape.source_rows)
        assert batch.target_positions_N.tolist() == joined(target_positions, shape.target_rows)
        for offsets, side in ((batch.source_offsets, sources), (batch.target_offsets, targets)):
            assert sentences_and_dummies(offsets, size)[0] == [len(sentence) for sentence in side]
        assert batch.pairs_B.tolist() == pairs.tolist()
        assert batch.num_labels == sum(len(target) for target in targets)
        assert batch.shape.max_length == shape.max_length


@pytest.mark.parametrize("seed", [*range(8), *thorough(*range(8, 20))])
def test_every_pair_once_and_every_batch_has_room(make_corpus: MakeCorpus, seed: int) -> None:
    """Sentences and dummies cover all rows of both sides, and all of them have rows on both sides."""
    generator = np.random.default_rng(seed)
    sources, targets = lognormal(int(generator.integers(1, 3000)), seed, largest=int(generator.choice([20, 100, 300])))
    corpus = make_corpus(sources, targets)
    tokens_per_batch = max(sources + targets) + int(generator.integers(20, 3000))
    shape = packed_shape(corpus, tokens_per_batch)
    assert max(shape.source_rows, shape.target_rows) == tokens_per_batch
    for epoch in range(2):
        batches = packed_epoch_batches(corpus, shape, seed, epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(corpus)))
        for pairs in [*batches, np.empty(0, np.int64)]:
            batch = collate_packed(corpus, pairs, shape)
            dummies = []
            for offsets, num_rows in (
                (batch.source_offsets, shape.source_rows),
                (batch.target_offsets, shape.target_rows),
            ):
                real, filling = sentences_and_dummies(offsets, len(pairs))
                assert (offsets[0], offsets[-1]) == (0, num_rows)
                assert all(1 <= length <= shape.max_length for length in real + filling)
                dummies.append(filling)
            needed = max(-(-sum(filling) // shape.max_length) for filling in dummies)
            assert [len(filling) for filling in dummies] == [needed, needed], "no more than the rows that are left need"


def test_all_batches_of_a_corpus_have_one_shape(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(2000, seed=3))
    shape = packed_shape(corpus, 700)
    shapes = set()
    for pairs in [*packed_epoch_batches(corpus, shape, 1, 0), np.empty(0, np.int64)]:
        batch = collate_packed(corpus, pairs, shape)
        shapes.add((batch.shape.max_length, *((t.shape, t.dtype) for t in (getattr(batch, name) for name in TENSORS))))
    assert len(shapes) == 1
    assert batch.source_offsets.dtype == batch.target_offsets.dtype == torch.int32
    assert len(batch.source_offsets) == len(batch.target_offsets)


@pytest.mark.parametrize(
    ("sources", "targets", "tokens_per_batch"),
    [
        (
            [1] * 990 + [200] * 10,
            [1] * 990 + [200] * 10,
            400,
        ),  # more pairs by chance than any batch is expected to have
        ([1] * 200 + [250], [30] * 201, 400),  # a long sentence on the side that has fewer tokens
        ([7], [5], 8),  # a corpus of one pair, and a batch that has no room for another
    ],
)
def test_odd_corpora_are_packed_too(
    make_corpus: MakeCorpus, sources: list[int], targets: list[int], tokens_per_batch: int
) -> None:
    corpus = make_corpus(sources, targets)
    shape = packed_shape(corpus, tokens_per_batch)
    batches = [collate_packed(corpus, pairs, shape) for pairs in packed_epoch_batches(corpus, shape, 1, 0)]
    assert sorted(pair for batch in batches for pair in batch.pairs_B.tolist()) == list(range(len(corpus)))
    assert {batch.source_offsets.shape for batch in batches} == {(shape.max_pairs + shape.num_dummies + 1,)}
    assert sum(batch.num_labels for batch in batches) == sum(targets)


def has_room(corpus: EncodedCorpus, pairs: list[int], shape: PackedShape) -> bool:
    sources, targets = (sum(len(sentence_of(corpus, side, p)) for p in pairs) for side in ("source", "target"))
    source_room, target_room = shape.rooms
    return sources <= source_room and targets <= target_room and len(pairs) <= shape.max_pairs


def test_a_batch_ends_where_the_next_pair_has_no_room(make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pairs are looked at together."""
    corpus = make_corpus(*lognormal(1000, seed=4))
    shape = packed_shape(corpus, 500)
    batches = [pairs.tolist() for pairs in packed_epoch_batches(corpus, shape, 1, 0)]
    for pairs, following in pairwise(batches):
        assert has_room(corpus, pairs, shape)
        assert not has_room(corpus, [*pairs, following[0]], shape)
    for at_a_time in (2, 3, 5):
        monkeypatch.setattr(packing, "_BATCHES_AT_A_TIME", at_a_time)
        assert [pairs.tolist() for pairs in packed_epoch_batches(corpus, shape, 1, 0)] == batches


@pytest.mark.thorough
@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.0, 1.5])
def test_little_is_left_to_dummies(make_corpus: MakeCorpus, ratio: float) -> None:
    """Also where one language needs more tokens than the other."""
    sources, targets = lognormal(10_000, seed=5)
    corpus = make_corpus([max(1, round(length * ratio)) for length in sources], targets)
    shape = packed_shape(corpus, 4096)
    batches = packed_epoch_batches(corpus, shape, 1, 0)
    real = len(corpus.source.ids) + len(corpus.target.ids)
    assert real / ((len(batches) - 1) * (shape.source_rows + shape.target_rows)) > 0.95
    assert max(len(pairs) for pairs in batches) < shape.max_pairs


def test_the_order_is_a_function_of_seed_and_epoch(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(*lognormal(2000, seed=6))
    shape = packed_shape(corpus, 500)
    orders = {}
    for key in [(1, 0), (1, 1), (2, 0)]:
        orders[key] = [pairs.tolist() for pairs in packed_epoch_batches(corpus, shape, *key)]
        np.random.default_rng().random()  # no other generator has a part in it
        assert orders[key] == [pairs.tolist() for pairs in packed_epoch_batches(corpus, shape, *key)]
    assert len({str(order) for order in orders.values()}) == 3


def test_lengths_are_mixed(make_corpus: MakeCorpus) -> None:
    """Batches are fair samples: not one of long sentences here, and one of short ones there."""
    sources, targets = lognormal(5000, seed=7)
    corpus = make_corpus(sources, targets)
    batches = packed_epoch_batches(corpus, packed_shape(corpus, 1000), 1, 0)
    lengths = [np.array(targets)[pairs] for pairs in list(batches)[:-1]]
    assert np.std([of_batch.mean() for of_batch in lengths]) < 0.25 * np.std(targets)
    order = np.concatenate(lengths)
    assert abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.1


@pytest.mark.parametrize(("sources", "targets"), [([3, 9], [3, 2]), ([3, 2], [3, 9])])
def test_a_pair_without_room_is_named(make_corpus: MakeCorpus, sources: list[int], targets: list[int]) -> None:
    corpus = make_corpus(sources, targets)
    with pytest.raises(ConfigError, match=message("too-few-tokens-for-packing", "9", "8", "8")):
        packed_epoch_batches(corpus, packed_shape(corpus, 9), 1, 0)
    assert len(np.concatenate(packed_epoch_batches(corpus, packed_shape(corpus, 10), 1, 0))) == 2


def test_pairs_without_room_are_not_collated(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus([5] * 10 + [300], [6] * 10 + [300])
    pairs, long = np.arange(10), np.array([10])
    assert collate_packed(corpus, pairs, PackedShape(52, 62, 10, 31)).num_labels == 60
    assert collate_packed(corpus, long, PackedShape(400, 400, 1, 300)).num_labels == 300
    for shape in (PackedShape(51, 62, 10, 31), PackedShape(52, 61, 10, 31), PackedShape(52, 62, 9, 31)):
        with pytest.raises(AssertionError, match="do not fit"):
            collate_packed(corpus, pairs, shape)
    with pytest.raises(AssertionError, match="longer"):
        collate_packed(corpus, long, PackedShape(400, 400, 1, 299))


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_to_a_device_and_back_is_the_same(make_corpus: MakeCorpus, name: str) -> None:
    corpus = make_corpus(*lognormal(20, seed=9))
    device = torch.device(name)
    batch = collate_packed(corpus, np.arange(20), packed_shape(corpus, 2000))
    moved = batch.to(device).to(device)  # validation moves a batch, and the loss moves it again
    assert all(getattr(moved, field).device.type == device.type for field in TENSORS)
    assert_same(moved.to(torch.device("cpu")), batch)


@pytest.mark.parametrize("size", [0, 1, 20])
def test_packed_batches_say_what_padded_ones_say(size: int, make_corpus: MakeCorpus, tiny_model) -> None:
    corpus = make_corpus(*lognormal(60, seed=10, largest=20), vocab_size=11)
    pairs = np.random.default_rng(1).permutation(60)[:size]
    padded, packed = collate(corpus, pairs), collate_packed(corpus, pairs, packed_shape(corpus, 400))
    model = tiny_model()
    with torch.no_grad():
        logits_BTV = model(padded.source_BS, padded.decoder_input_BT)
        logits_NV = model(
            Packed(packed.source_N, packed.source_offsets, packed.source_positions_N, packed.shape.max_length),
            Packed(packed.decoder_input_N, packed.target_offsets, packed.target_positions_N, packed.shape.max_length),
        )
    assert logits_NV.isfinite().all()
    is_real_N, is_real_BT = packed.labels_N != PAD, padded.labels_BT != PAD
    assert is_real_N.sum() == packed.num_labels == padded.num_labels
    assert torch.equal(packed.labels_N[is_real_N], padded.labels_BT[is_real_BT])
    torch.testing.assert_close(logits_NV[is_real_N], logits_BTV[is_real_BT], rtol=1e-9, atol=1e-9)
