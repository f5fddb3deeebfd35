"""Steps that are replayed say what the frozen model says, whatever the memory held before."""

import copy
import math
import random

import pytest
import torch
from helpers.messages import message
from helpers.plain_search import CAPS, assert_same, beam_search, greedy
from helpers.plain_search import VOCAB_SIZE as SEARCHED_VOCAB_SIZE
from helpers.recording import Recording
from helpers.stepping import VOCAB_SIZE, WIDER_AND_NARROWER, assert_close, logits_along
from helpers.thorough import thorough

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import BOS, EOS
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.engine import AUTO_ON_GPU, batches
from transformer_mt.decoding.sampling import sample
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.inference import cuda_graphs as module
from transformer_mt.inference.cuda_graphs import (
    CudaGraphTransformer,
    make_room,
    rounded_up,
    with_cuda_graphs,
)
from transformer_mt.inference.frozen import FrozenTransformer, frozen
from transformer_mt.kernels.device import choose_device
from transformer_mt.kernels.matmul import Matmul
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.settings.search_settings import DecodingConfig

both_norms = pytest.mark.parametrize("norm", [*thorough("post"), "pre"])


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def two_forms(tiny_model):
    """A function that gives a model frozen, and the same captured. Two layers of the decoder have memory each."""

    def build(*arguments, **settings):
        layers = {"encoder_layers": 1, "decoder_layers": 2}
        model = frozen(tiny_model(*arguments, **layers | settings), Matmul())
        return model, with_cuda_graphs(model, Recording)

    return build


def assert_steps_alike(ours, model, source_BS, widths, leaving=()):
    found = logits_along(ours, source_BS, widths, leaving)
    for logits_BWV, expected_BWV in zip(found, logits_along(model, source_BS, widths, leaving), strict=True):
        assert_close(logits_BWV, expected_BWV)


def as_it_is(step):
    """Captures nothing."""
    return step(), step


def fill(model, number):
    """All memory that holds numbers with a point."""
    for memory in (model.position_1D, model.logits_BWV, *model.of_state.values()):
        memory.all.fill_(number)


# Against the frozen Transformer


@both_norms
@pytest.mark.parametrize("activation", [*thorough("relu", "gelu"), "swiglu"])
def test_steps_are_those_of_the_frozen_model(norm, activation, two_forms, sources):
    """Of several batches, one after the other; sizes that come again are replayed."""
    model, ours = two_forms(norm=norm, activation=activation)
    for count, longest in [(4, 7), (4, 7), (9, 5), (1, 70), (6, 7), (9, 5), (4, 7)]:
        assert_steps_alike(ours, model, sources(count, longest), WIDER_AND_NARROWER, leaving=(2, 6, 9))
    assert len(ours.graphs) > 5
    assert ours.capture.replayed > 20


