"""The moving average of the weights, and the models that are made of checkpoints."""

import json

import pytest
import torch
from helpers.thorough import thorough
from helpers.tiny import assert_same_weights, log_records, train_tiny, weights_at
from safetensors.torch import load_file
from torch import nn

from transformer_mt import average as average_stage
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.weights import read_metadata
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.learning import MovingAverage
from transformer_mt.training.run.candidates import moving_average
from transformer_mt.training.run.checkpoint import checkpoint_path, load_progress, saved_steps

KEPT = ("training.save_every=1", "training.keep_last=99", "averaging.checkpoints=2")


@pytest.fixture(scope="module")
def averaged(experiment, tmp_path_factory):
    """A run with a moving average, all of whose checkpoints stay."""
    run_dir = tmp_path_factory.mktemp("averaged")
    return train_tiny(experiment, run_dir, *KEPT, "training.average_decay=0.6", "training.validate_every=3")


def everything_at(run_dir, step):
    """Weights, optimizer and moving average."""
    return weights_at(run_dir, step) | load_file(checkpoint_path(run_dir, step) / "training.safetensors")


def model_of(run_dir, *overrides):
    assert average_stage.main([str(run_dir), *overrides]) == 0
    return load_file(run_dir / "model" / "model.safetensors")


@pytest.mark.parametrize("limit", [0.5, 0.75, 0.999])
def test_the_average_is_its_formula(limit):
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    average = MovingAverage(model, limit)
    expected = {name: weight.detach().double() for name, weight in model.named_parameters()}
    decays = []
    for step in range(1, 60):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight))
        average.update(step)
        decays.append(min(limit, (1 + step) / (10 + step)))
        for name, weight in model.named_parameters():
            expected[name] = decays[-1] * expected[name] + (1 - decays[-1]) * weight.detach().double()
            torch.testing.assert_close(average.averages[name].double(), expected[name], rtol=1e-5, atol=1e-6)
    assert decays[0] == 2 / 11 and (decays[-1] == limit) == (limit < 0.8)


def test_with_a_decay_of_0_there_is_none():
    model = nn.Linear(3, 2)
    average, before = MovingAverage(model, 0.0), model.weight.detach().clone()
    average.update(1)
    with average.in_place_of_the_weights():
        assert torch.equal(model.weight, before)
    assert average.averages == {}


def test_whatever_happens_in_place_of_the_weights_they_are_back_afterwards():
    model = nn.Linear(3, 2)
    average, before = MovingAverage(model, 0.5), model.weight.detach().clone()
    average.averages["weight"].add_(1)
    with pytest.raises(KeyboardInterrupt), average.in_place_of_the_weights():
        assert torch.equal(model.weight, before + 1)
        raise KeyboardInterrupt
    assert torch.equal(model.weight, before)
    assert torch.equal(average.averages["weight"], before + 1)


@pytest.mark.thorough
def test_a_run_s_average_is_that_of_the_weights_after_each_of_its_updates(averaged):
    config, tokenizer = load_config(averaged / "config.yaml"), Tokenizer.load(averaged)
    torch.manual_seed(config.training.seed)
    model = Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    expected = {name: weight.detach().double() for name, weight in model.named_parameters()}
    for step in range(1, 13):
        decay = min(0.6, (1 + step) / (10 + step))
        weights, found = weights_at(averaged, step), moving_average(checkpoint_path(averaged, step))
        for name, weight in weights.items():
            expected[name] = decay * expected[name] + (1 - decay) * weight.double()
            torch.testing.assert_close(found[name].double(), expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("stop", [*thorough(1), 4, *thorough(9)])
def test_the_average_survives_a_stop_bit_for_bit(experiment, averaged, tmp_path, stop):
    settings = ("training.average_decay=0.6",)
    train_tiny(experiment, tmp_path, *settings, f"training.max_steps={stop}")
    assert_same_weights(everything_at(train_tiny(experiment, tmp_path, *settings), 12), everything_at(averaged, 12))


def test_the_weights_go_their_way_as_if_there_were_no_average(averaged, trained):
    assert_same_weights(weights_at(trained, 12), weights_at(averaged, 12))
    assert not any(name.startswith("average.") for name in everything_at(trained, 12))


def test_what_is_validated_is_the_average(experiment, averaged, tmp_path):
    """As the validation of a run says that begins with it and does not move."""
    nll = {record["step"]: record["valid_nll"] for record in log_records(averaged) if "valid_nll" in record}
    model_of(averaged, "choose=moving_average")
    still = [f"training.initialise_from={averaged}/model", "training.peak_lr=1e-30", "training.max_steps=1"]
    (again,) = (record for record in log_records(train_tiny(experiment, tmp_path, *still)) if "valid_nll" in record)
    assert again["valid_nll"] == pytest.approx(nll[12], rel=1e-6)


class TestChoose:
    def test_moving_average_is_that_of_the_newest_checkpoint(self, averaged, capsys):
        newest = checkpoint_path(averaged, saved_steps(averaged)[-1])
        assert_same_weights(model_of(averaged, "choose=moving_average", "checkpoints=1"), moving_average(newest))
        assert "the moving average at update 12, chosen by averaging.choose=moving_average" in capsys.readouterr().out

    def test_auto_takes_moving_averages_into_account_as_training_validated_them(self, averaged):
        model_of(averaged)
        found = json.loads(read_metadata(averaged / "model" / "model.safetensors")["validation"])
        of_training = {record["step"]: record["valid_nll"] for record in log_records(averaged) if "valid_nll" in record}
        best = load_progress(checkpoint_path(averaged, 12)).best_steps[0]
        moving = {record["made_of"]: record["nll"] for record in found if "moving" in record["made_of"]}
        assert moving == {f"the moving average at update {step}": of_training[step] for step in (12, best)}

    @pytest.mark.thorough
    def test_best_is_the_mean_of_the_best_few_wherever_they_are(self, experiment, tmp_path, capsys):
        # The rate is so high that it gets worse now and then.
        settings = ("training.metric=nll", "training.keep_best=3", "training.keep_last=2", "training.peak_lr=0.1")
        run = train_tiny(experiment, tmp_path, *settings, "training.validate_every=1")
        nll = {record["step"]: record["valid_nll"] for record in log_records(run) if "valid_nll" in record}
        best = sorted(nll, key=nll.__getitem__)[:3]
        assert best != sorted(best) and not set(best) <= set(saved_steps(run)[-2:])
        for wanted, chosen in [(1, best[:1]), (2, best[:2]), (3, best), (5, best)]:
            found = model_of(run, "choose=best", f"checkpoints={wanted}", "data_dir=nowhere")  # unvalidated, quick
            for name, weight in found.items():
                mean = torch.stack([weights_at(run, step)[name].double() for step in chosen]).mean(0)
                torch.testing.assert_close(weight.double(), mean, rtol=1e-6, atol=1e-7)
            steps = ", ".join(map(str, sorted(chosen)))
            assert f"update{'s' * (wanted > 1)} {steps}, chosen by averaging.choose=best" in capsys.readouterr().out
