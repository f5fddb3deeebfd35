"""On a GPU, packed is padded: features and all gradients, next to those of fp64, whatever lay in memory before."""

from copy import deepcopy
from itertools import accumulate

import numpy as np
import pytest
import torch
from helpers.on_gpu import (
    assert_as_near,
    assert_rows_as_near,
    away_from_kinks,
    gradients,
    moved_transformer,
    poison,
)
from torch import Tensor

from transformer_mt.base.languages import PAD
from transformer_mt.batches.batching import collate
from transformer_mt.batches.packing import PackedShape, collate_packed
from transformer_mt.kernels.packed_attention import packed_self_attention
from transformer_mt.models.layouts import Packed
from transformer_mt.training.learning import features_and_labels

pytestmark = pytest.mark.cuda

VOCAB_SIZE, HEADS = 600, 2
SHAPE = PackedShape(source_rows=384, target_rows=512, max_pairs=40, max_length=128)
SOURCES = [5, 1, 17, 30, 64, 65, 2, 128, 40, 25]
TARGETS = [7, 3, 15, 1, 128, 63, 70, 64, 90, 61]
BATCHES = {"full": list(range(10)), "nearly empty": [0], "one word": [3], "without long ones": [0, 1, 2, 3, 8, 9]}


def attended(query_NHK, key_MHK, value_MHK, segments):
    """The attention of each segment separately, NHK."""
    in_heads = (x.transpose(0, 1) for x in (query_NHK, key_MHK, value_MHK))
    return segments.attend(*in_heads, None).transpose(0, 1)


widths = pytest.mark.parametrize("width", [64, 128])


@pytest.fixture
def pairs(make_corpus):
    return make_corpus(SOURCES, TARGETS, VOCAB_SIZE)


def model_with(**settings):
    return moved_transformer(VOCAB_SIZE, num_heads=HEADS, ffn_dim=192, **settings)


def assert_packed_is_padded(corpus, chosen, gpu, model):
    """Against padded rows in bf16, and both against fp64 on the CPU."""
    padded, packed = collate(corpus, np.array(chosen)), collate_packed(corpus, np.array(chosen), SHAPE)
    real_padded_N, real_packed_N = (
        (ids != PAD).flatten().nonzero()[:, 0] for ids in (padded.labels_BT, packed.labels_N)
    )
    assert padded.labels_BT.flatten()[real_padded_N].tolist() == packed.labels_N[real_packed_N].tolist()

    exact_ND = model.features(padded.source_BS, padded.decoder_input_BT).flatten(0, 1)[real_padded_N]
    exact = gradients(model, exact_ND)
    on_gpu = deepcopy(model).float().to(gpu.torch_device)
    with gpu.autocast():
        rows = [ids.to(gpu.torch_device) for ids in (padded.source_BS, padded.decoder_input_BT)]
        padded_ND = on_gpu.features(*rows).to(gpu.dtype).flatten(0, 1)[real_padded_N.to(gpu.torch_device)]
    plain = gradients(on_gpu, padded_ND)

    poison(gpu.torch_device)
    all_ND, _ = features_and_labels(on_gpu, on_gpu.features, packed.to(gpu.torch_device), gpu)
    assert all_ND.isfinite().all(), "those of dummies too: a matrix product mixes all rows"
    packed_ND = all_ND[real_packed_N.to(gpu.torch_device)]
    poison(gpu.torch_device)
    found = gradients(on_gpu, packed_ND)
    assert_rows_as_near(packed_ND.detach(), padded_ND.detach(), exact_ND.detach())
    assert found.keys() == plain.keys() == exact.keys()
    for name, gradient in exact.items():
        assert_as_near(found[name], plain[name], gradient, name)


@widths
@pytest.mark.parametrize("batch", BATCHES)
def test_features_and_gradients_of_packed_sentences_are_those_of_padded_ones(pairs, gpu, width, batch):
    """Without inputs of ReLU near 0, which would decide the distances of few rows by chance."""
    assert_packed_is_padded(pairs, BATCHES[batch], gpu, away_from_kinks(model_with(d_model=HEADS * width)))


@widths
@pytest.mark.parametrize("window", [1, 5, 40])
def test_also_with_a_window(pairs, gpu, width, window):
    """And with a ReLU that is open for some rows alone."""
    model = model_with(d_model=HEADS * width, attention_window=window)
    assert_packed_is_padded(pairs, BATCHES["full"], gpu, model)


@widths
def test_also_with_norms_before_each_sub_layer_and_embeddings_apart(pairs, gpu, width):
    settings = {"norm": "pre", "tied_embeddings": "none", "activation": "swiglu"}
    assert_packed_is_padded(pairs, BATCHES["full"], gpu, model_with(d_model=HEADS * width, **settings))


def test_a_batch_without_pairs_has_no_gradient(pairs, gpu):
    """As the ranks have that are left without work."""
    model = moved_transformer(VOCAB_SIZE, num_heads=HEADS, d_model=128).float().to(gpu.torch_device)
    poison(gpu.torch_device)
    packed = collate_packed(pairs, np.empty(0, np.int64), SHAPE).to(gpu.torch_device)
    features_ND, labels_N = features_and_labels(model, model.features, packed, gpu)
    assert (labels_N == PAD).all()
    poison(gpu.torch_device)
    for name, gradient in gradients(model, features_ND * (labels_N != PAD)[:, None]).items():
        assert not gradient.any(), name


