"""The recurrent encoder-decoder: its formulas by hand, what it is fed, its sizes and its first weights."""

import math

import pytest
import torch
from helpers.messages import message
from helpers.thorough import pairwise
from torch import nn

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import PAD
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import choose_device
from transformer_mt.models.attention_weights import attends_to_source, attention_to_source, last_outputs
from transformer_mt.models.rnn import RnnState
from transformer_mt.settings.model_settings import RnnConfig

every_cell = pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
both_decoders = pytest.mark.parametrize("decoder", ["luong", "bahdanau"])


def assert_close(ours, theirs):
    """Models in fp64 differ in the last digits only."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def fresh(**settings):
    torch.manual_seed(1)
    return build_model(RnnConfig(kind="rnn", **{"d_model": 64} | settings), 50, 50)


# By hand, word by word, for one sentence without padding


def encoded(model, source_S):
    """The states of both directions, SD, and the last of each, D: each direction by a module of PyTorch."""
    make = type(model.encoder.cells)
    weights = model.encoder.cells.state_dict()
    x_SD = model.source_embedding.weight[source_S] * model.d_model**0.5
    directions = []
    for suffix, order in (("_l0", slice(None)), ("_l0_reverse", torch.arange(len(source_S) - 1, -1, -1))):
        cells = make(model.d_model, model.d_model // 2).double()
        cells.load_state_dict(
            {f"{key}_l0": weights[key + suffix] for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        )
        directions.append(cells(x_SD[order])[0][order])
    forward, backward = directions
    return torch.cat(directions, dim=1), torch.cat([forward[-1], backward[0]])


def cell_by_hand(cells, x_I, state_D, memory_D):
    """The new state and, of LSTM, its memory, by the formulas of the papers with PyTorch's order of the gates."""
    input_gates = (cells.weight_ih_l0 @ x_I + cells.bias_ih_l0).split(len(state_D))
    state_gates = (cells.weight_hh_l0 @ state_D + cells.bias_hh_l0).split(len(state_D))
    if len(input_gates) == 1:  # Elman 1990
        return torch.tanh(input_gates[0] + state_gates[0]), None
    if memory_D is None:
        reset_D, update_D = (torch.sigmoid(input_gates[i] + state_gates[i]) for i in (0, 1))
        new_D = torch.tanh(input_gates[2] + reset_D * state_gates[2])
        return (1 - update_D) * new_D + update_D * state_D, None
    admitted_D, kept_D, _, shown_D = (torch.sigmoid(a + b) for a, b in zip(input_gates, state_gates, strict=True))
    memory_D = kept_D * memory_D + admitted_D * torch.tanh(input_gates[2] + state_gates[2])
    return shown_D * torch.tanh(memory_D), memory_D


def first_states(model, vector_D, cell):
    state_CD = torch.tanh(model.bridge.weight @ vector_D + model.bridge.bias).view(-1, model.d_model)
    return state_CD[0], state_CD[1] if cell == "lstm" else None


def context_by_hand(states_SD, query_D):
    """With dot scores."""
    return torch.softmax(states_SD @ query_D, dim=0) @ states_SD


@torch.no_grad()
def test_an_example_worked_by_hand():
    """Luong's decoder in the states (0.8, 0.2) and (0.1, 0.9), with dot scores; contexts are known to three decimals.

    With the update gate shut and nothing remembered, the new state of a GRU is tanh of its input.
    """
    model = fresh(d_model=2, attention="dot", input_feeding=False, tied_embeddings="none").double().eval()
    cells = model.decoder.recurrence.cells
    for parameter in cells.parameters():
        parameter.zero_()
    cells.bias_ih_l0[2:4] = -1e4
    cells.weight_ih_l0[4:6] = torch.eye(2)
    encoder_BSD = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]).double()
    state_TD = torch.tensor([[0.8, 0.2], [0.1, 0.9]]).double()
    annotations = model.decoder.context.annotate(torch.full((1, 3), 9), encoder_BSD, encoder_BSD[:, 0])
    state = RnnState(annotations, torch.zeros(1, 1, 1, 2).double(), torch.zeros(1, 1, 2).double())
    with last_outputs([model.decoder.context]) as weights:
        said_BWTD, _ = model.decoder(state_TD.atanh()[None, None], state)

    to_three = {"rtol": 0, "atol": 0.0005}
    expected_TS = torch.tensor([[0.361, 0.198, 0.441], [0.176, 0.391, 0.433]]).double()
    torch.testing.assert_close(weights[0][0, 0], expected_TS, **to_three)
    context_TD = torch.tensor([[0.802, 0.639], [0.609, 0.824]]).double()
    W_c, b_c = model.decoder.combine.weight, model.decoder.combine.bias
    for said_D, context_D, state_D in zip(said_BWTD[0, 0], context_TD, state_TD, strict=True):
        joined = [*context_D, *state_D]
        by_hand = [math.tanh(sum(w * x for w, x in zip(W_c[i], joined, strict=True)) + b_c[i]) for i in range(2)]
        torch.testing.assert_close(said_D, torch.tensor(by_hand).double(), **to_three)
        scores = [math.exp(sum(w * x for w, x in zip(word_D, by_hand, strict=True))) for word_D in model.output_VD]
        probs_V = torch.tensor([score / sum(scores) for score in scores]).double()
        torch.testing.assert_close(model.project(said_D).softmax(dim=-1), probs_V, **to_three)


