"""On a GPU: compiled is eager, replayed is launched, the host does not wait, and what goes wrong does no harm."""

import gc
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from helpers.on_gpu import AS_MANY_ROUNDINGS, BF16_ROUNDING, no_waiting, num_compiled, poison
from torch.optim import SGD

from transformer_mt.batches.loader import Loader, Position
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import Learner, MovingAverage
from transformer_mt.training.loop import one_update
from transformer_mt.training.out_of_memory import Room
from transformer_mt.training.run.beginning import new_learner

pytestmark = pytest.mark.cuda

VOCAB_SIZE = 1000
BATCH = 2048  # positions


@pytest.fixture
def corpus(make_corpus):
    """About six and a half batches: the last of an epoch is not full."""
    lengths = np.random.default_rng(1).integers(1, 60, (2, 440))
    return make_corpus(lengths[0].tolist(), lengths[1].tolist(), VOCAB_SIZE)


def settings_with(**values) -> TrainingConfig:
    return TrainingConfig.model_validate({"tokens_per_batch": BATCH, "precision": "bf16", "device": "cuda"} | values)


def learner_on(gpu, layout="packed", dropout=0.0, model=None, **values) -> Learner:
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 128, "num_heads": 2, "ffn_dim": 256}
    torch.manual_seed(3)
    config = TransformerConfig.model_validate(sizes | {"dropout": dropout} | (model or {}))
    learner = new_learner(build_model(config, VOCAB_SIZE, VOCAB_SIZE), settings_with(**values), layout, gpu, Ranks())
    learner.loss.train()
    return learner


def along_the_gradient(learner) -> Learner:
    """With steps along the gradient itself: Adam would hide its scale, and make long steps of rounding errors."""
    optimizer = SGD(learner.model.parameters(), lr=1.0, fused=True)
    return Learner(learner.loss, optimizer, MovingAverage(learner.model, 0), learner.settings)


def weights_of(learner):
    return {name: weight.detach().cpu().clone() for name, weight in learner.model.named_parameters()}


def moved(before, learner):
    """By how much all weights have moved, as one vector."""
    after = weights_of(learner)
    return torch.cat([(after[name] - weight).flatten() for name, weight in before.items()])


def batches_of(corpus, layout="packed", per_update=0, number=None):
    loader = Loader(corpus, BATCH, per_update, 1, layout)
    if number is None:
        return [loader.batch(pairs, 1, each) for each, pairs in enumerate(loader.order(0))]
    return [loader.batch(update[0], 1, 0) for update, _ in islice(loader.updates(Position()), number)]


def update(learner, batches, step=1, rate=1.0, **values):
    return one_update(replace(learner, settings=settings_with(**values)), batches, rate, step)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_compiled_update_is_an_eager_one(corpus, gpu, norm):
    """They and one of padded rows differ from padded updates in fp32 on the CPU, and about as much."""
    forms = {
        "exact": ("padded", False, choose_device("cpu", "fp32")),
        "eager": ("packed", False, gpu),
        "compiled": ("packed", True, gpu),
        "padded": ("padded", False, gpu),
    }
    pairs = next(Loader(corpus, BATCH, 0, 1, "packed").updates(Position()))[0][0]
    found = []
    for layout, compile, device in forms.values():
        learner = along_the_gradient(learner_on(device, layout, compile=compile, model={"norm": norm}))
        before, loader = weights_of(learner), Loader(corpus, BATCH, 0, 1, layout)
        poison(gpu.torch_device)
        done = update(learner, [loader.batch(part, 1, number) for number, part in enumerate((pairs[::2], pairs[1::2]))])
        found.append((moved(before, learner), done.numbers.smoothed.item(), done.numbers.gradient_norm.item()))
    (exact, loss, norm), (eager, eager_loss, eager_norm), *others = found
    rounding = 2 * BF16_ROUNDING
    allowed = AS_MANY_ROUNDINGS * (eager - exact).norm() + rounding * exact.norm()
    for other, other_loss, other_norm in others:
        assert (other - exact).norm() <= allowed
        assert abs(other_loss - loss) <= AS_MANY_ROUNDINGS * abs(eager_loss - loss) + rounding * loss
        assert abs(other_norm - norm) <= AS_MANY_ROUNDINGS * abs(eager_norm - norm) + rounding * norm


def test_the_same_seed_gives_the_same_loss_twice_and_another_seed_another(corpus, gpu):
    """Of the first update to the last bit; afterwards sums of gradients, in no fixed order, differ in rounding."""
    first = batches_of(corpus, number=5)

    def losses(seed):
        learner = learner_on(gpu, dropout=0.3)
        return [
            update(learner, [batch], step, 1e-3, seed=seed).numbers.smoothed.item() / batch.num_labels
            for step, batch in enumerate(first, start=1)
        ]

    one, again, other = losses(1), losses(1), losses(2)
    assert one[0] == again[0]
    assert one == pytest.approx(again, rel=1e-3)
    assert one[0] != other[0]


