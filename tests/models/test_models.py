"""The Transformer: its size, what it sees and does not see, and that stepping is teacher forcing."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer_mt.base.languages import BOS, PAD
from transformer_mt.inference.fast import build_model
from transformer_mt.models.attention_weights import attention_weights
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.models.transformer import FeedForward, Transformer
from transformer_mt.models.variants import VariedFeedForward
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.training.loss import label_smoothed

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])
all_activations = pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
all_ties = pytest.mark.parametrize("ties", ["all", "target", "none"])


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def assert_close(ours, theirs):
    """Models in fp64 differ in the last digits only."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def fresh_model(vocab_size=500, **settings):
    torch.manual_seed(1)
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "ffn_dim": 128, "num_heads": 4}
    return build_model(TransformerConfig(**sizes | settings), vocab_size, vocab_size, "plain").eval()


# Size and weights


def test_the_base_model_has_the_number_of_parameters_of_the_paper():
    """The paper rounds to 65 million. Biases in attention and feed-forward, none at the output."""
    with torch.device("meta"):
        model = Transformer(TransformerConfig(), 37_000, 37_000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 63_082_496


def test_pre_norm_costs_two_more_layer_norms():
    with torch.device("meta"):
        post, pre = (Transformer(TransformerConfig(norm=norm), 50, 50) for norm in ("post", "pre"))
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in (post, pre)]
    assert sizes[1] - sizes[0] == 2 * 2 * 512


def varied_feed_forward(config):
    feed_forward = FeedForward(config)
    VariedFeedForward.vary(feed_forward, config)
    return feed_forward


def test_gelu_costs_nothing_and_swiglu_a_third_matrix():
    sizes = {}
    for activation in ("relu", "gelu", "swiglu"):
        with torch.device("meta"):
            feed_forward = varied_feed_forward(TransformerConfig(activation=activation, d_model=512, ffn_dim=2048))
        sizes[activation] = sum(parameter.numel() for parameter in feed_forward.parameters())
    assert sizes["gelu"] == sizes["relu"]
    assert sizes["swiglu"] - sizes["relu"] == 512 * 2048 + 2048


@all_ties
def test_tied_embeddings_are_one_matrix_and_others_are_not(tiny_model, ties):
    model = tiny_model(tied_embeddings=ties)
    target = model.target_embedding.weight
    assert (model.source_embedding.weight is target) == (ties == "all")
    assert (model.output_VD is target) == (ties != "none")


def test_vocabularies_of_two_sizes_are_possible_unless_they_share_a_matrix(tiny_model, sources, decoder_inputs):
    for ties in ("target", "none"):
        model = tiny_model(vocab_size=9, source_vocab_size=30, tied_embeddings=ties)
        assert model(sources(2, 5, vocab_size=30), decoder_inputs(2, 4, vocab_size=9)).shape == (2, 4, 9)
    with pytest.raises(AssertionError, match="one vocabulary"):
        tiny_model(vocab_size=9, source_vocab_size=30, tied_embeddings="all")


@all_activations
def test_fresh_feed_forwards_fill_the_bounds_of_xavier_uniform_and_biases_are_zero(activation):
    model = fresh_model(activation=activation)
    bound = math.sqrt(6 / (64 + 128))
    for layer in (*model.encoder, *model.decoder):
        for linear in layer.feed_forward.children():
            assert 0.99 * bound < linear.weight.abs().max() <= bound
            assert not linear.bias.any()


@all_ties
def test_fresh_embeddings_have_unit_scale_once_multiplied_by_the_root_of_the_width(ties):
    model = fresh_model(tied_embeddings=ties)
    for embedding in (model.source_embedding, model.target_embedding, model.output_embedding):
        assert embedding.weight.std().item() * math.sqrt(64) == pytest.approx(1, abs=0.02)
        assert embedding.weight.mean().item() == pytest.approx(0, abs=0.02)


