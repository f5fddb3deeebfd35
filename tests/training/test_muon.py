"""Muon is that of PyTorch for the matrices inside the layers, and Adam for everything else."""

import pytest
import torch
from helpers.messages import message
from helpers.tiny import assert_same_weights, train_tiny, weights_at
from torch import nn

from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.optimization import build_optimizer, orthogonal

SETTINGS = TrainingConfig(optimizer="muon", peak_lr=0.01)


class Net(nn.Module):
    """Weights of all kinds, two of them of one shape."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(7, 8)
        self.wide, self.tall, self.other = nn.Linear(8, 24), nn.Linear(24, 8), nn.Linear(8, 24, bias=False)


def gradients_of(model, seed):
    torch.manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)


def step(optimizer, is_finite=True):
    optimizer.found_inf = torch.tensor(0.0 if is_finite else 1.0)
    optimizer.step()
    optimizer.zero_grad()


def is_matrix(name):
    return name in ("wide.weight", "tall.weight", "other.weight")


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (24, 8)])
def test_what_is_orthogonal_has_the_directions_of_the_matrix_and_no_others(shape):
    torch.manual_seed(2)
    matrix_BMN = torch.randn(3, *shape)
    left, _, right = torch.linalg.svd(matrix_BMN, full_matrices=False)
    found = left.mT @ orthogonal(matrix_BMN) @ right.mT  # diagonal, if the directions are the same
    values = found.diagonal(dim1=1, dim2=2)
    assert ((values > 0.6) & (values < 1.3)).all()
    torch.testing.assert_close(found, torch.diag_embed(values), atol=1e-4, rtol=0)


@pytest.mark.parametrize("weight_decay", [0.0, 5.0])
def test_updates_are_those_of_pytorchs_muon_and_adam(weight_decay):
    ours, theirs = Net(), Net()
    optimizer = build_optimizer(ours, SETTINGS.model_copy(update={"weight_decay": weight_decay}))
    named = dict(theirs.named_parameters())
    muon = torch.optim.Muon(
        [weight for name, weight in named.items() if is_matrix(name)],
        lr=SETTINGS.peak_lr,
        weight_decay=weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    others = [weight for name, weight in named.items() if not is_matrix(name)]
    adam = torch.optim.Adam(others, lr=SETTINGS.peak_lr, betas=(0.9, 0.98), eps=1e-9, fused=True)
    for seed in range(4):
        before = {name: weight.detach().clone() for name, weight in theirs.named_parameters()}
        for model, optimizers in ((ours, [optimizer]), (theirs, [muon, adam])):
            gradients_of(model, seed)
            for each in optimizers:
                each.found_inf = torch.zeros(())
                each.step()
        for name, weight in ours.named_parameters():
            changed, expected = weight - before[name], named[name] - before[name]
            # Theirs computes in bf16, with 8 bits.
            torch.testing.assert_close(changed, expected, rtol=0, atol=0.04 * expected.abs().max().item())
        ours.load_state_dict(theirs.state_dict())


def test_an_update_that_is_not_finite_changes_nothing():
    model = Net()
    optimizer = build_optimizer(model, SETTINGS.model_copy(update={"weight_decay": 0.5}))
    for seed in range(2):
        gradients_of(model, seed)
        step(optimizer)
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    momenta = {name: optimizer.state[weight].get("momentum") for name, weight in model.named_parameters()}
    gradients_of(model, 3)
    model.wide.weight.grad[0, 0] = torch.nan
    step(optimizer, is_finite=False)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, weights[name])
        assert not is_matrix(name) or torch.equal(optimizer.state[weight]["momentum"], momenta[name])


@pytest.mark.thorough
def test_stopped_and_resumed_is_unbroken_bit_for_bit(experiment, tmp_path):
    settings = ("training.optimizer=muon", "training.schedule=constant", "training.keep_last=9")
    unbroken = train_tiny(experiment, tmp_path / "unbroken", *settings, "training.max_steps=6")
    run = train_tiny(experiment, tmp_path / "run", *settings, "training.max_steps=3")
    train_tiny(experiment, tmp_path / "run", *settings, "training.max_steps=6")
    assert_same_weights(weights_at(run, 6), weights_at(unbroken, 6))


def test_it_needs_complete_matrices():
    with pytest.raises(ValueError, match=message("muon-needs-complete-matrices")):
        TrainingConfig(optimizer="muon", sharding="full")
