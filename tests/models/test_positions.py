"""Positions: the paper's sinusoids, which go on, and learned ones, which do not."""

import math

import pytest
import torch
from helpers.messages import message
from helpers.packing import pack
from torch.nn import functional as F

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import PAD
from transformer_mt.models.convolutional import LearnedPositions
from transformer_mt.models.embeddings import SinusoidalPositions, sinusoidal
from transformer_mt.models.layouts import unpadded

# Sinusoids


def test_position_encodings_are_the_formula_of_the_paper():
    d_model = 6
    encodings_TD = sinusoidal(1024, d_model)
    assert encodings_TD.shape == (1024, d_model)
    assert encodings_TD.dtype == torch.float32
    for position in (0, 1, 2, 17, 500, 1023):
        for pair in range(d_model // 2):
            angle = position / 10000 ** (2 * pair / d_model)
            assert encodings_TD[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert encodings_TD[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_position_encodings_at_entries_worked_by_hand():
    expected = [[0.0, 1.0, 0.0, 1.0], [0.841471, 0.540302, 0.0099998, 0.99995]]  # sin 1, cos 1, sin 0.01, cos 0.01
    torch.testing.assert_close(sinusoidal(2, 4), torch.tensor(expected), rtol=0, atol=1e-6)


def test_a_shift_of_positions_is_one_linear_map_of_their_encodings():
    """What the paper chose sinusoids for: PE(pos + k) = M PE(pos), whatever pos; M turns each pair by an angle."""
    encodings_TD = sinusoidal(200, 16)
    for shift in (1, 5, 40):
        angles = [shift / 10000 ** (2 * pair / 16) for pair in range(8)]
        turns = [torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles]
        map_DD = torch.block_diag(*turns)
        torch.testing.assert_close(encodings_TD[:-shift] @ map_DD.T, encodings_TD[shift:], rtol=0, atol=1e-5)


def test_position_encodings_differ_and_lie_between_minus_one_and_one():
    encodings_TD = sinusoidal(1024, 32)
    assert encodings_TD.abs().max() <= 1
    distances_TT = torch.cdist(encodings_TD, encodings_TD).fill_diagonal_(math.inf)
    assert distances_TT.min() > 0.1


def test_the_table_grows_with_the_sentences_and_goes_on_exactly():
    positions = SinusoidalPositions(8, 6)
    for num_positions in (3, 8, 9, 30, 5):
        assert torch.equal(positions.first(num_positions), sinusoidal(num_positions, 6))
    assert not positions.state_dict(), "they are made, not kept"


def test_sinusoids_go_on_beyond_max_positions(tiny_model, sources, decoder_inputs):
    """In teacher forcing and step by step, as if there had been room from the first."""
    source_BS, decoder_input_BT = sources(2, 9), decoder_inputs(2, 11)
    with torch.no_grad():
        expected_BTV = tiny_model(max_positions=64)(source_BS, decoder_input_BT)
        torch.testing.assert_close(tiny_model(max_positions=4)(source_BS, decoder_input_BT), expected_BTV)
        model = tiny_model(max_positions=4)
        state = model.start(source_BS, width=1)
        for t, token_B1 in enumerate(decoder_input_BT.split(1, dim=1)):
            logits_B1V, state = model.step(token_B1, state)
            torch.testing.assert_close(logits_B1V[:, 0], expected_BTV[:, t])


# Learned


def test_learned_positions_are_rows_of_a_table():
    torch.manual_seed(1)
    positions = LearnedPositions(300, 64)
    assert positions.table_TD.std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert torch.equal(positions.first(5), positions.table_TD[:5])
    assert list(positions.state_dict()) == ["table_TD"]
    with pytest.raises(TranslationError, match=message("more-than-learned-positions", "301", "300")):
        positions.first(301)


def test_learned_positions_are_trained_as_far_as_sentences_go(tiny_model, sources, decoder_inputs):
    """In all layouts by the same gradient, which padding has no part in."""
    source_BS, decoder_input_BT = F.pad(sources(4, 5), (0, 3), value=PAD), decoder_inputs(4, 7)
    longest = int((decoder_input_BT != PAD).sum(dim=1).max())
    model, found = tiny_model(max_positions=12, positions="learned"), []
    for arranged in (lambda ids: ids, unpadded, pack):
        features = model.features(arranged(source_BS), arranged(decoder_input_BT))
        if features.dim() == 3:
            features = features[decoder_input_BT != PAD]
        real_ND = features[: int((decoder_input_BT != PAD).sum())]
        weights_ND = torch.randn(real_ND.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        found.append(torch.autograd.grad((real_ND * weights_ND).sum(), model.positions.table_TD)[0])
    for gradient_TD in found:
        torch.testing.assert_close(gradient_TD, found[0])
        assert (gradient_TD[:longest].abs().amax(dim=1) > 1e-6).all()
        assert not gradient_TD[longest:].any()


def test_sentences_longer_than_the_learned_positions_are_refused(tiny_model):
    model = tiny_model(max_positions=6, positions="learned")
    fits, too_long = torch.full((1, 6), 4), torch.full((1, 7), 4)
    assert model(fits, fits).isfinite().all()
    for source_BS, decoder_input_BT in ((too_long, fits), (fits, too_long)):
        with pytest.raises(TranslationError, match=message("more-than-learned-positions", "6")):
            model(source_BS, decoder_input_BT)
    state = model.start(fits, width=1)
    for token_B1 in fits.split(1, dim=1):
        _, state = model.step(token_B1, state)
    with pytest.raises(TranslationError, match=message("more-than-learned-positions", "6")):
        model.step(fits[:, :1], state)