@every_cell
@pytest.mark.parametrize("input_feeding", [True, False])
@torch.no_grad()
def test_luongs_decoder_by_hand(cell, input_feeding, tiny_rnn, sources, decoder_inputs):
    model = tiny_rnn(cell=cell, decoder="luong", attention="dot", input_feeding=input_feeding)
    source_1S, decoder_input_1T = sources(1, 5), decoder_inputs(1, 4)
    states_SD, vector_D = encoded(model, source_1S[0])
    state_D, memory_D = first_states(model, vector_D, cell)
    said_D, logits = torch.zeros_like(state_D), []
    combine = model.decoder.combine
    for word in decoder_input_1T[0]:
        x_D = model.target_embedding.weight[word] * model.d_model**0.5
        x_I = torch.cat([x_D, said_D]) if input_feeding else x_D
        state_D, memory_D = cell_by_hand(model.decoder.recurrence.cells, x_I, state_D, memory_D)
        context_D = context_by_hand(states_SD, state_D)
        said_D = torch.tanh(combine.weight @ torch.cat([context_D, state_D]) + combine.bias)
        logits.append(model.output_VD @ said_D)
    assert_close(model(source_1S, decoder_input_1T)[0], torch.stack(logits))


@every_cell
@torch.no_grad()
def test_bahdanaus_decoder_by_hand(cell, tiny_rnn, sources, decoder_inputs):
    model = tiny_rnn(cell=cell, decoder="bahdanau", attention="dot")
    source_1S, decoder_input_1T = sources(1, 5), decoder_inputs(1, 4)
    states_SD, vector_D = encoded(model, source_1S[0])
    state_D, memory_D = first_states(model, vector_D, cell)
    U_o, V_o, C_o = model.decoder.readout.weight.chunk(3, dim=1)
    logits = []
    for word in decoder_input_1T[0]:
        x_D = model.target_embedding.weight[word] * model.d_model**0.5
        context_D = context_by_hand(states_SD, state_D)
        state_D, memory_D = cell_by_hand(model.decoder.recurrence.cells, torch.cat([x_D, context_D]), state_D, memory_D)
        both_2D = U_o @ state_D + V_o @ x_D + C_o @ context_D + model.decoder.readout.bias
        logits.append(model.output_VD @ torch.maximum(both_2D[0::2], both_2D[1::2]))
    assert_close(model(source_1S, decoder_input_1T)[0], torch.stack(logits))


@torch.no_grad()
def test_layers_are_those_of_pytorch(tiny_rnn, sources, decoder_inputs):
    """Each layer reads the one below, the first states of all come from the encoder's last layer."""
    model = tiny_rnn(attention="none", input_feeding=False, encoder_layers=3, decoder_layers=2)
    source_1S, decoder_input_1T = sources(1, 5), decoder_inputs(1, 4)
    scale = model.d_model**0.5
    _, last_LBK = model.encoder.cells(model.source_embedding(source_1S) * scale)
    vector_D = torch.cat([last_LBK[4, 0], last_LBK[5, 0]])
    first_LBD = torch.tanh(model.bridge(vector_D)).view(2, 1, -1)
    states_BTD, _ = model.decoder.recurrence.cells(model.target_embedding(decoder_input_1T) * scale, first_LBD)
    said_BTD = torch.tanh(model.decoder.combine(torch.cat([vector_D.expand_as(states_BTD), states_BTD], dim=-1)))
    assert_close(model(source_1S, decoder_input_1T), said_BTD @ model.output_VD.T)


@every_cell
@torch.no_grad()
def test_bahdanaus_query_is_the_state_of_the_last_layer(cell, tiny_rnn, sources):
    model, source_1S = tiny_rnn(cell=cell, decoder="bahdanau", attention="dot", decoder_layers=2), sources(1, 5)
    _, state = model.step(torch.tensor([[2]]), model.start(source_1S, width=1))
    states_SD, _ = encoded(model, source_1S[0])
    expected_S = torch.softmax(states_SD @ state.carried_CBWD[1, 0, 0], dim=0)
    assert_close(attention_to_source(model, source_1S, torch.tensor([[2, 4]]), layer=1)[0, 1], expected_S)


# What is fed and what is seen


