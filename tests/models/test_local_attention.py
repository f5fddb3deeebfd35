"""Local attention is the formulas of Luong et al. 2015, sec. 3.2, a number at a time."""

import math

import pytest
import torch

from transformer_mt.base.languages import PAD
from transformer_mt.models.rnn import SourceWindow


def weights_by_hand(model, source_S, state_D, word, states_SD):
    """Weights of the source positions for the state of the word with that number, counted from 1."""
    length, D = len(source_S), model.decoder.context.window.half_width
    if model.decoder.context.window.predicts:
        window = model.decoder.context.window
        p = length * torch.sigmoid(window.to_centre.weight[0] @ torch.tanh(window.inner.weight @ state_D)).item()
    else:
        p = min(word, length)
    seen = [s for s in range(1, length + 1) if p - D <= s <= p + D]
    exps = {s: math.exp(state_D @ states_SD[s - 1]) for s in seen}
    align = {s: value / sum(exps.values()) for s, value in exps.items()}
    if model.decoder.context.window.predicts:
        align = {s: value * math.exp(-((s - p) ** 2) / (2 * (D / 2) ** 2)) for s, value in align.items()}
    return torch.tensor([align.get(s, 0.0) for s in range(1, length + 1)]).double()


@pytest.mark.parametrize("half_width", [1, 2, 9])
@pytest.mark.parametrize("kind", ["monotonic", "predictive"])
@torch.no_grad()
def test_weights_by_hand(kind, half_width, tiny_rnn, sources):
    """Of a translation that is longer than its source, too; and the context is the weighted sum."""
    model = tiny_rnn(attention="dot", local_attention=kind, attention_window=half_width)
    context, source_BS = model.decoder.context, sources(3, 6)
    generator = torch.Generator().manual_seed(4)
    states_BSD, state_B1TD = (torch.randn(*shape, 12, generator=generator).double() for shape in ((3, 6), (3, 1, 8)))
    annotations = context.annotate(source_BS, states_BSD, states_BSD[:, 0])
    context_B1TD, weights_B1TS = context(state_B1TD, annotations, 0)
    for b, source_S in enumerate(source_BS):
        real_S = source_S[source_S != PAD]
        for t in range(8):
            expected_S = weights_by_hand(model, real_S, state_B1TD[b, 0, t], t + 1, states_BSD[b])
            torch.testing.assert_close(weights_B1TS[b, 0, t, : len(real_S)], expected_S)
            torch.testing.assert_close(context_B1TD[b, 0, t], expected_S @ states_BSD[b, : len(real_S)])


@pytest.mark.parametrize("kind", ["monotonic", "predictive"])
@torch.no_grad()
def test_a_later_word_has_its_own_window(kind, tiny_rnn, sources):
    """Words read one by one have the windows of words read at once."""
    context = tiny_rnn(attention="dot", local_attention=kind, attention_window=1).decoder.context
    generator = torch.Generator().manual_seed(4)
    states_BSD, query_B1TD = (torch.randn(*shape, 12, generator=generator).double() for shape in ((3, 6), (3, 1, 5)))
    annotations = context.annotate(sources(3, 6), states_BSD, states_BSD[:, 0])
    at_once_B1TD, _ = context(query_B1TD, annotations, 0)
    one_by_one = [context(query_B1TD[:, :, t : t + 1], annotations, t)[0] for t in range(5)]
    torch.testing.assert_close(torch.cat(one_by_one, dim=2), at_once_B1TD)
    late_B1TD, _ = context(query_B1TD, annotations, 3)
    assert ((late_B1TD - at_once_B1TD).abs().max() > 1e-6) == (kind == "monotonic")


@pytest.mark.parametrize("length", [1, 2, 30])
def test_a_predicted_window_always_has_a_word(length):
    """Wherever the centre is predicted: a softmax of nothing is no number."""
    window = SourceWindow(4, 1, predicts=True)
    centre_11Q = torch.linspace(0, length, 1001)[None, None]
    distance_11QS = torch.arange(1, length + 1) - centre_11Q[..., None]
    assert (distance_11QS.abs() <= window.half_width).any(dim=-1).all()
