"""The recurrent encoder-decoder: its parts by hand, and the laws of every combination that a configuration admits."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from transformer_mt.model_settings import RnnConfig
from transformer_mt.models.build import build_model
from transformer_mt.vocabulary import PAD

TINY = {"kind": "rnn", "d_model": 12, "dropout": 0.0, "max_positions": 16}
DECODERS = [
    {"decoder": "luong", "input_feeding": True},
    {"decoder": "luong", "input_feeding": False},
    {"decoder": "bahdanau"},
]
ATTENTIONS = ["none", "dot", "scaled_dot", "general", "additive", "concat", "fixed_concat"]


def name(settings):
    words = [settings["cell"], settings["attention"], settings["decoder"], str(settings["decoder_layers"])]
    return "-".join(words) + ("" if settings.get("input_feeding", True) else "-not-fed")


def combinations():
    for cell, attention, decoder, layers in itertools.product(("gru", "lstm"), ATTENTIONS, DECODERS, (1, 2)):
        settings = {"cell": cell, "attention": attention, "encoder_layers": layers, "decoder_layers": layers} | decoder
        yield pytest.param(settings, id=name(settings))


every_combination = pytest.mark.parametrize("settings", list(combinations()))


def assert_close(ours, theirs):
    """Models in fp64 differ in the last digits only."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def rnn(vocab_size=11, seed=1, **settings):
    """In fp64, in evaluation mode, and moved: fresh biases are 0, which hides mistakes."""
    torch.manual_seed(seed)
    model = build_model(RnnConfig.model_validate(TINY | settings), vocab_size, vocab_size).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
    return model.eval()


# Laws


@every_combination
def test_stepping_is_teacher_forcing(settings, sources, decoder_inputs):
    """With three hypotheses a sentence, which follow each other at random, and sentences that are dropped."""
    model, source_BS, width, length = rnn(**settings), sources(4, 6), 3, 5
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        state = model.start(source_BS, width=1).follow(torch.zeros(4, width, dtype=torch.long))
        tokens_BWT = torch.randint(4, 11, (4, width, 1), generator=generator)
        for t in range(length):
            logits_BWV, state = model.step(tokens_BWT[..., -1], state)
            for w in range(width):
                assert_close(logits_BWV[:, w], model(source_BS, tokens_BWT[:, w])[:, -1])
            parent_BW = torch.randint(0, width, tokens_BWT.shape[:2], generator=generator)
            state = state.follow(parent_BW)
            tokens_BWT = tokens_BWT.gather(1, parent_BW[..., None].expand(-1, -1, t + 1))
            next_BW1 = torch.randint(4, 11, (*tokens_BWT.shape[:2], 1), generator=generator)
            tokens_BWT = torch.cat([tokens_BWT, next_BW1], dim=-1)
            if t == 2:
                kept = torch.tensor([3, 1])
                state, source_BS, tokens_BWT = state.keep(kept), source_BS[kept], tokens_BWT[kept]


@every_combination
def test_padding_is_invisible(settings, sources, decoder_inputs):
    model, source_BS, decoder_input_BT = rnn(**settings), sources(4, 5), decoder_inputs(4, 6)
    with torch.no_grad():
        logits_BTV = model(source_BS, decoder_input_BT)
        assert_close(model(F.pad(source_BS, (0, 3), value=PAD), decoder_input_BT), logits_BTV)
        assert_close(model(source_BS, F.pad(decoder_input_BT, (0, 3), value=PAD))[:, :6], logits_BTV)
