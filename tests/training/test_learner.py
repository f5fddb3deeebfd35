"""What a run begins with, and what it may not begin with."""

from dataclasses import dataclass

import pytest
import torch
from helpers.messages import message
from helpers.pretended_gpus import two_gpus

from transformer_mt.base.errors import ConfigError
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.run import beginning as learner_module
from transformer_mt.training.run.beginning import choose_layout, choose_rank_device, new_learner

CPU = choose_device("cpu", "fp32", 1)
TINY = TransformerConfig(encoder_layers=1, decoder_layers=1, d_model=16, ffn_dim=16, num_heads=2)


@dataclass(frozen=True)
class Gpu:
    """What is asked of a device here; no GPU is needed to choose for one."""

    torch_device: torch.device = torch.device("cuda")  # noqa: RUF009  # a constant
    dtype: torch.dtype = torch.bfloat16


@pytest.fixture
def capability(monkeypatch):
    def set_to(*numbers):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: numbers)

    set_to(9, 0)
    return set_to


def test_a_gpu_is_not_chosen_where_nothing_can_be_compiled_for_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with (
        two_gpus(),
        pytest.raises(ConfigError, match=message("compiler-missing", "this machine has no C compiler")),
    ):
        choose_rank_device(TrainingConfig(device="cuda:1"), Ranks())
    choose_rank_device(TrainingConfig(device="cpu", num_threads=1), Ranks())


def test_training_says_why_it_does_not_use_the_gpu_once_and_only_if_the_cpu_was_not_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(learner_module, "why_gpu_unused", lambda: "the driver is too old")
    for device, ranks, said in (("auto", Ranks(), 1), ("auto", Ranks(1, 2), 0), ("cpu", Ranks(), 0)):
        choose_rank_device(TrainingConfig(device=device, num_threads=1), ranks)
        assert capsys.readouterr().err.count("on the CPU, because PyTorch cannot use the GPU: the driver") == said


def test_on_a_cpu_rows_are_padded_unless_packed_ones_are_asked_for():
    assert choose_layout(TrainingConfig(), TINY, CPU) == "padded"
    assert choose_layout(TrainingConfig(layout="packed"), TINY, CPU) == "packed"


def test_on_a_gpu_that_can_do_it_sentences_are_packed_unless_padded_rows_are_asked_for(capability):
    assert choose_layout(TrainingConfig(), TINY, Gpu()) == "packed"
    assert choose_layout(TrainingConfig(layout="padded"), TINY, Gpu()) == "padded"


@pytest.mark.parametrize(
    ("model", "device", "numbers", "fault"),
    [
        ({"attention_dropout": 0.1}, Gpu(), (9, 0), "attention_dropout"),
        ({}, Gpu(dtype=torch.float32), (9, 0), "precision=bf16"),
        ({}, Gpu(), (7, 5), "compute capability"),
        ({"d_model": 12, "num_heads": 2}, Gpu(), (9, 0), "not 6"),
        ({"d_model": 528, "num_heads": 2}, Gpu(), (9, 0), "not 264"),
    ],
)
def test_what_cannot_be_packed_is_padded_and_refused_if_asked_for(capability, model, device, numbers, fault):
    capability(*numbers)
    model = TINY.model_copy(update=model)
    assert choose_layout(TrainingConfig(), model, device) == "padded"
    with pytest.raises(ConfigError, match=message("packing-impossible", fault)):
        choose_layout(TrainingConfig(layout="packed"), model, device)
    with pytest.raises(ConfigError, match=message("packing-impossible", "this run began with packed", fault)):
        choose_layout(TrainingConfig(), model, device, "packed")
    assert choose_layout(TrainingConfig(layout="packed"), model, device, "padded") == "padded"


def learner(layout="padded", **settings):
    return new_learner(build_model(TINY, 20, 20), TrainingConfig(**settings), layout, CPU, Ranks())


def test_padded_rows_are_not_compiled():
    rows = learner()
    assert rows.loss.features == rows.model.features
    with pytest.raises(ConfigError, match=message("compile-needs-packing")):
        learner(compile=True)


def test_no_model_is_compiled_unless_this_is_asked_for():
    """Models and runs of earlier versions have training.compile=auto in their configurations."""
    for value in ("auto", False):
        rows = learner("packed", compile=value)
        assert rows.loss.features == rows.model.features
    rows = learner("packed", compile=True)
    assert rows.loss.features != rows.model.features


def test_a_run_of_one_process_is_not_sharded():
    assert not [weight for weight in learner(sharding="full").model.parameters() if hasattr(weight, "device_mesh")]
