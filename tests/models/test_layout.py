"""Packed is padded: the same sentences end to end give the same numbers, and their neighbours nothing."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers.on_gpu import away_from_kinks, moved_transformer
from helpers.packing import pack
from torch.nn import functional as F

from transformer_mt.base.languages import PAD
from transformer_mt.batches.batching import collate
from transformer_mt.inference.fast import build_model
from transformer_mt.models.layouts import Packed
from transformer_mt.settings.model_settings import TransformerConfig

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])
all_ties = pytest.mark.parametrize("ties", ["all", "target", "none"])


def real(packed, num_sentences):
    """The rows of the first sentences."""
    return slice(int(packed.offsets[num_sentences]))


def rows_of(packed, sentence):
    return slice(int(packed.offsets[sentence]), int(packed.offsets[sentence + 1]))


def other_words(tokens, where):
    """Other ids there, none of them special."""
    return torch.where(where, torch.where(tokens == 4, 5, 4), tokens)


@dataclass(frozen=True)
class Pair:
    """The same sentences, packed and padded."""

    source_BS: torch.Tensor
    decoder_input_BT: torch.Tensor
    source: Packed
    decoder_input: Packed


@pytest.fixture
def pairs(sources, decoder_inputs):
    source_BS, decoder_input_BT = sources(6, 9), decoder_inputs(6, 7)
    return Pair(source_BS, decoder_input_BT, pack(source_BS), pack(decoder_input_BT, dummies=(1, 5)))


def assert_close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def gradients(model, features, weights):
    """Of a sum in which each feature has a weight of its own, for every parameter."""
    model.zero_grad()
    (features * weights).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@both_norms
@all_ties
def test_packed_is_padded_forward_and_backward(norm, ties, tiny_model, pairs):
    assert_packed_is_padded(tiny_model(norm=norm, tied_embeddings=ties), pairs)


@both_norms
@pytest.mark.parametrize("window", [1, 2, 5, 40])
def test_also_with_a_window(norm, window, tiny_model, pairs):
    assert_packed_is_padded(tiny_model(norm=norm, attention_window=window), pairs)


def assert_packed_is_padded(model, pairs):
    is_real_BT = pairs.decoder_input_BT != PAD
    padded_ND = model.features(pairs.source_BS, pairs.decoder_input_BT)[is_real_BT]
    packed_ND = model.features(pairs.source, pairs.decoder_input)[real(pairs.decoder_input, 6)]
    assert_close(packed_ND, padded_ND)
    weights_ND = torch.randn(padded_ND.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours, theirs = gradients(model, packed_ND, weights_ND), gradients(model, padded_ND, weights_ND)
    trained = {name for name, _ in model.named_parameters() if name != "output_embedding.weight"}
    assert ours.keys() == theirs.keys() == trained
    for name in trained:
        assert theirs[name].abs().sum() > 0
        assert_close(ours[name], theirs[name])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_no_relu_of_the_model_for_few_rows_on_a_gpu_is_near_its_kink(norm, make_corpus):
    """Each is open for all words or closed for all words, by far more than bf16 rounds."""
    corpus = make_corpus([5, 30, 128], [7, 90, 64], 600)
    batch, inputs = collate(corpus, np.arange(3)), []
    model = away_from_kinks(moved_transformer(600, num_heads=2, d_model=128, ffn_dim=192, norm=norm))
    for name, module in model.named_modules():
        if name.endswith(".feed_forward"):
            module.register_forward_pre_hook(lambda each, given: inputs.append(each.inner(given[0]).flatten(0, 1)))
    model.features(batch.source_BS, batch.decoder_input_BT)
    assert len(inputs) == 4
    for input_NF in inputs:
        assert input_NF.abs().min() > 1
        assert (input_NF[:, ::2] > 0).all() and (input_NF[:, 1::2] < 0).all()


@both_norms
def test_neighbours_are_invisible(norm, tiny_model, pairs):
    model = tiny_model(norm=norm)
    features_ND = model.features(pairs.source, pairs.decoder_input)
    for sentence in range(6):
        others = []
        for packed in (pairs.source, pairs.decoder_input):
            is_other_N = torch.ones(len(packed.tokens), dtype=torch.bool)
            is_other_N[rows_of(packed, sentence)] = False
            others.append(replace(packed, tokens=other_words(packed.tokens, is_other_N)))
        changed_ND = model.features(*others)
        here = rows_of(pairs.decoder_input, sentence)
        assert_close(changed_ND[here], features_ND[here])
        changes_N = (changed_ND - features_ND).abs().amax(dim=1)
        changes_N[here] = 1.0
        assert changes_N[real(pairs.decoder_input, 6)].min() > 1e-6


@both_norms
def test_the_future_is_invisible_and_the_past_is_not(norm, tiny_model, pairs):
    model, target = tiny_model(norm=norm), pairs.decoder_input
    features_ND = model.features(pairs.source, target)
    for position in range(1, 7):
        is_it_N = target.positions_N == position
        others = replace(target, tokens=other_words(target.tokens, is_it_N))
        changes_N = (model.features(pairs.source, others) - features_ND).abs().amax(dim=1)
        long_N = torch.repeat_interleave(target.offsets.diff() > position, target.offsets.diff())
        assert_close(
            changes_N[target.positions_N < position], torch.zeros_like(changes_N[target.positions_N < position])
        )
        seen_N = changes_N[long_N & (target.positions_N >= position)]
        assert len(seen_N) > 0
        assert seen_N.min() > 1e-6


@both_norms
def test_dummies_are_invisible_and_finite(norm, tiny_model, pairs):
    """Whatever ids they have; and their gradients reach nothing."""
    model, rows = tiny_model(norm=norm), real(pairs.decoder_input, 6)
    garbage = []
    for packed in (pairs.source, pairs.decoder_input):
        tokens = packed.tokens.clone()
        tokens[real(packed, 6).stop :] = torch.arange(len(tokens) - real(packed, 6).stop) % 10 + 1
        garbage.append(replace(packed, tokens=tokens))
    features_ND, garbage_ND = model.features(pairs.source, pairs.decoder_input), model.features(*garbage)
    assert garbage_ND.isfinite().all()
    assert_close(garbage_ND[rows], features_ND[rows])
    assert (garbage_ND[rows.stop :] - features_ND[rows.stop :]).abs().amax(dim=1).min() > 1e-6

    weights_ND = torch.ones_like(features_ND)
    weights_ND[rows.stop :] = 0.0
    ours, theirs = gradients(model, garbage_ND, weights_ND), gradients(model, features_ND, weights_ND)
    for name in theirs:
        assert_close(ours[name], theirs[name])


def test_a_pack_of_dummies_alone_is_finite(tiny_model):
    model, nothing = tiny_model(), torch.empty(0, 1, dtype=torch.int64)
    features_ND = model.features(pack(nothing, dummies=(5, 4)), pack(nothing, dummies=(2, 5)))
    found = gradients(model, features_ND, torch.zeros_like(features_ND))
    assert features_ND.isfinite().all()
    assert len(found) > 0
    assert not any(gradient.any() for gradient in found.values())


# What is refused


def test_dropout_of_attention_weights_needs_padded_rows(tiny_model, pairs):
    with pytest.raises(AssertionError, match="padded"):
        tiny_model(attention_dropout=0.1).features(pairs.source, pairs.decoder_input)


def test_source_and_target_lie_in_one_way(tiny_model, pairs):
    model = tiny_model()
    with pytest.raises(AssertionError, match="one layout"):
        model.features(pairs.source, pairs.decoder_input_BT)
    with pytest.raises(AssertionError, match="one layout"):
        model.features(pairs.source_BS, pairs.decoder_input)


# Compiled, and on CUDA


def repacked(packed, lengths):
    """The same number of rows and of offsets, but other sentences."""
    ends = torch.tensor([0, *lengths]).cumsum(0).int()
    ends = F.pad(ends, (0, len(packed.offsets) - len(ends)), value=len(packed.tokens))
    starts_N = ends[:-1].repeat_interleave(ends.diff())
    return replace(packed, offsets=ends, positions_N=torch.arange(len(packed.tokens)) - starts_N)


@pytest.mark.thorough
@both_norms
def test_one_graph_serves_all_batches(norm, tiny_model, pairs):
    """`fullgraph` refuses a break; the counter counts what was compiled."""
    from torch._dynamo.testing import CompileCounter  # here, for it takes seconds

    model, counter = tiny_model(norm=norm, dropout=0.0).train(), CompileCounter()
    torch._dynamo.reset()
    features = torch.compile(model.features, backend=counter, fullgraph=True, dynamic=False)
    num_sources, num_targets = len(pairs.source.tokens), len(pairs.decoder_input.tokens)
    batches = [(pairs.source, pairs.decoder_input)]
    for first in (1, 2, 5):
        source_lengths = [first, 4, num_sources - first - 4]
        target_lengths = [3, first, num_targets - first - 3]
        batches.append((repacked(pairs.source, source_lengths), repacked(pairs.decoder_input, target_lengths)))
    for batch in batches:
        assert_close(features(*batch), model.features(*batch))
    assert counter.frame_count == 1


def base_shaped(device, window):
    torch.manual_seed(1)
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 128, "ffn_dim": 256, "num_heads": 4, "dropout": 0.0}
    return build_model(TransformerConfig(**sizes, attention_window=window), 11, 11).to(device)


def on(packed, device):
    moved = (x.to(device) for x in (packed.tokens, packed.offsets, packed.positions_N))
    return Packed(*moved, packed.max_length)


@pytest.mark.cuda
@pytest.mark.parametrize("window", [0, 2])
def test_packed_on_cuda_is_padded_on_cpu(window, pairs):
    """In bf16, forward and backward."""
    model = base_shaped("cpu", window)
    padded_ND = model.features(pairs.source_BS, pairs.decoder_input_BT)[pairs.decoder_input_BT != PAD]
    weights_ND = torch.randn(padded_ND.shape, generator=torch.Generator().manual_seed(1))
    theirs = gradients(model, padded_ND, weights_ND)
    model.cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        features_ND = model.features(on(pairs.source, "cuda"), on(pairs.decoder_input, "cuda"))
    assert features_ND.isfinite().all()
    rows = real(pairs.decoder_input, 6)
    torch.testing.assert_close(features_ND[rows].float().cpu(), padded_ND, rtol=0, atol=0.1)
    ours = gradients(model, features_ND[rows].float(), weights_ND.cuda())
    for name, expected in theirs.items():
        error = (ours[name].cpu() - expected).norm() / expected.norm()
        assert error < 0.1, name