@both_norms
def test_features_of_a_fresh_model_are_normalised(norm, sources, decoder_inputs):
    model = fresh_model(norm=norm)
    features_BTD = model.features(sources(5, 8, 500), decoder_inputs(5, 9, 500))
    torch.testing.assert_close(features_BTD.mean(dim=-1), torch.zeros(5, 9), rtol=0, atol=1e-5)
    torch.testing.assert_close(features_BTD.var(dim=-1, correction=0), torch.ones(5, 9), rtol=0, atol=1e-3)


@both_norms
@all_ties
def test_the_first_loss_of_a_fresh_model_is_near_that_of_even_guessing(norm, ties, sources, decoder_inputs):
    """Logits of unit variance cost half a nat more than even ones."""
    vocab_size = 2000
    model = fresh_model(vocab_size, norm=norm, tied_embeddings=ties)
    features_BTD = model.features(sources(20, 12, vocab_size), decoder_inputs(20, 10, vocab_size))
    labels_N = torch.randint(4, vocab_size, (200,), generator=torch.Generator().manual_seed(3))
    sums = label_smoothed(features_BTD.flatten(0, 1), model.output_VD, labels_N, smoothing=0.0)
    assert math.log(vocab_size) <= sums.nll.item() / 200 <= math.log(vocab_size) + 0.9


@pytest.mark.thorough
@both_norms
@all_ties
@all_activations
def test_every_weight_has_a_gradient(norm, ties, activation, tiny_model, sources, decoder_inputs):
    model = tiny_model(norm=norm, tied_embeddings=ties, activation=activation)
    labels_BT = sources(4, 6, seed=5)
    with torch.enable_grad():
        logits_BTV = model(sources(4, 5), decoder_inputs(4, 6))
        F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten()).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


# Against PyTorch's own layers


def copy_attention(ours, theirs):
    theirs.in_proj_weight.copy_(ours.in_projection.weight)
    theirs.in_proj_bias.copy_(ours.in_projection.bias)
    theirs.out_proj.load_state_dict(ours.out_projection.state_dict())


def copy_layer(ours, theirs):
    """The weights of an encoder or decoder layer into that of PyTorch."""
    if hasattr(theirs, "multihead_attn"):
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        residuals = (ours.around_self_attention, ours.around_cross_attention, ours.around_feed_forward)
        norms = (theirs.norm1, theirs.norm2, theirs.norm3)
    else:
        copy_attention(ours.attention, theirs.self_attn)
        residuals = (ours.around_attention, ours.around_feed_forward)
        norms = (theirs.norm1, theirs.norm2)
    for residual, norm in zip(residuals, norms, strict=True):
        norm.load_state_dict(residual.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())


def embedded(weight_VD, tokens_BT):
    d_model = weight_VD.shape[1]
    return weight_VD[tokens_BT] * math.sqrt(d_model) + sinusoidal(tokens_BT.shape[1], d_model)


@pytest.mark.thorough
@both_norms
@all_ties
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_model_equals_one_of_pytorch_layers_with_the_same_weights(
    norm, ties, activation, tiny_model, sources, decoder_inputs
):
    model = tiny_model(norm=norm, tied_embeddings=ties, activation=activation)
    source_BS, decoder_input_BT = sources(6, 7), decoder_inputs(6, 8)
    sizes = {"d_model": 16, "nhead": 2, "dim_feedforward": 24, "dropout": 0.0, "activation": activation}
    kind = {"batch_first": True, "norm_first": norm == "pre", "dtype": torch.float64}
    padding_BS, future_TT = source_BS == PAD, torch.ones(8, 8, dtype=torch.bool).triu(1)

    x_BSD = embedded(model.source_embedding.weight, source_BS)
    for layer in model.encoder:
        theirs = nn.TransformerEncoderLayer(**sizes, **kind)
        copy_layer(layer, theirs)
        x_BSD = theirs(x_BSD, src_key_padding_mask=padding_BS)
    memory_BSD = model.encoder_norm(x_BSD)
    x_BTD = embedded(model.target_embedding.weight, decoder_input_BT)
    for layer in model.decoder:
        theirs = nn.TransformerDecoderLayer(**sizes, **kind)
        copy_layer(layer, theirs)
        x_BTD = theirs(x_BTD, memory_BSD, tgt_mask=future_TT, memory_key_padding_mask=padding_BS)
    expected_BTV = model.decoder_norm(x_BTD) @ model.output_embedding.weight.T
    assert_close(model(source_BS, decoder_input_BT), expected_BTV)