@both_decoders
@torch.no_grad()
def test_without_attention_all_of_the_source_goes_through_one_vector(decoder, tiny_rnn, sources):
    """Other states of the encoder change nothing if the vector is the same; with attention they do."""
    source_BS = sources(3, 5)
    generator = torch.Generator().manual_seed(3)
    states_BSD = torch.randn(3, 5, 12, generator=generator).double()
    vector_BD = torch.randn(3, 12, generator=generator).double()
    seen = {}
    for attention in ("none", "dot"):
        context = tiny_rnn(attention=attention, decoder=decoder).decoder.context
        query_BWTD = torch.randn(3, 2, 4, 12, generator=generator).double()
        ours, others = (
            context(query_BWTD, context.annotate(source_BS, states, vector_BD), 0)[0]
            for states in (states_BSD, -states_BSD)
        )
        seen[attention] = (ours - others).abs().max() > 1e-6
        if attention == "none":
            assert_close(ours, vector_BD[:, None, None].expand(3, 2, 4, 12))
    assert seen == {"none": False, "dot": True}


@pytest.mark.parametrize("attention", ["none", "additive"])
@both_decoders
@torch.no_grad()
def test_annotations_of_a_source_have_one_size_without_attention(attention, decoder, tiny_rnn, sources):
    model = tiny_rnn(attention=attention, decoder=decoder)
    annotations = [model.start(sources(3, longest), 2).annotations for longest in (4, 9)]
    numbers = [each.value_B1SD.numel() + each.prepared_B1SA.numel() for each in annotations]
    assert (numbers[0] == numbers[1]) == (attention == "none")


@torch.no_grad()
def test_input_feeding_reads_what_was_said_last(tiny_rnn, sources):
    """And without it nothing does."""
    changes = {}
    for input_feeding in (True, False):
        model = tiny_rnn(input_feeding=input_feeding)
        _, state = model.step(torch.tensor([[4]]), model.start(sources(1, 5), width=1))
        logits_11V, _ = model.step(torch.tensor([[5]]), state)
        state.output_BWD.add_(1)
        other_11V, _ = model.step(torch.tensor([[5]]), state)
        changes[input_feeding] = (other_11V - logits_11V).abs().max() > 1e-6
    assert changes == {True: True, False: False}


@torch.no_grad()
def test_attention_is_before_the_recurrence_in_bahdanau_and_after_it_in_luong(tiny_rnn, sources):
    """So that Luong's sees the newest word, and Bahdanau's all but that."""
    source_1S, decoder_input_1T = sources(1, 5), torch.tensor([[2, 4, 5]])
    other_1T = torch.tensor([[2, 4, 6]])
    for decoder, sees_it in (("luong", True), ("bahdanau", False)):
        model = tiny_rnn(decoder=decoder)
        ours, others = (attention_to_source(model, source_1S, ids, 0) for ids in (decoder_input_1T, other_1T))
        assert ((ours - others)[:, 2].abs().max() > 1e-6) == sees_it
        assert_close(ours[:, :2], others[:, :2])
        assert (ours[:, 1] - ours[:, 2]).abs().max() > 1e-6


@torch.no_grad()
def test_attention_of_a_fixed_length_reads_the_last_word_and_refuses_more_positions(tiny_rnn, sources, decoder_inputs):
    model, decoder_input_BT = tiny_rnn(attention="fixed_concat", max_positions=8), decoder_inputs(3, 4)
    assert model(sources(3, 8), decoder_input_BT).isfinite().all()
    with pytest.raises(TranslationError, match=message("more-than-attention-positions", "9", "8")):
        model(sources(3, 9), decoder_input_BT)
    source_BS = sources(3, 6)
    states_BSD = torch.randn(3, 6, 12, generator=torch.Generator().manual_seed(3)).double()
    memories = []
    for position in ("last", "first", "padding"):
        other_BSD = states_BSD.clone()
        last_B = (source_BS != PAD).sum(dim=1) - 1
        row_B = torch.arange(3)
        match position:
            case "last":
                other_BSD[row_B, last_B] += 1
            case "first":
                other_BSD[row_B, (last_B - 1).clamp_min(0)] += last_B[:, None].sign()
            case "padding":
                other_BSD[source_BS == PAD] += 1
        memories.append(model.decoder.context.annotate(source_BS, other_BSD, other_BSD[:, 0]).prepared_B1SA)
    prepared = model.decoder.context.annotate(source_BS, states_BSD, states_BSD[:, 0]).prepared_B1SA
    assert [bool((other - prepared).abs().max() > 1e-6) for other in memories] == [True, False, False]


@torch.no_grad()
def test_concat_looks_to_the_same_places_for_every_word(tiny_rnn, sources, decoder_inputs):
    attention_BTS = attention_to_source(tiny_rnn(attention="concat"), sources(3, 6), decoder_inputs(3, 5), layer=1)
    assert_close(attention_BTS, attention_BTS[:, :1].expand_as(attention_BTS))


