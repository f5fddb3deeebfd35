"""The convolutional encoder-decoder: its formulas by hand, word by word, and its first weights."""

import math

import pytest
import torch
from helpers.messages import message

from transformer_mt.base.errors import TranslationError, UserError
from transformer_mt.inference.fast import build_model
from transformer_mt.models.attention_weights import attention_to_source
from transformer_mt.models.convolutional import GatedConvolution
from transformer_mt.settings.model_settings import ConvolutionalConfig

HALF = math.sqrt(0.5)


def assert_close(ours, theirs):
    """Models in fp64 differ in the last digits only."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def gated(layer, window_PD):
    """v([A B]) = A * sigmoid(B) of one window."""
    convolution = layer.convolution
    both_I = torch.einsum("idp,pd->i", convolution.weight, window_PD) + convolution.bias
    a_D, b_D = both_I.chunk(2)
    return a_D * torch.sigmoid(b_D)


def embedded(embedding, positions, ids):
    scale = 0.1 * math.sqrt(embedding.weight.shape[1])
    return torch.stack([embedding.weight[i] * scale + positions.table_TD[t] for t, i in enumerate(ids)])


def map_of(linear, x_D):
    return linear.weight @ x_D + linear.bias


def encoded(model, ids):
    """What keys and values are, SD."""
    e_SD = embedded(model.source_embedding, model.source_positions, ids)
    x_SD = torch.stack([map_of(model.encoder_input, e_D) for e_D in e_SD])
    side, nothing_D = (model.kernel_width - 1) // 2, torch.zeros(model.d_model).double()
    for layer in model.encoder:
        wide = [nothing_D] * side + list(x_SD) + [nothing_D] * side
        outputs = [gated(layer, torch.stack(wide[s : s + model.kernel_width])) for s in range(len(ids))]
        x_SD = torch.stack([(output_D + x_D) * HALF for output_D, x_D in zip(outputs, x_SD, strict=True)])
    z_SD = torch.stack([map_of(model.encoder_output, x_D) for x_D in x_SD])
    return z_SD, (z_SD + e_SD) * HALF


def said(model, key_SD, value_SD, ids):
    """The decoder's output TD, and the weights of each layer, LTS."""
    e_TD = embedded(model.target_embedding, model.target_positions, ids)
    x_TD = torch.stack([map_of(model.decoder_input, e_D) for e_D in e_TD])
    nothing_D, weights = torch.zeros(model.d_model).double(), []
    for layer in model.decoder:
        wide = [nothing_D] * (model.kernel_width - 1) + list(x_TD)
        outputs, looked = [], []
        for t in range(len(ids)):
            h_D = gated(layer.convolution, torch.stack(wide[t : t + model.kernel_width]))
            query_D = (map_of(layer.query, h_D) + e_TD[t]) * HALF
            a_S = torch.softmax(key_SD @ query_D, dim=0)
            read_D = map_of(layer.out_projection, a_S @ value_SD * math.sqrt(len(key_SD)))
            outputs.append(((h_D + read_D) * HALF + x_TD[t]) * HALF)
            looked.append(a_S)
        x_TD = torch.stack(outputs)
        weights.append(torch.stack(looked))
    return torch.stack([map_of(model.decoder_output, x_D) for x_D in x_TD]), torch.stack(weights)


@pytest.mark.parametrize("kernel_width", [3, 5])
@torch.no_grad()
def test_it_is_its_formulas_by_hand(kernel_width, tiny_convolutional, sources, decoder_inputs):
    model = tiny_convolutional(kernel_width=kernel_width, decoder_layers=3)
    source_1S, decoder_input_1T = sources(1, 6), decoder_inputs(1, 5)
    features_TD, weights_LTS = said(model, *encoded(model, source_1S[0].tolist()), decoder_input_1T[0].tolist())
    assert_close(model.features(source_1S, decoder_input_1T)[0], features_TD)
    for layer, expected in ((1, 0), (2, 1), (3, 2), (0, 1)):
        looked_BTS = attention_to_source(model, source_1S, decoder_input_1T, layer)
        assert_close(looked_BTS[0], weights_LTS[expected])
    with pytest.raises(UserError, match=message("no-such-attention-layer", "4", "cross", "3")):
        attention_to_source(model, source_1S, decoder_input_1T, 4)


