"""A frozen Transformer says at every step what the Transformer does."""

import pytest
import torch
from helpers.messages import message
from helpers.stepping import VOCAB_SIZE, WIDER_AND_NARROWER, assert_close, logits_along
from helpers.thorough import thorough
from torch.nn import functional as F

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.inference.frozen import FEW_HEADS, MOST_POSITIONS, ROW, FrozenTransformer, frozen
from transformer_mt.kernels.matmul import Matmul
from transformer_mt.models.attention_weights import attention_to_source, attention_weights
from transformer_mt.models.ensemble import Ensemble

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])
all_activations = pytest.mark.parametrize("activation", [*thorough("relu", "gelu"), "swiglu"])
all_ties = pytest.mark.parametrize("ties", ["all", "target", "none"])

NUM_HEADS = 2  # of the tiny models


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def assert_steps_alike(model, source_BS, widths, leaving=()):
    ours = logits_along(frozen(model, Matmul()), source_BS, widths, leaving)
    for logits_BWV, expected_BWV in zip(ours, logits_along(model, source_BS, widths, leaving), strict=True):
        assert_close(logits_BWV, expected_BWV)


def relative_error(logits, expected):
    ours, theirs = (torch.cat([step_BWV.float().flatten() for step_BWV in steps]) for steps in (logits, expected))
    return ((ours - theirs).norm() / theirs.norm()).item()


# Against the Transformer


@pytest.mark.thorough
@both_norms
@all_activations
@all_ties
def test_stepping_is_that_of_the_transformer(norm, activation, ties, tiny_model, sources):
    model = tiny_model(norm=norm, activation=activation, tied_embeddings=ties)
    for width in (1, 3, 5):
        assert_steps_alike(model, sources(4, 7), [width] * 12, leaving=(4, 8))


@both_norms
@pytest.mark.parametrize("ties", ["target", "none"])
def test_also_with_vocabularies_of_two_sizes(norm, ties, tiny_model, sources):
    model = tiny_model(VOCAB_SIZE, source_vocab_size=30, norm=norm, tied_embeddings=ties)
    assert_steps_alike(model, sources(4, 7, vocab_size=30), WIDER_AND_NARROWER)


def test_also_with_learned_positions(tiny_model, sources):
    assert_steps_alike(tiny_model(positions="learned"), sources(4, 7), WIDER_AND_NARROWER, leaving=(4,))


def test_sentences_may_leave_before_the_first_step(tiny_model, sources):
    assert_steps_alike(tiny_model(), sources(6, 7), [2, 2, 2], leaving=(0, 1))


@both_norms
def test_also_where_hypotheses_become_more_and_fewer(norm, tiny_model, sources):
    assert_steps_alike(tiny_model(norm=norm), sources(6, 7), WIDER_AND_NARROWER, leaving=(2, 6, 9))


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1, *thorough(3, 5), 2 * ROW + 3])
def test_also_after_slots_were_added_several_times(width, tiny_model, sources):
    model, source_BS = tiny_model(), sources(3, 7)
    state = frozen(model, Matmul()).start(source_BS, width)
    sizes = set()
    for _ in range(60):
        _, state = frozen(model, Matmul()).step(torch.full((3, width), EOS + 1), state)
        sizes.add(state.past_B1WN.shape[-1])
    assert len(sizes) >= 4
    assert_steps_alike(model, source_BS, [width] * 60, leaving=(20,))


@pytest.mark.thorough
@both_norms
def test_also_for_sources_of_all_lengths(norm, tiny_model, sources):
    """Those that are whole rows of scores, and those that leave some of a row."""
    model = tiny_model(norm=norm)
    for length in range(1, 41):
        assert_steps_alike(model, sources(3, length, seed=length), [1, 2, 2, 2])


@pytest.mark.thorough
@both_norms
@pytest.mark.parametrize("length", [1, *thorough(7, ROW), 3 * ROW + 1, MOST_POSITIONS, MOST_POSITIONS + 1])
def test_also_for_one_sentence(norm, length, tiny_model, sources):
    """Whose memory is folded, if it is short."""
    model, source_1S = tiny_model(norm=norm), sources(1, length)
    for matmul in (Matmul(), Matmul(torch.bfloat16), Matmul(quantization="int8")):
        folded = frozen(tiny_model(norm=norm).float(), matmul).start(source_1S, 1).folded
        assert bool(folded) == (length <= MOST_POSITIONS and matmul == Matmul())
    for padding in (0, 3):
        assert_steps_alike(model, F.pad(source_1S, (0, padding), value=PAD), WIDER_AND_NARROWER, leaving=(7,))


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("matmul", [Matmul(), Matmul(torch.bfloat16), Matmul(quantization="int8")])
def test_an_output_bias_is_added_in_each_precision(matmul, count, tiny_model, sources):
    """To the logits that are there without it."""
    model, source_BS = tiny_model(output_bias=True).float(), sources(count, 7)
    biased = logits_along(frozen(model, matmul), source_BS, WIDER_AND_NARROWER)
    bias_V = model.output_bias_V.clone()
    model.output_bias_V.zero_()
    plain = logits_along(frozen(model, matmul), source_BS, WIDER_AND_NARROWER)
    for biased_BWV, plain_BWV in zip(biased, plain, strict=True):
        torch.testing.assert_close(biased_BWV.float(), plain_BWV.float() + bias_V, rtol=1e-2, atol=1e-2)


