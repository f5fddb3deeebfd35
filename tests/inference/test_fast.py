"""A model with faster parts computes what the plain code of models/ computes, and has the same parameters."""

import pytest
import torch
from helpers.formulas import randn
from helpers.packing import pack

from transformer_mt.inference.fast import FASTER, fast
from transformer_mt.kernels.packed_attention import Segments
from transformer_mt.models.attention import MultiHeadAttention, Padded, causal_mask
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.model_settings import TransformerConfig

D_MODEL, NUM_HEADS = 12, 3


def fast_attention():
    """And the plain attention with the same weights."""
    torch.manual_seed(1)
    plain = MultiHeadAttention(D_MODEL, NUM_HEADS).double()
    torch.nn.init.normal_(plain.in_projection.bias)
    torch.nn.init.normal_(plain.out_projection.bias)
    faster = FASTER[MultiHeadAttention](D_MODEL, NUM_HEADS).double()
    faster.load_state_dict(plain.state_dict())
    return faster, plain


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_logits_and_gradients_are_those_of_the_plain_model(activation, norm, sources, decoder_inputs):
    torch.manual_seed(1)
    config = TransformerConfig(
        d_model=12, num_heads=3, ffn_dim=20, encoder_layers=2, decoder_layers=2, activation=activation, norm=norm
    )
    plain, faster = (Transformer(config, 11, 11).double().eval() for _ in range(2))
    faster.load_state_dict(plain.state_dict())
    assert fast(faster) is faster
    assert faster.faster_forms and not plain.faster_forms
    assert not any(type(module) in FASTER for module in faster.modules())
    assert list(dict(plain.named_parameters())) == list(dict(faster.named_parameters()))

    source_BS, input_BT = sources(3, 6), decoder_inputs(3, 5)
    logits = [model(source_BS, input_BT) for model in (faster, plain)]
    torch.testing.assert_close(*logits)
    gradients = [
        torch.autograd.grad(logits_BTV, list(model.parameters()), randn(*logits_BTV.shape))
        for logits_BTV, model in zip(logits, (faster, plain), strict=True)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_of_packed_sentences_is_that_of_each_one(causal):
    (faster, plain), x_ND, lengths = fast_attention(), randn(9, D_MODEL), [4, 1, 4]
    offsets = torch.tensor([0, 4, 5, 9], dtype=torch.int32)
    ours_ND = faster(x_ND, Segments(offsets, offsets, 4, 4, causal))
    for ours_TD, x_TD in zip(ours_ND.split(lengths), x_ND.split(lengths), strict=True):
        see = Padded(causal_mask(len(x_TD), x_TD.device) if causal else torch.tensor(True))
        torch.testing.assert_close(ours_TD, plain(x_TD[None], see)[0])


def test_packed_memories_are_projected_at_once_and_are_those_projected_apart(tiny_model, sources):
    model, source = tiny_model(), pack(sources(3, 6))
    memory_ND, see = randn(len(source.tokens), model.d_model), source.across(source)
    for ours, layer in zip(model.memories(memory_ND, see), model.decoder_layers(), strict=True):
        theirs = layer.cross_attention.memory(memory_ND, see)
        torch.testing.assert_close((ours.key_BHSK, ours.value_BHSK), (theirs.key_BHSK, theirs.value_BHSK))