def test_the_feed_forward_layer_is_two_convolutions_of_kernel_size_one():
    """As the paper says of it (sec. 3.3)."""
    torch.manual_seed(1)
    feed_forward = FeedForward(TransformerConfig(d_model=4, num_heads=1, ffn_dim=6)).double()
    inner, outer = nn.Conv1d(4, 6, kernel_size=1).double(), nn.Conv1d(6, 4, kernel_size=1).double()
    for convolution, linear in ((inner, feed_forward.inner), (outer, feed_forward.outer)):
        convolution.weight.copy_(linear.weight[..., None])
        convolution.bias.copy_(linear.bias.normal_())
    x_BTD = torch.randn(2, 3, 4, dtype=torch.float64)
    assert_close(feed_forward(x_BTD), outer(inner(x_BTD.mT).relu()).mT)


def test_swiglu_is_the_product_of_a_gate_and_a_linear_map():
    """(x W1 + b1) times its own sigmoid, times x W3 + b3, and all that times W2, plus b2."""
    torch.manual_seed(1)
    config = TransformerConfig(activation="swiglu", d_model=4, num_heads=1, ffn_dim=6)
    feed_forward = varied_feed_forward(config).double()
    for parameter in feed_forward.parameters():
        parameter.normal_()
    W1, b1, W2, b2, W3, b3 = feed_forward.parameters()
    x_BTD = torch.randn(2, 3, 4, dtype=torch.float64)
    gate_BTF = x_BTD @ W1.T + b1
    expected_BTD = (gate_BTF / (1 + (-gate_BTF).exp()) * (x_BTD @ W3.T + b3)) @ W2.T + b2
    assert_close(feed_forward(x_BTD), expected_BTD)


# What is seen