def test_sentences_alone_have_few_lengths(tiny_model, sources):
    """And none that was not learned."""
    model = frozen(tiny_model(positions="learned", max_positions=20), Matmul())
    lengths = []
    embed = model._embed
    model._embed = lambda *arguments: lengths.append(len(arguments[1])) or embed(*arguments)
    for length in (1, 8, 9, 16, 17, 20):
        model.start(sources(1, length), 1)
    assert lengths == [8, 8, 16, 16, 17, 20]
    with pytest.raises(TranslationError):
        model.start(sources(1, 21), 1)


@pytest.mark.thorough
@pytest.mark.parametrize("more", [-1, *thorough(0, 1), 20])
@pytest.mark.parametrize("width", [1, 4])
def test_also_for_few_and_many_heads(more, width, tiny_model, sources):
    """Products are made in two ways, and sentences that leave change the way."""
    few = FEW_HEADS // NUM_HEADS
    assert_steps_alike(tiny_model(), sources(few + more, 9), [width] * 8, leaving=(4,))
    model, source_BS = tiny_model().float(), sources(few + more, 9)
    ours = logits_along(frozen(model, Matmul()), source_BS, [width] * 8, leaving=(4,))
    for logits_BWV, expected_BWV in zip(ours, logits_along(model, source_BS, [width] * 8, leaving=(4,)), strict=True):
        torch.testing.assert_close(logits_BWV, expected_BWV, rtol=1e-4, atol=1e-4)


@both_norms
@all_activations
@pytest.mark.parametrize("dtype", [torch.bfloat16, *thorough(torch.float16)])
def test_half_precision_is_as_near_as_that_of_training(dtype, norm, activation, tiny_model, sources):
    """Over some models: what one of them makes of a rounding is chance."""
    errors = {"ours": 0.0, "training": 0.0}
    for seed in range(1, 5):
        model, source_BS = tiny_model(seed=seed, norm=norm, activation=activation).float(), sources(5, 9, seed=seed)
        expected = logits_along(model, source_BS, WIDER_AND_NARROWER)
        with torch.autocast("cpu", dtype=dtype):
            training = logits_along(model, source_BS, WIDER_AND_NARROWER)
        ours = logits_along(frozen(model, Matmul(dtype)), source_BS, WIDER_AND_NARROWER)
        errors["ours"] += relative_error(ours, expected)
        errors["training"] += relative_error(training, expected)
    assert 0 < errors["ours"] < 1.5 * errors["training"]


def test_the_way_products_are_made_is_as_before(tiny_model, sources):
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        logits_along(frozen(tiny_model(), Matmul()), sources(3, 7), [2, 2])
        assert matmul.fp32_precision == "ieee"
    finally:
        matmul.fp32_precision = before


# What is not seen


@both_norms
def test_padding_is_invisible(norm, tiny_model, sources):
    model, source_BS = frozen(tiny_model(norm=norm), Matmul()), sources(4, 7)
    expected = logits_along(model, source_BS, WIDER_AND_NARROWER)
    for more in (1, ROW - 7, ROW, 2 * ROW + 1):
        wider_BS = F.pad(source_BS, (0, more), value=PAD)
        for logits_BWV, expected_BWV in zip(logits_along(model, wider_BS, WIDER_AND_NARROWER), expected, strict=True):
            assert_close(logits_BWV, expected_BWV)


@both_norms
def test_sentences_and_hypotheses_are_independent(norm, tiny_model, sources):
    """Each alone says what it says beside others."""
    model, source_BS = frozen(tiny_model(norm=norm), Matmul()), sources(4, 7)
    token_BWT = torch.randint(EOS, VOCAB_SIZE, (4, 3, 10), generator=torch.Generator().manual_seed(5))
    together = model.start(source_BS, width=3)
    alone = {(b, w): model.start(source_BS[b : b + 1], width=1) for b in range(4) for w in range(3)}
    for token_BW in token_BWT.unbind(dim=2):
        logits_BWV, together = model.step(token_BW, together)
        for (b, w), state in alone.items():
            logits_11V, alone[b, w] = model.step(token_BW[b : b + 1, w : w + 1], state)
            assert_close(logits_11V[0, 0], logits_BWV[b, w])