@pytest.mark.thorough
@pytest.mark.parametrize("width", [*thorough(1), 3, *thorough(5)])
def test_also_while_slots_are_added_several_times(width, two_forms, sources):
    model, ours = two_forms()
    for _ in range(2):
        assert_steps_alike(ours, model, sources(3, 7), [width] * (520 // width), leaving=(20,))
    assert len({sizes.slots for sizes in ours.graphs}) >= 2


def test_also_where_caches_alone_need_more_memory(two_forms, sources):
    """The mask of five hypotheses is larger than that of one with more slots."""
    model, ours = two_forms()
    for widths in ([5] * 12, [1] * 90, [1] * 90):
        assert_steps_alike(ours, model, sources(3, 7), widths)


@pytest.mark.thorough
def test_also_for_sources_of_all_lengths(two_forms, sources):
    model, ours = two_forms()
    for length in (*range(1, 140, 4), *range(1, 140, 4)):
        assert_steps_alike(ours, model, sources(3, length, seed=length), [1, 2, 2, 2])
    assert {sizes.source_positions for sizes in ours.graphs} == {64, 128, 256}


@pytest.mark.thorough
def test_also_for_any_number_of_sentences(two_forms, sources):
    """More of them need more memory: what was captured before is not replayed."""
    model, ours = two_forms()
    for count in (*range(1, 90, 8), *range(80, 8, -8), *range(8, 0, -1)):
        assert_steps_alike(ours, model, sources(count, 5, seed=count), [1, 2, 2, 2], leaving=(2, 3))
    assert {sizes.sentences for sizes in ours.graphs} == {1, 2, 4, 8, 16, 32, 64, 128}


def test_the_last_sentences_of_a_search_are_stepped_together_with_others(two_forms, sources):
    """Graphs of ever fewer of them would not be worth their capture. A sentence alone is stepped alone."""
    model, ours = two_forms()
    for count, computed in ((70, 32), (9, 16), (1, 1)):
        ours.graphs.clear()
        assert_steps_alike(ours, model, sources(count, 5), [1] * 30, leaving=range(29))
        assert min(sizes.sentences for sizes in ours.graphs) == computed


def test_also_with_learned_positions_up_to_the_last(two_forms, sources):
    model, ours = two_forms(positions="learned", max_positions=9)
    for _ in range(2):
        assert_steps_alike(ours, model, sources(2, 8), [2] * 9)
    state, token_BW = ours.start(sources(2, 4), width=1), torch.full((2, 1), BOS)
    for _ in range(9):
        _, state = ours.step(token_BW, state)
    with pytest.raises(TranslationError, match=message("more-than-learned-positions", "9")):
        ours.step(token_BW, state)


def test_also_in_half_precision(tiny_model, sources):
    model = frozen(tiny_model().float(), Matmul(torch.bfloat16))
    ours = with_cuda_graphs(model, Recording)
    for _ in range(3):
        found = logits_along(ours, sources(4, 7), WIDER_AND_NARROWER, leaving=(5,))
        expected = logits_along(model, sources(4, 7), WIDER_AND_NARROWER, leaving=(5,))
        for logits_BWV, expected_BWV in zip(found, expected, strict=True):
            assert logits_BWV.dtype == expected_BWV.dtype == torch.bfloat16
            assert (logits_BWV - expected_BWV).norm() < 0.03 * expected_BWV.norm()


def test_forced_decoding_is_the_models(tiny_model, sources, decoder_inputs):
    model = tiny_model(output_bias=True)
    ours = with_cuda_graphs(frozen(model, Matmul()), Recording)
    source_BS, decoder_input_BT = sources(4, 7), decoder_inputs(4, 6)
    assert torch.equal(ours(source_BS, decoder_input_BT), model(source_BS, decoder_input_BT))


# What is replayed


def test_one_graph_does_all_steps_of_its_sizes(two_forms, sources):
    """No number of a step is part of it: neither position nor slot."""
    model, ours = two_forms()
    assert_steps_alike(ours, model, sources(3, 7), [1] * 64)
    assert (ours.capture.captured, ours.capture.replayed) == (1, 63)


def test_every_step_is_captured_or_replayed(two_forms, sources, monkeypatch):
    """A size is captured when it is first met, and that run is its first step."""
    model, ours = two_forms()
    computed, real_logits = [], model.logits
    monkeypatch.setattr(ours, "frozen", copy.copy(ours.frozen))
    monkeypatch.setattr(ours.frozen, "logits", lambda *step: computed.append(step) or real_logits(*step))
    make_room(ours, [(70, 7)], 6)  # so that no graph is lost
    assert_steps_alike(ours, model, sources(70, 7), WIDER_AND_NARROWER, leaving=(2, 6))
    assert len(computed) == ours.capture.captured == len(ours.graphs) == 3
    assert ours.capture.captured + ours.capture.replayed == len(WIDER_AND_NARROWER)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_step_knows_shapes_alone(dtype, tiny_model):
    """On a device of tensors without numbers, PyTorch refuses to read one, and to mix tensors of two devices."""
    ours = with_cuda_graphs(frozen(tiny_model().float().to("meta"), Matmul(dtype)), lambda: as_it_is)
    with torch.device("meta"):
        for _ in range(2):
            state = ours.start(torch.full((3, 7), EOS), width=1)
            for width in (1, 2, 2):
                state = state.follow(torch.zeros(3, width, dtype=torch.long))
                logits_BWV, state = ours.step(torch.full((3, width), BOS), state)
            state = state.keep(torch.zeros(2, dtype=torch.long))
    assert ours.graphs
    assert logits_BWV.device.type == "meta"
    assert logits_BWV.shape == (3, 2, VOCAB_SIZE)


def test_logits_are_the_callers(two_forms, sources):
    """Those of earlier steps are not overwritten, and what is written to them changes no step."""
    model, ours = two_forms()
    source_BS, token_BW = sources(3, 7), torch.full((3, 2), EOS + 1)
    for _ in range(2):
        state, theirs, found = ours.start(source_BS, width=2), model.start(source_BS, width=2), []
        for _ in range(5):
            logits_BWV, state = ours.step(token_BW, state)
            expected_BWV, theirs = model.step(token_BW, theirs)
            assert_close(logits_BWV, expected_BWV)
            found.append(torch.softmax(logits_BWV, dim=-1, out=logits_BWV))
            assert_close(
                torch.stack([probs_BWV.sum(dim=-1) for probs_BWV in found]), torch.ones(len(found), 3, 2).double()
            )


def test_whether_there_are_gradients_does_not_matter(tiny_model, sources):
    """Memory that was first used where there are none, nor could be, serves steps elsewhere."""
    model = frozen(tiny_model(), Matmul())
    ours, source_BS = with_cuda_graphs(model, lambda: as_it_is), sources(4, 7)
    expected = logits_along(model, source_BS, WIDER_AND_NARROWER, leaving=(5,))
    for context in (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode):
        with context():
            found = logits_along(ours, source_BS, WIDER_AND_NARROWER, leaving=(5,))
        for logits_BWV, expected_BWV in zip(found, expected, strict=True):
            assert not logits_BWV.requires_grad
            assert_close(logits_BWV, expected_BWV)


@pytest.mark.thorough
def test_graphs_leave_their_logits_in_one_place(two_forms, sources):
    _, ours = two_forms()
    make_room(ours, [(40, 7), (140, 7)], 6)
    for count in (40, 140, 140):
        logits_along(ours, sources(count, 7), WIDER_AND_NARROWER, leaving=(2, 6))
    assert len(ours.graphs) > 3
    assert len({graph().untyped_storage().data_ptr() for graph in ours.graphs.values()}) == 1


def test_few_graphs_are_kept(two_forms, sources, monkeypatch):
    monkeypatch.setattr(module, "MOST_GRAPHS", 2)
    model, ours = two_forms()
    for _ in range(4):
        assert_steps_alike(ours, model, sources(6, 7), WIDER_AND_NARROWER, leaving=(2, 6))
        assert len(ours.graphs) <= 2
        assert ours.capture.captured <= 2, "graphs that were thrown away share no memory with new ones"


def test_graphs_do_not_outlive_the_memory_that_they_read(two_forms, sources, monkeypatch):
    """Where it could not grow, some of it lies elsewhere already."""
    model, ours = two_forms()
    for _ in range(2):
        assert_steps_alike(ours, model, sources(2, 7), [2] * 6)
    assert ours.graphs

    def full(*_):
        raise MemoryError

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(ours.of_state["values_LXNK"], "hold", full)
        logits_along(ours, sources(9, 7), [2] * 6)
    assert_steps_alike(ours, model, sources(2, 7), [2] * 6)


def test_sizes_are_few_and_little_larger():
    for least in (1, 64):
        sizes = [rounded_up(number, least) for number in range(1, 5000)]
        assert sizes == sorted(sizes)
        assert all(number <= size < max(2 * number, least + 1) for number, size in enumerate(sizes, start=1))
        assert all(rounded_up(size, least) == size for size in sizes)
        assert len(set(sizes)) <= 1 + math.log2(8192 / least)


def searched_shapes(model, width, counts):
    """What a search of a test set of such lengths does to a model, but for the numbers."""
    generator = random.Random(1)
    sources = [min(round(generator.lognormvariate(3, 0.5)), 100) + 1 for _ in range(counts)]
    together = list(batches(sources, AUTO_ON_GPU // width))
    make_room(model, [(len(numbers), sources[numbers[0]]) for numbers in together], width)
    for numbers in together:
        targets = [max(1, round(sources[number] * generator.uniform(0.7, 1.6))) for number in numbers]
        state, alive, now = model.start(torch.full((len(numbers), sources[numbers[0]]), EOS), width=1), len(numbers), 1
        for length in range(1, max(targets) + 1):
            _, state = model.step(torch.full((alive, now), BOS), state)
            going_on = sum(target > length for target in targets)
            now = min(width, going_on)  # a beam becomes narrow at its end
            if width > 1:
                state = state.follow(torch.zeros(alive, now, dtype=torch.long))
            if 0 < going_on <= 0.75 * alive:
                state, alive = state.keep(torch.zeros(going_on, dtype=torch.long)), going_on


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, *thorough(4)])
def test_a_test_set_needs_few_graphs_and_takes_memory_once(width, tiny_model):
    captures = []

    def capturing():
        captures.append([])
        return lambda step: (captures[-1].append(step) or step(), step)

    model = tiny_model(max_positions=256, encoder_layers=1, decoder_layers=1).float().to("meta")
    ours = with_cuda_graphs(frozen(model, Matmul()), capturing)
    with torch.device("meta"):
        for _ in range(2):
            searched_shapes(ours, width, 1000)
    before, *during = captures
    assert not before, "the first step takes the memory"
    assert len(during) == 1, "and no later one"
    assert 4 < len(during[0]) == len(ours.graphs) <= 12
    assert len({sizes.width for sizes in ours.graphs}) == 1, "the first step is as wide as the others"


# What lay there before


@pytest.mark.thorough
@both_norms
@pytest.mark.parametrize("number", [math.nan, math.inf, -7.0])
def test_what_lay_in_memory_before_does_not_matter(number, norm, two_forms, sources):
    model, ours = two_forms(norm=norm)
    for count, longest in [(7, 70), (5, 7), (5, 7), (7, 20), (3, 7)]:
        assert_steps_alike(ours, model, sources(count, longest), WIDER_AND_NARROWER, leaving=(2, 6))
        fill(ours, number)
    assert ours.graphs


@pytest.mark.thorough
def test_rows_that_are_no_sentences_are_numbers_too(two_forms, sources):
    _, ours = two_forms()
    for count in (5, 5, 7, 9):
        logits_along(ours, sources(count, 7), [*WIDER_AND_NARROWER, *[5] * 20], leaving=(2, 6))
        fill(ours, math.nan)
        logits_along(ours, sources(count, 7), [*WIDER_AND_NARROWER, *[5] * 20], leaving=(2, 6))
        assert ours.logits_BWV.held.isfinite().all()
        for held_XYZ in (*ours.of_state["keys_LXKN"].held, *ours.of_state["values_LXNK"].held):
            assert held_XYZ.isfinite().all()


def test_a_state_is_stepped_from_once_and_before_another_search(two_forms, sources):
    _, ours = two_forms()
    token_BW = torch.full((3, 1), BOS)
    first = ours.start(sources(3, 7), width=1)
    _, second = ours.step(token_BW, first)
    with pytest.raises(AssertionError, match="once"):
        ours.step(token_BW, first)
    ours.start(sources(3, 7), width=1)
    with pytest.raises(AssertionError, match="before another search"):
        ours.step(token_BW, second.follow(torch.zeros(3, 1, dtype=torch.long)))


# Searches


def searches():
    sampling = DecodingConfig(sampling=True, n_best=3, seed=5)

    def drawn(model, source_BS):
        return sample(model, source_BS, list(range(len(source_BS))), Constraints(CAPS), sampling)

    return {
        "greedy": lambda model, source_BS: [[found] for found in greedy(model, source_BS, CAPS, 0.6)],
        "beam": lambda model, source_BS: beam_search(model, source_BS, 4, 0.6, CAPS),
        "best": lambda model, source_BS: beam_search(model, source_BS, 5, 1.0, CAPS, n_best=1, patience=1.0),
        "samples": drawn,
    }


@pytest.mark.parametrize("search", searches())
@pytest.mark.parametrize("several", [*thorough(False), True])
def test_searches_find_the_same(search, several, tiny_model, sources):
    """An ensemble's members have memory of their own."""
    for norm in ("post", "pre"):
        model = tiny_model(SEARCHED_VOCAB_SIZE, norm=norm)
        if several:
            model = Ensemble([model, tiny_model(SEARCHED_VOCAB_SIZE, 2, d_model=24, num_heads=3)])
        model = frozen(model, Matmul())
        ours, find = with_cuda_graphs(model, Recording), searches()[search]
        for seed in (1, 2, 1):
            source_BS = sources(len(CAPS), 6, SEARCHED_VOCAB_SIZE, seed)
            for found, expected in zip(find(ours, source_BS), find(model, source_BS), strict=True):
                assert_same(found, expected)
        assert all(member.graphs for member in (ours.members() if several else [ours]))


# Which models are captured


def test_frozen_models_are_captured_alone_and_in_ensembles(tiny_model):
    model, other = tiny_model(), tiny_model(attention_window=2)
    assert with_cuda_graphs(model, Recording) is model
    assert isinstance(with_cuda_graphs(frozen(model, Matmul()), Recording), CudaGraphTransformer)
    together = with_cuda_graphs(frozen(Ensemble([model, other]), Matmul()), Recording)
    assert [type(member) for member in together.members()] == [CudaGraphTransformer, type(other)]
    assert not together.training


def test_on_a_cpu_steps_are_not_captured(tiny_model):
    assert isinstance(TorchEngine(tiny_model(), 64, choose_device("cpu", "fp32")).searched, FrozenTransformer)