# The attention alone


def packed_of(lengths, device) -> Packed:
    offsets = torch.tensor([0, *accumulate(lengths), sum(lengths)], dtype=torch.int32, device=device)
    positions_N = torch.cat([torch.arange(length) for length in lengths]).to(device)
    return Packed(torch.ones_like(positions_N), offsets, positions_N, 128)


def segments_of(kind, query: Packed, key: Packed):
    match kind:
        case "cross":
            return query.across(key)
        case "everywhere":
            return query.everywhere()
        case "backwards":
            return query.backwards()
        case "window":
            return query.everywhere(window=3)
        case _:
            return query.backwards(window=3)


def visible(kind, num_queries, num_keys) -> Tensor:
    """True where a query of a sentence may see a key; TS."""
    after_TS = torch.arange(num_keys) - torch.arange(num_queries)[:, None]
    most_after = 0 if "backwards" in kind else 1000
    return (after_TS <= most_after) & (after_TS.abs() <= (3 if "window" in kind else 1000))


def by_sentence(kind, query_NHK, key_MHK, value_MHK, query_lengths, key_lengths) -> Tensor:
    """softmax(Q K^T / sqrt(K)) V of one sentence after the other; NHK."""
    mixed = []
    for query_THK, key_SHK, value_SHK in zip(
        query_NHK.split(query_lengths), key_MHK.split(key_lengths), value_MHK.split(key_lengths), strict=True
    ):
        scores_HTS = torch.einsum("thk,shk->hts", query_THK, key_SHK) / query_THK.shape[-1] ** 0.5
        mask_TS = visible(kind, len(query_THK), len(key_SHK)).to(scores_HTS.device)
        weights_HTS = scores_HTS.masked_fill(~mask_TS, -torch.inf).softmax(dim=-1)
        mixed.append(torch.einsum("hts,shk->thk", weights_HTS, value_SHK))
    return torch.cat(mixed)


@widths
@pytest.mark.parametrize("kind", ["cross", "everywhere", "backwards", "window", "backwards with a window"])
@pytest.mark.parametrize("lengths", [SOURCES, [1] * 50, [128, 128], [16, 17, 31, 32, 33, 127, 128, 1]], ids=str)
def test_attention_and_its_gradients_are_those_of_each_sentence(gpu, width, kind, lengths):
    key_lengths = [length % 31 + 1 for length in lengths] if kind == "cross" else lengths
    generator = torch.Generator().manual_seed(1)
    query_NHK, sent_back_NHK = torch.randn(2, sum(lengths), HEADS, width, generator=generator).bfloat16()
    key_MHK, value_MHK = torch.randn(2, sum(key_lengths), HEADS, width, generator=generator).bfloat16()

    def computed(attend, device, dtype):
        inputs = [x.to(device, dtype).requires_grad_() for x in (query_NHK, key_MHK, value_MHK)]
        mixed_NHK = attend(*inputs)
        poison(gpu.torch_device)
        mixed_NHK.backward(sent_back_NHK.to(device, dtype))
        return [mixed_NHK.detach(), *(x.grad for x in inputs)]

    def plainly(*inputs):
        return by_sentence(kind, *inputs, lengths, key_lengths)

    segments = segments_of(kind, packed_of(lengths, gpu.torch_device), packed_of(key_lengths, gpu.torch_device))
    exact = computed(plainly, "cpu", torch.float64)
    plain = computed(plainly, gpu.torch_device, torch.bfloat16)
    poison(gpu.torch_device)
    found = computed(lambda *x: attended(*x, segments), gpu.torch_device, torch.bfloat16)
    for name, ours, theirs, right in zip(("output", "dQ", "dK", "dV"), found, plain, exact, strict=True):
        if not right.any():  # of a word that sees one word alone: what is left is a rounding of sums in fp32
            assert ours.abs().max() <= 2**-16
            continue
        assert_as_near(ours, theirs, right, name)
        assert_rows_as_near(ours.flatten(1), theirs.flatten(1), right.flatten(1))


@widths
@pytest.mark.parametrize("kind", ["everywhere", "backwards", "window", "backwards with a window"])
def test_queries_keys_and_values_in_one_tensor_have_the_same_attention_and_gradients(gpu, width, kind):
    """To a rounding: the kernels differ only in where they write."""
    segments = segments_of(kind, *[packed_of(SOURCES, gpu.torch_device)] * 2)
    generator = torch.Generator().manual_seed(1)
    rows_N4HK = torch.randn(sum(SOURCES), 4, HEADS, width, generator=generator).bfloat16().to(gpu.torch_device)
    *inputs, sent_back_NHK = (x_NHK.contiguous().requires_grad_() for x_NHK in rows_N4HK.unbind(1))
    mixed_NHK = attended(*inputs, segments)
    apart = [mixed_NHK, *torch.autograd.grad(mixed_NHK, inputs, sent_back_NHK)]

    together_N3HK = rows_N4HK[:, :3].contiguous().requires_grad_()
    poison(gpu.torch_device)
    mixed_NHK = packed_self_attention(together_N3HK, segments)
    poison(gpu.torch_device)
    (gradient_N3HK,) = torch.autograd.grad(mixed_NHK, together_N3HK, sent_back_NHK)
    assert gradient_N3HK.is_contiguous()
    for ours, theirs in zip((mixed_NHK, *gradient_N3HK.unbind(1)), apart, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=2**-9)
