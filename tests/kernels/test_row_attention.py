"""Attention over rows is the plain formula for each sentence alone, and a model without padding the padded one."""

import pytest
import torch

from transformer_mt.base.languages import PAD
from transformer_mt.batches.batching import Batch
from transformer_mt.inference.fast import real_features
from transformer_mt.kernels.device import choose_device
from transformer_mt.kernels.packed_attention import Rows
from transformer_mt.models.attention import attention, causal_mask, padding_mask
from transformer_mt.models.layouts import Sentences, unpadded
from transformer_mt.training.learning import BatchLoss

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])
all_ties = pytest.mark.parametrize("ties", ["all", "target", "none"])
both_masks = pytest.mark.parametrize("causal", [False, True])

H, K = 3, 4


def randn(*shape, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def plain(inputs, queries_BT, keys_BS, mask):
    """Each sentence in turn, without padding; NHK."""
    query_NHK, key_MHK, value_MHK = inputs
    mixed = []
    places = [(tokens_BT != PAD).sum(dim=1).tolist() for tokens_BT in (queries_BT, keys_BS)]
    queries, keys = query_NHK.split(places[0]), zip(key_MHK.split(places[1]), value_MHK.split(places[1]), strict=True)
    for query_THK, (key_SHK, value_SHK) in zip(queries, keys, strict=True):
        seen_TS = mask(len(query_THK), len(key_SHK))
        heads = (x.transpose(0, 1) for x in (query_THK, key_SHK, value_SHK))
        mixed.append(attention(*heads, seen_TS)[0].transpose(0, 1))
    return torch.cat(mixed)


def attended(inputs, mask):
    """The output of the mask's attention, NHK, of queries NHK, and keys and values MHK."""
    in_heads = (x_NHK.transpose(0, 1) for x_NHK in inputs)
    return mask.attend(*in_heads, lambda *padded: attention(*padded)[0]).transpose(0, 1)


def of_self(sources):
    """Ids BT, whose Rows are those of queries and keys; queries, keys and values."""
    tokens_BT = sources(5, 7)
    N = int((tokens_BT != PAD).sum())
    return tokens_BT, tuple(randn(N, H, K, seed=seed) for seed in (2, 3, 4))


def test_rows_are_found_again(sources):
    tokens_BT = sources(5, 7)
    here = Rows.of(tokens_BT)
    tokens_N = tokens_BT[tokens_BT != PAD]
    assert torch.equal(tokens_BT.flatten()[here.place_N], tokens_N)
    assert torch.equal(tokens_N[here.place_BT].masked_fill(here.padding_BT, PAD), tokens_BT)
    x_NHK = randn(len(tokens_N), H, K)
    spread_HBTK = here.spread(x_NHK)
    assert spread_HBTK.shape == (H, *tokens_BT.shape, K)
    assert torch.equal(spread_HBTK.movedim(0, 2)[tokens_BT != PAD], x_NHK)
    assert torch.equal(here.gather(spread_HBTK), x_NHK)


@both_masks
def test_attention_is_the_plain_formula_for_each_sentence_alone(causal, sources):
    tokens_BT, inputs = of_self(sources)
    here = Rows.of(tokens_BT)
    assert here.padding_BT.any()
    words = unpadded(tokens_BT)
    mask = words.backwards() if causal else words.everywhere()
    ours_NHK = attended(inputs, mask)

    def visible(length, _):
        after_TT = torch.arange(length) - torch.arange(length)[:, None]
        return after_TT <= (0 if causal else length)

    theirs_NHK = plain(inputs, tokens_BT, tokens_BT, visible)
    torch.testing.assert_close(ours_NHK, theirs_NHK)
    upstream_NHK = randn(*ours_NHK.shape, seed=5)
    ours, theirs = (torch.autograd.grad(mixed, inputs, upstream_NHK) for mixed in (ours_NHK, theirs_NHK))
    torch.testing.assert_close(ours, theirs)


def test_queries_of_other_lengths_than_their_keys(sources, decoder_inputs):
    source_BS, target_BT = sources(5, 7), decoder_inputs(5, 9)
    N, M = (int((tokens != PAD).sum()) for tokens in (target_BT, source_BS))
    inputs = randn(N, H, K), randn(M, H, K, seed=3), randn(M, H, K, seed=4)
    ours_NHK = attended(inputs, unpadded(target_BT).across(unpadded(source_BS)))
    theirs_NHK = plain(inputs, target_BT, source_BS, lambda T, S: torch.ones(T, S, dtype=torch.bool))
    torch.testing.assert_close(ours_NHK, theirs_NHK)
    upstream_NHK = randn(N, H, K, seed=5)
    ours, theirs = (torch.autograd.grad(mixed, inputs, upstream_NHK) for mixed in (ours_NHK, theirs_NHK))
    torch.testing.assert_close(ours, theirs)


@both_masks
def test_chunks_of_one_matrix_will_do_for_inputs(causal, sources):
    """As projections are: apart from each other in memory."""
    tokens_BT, inputs = of_self(sources)
    words = unpadded(tokens_BT)
    mask = words.backwards() if causal else words.everywhere()
    chunks = torch.cat([x.flatten(1) for x in inputs], dim=1).unflatten(1, (3, H, K)).unbind(1)
    assert not chunks[1].is_contiguous()
    assert torch.equal(attended(chunks, mask), attended(inputs, mask))


def test_half_precision_comes_close(sources):
    tokens_BT, inputs = of_self(sources)
    mask = unpadded(tokens_BT).everywhere()
    exact_NHK = attended(inputs, mask)
    half = [x.detach().bfloat16().requires_grad_() for x in inputs]
    half_NHK = attended(half, mask)
    assert half_NHK.dtype == torch.bfloat16
    assert (half_NHK - exact_NHK).norm() < 0.02 * exact_NHK.norm()
    for ours, theirs in zip(
        torch.autograd.grad(half_NHK.sum(), half), torch.autograd.grad(exact_NHK.sum(), inputs), strict=True
    ):
        assert (ours - theirs).norm() < 0.03 * theirs.norm() + 0.01


@both_norms
@all_ties
def test_a_model_without_padding_is_the_padded_one_forward_and_backward(
    norm, ties, tiny_model, sources, decoder_inputs
):
    assert_unpadded_is_padded(tiny_model(norm=norm, tied_embeddings=ties), sources(6, 9), decoder_inputs(6, 7))


def assert_unpadded_is_padded(model, source_BS, decoder_input_BT):
    padded_ND = model.features(Sentences(source_BS), Sentences(decoder_input_BT))[decoder_input_BT != PAD]
    ours_ND = real_features(model, source_BS, decoder_input_BT)
    torch.testing.assert_close(ours_ND, padded_ND)
    weights_ND = randn(*padded_ND.shape, seed=1).detach()
    assert ours_ND.isfinite().all()
    trained = [p for name, p in model.named_parameters() if name != "output_embedding.weight"]
    theirs = torch.autograd.grad((padded_ND * weights_ND).sum(), trained)
    torch.testing.assert_close(torch.autograd.grad((ours_ND * weights_ND).sum(), trained), theirs)


def test_padding_masks_of_rows_are_those_of_padded_sentences(sources):
    tokens_BT = sources(5, 7)
    words = unpadded(tokens_BT)
    assert torch.equal(words.everywhere().bias == 0, padding_mask(tokens_BT)[:, 0])
    assert torch.equal(words.backwards().bias == 0, causal_mask(7, tokens_BT.device))
    with pytest.raises(AssertionError, match="padded rows"):
        words.everywhere(2)
    with pytest.raises(AssertionError, match="padded rows"):
        words.backwards(2)


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ({}, True),
        ({"positions": "learned"}, True),
        ({"attention_window": 2}, False),
        ({"attention_dropout": 0.3}, False),
        ({"attention_score": "dot"}, False),
    ],
)
def test_training_leaves_padding_out_where_attention_can(
    settings, left_out, tiny_model, sources, decoder_inputs, monkeypatch
):
    """It drops no weights out, has scaled dot products for scores, and no window."""
    model, seen = tiny_model(**settings).float().train(), []
    features = model.features
    monkeypatch.setattr(model, "features", lambda *sides: seen.append(sides) or features(*sides))
    source_BS, target_BT = sources(5, 7), decoder_inputs(5, 6)
    batch = Batch(source_BS, target_BT, target_BT, torch.arange(5), int((target_BT != PAD).sum()))
    loss = BatchLoss(model, choose_device("cpu", "fp32"), smoothing=0.1, compiled=False)
    assert loss(batch).nll > 0
    assert [isinstance(side, torch.Tensor) for side in seen[0]] == [not left_out] * 2