@torch.no_grad()
def test_a_stack_of_convolutions_sees_as_far_as_their_kernels_together(tiny_convolutional, sources):
    """Each layer of the encoder adds (k - 1) / 2 words on each side."""
    model = tiny_convolutional(kernel_width=3, encoder_layers=2)
    source_1S = torch.randint(4, 10, (1, 9), generator=torch.Generator().manual_seed(3))
    other_1S = source_1S.clone()
    other_1S[0, 4] += 1
    encoded, changed = model._encode(source_1S).prepared_B1SA, model._encode(other_1S).prepared_B1SA
    changes_S = (encoded - changed).abs().amax(dim=-1)[0, 0]
    assert (changes_S > 1e-9).tolist() == [2 <= s <= 6 for s in range(9)]


@torch.no_grad()
def test_learned_positions_end(tiny_convolutional, sources, decoder_inputs):
    model = tiny_convolutional(max_positions=8)
    assert model(sources(3, 8), decoder_inputs(3, 8)).isfinite().all()
    for source_BS, decoder_input_BT in ((sources(3, 9), decoder_inputs(3, 4)), (sources(3, 4), decoder_inputs(3, 9))):
        with pytest.raises(TranslationError, match=message("more-than-learned-positions", "9", "8")):
            model(source_BS, decoder_input_BT)


def test_first_weights_keep_the_variance():
    """Of one convolution, whose gate is half open; and of all of them."""
    torch.manual_seed(1)
    for kernel_width in (3, 7):
        output_RTD = GatedConvolution(256, kernel_width, 0.0)(0.1 * torch.randn(20, 50, 256))
        assert 0.09 < output_RTD.std() < 0.11
    model = build_model(ConvolutionalConfig(kind="convolutional", d_model=128), 50, 50).eval()
    source_BS, decoder_input_BT = torch.randint(4, 50, (8, 20)), torch.randint(4, 50, (8, 20))
    assert 0.05 < model.features(source_BS, decoder_input_BT).std() < 0.2
    assert 0.05 < model(source_BS, decoder_input_BT).std() < 0.2


def test_dropout_is_for_training_on_embeddings_on_inputs_of_convolutions_and_on_what_is_said():
    torch.manual_seed(1)
    model = build_model(ConvolutionalConfig(kind="convolutional", d_model=64, dropout=0.5), 50, 50)
    source_BS, decoder_input_BT = torch.randint(4, 50, (8, 20)), torch.randint(4, 50, (8, 20))
    model.eval()
    assert torch.equal(model(source_BS, decoder_input_BT), model(source_BS, decoder_input_BT))
    model.train()
    features_BTD = model.features(source_BS, decoder_input_BT)
    assert 0.4 < (features_BTD == 0).double().mean() < 0.6
    embedded_BSD = model._embed(model.source_embedding, source_BS, model.source_positions, 0)
    assert 0.4 < (embedded_BSD == 0).double().mean() < 0.6
    layers = [model, *model.encoder, *(layer.convolution for layer in model.decoder)]
    assert {layer.dropout.p for layer in layers} == {0.5}


@torch.no_grad()
def test_hypotheses_share_the_memory_of_their_source(tiny_convolutional, sources):
    state = tiny_convolutional(kernel_width=5).start(sources(3, 6), width=4)
    assert {(len(part), part.shape[1]) for part in vars(state.memory).values()} == {(3, 1)}
    assert state.past_LBWPD.shape == (2, 3, 4, 4, 12)