def test_longer_than_the_learned_positions_is_refused(tiny_model, sources):
    model = frozen(tiny_model(max_positions=5, positions="learned"), Matmul())
    state, token_BW = model.start(sources(2, 4), width=1), torch.full((2, 1), BOS)
    for _ in range(5):
        _, state = model.step(token_BW, state)
    with pytest.raises(TranslationError, match=message("more-than-learned-positions", "5")):
        model.step(token_BW, state)


# Forced decoding and attention


@pytest.fixture
def forms(tiny_model):
    """A Transformer, and an ensemble of two."""
    model, other = tiny_model(), tiny_model(seed=2, decoder_layers=4)
    return [model, Ensemble([model, other])]


def test_forced_decoding_is_that_of_the_transformer(tiny_model, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = tiny_model(), sources(4, 7), decoder_inputs(4, 6)
    expected_BTV = model(source_BS, decoder_input_BT)
    assert torch.equal(frozen(model, Matmul())(source_BS, decoder_input_BT), expected_BTV)


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
def test_attention_to_the_source_sums_to_one_and_leaves_padding_out(layer, forms, sources, decoder_inputs):
    source_BS, decoder_input_BT = sources(4, 7), decoder_inputs(4, 6)
    for model in forms:
        weights_BTS = attention_to_source(model, source_BS, decoder_input_BT, layer)
        assert weights_BTS.shape == (4, 6, 7)
        assert_close(weights_BTS.sum(dim=-1), torch.ones(4, 6, dtype=torch.float64))
        assert not weights_BTS.transpose(1, 2)[source_BS == PAD].any()
        assert (weights_BTS >= 0).all()


@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_attention_to_the_source_is_the_mean_of_the_heads_of_one_layer(num_layers, tiny_model, sources, decoder_inputs):
    """Of the last but one if none is named, or of the only one."""
    model, source_BS, decoder_input_BT = tiny_model(decoder_layers=num_layers), sources(4, 7), decoder_inputs(4, 6)
    cross_LBHTS = attention_weights(model, source_BS, decoder_input_BT).cross_LBHTS
    for layer in range(1, num_layers + 1):
        expected_BTS = cross_LBHTS[layer - 1].mean(dim=1)
        assert_close(attention_to_source(model, source_BS, decoder_input_BT, layer), expected_BTS)
    chosen_BTS = attention_to_source(model, source_BS, decoder_input_BT, 0)
    assert_close(chosen_BTS, cross_LBHTS[max(num_layers - 1, 1) - 1].mean(dim=1))


def test_attention_of_an_ensemble_is_the_mean_of_the_models(tiny_model, sources, decoder_inputs):
    models = [tiny_model(seed=1), tiny_model(seed=2, decoder_layers=1), tiny_model(seed=3, norm="pre", num_heads=4)]
    arguments = (sources(4, 7), decoder_inputs(4, 6), 0)
    weights_BTS = [attention_to_source(model, *arguments) for model in models]
    assert_close(attention_to_source(Ensemble(models), *arguments), sum(weights_BTS) / 3)


# What is frozen


def test_an_ensemble_is_frozen_model_by_model(tiny_model, sources):
    ensemble = Ensemble([tiny_model(seed=1), tiny_model(seed=2, norm="pre", d_model=24, num_heads=3)])
    together = frozen(ensemble, Matmul())
    assert all(isinstance(member, FrozenTransformer) for member in together.members())
    assert not together.training
    assert_steps_alike(ensemble, sources(4, 7), WIDER_AND_NARROWER, leaving=(5,))


@pytest.mark.parametrize("settings", [{"attention_score": "dot"}, {"attention_window": 2}])
def test_another_model_remains_as_it_is(settings, tiny_model):
    """As one does that is frozen already. In another precision it could not be."""
    model = frozen(tiny_model(), Matmul())
    assert frozen(model, Matmul()) is model
    model = tiny_model(**settings)
    assert frozen(model, Matmul()) is model
    for matmul in (Matmul(torch.bfloat16), Matmul(quantization="int8")):
        for whole in (model, Ensemble([tiny_model(), model])):
            with pytest.raises(TranslationError, match=message("precision-needs-scaled-dot")):
                frozen(whole, matmul)


@both_norms
def test_the_model_itself_is_left_as_it_was(norm, tiny_model, sources):
    model = tiny_model(norm=norm, activation="swiglu")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    logits_along(frozen(model, Matmul(torch.bfloat16)), sources(4, 7), WIDER_AND_NARROWER, leaving=(5,))
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