def test_nothing_is_compiled_anew_for_other_numbers_of_sentences(corpus, gpu):
    """Only for the last batch, which is not full, and only once."""
    learner, batches = learner_on(gpu, dropout=0.1, compile=True), batches_of(corpus)
    assert len({len(batch.pairs_B) for batch in batches}) > 3
    update(learner, batches[:1])
    compiled = num_compiled()
    assert compiled > 0
    for step, batch in enumerate(batches[1:-1], start=2):
        update(learner, [batch], step, 1e-4)
    assert num_compiled() == compiled
    update(learner, batches[-1:], 99, 1e-4)
    after_epoch = num_compiled()
    for step, batch in enumerate(batches, start=100):
        update(learner, [batch], step, 1e-4)
    assert num_compiled() == after_epoch


@pytest.mark.parametrize("values", [{}, {"clip_norm": 1.0}, {"average_decay": 0.99}], ids=str)
@pytest.mark.parametrize(("layout", "compile"), [("packed", True), ("packed", False), ("padded", False)])
def test_the_host_does_not_wait_for_the_gpu_in_an_update(corpus, gpu, values, layout, compile):
    learner = learner_on(gpu, layout, dropout=0.1, compile=compile, **values)
    loader = Loader(corpus, BATCH, 0, 1, layout)
    orders = loader.order(0)
    for step in (1, 2, 3):  # loads kernels, and makes the optimizer's state
        update(learner, [loader.batch(orders[0], step, 0)], step, 1e-4, **values)
    with no_waiting():  # neither when an update in two parts is launched and captured, nor when it is replayed
        for step in (4, 5, 6):
            batches = [loader.batch(pairs, step, number) for number, pairs in enumerate([orders[1], orders[2]])]
            update(learner, batches, step, 1e-4, **values)


@pytest.mark.parametrize("num_parts", [1, 2])
@pytest.mark.parametrize(("optimizer", "compile"), [("adam", False), ("muon", False), ("adam", True)])
def test_replayed_updates_are_those_that_are_launched(corpus, gpu, optimizer, compile, num_parts):
    """With dropout, and with other rates and numbers of labels each time; sums in no fixed order differ in rounding."""
    values = {"optimizer": optimizer, "compile": compile, "clip_norm": 1.0, "adam_epsilon": 1e-3}
    loader, found = Loader(corpus, BATCH, 0, 1, "packed"), []
    orders = loader.order(0)
    for is_captured in (True, False):
        learner = learner_on(gpu, dropout=0.1, **values)
        learner.graphs.is_possible = is_captured
        before, numbers = weights_of(learner), []
        for step in range(1, 7):
            parts = [orders[(step + part) % (len(orders) - 1)] for part in range(num_parts)]
            batches = [loader.batch(pairs, step, part) for part, pairs in enumerate(parts)]
            numbers.append(update(learner, batches, step, 1e-3 / step, **values).numbers)
        assert len(learner.graphs._captured) == (is_captured and num_parts), (
            "one for the whole, or one part and the step"
        )
        found.append((moved(before, learner), [number.smoothed.item() for number in numbers]))
    (replayed, losses), (launched, same) = found
    assert losses == pytest.approx(same, rel=1e-3)
    assert (replayed - launched).norm() <= 0.05 * launched.norm()


def test_a_run_that_is_resumed_has_the_bits_of_a_replay(corpus, gpu):
    """The first update after a resume is launched. Its loss is that of a replay, to the last bit."""
    first, *_ = batches_of(corpus, number=1)
    learner = learner_on(gpu, dropout=0.3)
    losses = [update(learner, [first], 1, 0.0).numbers.smoothed.item() for _ in range(3)]
    assert losses[0] == losses[1] == losses[2]


def test_a_wait_for_the_gpu_would_be_noticed(gpu):
    number = torch.ones(1, device=gpu.torch_device)
    with no_waiting(), pytest.raises(RuntimeError, match="synchronizing"):
        number.item()


