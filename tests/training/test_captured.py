"""An update that is captured and replayed is the update itself: with a pretended graph, which a CPU can run.

The pretended graph does its work again when it is replayed, but sees of Python what was there when it was captured: the
numbers that differ between updates must come from memory.
"""

from dataclasses import replace

import pytest
import torch
from helpers.thorough import thorough_rows
from helpers.tiny import new_learner

from transformer_mt.base.languages import EOS
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader
from transformer_mt.settings.reading import load_config
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.graphs import Graphs
from transformer_mt.training.learning import Learner
from transformer_mt.training.loop import one_update
from transformer_mt.training.out_of_memory import Room
from transformer_mt.training.update import Numbers

RATES = (0.01, 0.002, 0.005, 0.03, 0.001, 0.02, 0.004)


class Twins(Ranks):
    """Two ranks that always have the same micro-batches, seen from the first of them."""

    def sum(self, numbers):
        return numbers.mul_(2) if numbers.is_floating_point() else numbers * 2


TWINS = Twins(0, 2, 0, 2)


class Pretended:
    """A capture. Counts what is captured and replayed."""

    def __init__(self, optimizer, monkeypatch):
        self.optimizer, self.monkeypatch = optimizer, monkeypatch
        self.captured = self.replayed = 0

    def __call__(self, work):
        self.captured += 1
        (group,) = self.optimizer.param_groups
        assert group["capturable"], "PyTorch would refuse it"
        rate, place = group["lr"], torch.full((5,), torch.nan)

        def replay():
            self.replayed += 1
            group["lr"], now = rate, group["lr"]
            with self.monkeypatch.context() as forbidden:
                forbidden.setattr(torch, "default_generator", None)  # a graph cannot set a seed
                result = work()
            group["lr"] = now
            return place[: len(result)].copy_(result)

        return replay


@pytest.fixture
def captures(monkeypatch):
    """Makes a learner whose updates are captured, and the Pretended that captures them."""

    def make(learner, capture=None, ranks=Ranks()):  # noqa: B008  # frozen
        pretended = capture or Pretended(learner.optimizer, monkeypatch)
        graphs = Graphs(list(learner.loss.parameters()), lambda: pretended)
        parts = learner.loss, learner.optimizer, learner.average, learner.settings, ranks, Room(graphs.drop)
        return Learner(*parts, graphs), pretended

    return make


def updates_of(experiment, num_parts=1):
    """The packed micro-batches of each update. Every third is smaller, like the last one of an epoch."""
    corpus = EncodedCorpus.load(experiment.parent / "data" / "train")
    loader = Loader(corpus, 400, 0, 2, "packed")
    orders = iter(loader.order(0))
    for step in range(1, 8):
        batches = [loader.batch(next(orders), step, number) for number in range(num_parts)]
        yield step, [batches[0].halves()[0], *batches[1:]] if step % 3 == 0 else batches


def made(learner, updates):
    """The numbers of all updates, read at last, and the weights and averages at the end."""
    found = [one_update(learner, batches, RATES[step % len(RATES)], step) for step, batches in updates]
    assert all(weight.grad is None for weight in learner.model.parameters())
    weights = {name: weight.detach().clone() for name, weight in learner.model.named_parameters()}
    return [Numbers(*map(float, update.numbers)) for update in found], weights | learner.average.averages


@pytest.mark.parametrize(
    ("optimizer", "num_parts", "ranks"),
    [("adam", 1, Ranks()), ("muon", 2, Ranks()), ("adam", 2, TWINS), *thorough_rows(("muon", 1, TWINS))],
)
def test_replayed_updates_are_those_of_a_learner_that_captures_nothing(
    experiment, captures, optimizer, num_parts, ranks
):
    """With dropout, other rates and other numbers of labels in each, through the end of an epoch."""
    settings = f"training.optimizer={optimizer}", "training.weight_decay=0.5", "training.clip_norm=1"
    config = load_config(experiment, [*settings, "model.dropout=0.3"])
    updates = list(updates_of(experiment, num_parts))
    (captured, graph), (launched, _) = (captures(new_learner(config), ranks=ranks) for _ in range(2))
    launched.graphs.is_possible = False
    (found, weights), (expected, same_weights), (plain, _) = (
        made(learner, updates) for learner in (captured, launched, replace(new_learner(config), ranks=ranks))
    )
    shapes = {batch.shape for _, batches in updates for batch in batches}
    assert len(shapes) == 2
    is_whole = num_parts == ranks.size == 1
    assert (graph.captured, graph.replayed) == ((2, 5) if is_whole else (3, 5 * (num_parts + 1)))
    assert found == expected, "so that a resumed run, whose first update is not replayed, has the same bits"
    assert all(torch.equal(weight, same_weights[name]) for name, weight in weights.items())
    for numbers, same in zip(found, plain, strict=True):
        assert same == pytest.approx(numbers, rel=1e-3)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("the stream is capturing\nCompile with TORCH_USE_CUDA_DSA"), "stream is capturing"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_updates_go_on_where_nothing_can_be_captured(experiment, captures, capsys, error, said):
    def refuse(work):
        raise error

    config = load_config(experiment, [])
    (learner, _), (launched, _) = captures(new_learner(config), refuse), captures(new_learner(config))
    launched.graphs.is_possible = False
    updates = list(updates_of(experiment))
    assert made(learner, updates)[0] == made(launched, updates)[0]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert "cannot be captured as CUDA graphs" in line and line.endswith(said)


def test_what_does_not_fit_beside_the_graphs_gets_their_memory(experiment, captures):
    """A smaller batch, which comes third, is not captured yet, and finds no room beside the graph of the full ones."""
    config = load_config(experiment, [])
    learner, graph = captures(new_learner(config))
    dropped = []

    def lack_memory(module, arguments):
        if not dropped and len(arguments[0].pairs_B) < 10:
            dropped.append(dict(learner.graphs._captured))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    learner.loss.register_forward_pre_hook(lack_memory)
    ((_, first), (_, second), (_, third), *rest) = updates_of(experiment)
    numbers, _ = made(learner, [(1, first), (2, second), (3, third), (4, third)])
    assert len(dropped[0]) == 1 and not dropped[0].keys() & learner.graphs._captured.keys()
    assert [each.num_batches for each in numbers] == [1, 1, 1, 1], "it is not split"
    assert (graph.captured, graph.replayed) == (2, 2)
    made(learner, rest)
    assert graph.captured == 3, "the full batches are captured again"


def test_a_replay_that_is_not_finite_moves_nothing_and_the_next_goes_on(experiment, captures):
    settings = "training.average_decay=0.5", "training.optimizer=muon", "training.weight_decay=1"
    config = load_config(experiment, settings)
    learner, graph = captures(new_learner(config))
    ((_, first), (_, second), _, (_, fourth), *_) = updates_of(experiment)
    made(learner, [(1, first), (2, second)])
    source = learner.model.source_embedding.weight
    healthy = source.detach().clone()
    source.data[EOS] = torch.inf
    before = {name: weight.clone() for name, weight in learner.model.state_dict().items()}
    (numbers,), _ = made(learner, [(3, fourth)])
    assert not numbers.is_finite and graph.replayed == 2
    assert all(torch.equal(before[name], weight) for name, weight in learner.model.state_dict().items())
    source.data.copy_(healthy)
    (numbers,), _ = made(learner, [(4, fourth)])
    assert numbers.is_finite and not torch.equal(source, healthy)