@torch.no_grad()
def test_a_model_without_attention_says_so_when_asked_for_an_alignment(tiny_rnn, sources, decoder_inputs):
    assert attends_to_source(tiny_rnn())
    model = tiny_rnn(attention="none")
    assert not attends_to_source(model)
    with pytest.raises(TranslationError, match=message("model-without-attention")):
        attention_to_source(model, sources(3, 6), decoder_inputs(3, 5), layer=0)


@torch.no_grad()
def test_hypotheses_share_the_annotations_of_their_source(tiny_rnn, sources):
    state = tiny_rnn().start(sources(3, 6), width=5)
    assert {len(part) for part in vars(state.annotations).values()} == {3}
    assert {part.shape[1] for part in vars(state.annotations).values()} == {1}


# Size, first weights, dropout, precision


@torch.no_grad()
def test_vocabularies_of_two_sizes_are_possible_unless_they_share_a_matrix(tiny_rnn, sources, decoder_inputs):
    for ties in ("target", "none"):
        model = tiny_rnn(vocab_size=9, source_vocab_size=30, tied_embeddings=ties)
        assert model(sources(2, 5, vocab_size=30), decoder_inputs(2, 4, vocab_size=9)).shape == (2, 4, 9)
        assert (model.output_VD is model.target_embedding.weight) == (ties == "target")
    with pytest.raises(AssertionError, match="one vocabulary"):
        tiny_rnn(vocab_size=9, source_vocab_size=30, tied_embeddings="all")


@every_cell
def test_first_weights(cell):
    """Recurrent weights turn and do not stretch; biases are 0, but an LSTM keeps its memory at first."""
    model = fresh(cell=cell, encoder_layers=2, decoder_layers=2)
    for cells in (model.encoder.cells, model.decoder.recurrence.cells):
        width = cells.hidden_size
        for name, parameter in cells.named_parameters():
            gates = parameter.detach().split(width)
            assert len(gates) == {"gru": 3, "lstm": 4, "rnn": 1}[cell]
            if name.startswith("weight_hh"):
                for gate in gates:
                    torch.testing.assert_close(gate @ gate.T, torch.eye(width), atol=1e-5, rtol=0)
            if name.startswith("bias"):
                forgets = cell == "lstm" and name.startswith("bias_ih")
                assert [gate.mean().item() for gate in gates] == [float(forgets and i == 1) for i in range(len(gates))]


def test_fresh_logits_are_of_unit_scale_at_most():
    model = fresh().eval()
    logits_BTV = model(torch.randint(4, 50, (8, 20)), torch.randint(4, 50, (8, 20)))
    assert 0.01 < logits_BTV.std() < 1


@both_decoders
def test_dropout_is_for_training_on_embeddings_between_layers_and_on_what_is_said(decoder):
    model = fresh(dropout=0.5, decoder=decoder, encoder_layers=2, decoder_layers=2)
    source_BS, decoder_input_BT = torch.randint(4, 50, (8, 20)), torch.randint(4, 50, (8, 20))
    model.eval()
    assert torch.equal(model(source_BS, decoder_input_BT), model(source_BS, decoder_input_BT))
    model.train()
    features_BTD = model.features(source_BS, decoder_input_BT)
    assert 0.4 < (features_BTD == 0).double().mean() < 0.6
    assert 0.4 < (model._embed(model.source_embedding, source_BS) == 0).double().mean() < 0.6
    assert [cells.dropout for cells in model.modules() if isinstance(cells, nn.RNNBase)] == [0.5, 0.5]


@pytest.mark.thorough
@pairwise(
    cell=["gru", "lstm", "rnn"],
    decoder=["luong", "bahdanau"],
    attention=["none", "dot", "additive", "location", "fixed_concat"],
)
def test_bf16_is_fp32_to_two_digits(cell, decoder, attention):
    model = fresh(cell=cell, decoder=decoder, attention=attention, dropout=0.0).train()
    source_BS, decoder_input_BT = torch.randint(4, 50, (8, 10)), torch.randint(4, 50, (8, 10))
    found = []
    for precision in ("fp32", "bf16"):
        with choose_device("cpu", precision).autocast():
            features_BTD = model.features(source_BS, decoder_input_BT)
        features_BTD.float().pow(2).sum().backward()
        found.append((features_BTD.detach().float(), model.bridge.weight.grad.clone()))
        model.zero_grad()
    # Without gates, a gradient goes back through the product of each word, and its rounding with it.
    tolerances = 0.05, 0.05 if cell != "rnn" else 0.2
    for exact, rounded, tolerance in zip(*found, tolerances, strict=True):
        assert 0 < (exact - rounded).norm() < tolerance * exact.norm()
