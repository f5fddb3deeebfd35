"""Properties of models, search and training, for every combination of settings that a configuration admits.

What recurrent models see, and that they step as they are forced, is in test_rnn_laws.py.
"""

from itertools import groupby, product

import pytest
import torch
from helpers.messages import message
from helpers.packing import pack
from helpers.plain_search import (
    VOCAB_SIZE,
    assert_same,
    beam_search,
    every_translation,
    greedy,
    penalised,
    plain_beam_search,
    teacher_forced,
)
from helpers.thorough import each, thorough
from helpers.tiny import assert_same_weights, train_tiny, weights_at
from pydantic import TypeAdapter, ValidationError
from torch.nn import functional as F

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.batches.batching import Batch
from transformer_mt.decoding.engine import Sentence
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.inference.fast import build_model
from transformer_mt.inference.frozen import frozen
from transformer_mt.kernels.device import choose_device
from transformer_mt.kernels.matmul import Matmul
from transformer_mt.models.attention_weights import attention_weights
from transformer_mt.models.layouts import Sentences, unpadded
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.learning import BatchLoss, Learner, MovingAverage
from transformer_mt.training.loop import one_update
from transformer_mt.training.run.beginning import choose_layout

SCORES = ["dot", "scaled_dot", "general", "additive", "concat"]
ACTIVATIONS, TIES = ["relu", "gelu", "swiglu"], ["all", "target", "none"]
DECODERS = [("luong", True), ("luong", False), ("bahdanau", True)]
LOCAL = {"kind": "rnn", "local_attention": "predictive", "attention_window": 2}
CAPS = [6, 3, 1, 5]  # the lengths that translations may have
FP32 = choose_device("cpu", "fp32", 1)


