"""One update: what it does not depend on, and what it leaves alone."""

from itertools import islice

import numpy as np
import pytest
import torch
from helpers.tiny import new_learner

from transformer_mt.base.languages import EOS, PAD
from transformer_mt.batches.batching import collate
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.settings.reading import load_config
from transformer_mt.training.learning import Learner, MovingAverage
from transformer_mt.training.loop import one_update


@pytest.fixture(scope="module")
def batches(experiment):
    loader = Loader(EncodedCorpus.load(experiment.parent / "data" / "train"), 400, 0, 2)
    return [loader.batch(update[0], step=1, number=0) for update, _ in islice(loader.updates(Position()), 6)]


def plain(learner):
    """With steps along the gradient itself: Adam would hide its scale."""
    optimizer = torch.optim.SGD(learner.model.parameters(), lr=1.0, fused=True)
    return Learner(learner.loss, optimizer, MovingAverage(learner.model, 0), learner.settings)


def weights_of(learner):
    return {name: weight.detach().clone() for name, weight in learner.model.named_parameters()}


def state_of(learner):
    """All numbers that the optimizer keeps."""
    parameters = learner.model.named_parameters()
    return {
        f"{name}.{key}": value.clone()
        for name, parameter in parameters
        for key, value in learner.optimizer.state[parameter].items()
    }


def same(one, other):
    assert one.keys() == other.keys() and one
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.thorough
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_one_update_over_micro_batches_is_one_over_their_union(experiment, layout):
    config = load_config(experiment, ["model.dropout=0.0"])
    corpus = EncodedCorpus.load(experiment.parent / "data" / "train")
    loader = Loader(corpus, 400, 0, 2, layout)
    pairs = [update[0] for update, _ in islice(loader.updates(Position()), 3)]
    parts = [loader.batch(each, 1, number) for number, each in enumerate(pairs)]
    union = collate(corpus, np.concatenate(pairs))
    assert len({batch.num_labels for batch in parts}) > 1, "of unequal sizes, so that a mean of means would show"

    def updated(parts):
        learner = plain(new_learner(config))
        return weights_of(learner), one_update(learner, parts, 1.0, 1), weights_of(learner)

    (before, update, apart), (_, of_union, together) = updated(parts), updated([union])
    assert update.num_labels == of_union.num_labels == (union.labels_BT != PAD).sum()
    assert update.num_positions == sum(batch.num_positions for batch in parts)
    assert of_union.num_positions == union.labels_BT.numel() != union.source_BS.numel()
    assert torch.equal(update.pairs, union.pairs_B)
    assert update.splits == 0 and update.numbers.is_finite
    for name in ("smoothed", "nll", "gradient_norm"):
        torch.testing.assert_close(getattr(update.numbers, name), getattr(of_union.numbers, name), rtol=1e-5, atol=0)
    for name, weight in apart.items():
        torch.testing.assert_close(weight, together[name], rtol=1e-4, atol=1e-5)
    moved = torch.cat([(before[name] - apart[name]).flatten() for name in apart])
    torch.testing.assert_close(moved.norm(), update.numbers.gradient_norm, rtol=1e-3, atol=0)


def test_gradient_is_clipped_to_the_norm(experiment, batches):
    config = load_config(experiment, ["training.clip_norm=0.01"])
    learner = plain(new_learner(config))
    before = weights_of(learner)
    update = one_update(learner, batches[:1], 1.0, 1)
    moved = torch.cat([(before[name] - weight).flatten() for name, weight in weights_of(learner).items()])
    torch.testing.assert_close(moved.norm().item(), 0.01, rtol=1e-3, atol=0)
    assert update.numbers.gradient_norm > 0.1, "what is told is the norm before"


def test_the_rate_is_that_of_this_update(experiment, batches):
    config = load_config(experiment, ["model.dropout=0.0"])
    moved = []
    for rate in (0.5, 0.25):
        learner = plain(new_learner(config))
        before = weights_of(learner)
        assert one_update(learner, batches[:1], rate, 1).learning_rate == rate
        moved.append(torch.cat([(before[name] - weight).flatten() for name, weight in weights_of(learner).items()]))
    torch.testing.assert_close(moved[0], 2 * moved[1], rtol=1e-3, atol=1e-6)


class TestDropout:
    """It is drawn from the seed, the step and the number of the micro-batch."""

    def weights_after(self, experiment, batches, step=7, before=0, **settings):
        overrides = ["model.dropout=0.5", *(f"training.{key}={value}" for key, value in settings.items())]
        config = load_config(experiment, overrides)
        learner = new_learner(config)
        torch.manual_seed(before)  # whatever the process has drawn before
        one_update(learner, batches, 0.1, step)
        return weights_of(learner)

    def test_the_same_update_made_twice_is_the_same(self, experiment, batches):
        one, other = (self.weights_after(experiment, batches[:2], before=before) for before in (5, 6))
        assert same(one, other)

    @pytest.mark.thorough
    @pytest.mark.parametrize("change", [{"step": 8}, {"seed": 9}])
    def test_another_step_or_seed_is_another(self, experiment, batches, change):
        assert not same(
            self.weights_after(experiment, batches[:2]), self.weights_after(experiment, batches[:2], **change)
        )

    def test_each_micro_batch_has_its_own(self, experiment, batches):
        # Twice the same pairs with the same dropout would be the mean of two equal gradients.
        assert not same(
            self.weights_after(experiment, batches[:1]), self.weights_after(experiment, [batches[0], batches[0]])
        )


def poisoned_source(learner):
    """The embedding of EOS, which every source has, is infinite: the loss is not a number."""
    learner.model.source_embedding.weight.data[EOS] = torch.inf


def poisoned_target(learner):
    """The output of one word that no target has is infinite: the loss is infinite or not a number."""
    learner.model.output_embedding.weight.data[PAD] = torch.inf


def steep(learner):
    """Logits so far apart that the loss is finite, and the norm of its gradient is not."""
    learner.model.output_embedding.weight.data *= 1e30


@pytest.mark.parametrize("poison", [poisoned_source, poisoned_target, steep])
def test_an_update_that_is_not_finite_moves_nothing_and_the_next_goes_on(experiment, batches, poison):
    config = load_config(experiment, ["model.tied_embeddings=none", "training.clip_norm=1"])
    learner, spared = new_learner(config), new_learner(config)
    for each in (learner, spared):
        one_update(each, batches[:1], 0.01, 1)
    healthy, state = weights_of(learner), state_of(learner)
    poison(learner)
    before = weights_of(learner)
    update = one_update(learner, batches[1:3], 0.01, 2)
    assert not update.numbers.is_finite
    assert bool(update.numbers.smoothed.isfinite()) == (poison is steep)
    assert same(before, weights_of(learner))
    assert same(state, state_of(learner))
    assert all(weight.grad is None for weight in learner.model.parameters()), "nothing of it is left for the next"

    # Once its cause is gone, all goes on as if the update had not been.
    for name, weight in learner.model.named_parameters():
        weight.data.copy_(healthy[name])
    for each in (learner, spared):
        assert one_update(each, batches[3:5], 0.01, 3).numbers.is_finite
    assert same(weights_of(learner), weights_of(spared))
    assert same(state_of(learner), state_of(spared))
