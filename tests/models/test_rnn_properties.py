"""Properties of the recurrent encoder-decoder, for every combination that a configuration admits."""

import itertools

import torch
from helpers.thorough import each
from torch.nn import functional as F

from transformer_mt.base.languages import PAD
from transformer_mt.models.attention_weights import attention_to_source
from transformer_mt.training.loss import label_smoothed

DECODERS = [
    {"decoder": "luong", "input_feeding": True},
    {"decoder": "luong", "input_feeding": False},
    {"decoder": "bahdanau", "input_feeding": True},
]
ATTENTIONS = ["none", "dot", "scaled_dot", "general", "additive", "concat", "location", "fixed_concat"]


LOCAL = [{"local_attention": kind, "attention_window": 2} for kind in ("monotonic", "predictive")]


def combinations(attentions, local=(*LOCAL, {})):
    for cell, attention, decoder, layers in itertools.product(("gru", "lstm", "rnn"), attentions, DECODERS, (1, 2)):
        settings = {"cell": cell, "attention": attention, "encoder_layers": layers, "decoder_layers": layers} | decoder
        yield from (settings | window for window in local if not window or attention != "none")


def name(settings):
    fed = "" if settings["input_feeding"] else "unfed-"
    seen = settings.get("local_attention", "all")
    return f"{settings['cell']}-{settings['attention']}-{seen}-{fed}{settings['decoder']}-{settings['encoder_layers']}"


# Of every pair of choices, test_architectures.py holds what all architectures share.
every_combination = each("settings", combinations(ATTENTIONS), name, together=1)
every_combination_that_sees_all = each("settings", combinations(ATTENTIONS, local=[{}]), name, together=1)
every_combination_with_attention = each("settings", combinations(ATTENTIONS[1:]), name, together=1)


def assert_close(ours, theirs):
    """Models in fp64 differ in the last digits only."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@every_combination
@torch.no_grad()
def test_stepping_is_teacher_forcing(settings, tiny_rnn, sources):
    """Of hypotheses that go on from each other's, as in a beam, fewer at the end; and with sentences dropped."""
    model, source_BS, generator = tiny_rnn(**settings), sources(4, 6), torch.Generator().manual_seed(3)
    state = model.start(source_BS, width=1)
    tokens_BWT = torch.full((4, 1, 1), 4)
    for width in (3, 3, 3, 2):
        logits_BWV, state = model.step(tokens_BWT[..., -1], state)
        B, W, T = tokens_BWT.shape
        rows = model(source_BS.repeat_interleave(W, dim=0), tokens_BWT.flatten(0, 1))
        assert_close(logits_BWV, rows[:, -1].view(B, W, -1))
        parent_BW = torch.randint(0, W, (B, width), generator=generator)
        state = state.follow(parent_BW)
        word_BW1 = torch.randint(4, 11, (B, width, 1), generator=generator)
        tokens_BWT = torch.cat([tokens_BWT.gather(1, parent_BW[..., None].expand(-1, -1, T)), word_BW1], dim=-1)
        if T == 2:
            kept = torch.tensor([3, 1])
            state, source_BS, tokens_BWT = state.keep(kept), source_BS[kept], tokens_BWT[kept]


@every_combination
@torch.no_grad()
def test_padding_is_invisible(settings, tiny_rnn, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = tiny_rnn(**settings), sources(4, 5), decoder_inputs(4, 6)
    logits_BTV = model(source_BS, decoder_input_BT)
    assert_close(model(F.pad(source_BS, (0, 3), value=PAD), decoder_input_BT), logits_BTV)
    assert_close(model(source_BS, F.pad(decoder_input_BT, (0, 3), value=PAD))[:, :6], logits_BTV)


@every_combination
@torch.no_grad()
def test_the_future_is_invisible_and_the_past_is_not(settings, tiny_rnn, sources):
    model, source_BS = tiny_rnn(**settings), sources(3, 5)
    decoder_input_BT = torch.randint(4, 10, (3, 6), generator=torch.Generator().manual_seed(3))
    logits_BTV = model(source_BS, decoder_input_BT)
    for position in (1, 3, 5):
        other_BT = decoder_input_BT.clone()
        other_BT[:, position] += 1
        other_BTV = model(source_BS, other_BT)
        assert_close(other_BTV[:, :position], logits_BTV[:, :position])
        assert (other_BTV - logits_BTV)[:, position:].abs().amax(dim=-1).min() > 1e-9


@every_combination_that_sees_all
@torch.no_grad()
def test_every_source_word_is_seen_from_every_target_position(settings, tiny_rnn, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = tiny_rnn(**settings), sources(1, 5), decoder_inputs(1, 4)
    logits_BTV = model(source_BS, decoder_input_BT)
    for position in range(5):
        other_BS = source_BS.clone()
        other_BS[:, position] = torch.where(other_BS[:, position] == 4, 5, 4)
        assert (model(other_BS, decoder_input_BT) - logits_BTV).abs().amax(dim=-1).min() > 1e-9


@every_combination
@torch.no_grad()
def test_rows_are_independent(settings, tiny_rnn, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = tiny_rnn(**settings), sources(4, 6), decoder_inputs(4, 5)
    logits_BTV = model(source_BS, decoder_input_BT)
    for source_S, decoder_input_T, logits_TV in zip(source_BS, decoder_input_BT, logits_BTV, strict=True):
        alone_1TV = model(source_S[source_S != PAD][None], decoder_input_T[decoder_input_T != PAD][None])
        assert_close(alone_1TV[0], logits_TV[: alone_1TV.shape[1]])


@every_combination
def test_gradients_reach_every_parameter(settings, tiny_rnn, sources, decoder_inputs):
    """But concat's map of the query: it adds the same to all scores of a query, which softmax does not see."""
    model, source_BS, decoder_input_BT = (
        tiny_rnn(**settings, tied_embeddings="none"),
        sources(4, 6),
        decoder_inputs(4, 5),
    )
    features_BTD = model.features(source_BS, decoder_input_BT)
    labels_BT = torch.randint(4, 11, (4, 5), generator=torch.Generator().manual_seed(3))
    label_smoothed(features_BTD.flatten(0, 1), model.output_VD, labels_BT.flatten(), 0.1).smoothed.backward()
    unreached = {name for name, weight in model.named_parameters() if weight.grad.abs().max() < 1e-12}
    assert unreached == ({"decoder.context.score.query_weight_HQ1"} if settings["attention"] == "concat" else set())


@every_combination_with_attention
@torch.no_grad()
def test_attention_to_the_source_sums_to_one_over_its_words(settings, tiny_rnn, sources, decoder_inputs):
    """But where it is multiplied by nearness (local-p), to less."""
    model, source_BS, decoder_input_BT = tiny_rnn(**settings), sources(4, 6), decoder_inputs(4, 5)
    attention_BTS = attention_to_source(model, source_BS, decoder_input_BT, layer=0)
    assert attention_BTS.shape == (4, 5, 6)
    sums_BT = attention_BTS.sum(dim=-1)
    if settings.get("local_attention") == "predictive":
        assert sums_BT.min() > 0 and sums_BT.max() < 1
    else:
        assert_close(sums_BT, torch.ones(4, 5).double())
    assert attention_BTS.masked_select((source_BS == PAD)[:, None]).abs().max() == 0