def transformers():
    """Scores, norms, windows and positions in all combinations; each activation and tie with each of those."""
    for i, (score, norm, window, positions) in enumerate(
        product(SCORES, ["post", "pre"], [0, 2], ["sinusoidal", "learned"])
    ):
        choices = {"attention_score": score, "norm": norm, "attention_window": window, "positions": positions}
        choices |= {"attention_scale": score != "scaled_dot" and i % 3 == 0}
        choices |= {"additive_bias": score == "additive" and i % 2 == 0, "output_bias": i % 3 == 1}
        yield choices | {"activation": ACTIVATIONS[i % 3], "tied_embeddings": TIES[(i + i // 3) % 3]}


def recurrent():
    for i, (cell, attention, (decoder, fed)) in enumerate(
        product(["gru", "lstm", "rnn"], ["none", *SCORES, "location", "fixed_concat"], DECODERS)
    ):
        choices = {"kind": "rnn", "cell": cell, "attention": attention, "decoder": decoder, "input_feeding": fed}
        if attention != "none" and i % 4:
            choices |= {"local_attention": ("none", "monotonic", "predictive")[i % 4 - 1]}
            choices |= {"attention_window": 0 if i % 4 == 1 else 2}
        yield choices | {"tied_embeddings": TIES[(i + i // 3) % 3], "output_bias": i % 3 == 1}


def convolutional():
    for i, (width, encoder_layers, decoder_layers) in enumerate(product([3, 5], [1, 2], [1, 2])):
        choices = {"kind": "convolutional", "kernel_width": width, "tied_embeddings": TIES[i % 3]}
        yield choices | {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers, "output_bias": i % 3 == 1}


def name(settings):
    return "-".join(str(value) for value in settings.values())


every_transformer = each("settings", transformers(), name)
every_one_of_positions = each("settings", [*transformers(), *convolutional()], name)
every_architecture = each("settings", [*transformers(), *recurrent(), *convolutional()], name)
# Search and training know a model by its steps and its features alone, which the tests of models hold for every pair;
# a precision is that of each product.
every_choice = each("settings", [*transformers(), *recurrent(), *convolutional()], name, together=1)


@pytest.fixture
def new_model(tiny_model, tiny_rnn, tiny_convolutional):
    """A function that gives a model of these settings, in fp64."""

    def build(settings, vocab_size=11):
        kinds = {"transformer": tiny_model, "rnn": tiny_rnn, "convolutional": tiny_convolutional}
        return kinds[settings.get("kind", "transformer")](vocab_size, **settings)

    return build


def config_of(settings):
    return TypeAdapter(ModelConfig).validate_python(settings)


def fresh_model(settings):
    """In fp32, and not sharpened: roundings stay small."""
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "dropout": 0.0, "max_positions": 16}
    if "kind" not in settings:
        sizes |= {"num_heads": 2, "ffn_dim": 24}
    torch.manual_seed(1)
    return build_model(config_of(sizes | settings), 11, 11)


@pytest.fixture
def searched(new_model, sources):
    """A function that gives a model in its form for search, and sources."""

    def build(settings, count=4):
        model = frozen(new_model(settings, VOCAB_SIZE), Matmul())
        return model, sources(count, 6, VOCAB_SIZE)

    return build


def assert_close(ours, theirs):
    """Models in fp64 differ in the last digits only."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


# Models


@every_one_of_positions
@torch.no_grad()
def test_stepping_is_teacher_forcing(settings, new_model, sources):
    """Hypotheses go on from others, become more and fewer, and sentences leave and change places."""
    model, source_BS, generator = new_model(settings), sources(4, 6), torch.Generator().manual_seed(1)
    words_BWT = torch.empty(4, 2, 0, dtype=torch.int64)
    state = model.start(source_BS, width=2)
    for position, width in enumerate([2, 3, 3, 5, 2, 1, 4, 4]):
        B, before = words_BWT.shape[:2]
        parent_BW = torch.randint(0, before, (B, width), generator=generator)
        state, words_BWT = state.follow(parent_BW), words_BWT[torch.arange(B)[:, None], parent_BW]
        if position in (2, 5):
            kept = torch.randperm(B, generator=generator)[: B - 1]
            state, words_BWT, source_BS = state.keep(kept), words_BWT[kept], source_BS[kept]
        token_BW = torch.randint(EOS, 11, words_BWT.shape[:2], generator=generator)
        words_BWT = torch.cat([words_BWT, token_BW[..., None]], dim=2)
        logits_BWV, state = model.step(token_BW, state)
        forced = model(source_BS.repeat_interleave(width, dim=0), words_BWT.flatten(0, 1))[:, -1]
        assert_close(logits_BWV, forced.view_as(logits_BWV))


@pytest.mark.thorough
@every_one_of_positions
@torch.no_grad()
def test_padding_is_invisible_and_rows_are_independent(settings, new_model, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = new_model(settings), sources(4, 5), decoder_inputs(4, 6)
    wider_BS, wider_BT = (F.pad(ids, (0, 7), value=PAD) for ids in (source_BS, decoder_input_BT))
    logits_BTV = model(wider_BS, wider_BT)
    for row in range(4):
        source_S, decoder_input_T = (ids[row, ids[row] != PAD] for ids in (source_BS, decoder_input_BT))
        alone_TV = model(source_S[None], decoder_input_T[None])[0]
        assert_close(logits_BTV[row, : len(alone_TV)], alone_TV)


@pytest.mark.thorough
@every_one_of_positions
@torch.no_grad()
def test_the_future_is_invisible_and_the_past_is_not(settings, new_model, sources):
    model, source_BS = new_model(settings), sources(3, 5)
    decoder_input_BT = torch.full((3, 6), 4)
    logits_BTV = model(source_BS, decoder_input_BT)
    for position in range(6):
        other_BT = decoder_input_BT.clone()
        other_BT[:, position] = 5
        other_BTV = model(source_BS, other_BT)
        assert_close(other_BTV[:, :position], logits_BTV[:, :position])
        changes_BT = (other_BTV - logits_BTV)[:, position : position + 3].abs().amax(dim=-1)
        assert changes_BT.min() > 1e-9


@every_transformer
def test_a_window_hides_what_is_further(settings, new_model, sources):
    """In one layer; each layer more sees as far again. The encoder reads both ways, the decoder back."""
    one = settings | {"encoder_layers": 1, "decoder_layers": 1}
    model, window = new_model(one), settings["attention_window"]
    source_1S, decoder_input_1T = torch.full((1, 8), 4), torch.full((1, 8), 4)
    weights = attention_weights(model, source_1S, decoder_input_1T)
    after_TT = torch.arange(8) - torch.arange(8)[:, None]
    near_TT = after_TT.abs() <= (window or 8)
    assert torch.equal(weights.encoder_LBHSS > 0, near_TT.expand_as(weights.encoder_LBHSS))
    assert torch.equal(weights.decoder_LBHTT > 0, (near_TT & (after_TT <= 0)).expand_as(weights.decoder_LBHTT))
    assert (weights.cross_LBHTS > 0).all()


@pytest.mark.thorough
@every_architecture
def test_other_layouts_are_padded_rows_forward_and_backward_or_refused(settings, new_model, sources, decoder_inputs):
    """Far more padding than a window is wide included."""
    model = new_model(settings)
    if config_of(settings).kind != "transformer":
        return  # it takes ids in padded rows
    source_BS, decoder_input_BT = (F.pad(ids, (0, 5), value=PAD) for ids in (sources(4, 7), decoder_inputs(4, 6)))
    real_BT = decoder_input_BT != PAD
    padded_ND = model.features(Sentences(source_BS), Sentences(decoder_input_BT))[real_BT]
    weights_ND = torch.randn(padded_ND.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model.zero_grad()
    (padded_ND * weights_ND).sum().backward()
    expected = {key: weight.grad for key, weight in model.named_parameters() if weight.grad is not None}
    assert all(gradient.isfinite().all() for gradient in expected.values())
    by_itself = (lambda ids: ids, real_BT) if config_of(settings).attention_window else (unpadded, slice(None))
    for arranged, rows in ((pack, slice(len(padded_ND))), by_itself):
        arguments = arranged(source_BS), arranged(decoder_input_BT)
        if config_of(settings).why_not_packed() and arranged in (pack, unpadded):
            with pytest.raises(AssertionError, match="rows"):
                model.features(*arguments)
            continue
        features_ND = model.features(*arguments)[rows]
        assert_close(features_ND, padded_ND)
        model.zero_grad()
        (features_ND * weights_ND).sum().backward()
        for key, gradient in expected.items():
            assert_close(model.get_parameter(key).grad, gradient)


@pytest.mark.thorough
@every_choice
def test_half_precision_is_near(settings, sources, decoder_inputs):
    """In teacher forcing, its gradient, and step by step."""
    model, source_BS, decoder_input_BT = fresh_model(settings), sources(4, 6), decoder_inputs(4, 7)
    real_BT = decoder_input_BT != PAD
    expected_NV = model(source_BS, decoder_input_BT)[real_BT]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        forced_NV = model(source_BS, decoder_input_BT)[real_BT].float()
        state, stepped = model.start(source_BS, width=1), []
        for token_B1 in decoder_input_BT.split(1, dim=1):
            logits_B1V, state = model.step(token_B1, state)
            stepped.append(logits_B1V.float())
    forced_NV.square().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)
    for found_NV in (forced_NV, torch.cat(stepped, dim=1)[real_BT]):
        assert (found_NV - expected_NV).norm() < 0.05 * expected_NV.norm()


EVERY_KIND = ["transformer", "rnn", "convolutional"]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("kind", EVERY_KIND)
@torch.no_grad()
def test_an_output_bias_is_added_to_the_logits(kind, ties, new_model, sources, decoder_inputs):
    """In teacher forcing and in the steps of the form for search."""
    model = new_model({"kind": kind, "tied_embeddings": ties, "output_bias": True})
    source_BS, decoder_input_BT, bias_V = sources(4, 6), decoder_inputs(4, 7), model.output_bias_V.clone()
    forced_BTV, (stepped_BWV, *_) = model(source_BS, decoder_input_BT), stepped(model, source_BS)
    model.output_bias_V.zero_()
    assert bias_V.abs().min() > 1e-4
    assert_close(forced_BTV, model(source_BS, decoder_input_BT) + bias_V)
    assert_close(stepped_BWV, stepped(model, source_BS)[0] + bias_V)


def stepped(model, source_BS):
    searched = frozen(model, Matmul())
    return searched.step(torch.full((len(source_BS), 2), BOS), searched.start(source_BS, width=2))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_an_output_bias_is_zero_at_first_and_there_only_if_it_is_asked_for(kind):
    settings = {} if kind == "transformer" else {"kind": kind}
    models = [fresh_model(settings | {"output_bias": asked}) for asked in (False, True)]
    without, biased = (model.state_dict() for model in models)
    assert biased.keys() - without.keys() == {"output_bias_V"}
    assert torch.equal(biased.pop("output_bias_V"), torch.zeros(11))
    assert_same_weights(without, biased)


# Search


@every_choice
@torch.no_grad()
def test_beam_search_is_the_plain_one_alone_and_beside_others(settings, searched):
    """Whose scores are those of teacher forcing."""
    model, source_BS = searched(settings)
    for hypotheses, source_S, cap in zip(beam_search(model, source_BS, 3, 0.6, CAPS), source_BS, CAPS, strict=True):
        source_1S = source_S[None, source_S != PAD]
        (alone,) = beam_search(model, source_1S, 3, 0.6, [cap])
        assert_same(hypotheses, alone)
        expected = plain_beam_search(model, source_1S, 3, 0.6, cap)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for tokens, _ in expected]
        for hypothesis in hypotheses:
            log_prob = teacher_forced(model, source_1S, hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(log_prob, rel=1e-5)
            assert hypothesis.score == pytest.approx(penalised(log_prob, len(hypothesis.tokens), 0.6), rel=1e-5)


@pytest.mark.thorough
@every_choice
@torch.no_grad()
def test_a_beam_of_one_is_greedy(settings, searched):
    model, source_BS = searched(settings)
    found = beam_search(model, source_BS, 1, 0.0, CAPS)
    assert_same([hypothesis for (hypothesis,) in found], greedy(model, source_BS, CAPS))


@every_choice
@torch.no_grad()
def test_a_beam_of_everything_finds_the_best_of_everything(settings, searched):
    model, source_BS = searched(settings, count=1)
    everything = list(every_translation(3))
    scores = {}
    for length, group in groupby(everything, key=len):
        tokens_BT = torch.tensor(list(group))
        decoder_input_BT = torch.cat([torch.full((len(tokens_BT), 1), BOS), tokens_BT[:, :-1]], dim=1)
        log_probs_BTV = model(source_BS.expand(len(tokens_BT), -1), decoder_input_BT).log_softmax(dim=-1)
        for tokens_T, log_probs_TV in zip(tokens_BT, log_probs_BTV, strict=True):
            scores[tuple(tokens_T.tolist())] = penalised(
                log_probs_TV[range(length), tokens_T].sum().item(), length, 0.6
            )
    ((hypothesis, *_),) = beam_search(model, source_BS, len(everything), 0.6, [3])
    assert tuple(hypothesis.tokens) == max(scores, key=scores.__getitem__)
    assert hypothesis.score == pytest.approx(max(scores.values()), rel=1e-5)


@every_choice
def test_the_engine_scores_what_it_found_as_the_search_did(settings, new_model, sources):
    engine = TorchEngine(new_model(settings, VOCAB_SIZE).float(), max_positions=16, device=FP32)
    given = [source_S[source_S != PAD].tolist() for source_S in sources(4, 6, VOCAB_SIZE)]
    sentences = [Sentence(ids, number=number) for number, ids in enumerate(given)]
    for decoding in (DecodingConfig(beam_size=3, n_best=3), DecodingConfig(sampling=True, n_best=2)):
        for source, hypotheses in zip(given, engine.translate(sentences, decoding), strict=True):
            scores = engine.score([(source, hypothesis.tokens) for hypothesis in hypotheses])
            for hypothesis, log_probs_T in zip(hypotheses, scores, strict=True):
                assert hypothesis.log_prob == pytest.approx(sum(log_probs_T), abs=1e-3)


# Training


@every_choice
def test_one_update_over_micro_batches_is_one_over_their_union(settings, sources, decoder_inputs):
    source_BS, decoder_input_BT = sources(6, 6), decoder_inputs(6, 7)
    labels_BT = decoder_input_BT.roll(-1, dims=1)
    labels_BT[:, -1] = PAD
    labels_BT[range(6), (decoder_input_BT != PAD).sum(dim=1) - 1] = EOS
    num_labels = int((labels_BT != PAD).sum())
    union = Batch(source_BS, decoder_input_BT, labels_BT, torch.arange(6), num_labels)
    parts = [part for half in union.halves() for part in half.halves()]
    assert len({part.num_labels for part in parts}) > 1, "of unequal sizes, so that a mean of means would show"

    def updated(batches):
        model, training = fresh_model(settings).train(), TrainingConfig(clip_norm=0.0)
        before = {key: weight.detach().clone() for key, weight in model.named_parameters()}
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, fused=True)
        learner = Learner(
            BatchLoss(model, FP32, training.label_smoothing, False), optimizer, MovingAverage(model, 0), training
        )
        update = one_update(learner, batches, 1.0, 1)
        return {key: weight.detach() - before[key] for key, weight in model.named_parameters()}, update

    (apart, update), (together, of_union) = updated(parts), updated([union])
    torch.testing.assert_close(update.numbers.nll, of_union.numbers.nll, rtol=1e-5, atol=0)
    torch.testing.assert_close(update.numbers.gradient_norm, of_union.numbers.gradient_norm, rtol=1e-4, atol=0)
    assert update.numbers.gradient_norm > 1e-3
    for key, moved in apart.items():
        torch.testing.assert_close(moved, together[key], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_loss_of_a_model_is_that_of_its_logits(kind, new_model, sources, decoder_inputs):
    """With its output bias, whose gradient is that of the formula."""
    model, source_BS, decoder_input_BT = (
        new_model({"kind": kind, "output_bias": True}),
        sources(4, 6),
        decoder_inputs(4, 7),
    )
    labels_BT = decoder_input_BT.roll(-1, dims=1).masked_fill(decoder_input_BT == PAD, PAD)
    labels_BT[labels_BT == BOS] = EOS
    batch = Batch(source_BS, decoder_input_BT, labels_BT, torch.arange(4), int((labels_BT != PAD).sum()))
    ours = BatchLoss(model.float(), FP32, 0.1, False)(batch).smoothed
    logits_NV = model(source_BS, decoder_input_BT).flatten(0, 1)
    plain = {"label_smoothing": 0.1, "reduction": "sum", "ignore_index": PAD}
    theirs = F.cross_entropy(logits_NV, labels_BT.flatten(), **plain)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(loss, [*model.parameters()]) for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


RESUMED = [
    *thorough({"attention_score": "additive", "attention_window": 2, "positions": "learned", "norm": "pre"}),
    {"kind": "convolutional", "kernel_width": 3, "output_bias": "true"},
    *thorough({"attention_window": 1, "activation": "swiglu"}, {"kind": "rnn", "cell": "gru", "attention": "none"}),
    *thorough({"kind": "rnn", "cell": "lstm", "attention": "fixed_concat", "decoder": "bahdanau"}),
]


@pytest.mark.parametrize("settings", RESUMED, ids=name)
def test_stopped_and_taken_up_is_unbroken_bit_for_bit(settings, experiment, tmp_path):
    choices = [f"model.{key}={value}" for key, value in settings.items()]
    if "kind" in settings:
        choices = ["model={d_model: 16}", *choices]
    choices += ["training.validate_every=100", "training.save_every=100"]
    unbroken = train_tiny(experiment, tmp_path / "unbroken", *choices, "training.max_steps=6")
    stopped = train_tiny(experiment, tmp_path / "stopped", *choices, "training.max_steps=3")
    train_tiny(experiment, stopped, *choices, "training.max_steps=6")
    assert_same_weights(weights_at(stopped, 6), weights_at(unbroken, 6))


# What is refused


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"attention_score": "fixed_concat"}, "'dot', 'scaled_dot', 'general', 'additive' or 'concat'"),
        ({"attention_score": "none"}, "'dot', 'scaled_dot'"),
        ({"attention_window": -1}, "greater than or equal to 0"),
        ({"cell": "lstm"}, "cell"),
        ({"kind": "cnn"}, "transformer, rnn or convolutional"),
        ({"kind": "rnn", "positions": "learned"}, "positions"),
        ({"kind": "convolutional", "kernel_width": 1}, "greater than or equal to 3"),
        ({"kind": "convolutional", "num_heads": 2}, "num_heads"),
    ],
)
def test_values_that_a_key_cannot_have_are_refused_by_their_type(settings, reason):
    with pytest.raises(ValidationError, match=reason):
        config_of(settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"d_model": 15, "num_heads": 5}, ("odd-width-for-sinusoids", "d_model=15")),
        ({"d_model": 16, "num_heads": 5}, ("heads-do-not-divide", "num_heads=5", "d_model=16")),
        ({"kind": "rnn", "attention_window": 2}, ("local-attention-and-window", "attention_window=2")),
        ({"kind": "rnn", "local_attention": "monotonic"}, ("local-attention-and-window", "=monotonic", "=monotonic")),
        (LOCAL | {"attention": "none"}, ("local-without-attention", "local_attention=predictive")),
        ({"attention_scale": True}, ("attention-scale-unfit", "attention_score=scaled_dot", "sqrt")),
        ({"kind": "rnn", "attention": "none", "attention_scale": True}, ("attention-scale-unfit", "attention=none")),
        ({"additive_bias": True}, ("additive-bias-unfit", "attention_score=additive", "attention_score=scaled_dot")),
        (
            {"kind": "rnn", "attention": "dot", "additive_bias": True},
            ("additive-bias-unfit", "attention=additive", "attention=dot"),
        ),
        ({"kind": "convolutional", "kernel_width": 4}, ("kernel-width-even", "kernel_width=4")),
        ({"kind": "rnn", "d_model": 15}, ("odd-width-for-directions", "d_model=15")),
        ({"kind": "rnn", "decoder": "bahdanau", "input_feeding": False}, ("input-feeding-unfit",)),
    ],
)
def test_combinations_that_make_no_sense_are_refused_with_a_reason(settings, expected):
    with pytest.raises(ValidationError, match=message(*expected)):
        config_of(settings)


def test_an_odd_width_has_no_sinusoids_but_learned_positions():
    assert config_of({"d_model": 15, "num_heads": 5, "positions": "learned"})


@every_choice
def test_sentences_are_packed_only_where_attention_can(settings):
    config, packed = config_of(settings), TrainingConfig(layout="packed")
    scaled = settings.get("attention_scale")
    if settings.get("attention_score") == ("dot" if scaled else "scaled_dot"):
        assert choose_layout(packed, config, FP32) == "packed"
        return
    with pytest.raises(ConfigError, match=message("packing-impossible")):
        choose_layout(packed, config, FP32)
    assert choose_layout(TrainingConfig(), config, FP32) == "padded"