@both_norms
def test_padding_of_sources_is_invisible(norm, tiny_model, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = tiny_model(norm=norm), sources(6, 5), decoder_inputs(6, 7)
    wider_BS = F.pad(source_BS, (0, 4), value=PAD)
    assert_close(model(wider_BS, decoder_input_BT), model(source_BS, decoder_input_BT))


@both_norms
def test_padding_of_targets_is_invisible(norm, tiny_model, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = tiny_model(norm=norm), sources(6, 5), decoder_inputs(6, 7)
    wider_BT = F.pad(decoder_input_BT, (0, 4), value=PAD)
    assert_close(model(source_BS, wider_BT)[:, :7], model(source_BS, decoder_input_BT))


@both_norms
@all_activations
def test_the_future_is_invisible_and_the_past_is_not(norm, activation, tiny_model, sources, decoder_inputs):
    model, source_BS = tiny_model(norm=norm, activation=activation), sources(6, 5)
    decoder_input_BT = decoder_inputs(6, 7).masked_fill(decoder_inputs(6, 7) == PAD, 4)
    logits_BTV = model(source_BS, decoder_input_BT)
    for position in range(1, 7):
        other_BT = decoder_input_BT.clone()
        other_BT[:, position] = torch.where(other_BT[:, position] == 4, 5, 4)
        other_BTV = model(source_BS, other_BT)
        assert_close(other_BTV[:, :position], logits_BTV[:, :position])
        changes_BT = (other_BTV - logits_BTV)[:, position:].abs().amax(dim=-1)
        assert changes_BT.min() > 1e-6


@both_norms
def test_every_source_word_is_seen_from_every_target_position(norm, tiny_model, sources, decoder_inputs):
    model, decoder_input_BT = tiny_model(norm=norm), decoder_inputs(1, 6)
    source_BS = sources(1, 5)
    logits_BTV = model(source_BS, decoder_input_BT)
    for position in range(5):
        other_BS = source_BS.clone()
        other_BS[:, position] = torch.where(other_BS[:, position] == 4, 5, 4)
        assert (model(other_BS, decoder_input_BT) - logits_BTV).abs().amax(dim=-1).min() > 1e-6


@both_norms
@all_activations
def test_rows_are_independent(norm, activation, tiny_model, sources, decoder_inputs):
    model = tiny_model(norm=norm, activation=activation)
    source_BS, decoder_input_BT = sources(6, 8), decoder_inputs(6, 7)
    logits_BTV = model(source_BS, decoder_input_BT)
    for row in range(6):
        source_1S = source_BS[row : row + 1, : (source_BS[row] != PAD).sum()]
        decoder_input_1T = decoder_input_BT[row : row + 1, : (decoder_input_BT[row] != PAD).sum()]
        alone_TV = model(source_1S, decoder_input_1T)[0]
        assert_close(alone_TV, logits_BTV[row, : len(alone_TV)])


# Stepping


@both_norms
@all_ties
@all_activations
def test_stepping_is_teacher_forcing(norm, ties, activation, tiny_model, sources, decoder_inputs):
    model = tiny_model(norm=norm, tied_embeddings=ties, activation=activation)
    source_BS, decoder_input_BT = sources(4, 6), decoder_inputs(4, 20)
    state, stepped = model.start(source_BS, width=1), []
    for token_B1 in decoder_input_BT.split(1, dim=1):
        logits_B1V, state = model.step(token_B1, state)
        stepped.append(logits_B1V)
    assert_close(torch.cat(stepped, dim=1), model(source_BS, decoder_input_BT))


@pytest.mark.thorough
@both_norms
@pytest.mark.parametrize("width", [2, 3, 17])
def test_hypotheses_that_follow_others_see_the_words_of_their_own_ancestors(norm, width, tiny_model, sources):
    """Parents at random, sentences dropped and reordered on the way."""
    model, generator = tiny_model(norm=norm), torch.Generator().manual_seed(width)
    source_BS = sources(6, 7)
    state = model.start(source_BS, width)
    words_BWT = torch.empty(6, width, 0, dtype=torch.int64)
    for position in range(12):
        B = len(source_BS)
        token_BW = torch.randint(1, 11, (B, width), generator=generator)
        words_BWT = torch.cat([words_BWT, token_BW[..., None]], dim=2)
        logits_BWV, state = model.step(token_BW, state)
        expected = model(source_BS.repeat_interleave(width, dim=0), words_BWT.flatten(0, 1))[:, -1]
        assert_close(logits_BWV, expected.view(B, width, -1))

        parent_BW = torch.randint(0, width, (B, width), generator=generator)
        state = state.follow(parent_BW)
        words_BWT = torch.stack([words_WT[parent_W] for words_WT, parent_W in zip(words_BWT, parent_BW, strict=True)])
        if position % 4 == 1:
            sentences = torch.randperm(B, generator=generator)[: B - (position % 8 == 1 and B > 2)]
            state, words_BWT, source_BS = state.keep(sentences), words_BWT[sentences], source_BS[sentences]


@pytest.mark.parametrize("window", [0, 1, 3])
def test_a_state_keeps_the_past_that_a_hypothesis_may_see(window, tiny_model, sources):
    model = tiny_model(attention_window=window)
    state = model.start(sources(2, 5), width=3)
    for position in range(1, 7):
        _, state = model.step(torch.full((2, 3), 4), state)
        state = state.follow(torch.tensor([[0, 0, 1], [2, 1, 0]]))
        kept = min(position, window + 1) if window else position
        assert [cache.key_BWHPK.shape for cache in state.caches] == [(2, 3, 2, kept, 8)] * 3
        assert [cache.value_BWHPK.shape for cache in state.caches] == [(2, 3, 2, kept, 8)] * 3


def test_hypotheses_of_a_sentence_begin_alike(tiny_model, sources):
    model = tiny_model()
    logits_BWV, _ = model.step(torch.full((4, 3), BOS), model.start(sources(4, 5), width=3))
    assert_close(logits_BWV, logits_BWV[:, :1].expand(-1, 3, -1))


@both_norms
def test_stepping_in_half_precision_is_near_teacher_forcing(norm, tiny_model, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = tiny_model(norm=norm).float(), sources(4, 6), decoder_inputs(4, 20)
    expected_BTV = model(source_BS, decoder_input_BT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state, stepped = model.start(source_BS, width=1), []
        for token_B1 in decoder_input_BT.split(1, dim=1):
            logits_B1V, state = model.step(token_B1, state)
            stepped.append(logits_B1V.float())
    errors_BTV = torch.cat(stepped, dim=1) - expected_BTV
    assert errors_BTV.std() < 0.1 * expected_BTV.std()


# Attention weights


@both_norms
def test_attention_weights_sum_to_one_and_are_zero_on_padding_and_on_the_future(
    norm, tiny_model, sources, decoder_inputs
):
    model, source_BS, decoder_input_BT = tiny_model(norm=norm), sources(4, 5), decoder_inputs(4, 7)
    weights = attention_weights(model, source_BS, decoder_input_BT)
    assert weights.encoder_LBHSS.shape == (2, 4, 2, 5, 5)
    assert weights.decoder_LBHTT.shape == (3, 4, 2, 7, 7)
    assert weights.cross_LBHTS.shape == (3, 4, 2, 7, 5)
    for kind in (weights.encoder_LBHSS, weights.decoder_LBHTT, weights.cross_LBHTS):
        assert_close(kind.sum(dim=-1), torch.ones_like(kind[..., 0]))
    real_B11S = (source_BS != PAD)[:, None, None]
    past_TT = torch.ones(7, 7).tril() > 0
    assert torch.equal(weights.encoder_LBHSS > 0, real_B11S.expand(2, 4, 2, 5, 5))
    assert torch.equal(weights.cross_LBHTS > 0, real_B11S.expand(3, 4, 2, 7, 5))
    assert torch.equal(weights.decoder_LBHTT > 0, past_TT.expand(3, 4, 2, 7, 7))


# Dropout


@both_norms
@pytest.mark.parametrize("setting", ["dropout", "attention_dropout"])
def test_dropout_is_on_in_training_alone(norm, setting, tiny_model, sources, decoder_inputs):
    source_BS, decoder_input_BT = sources(3, 5), decoder_inputs(3, 6)
    model, without = tiny_model(norm=norm, **{setting: 0.3}), tiny_model(norm=norm)
    expected_BTV = without(source_BS, decoder_input_BT)
    assert torch.equal(model(source_BS, decoder_input_BT), expected_BTV)
    assert torch.equal(without.train()(source_BS, decoder_input_BT), expected_BTV)

    def trained(seed):
        torch.manual_seed(seed)
        return model.train()(source_BS, decoder_input_BT)

    assert torch.equal(trained(1), trained(1))
    assert not torch.allclose(trained(1), trained(2))
    assert not torch.allclose(trained(1), expected_BTV)


@both_norms
def test_the_output_of_each_sub_layer_and_both_embedding_sums_are_dropped_out(
    norm, tiny_model, sources, decoder_inputs
):
    model = tiny_model(norm=norm, dropout=0.3).train()
    shapes = []
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module.p > 0:
            module.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
    model(sources(3, 5), decoder_inputs(3, 6))
    assert shapes.count((3, 5, 16)) == 1 + 2 * 2
    assert shapes.count((3, 6, 16)) == 1 + 3 * 3
    assert len(shapes) == 5 + 10