@pytest.mark.parametrize("compile", [True, False])
def test_an_update_that_is_not_finite_moves_nothing_and_the_next_goes_on(corpus, gpu, compile):
    """Neither weights nor the optimizer's state; the average stays finite; and the host need not know."""
    # Python does not run the hook in a replay. tests/training/test_captured.py shows the same of replays.
    learner = learner_on(gpu, compile=compile, model={"tied_embeddings": "none"}, average_decay=0.9)
    batches = batches_of(corpus, number=3)
    learner.graphs.is_possible = False
    update(learner, batches[:1], 1, 1e-3)
    spoilt = learner.loss.register_forward_hook(lambda _, __, sums: sums._replace(smoothed=torch.inf * sums.smoothed))

    def state():
        states = [*learner.optimizer.state.values()]
        numbers = [number for each in states for number in each.values()]
        return [tensor.detach().cpu().clone() for tensor in (*learner.model.parameters(), *numbers)]

    before = state()
    bad = update(learner, batches[1:2], 2, 1e-3)
    assert not bad.numbers.is_finite
    assert all(torch.equal(now, then) for now, then in zip(state(), before, strict=True))
    spoilt.remove()
    good = update(learner, batches[2:], 3, 1e-3)
    assert good.numbers.is_finite
    assert not all(torch.equal(now, then) for now, then in zip(state(), before, strict=True))
    assert all(tensor.isfinite().all() for tensor in (*state(), *learner.average.averages.values()))


# Memory

MEMORY_OF_WIDE = 4 * 10**9  # free bytes of a GPU: enough for an update of `wide_learner`


def wide_learner(gpu, layout):
    """Wide enough for a batch to take a gigabyte, and never compiled, so that the tries differ in nothing else."""
    sizes = {"d_model": 512, "num_heads": 8, "ffn_dim": 8192}
    return along_the_gradient(learner_on(gpu, layout, compile=False, model=sizes))


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_an_update_split_for_lack_of_memory_has_the_gradient_of_the_whole(make_corpus, gpu, layout):
    """PyTorch itself is out of memory: it may have no more than would do for two thirds of the batch.

    Of the largest one: what a single pair takes is mostly gradients of weights, and is more than two thirds of what a
    few pairs take.
    """
    gc.collect()
    torch.cuda.empty_cache()
    if (free := torch.cuda.mem_get_info(gpu.torch_device)[0]) < MEMORY_OF_WIDE:
        pytest.skip(f"other programs have left {free / 1e9:.1f} GB of the GPU's memory, and this test needs 4")
    lengths = np.random.default_rng(2).integers(20, 60, (2, 300))
    corpus = make_corpus(lengths[0].tolist(), lengths[1].tolist(), VOCAB_SIZE)
    loader = Loader(corpus, 8 * BATCH, 0, 1, layout)
    batch = loader.batch(max(loader.order(0), key=len), 1, 0)
    total = torch.cuda.get_device_properties(gpu.torch_device).total_memory
    results, room = [], None
    for _ in range(2):
        gc.collect()  # what is freed later would seem to be room
        torch.cuda.empty_cache()  # else its weights would lie in large pieces of memory, which then stay reserved
        learner = wide_learner(gpu, layout)
        before, held = weights_of(learner), torch.cuda.memory_allocated(gpu.torch_device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(gpu.torch_device)
        try:
            if room is not None:
                torch.cuda.set_per_process_memory_fraction((held + room) / total)
            done = update(learner, [batch])
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        room = (torch.cuda.max_memory_allocated(gpu.torch_device) - held) * 2 / 3
        results.append((done, moved(before, learner)))
        del learner
    (whole, by_whole), (split, by_split) = results
    assert whole.splits == 0
    assert split.splits >= 1
    assert split.num_labels == whole.num_labels
    # Gradients of weights are sums over rows, rounded to bf16 of each part: two roundings instead of one.
    losses = (split.numbers.smoothed.item(), whole.numbers.smoothed.item())
    assert losses[0] == pytest.approx(losses[1], rel=2 * BF16_ROUNDING, abs=0)
    assert (by_split - by_whole).norm() <= 4 * BF16_ROUNDING * by_whole.norm()


@pytest.mark.thorough
@pytest.mark.parametrize("compile", [True, False])
def test_the_next_update_goes_on_after_one_that_was_split(corpus, gpu, compile):
    """Whatever of PyTorch's graphs, streams and memory the error has left behind."""
    learner = learner_on(gpu, compile=compile)
    batches = batches_of(corpus, number=3)
    update(learner, batches[:1], 1, 1e-3)
    most = len(batches[1].pairs_B) // 2 + 1

    def break_off(module, arguments):
        if len(arguments[0].pairs_B) > most:
            torch.empty(2**50, dtype=torch.uint8, device=gpu.torch_device)  # a petabyte

    hook = learner.loss.register_forward_pre_hook(break_off)
    learner.graphs.drop()  # Python does not run the hook in a replay
    done = update(learner, batches[1:2], 2, 1e-3)
    hook.remove()
    assert done.splits == 1 and done.numbers.is_finite
    forgetful = replace(learner, room=Room())  # the whole is tried again, and not split untried
    again = update(forgetful, batches[2:], 3, 1e-3)
    assert again.splits == 0 and again.numbers.is_finite
