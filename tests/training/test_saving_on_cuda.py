"""What a GPU saves is what it has; a run goes on on the CPU, and back on the GPU."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from helpers.tiny import log_records, train_tiny, weights_at
from safetensors.torch import load_file

from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.reading import load_config
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.loop import one_update
from transformer_mt.training.progress import Progress
from transformer_mt.training.run.beginning import new_learner
from transformer_mt.training.run.checkpoint import (
    Tensors,
    checkpoint_path,
    damage,
    load_checkpoint,
    load_progress,
    save_checkpoint,
    saved_steps,
)

pytestmark = pytest.mark.cuda

# Without dropout, which each device draws in its own way. With the usual epsilon Adam makes steps of one size of
# gradients that are sums of rounding errors, as those of keys' biases.
EQUAL = ("model.dropout=0.0", "training.adam_epsilon=0.001", "training.average_decay=0.9")
PACKED = ("training.layout=packed", "training.precision=bf16", "model.num_heads=1")  # heads of 16 numbers


def learner_of(config, device, layout):
    tokenizer = Tokenizer.load(Path(config.data_dir))
    torch.manual_seed(3)
    model = build_model(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    return new_learner(model, config.training, layout, device, Ranks())


def tensors_of(learner):
    found = Tensors.of(learner)
    return {name: tensor.detach().cpu().clone() for name, tensor in (found.model | found.training).items()}


def make_updates(learner, config, layout, number):
    corpus = EncodedCorpus.load(Path(config.data_dir) / "train")
    loader = Loader(corpus, 400, 0, 1, layout)
    for step, (update, _) in enumerate(islice(loader.updates(Position()), number), start=1):
        batches = [loader.batch(pairs, step, each) for each, pairs in enumerate(update)]
        one_update(learner, batches, 1e-3, step)


@pytest.mark.parametrize("own", [(), PACKED], ids=["fp32", "packed"])
def test_what_is_saved_is_what_was_there_to_the_last_bit(experiment, gpu, tmp_path, own):
    """And another device loads the same."""
    config = load_config(experiment, [*EQUAL, *own])
    device, layout = (gpu, "packed") if own else (choose_device("cuda", "fp32"), "padded")
    learner = learner_of(config, device, layout)
    learner.loss.train()
    make_updates(learner, config, layout, 2)
    expected = tensors_of(learner)
    save_checkpoint(tmp_path, Tensors.of(learner), Progress(step=2, layout=layout), "digest")
    path = checkpoint_path(tmp_path, 2)
    assert damage(path) == ""
    found = load_file(path / "model.safetensors") | load_file(path / "training.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    for other in (choose_device("cpu", "fp32"), device):
        taken_up = learner_of(config, other, "padded" if other is not device else layout)
        load_checkpoint(path, taken_up, "digest")
        loaded = tensors_of(taken_up)
        assert loaded.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(loaded[name], tensor), name


def assert_near(run_dir, other, step, tolerance):
    one = weights_at(run_dir, step)
    for name, weight in weights_at(other, step).items():
        assert one[name].isfinite().all()
        assert (one[name] - weight).norm() <= tolerance * weight.norm(), name


def test_a_run_begun_on_the_gpu_goes_on_on_the_cpu_and_back(experiment, tmp_path):
    """In fp32, to rounding it is the run of the CPU alone: 12 updates, whose rates are at most 0.005."""
    alone = train_tiny(experiment, tmp_path / "alone", *EQUAL)
    both = tmp_path / "both"
    for device, steps in (("cuda", 4), ("cpu", 8), ("cuda", 12)):
        train_tiny(experiment, both, *EQUAL, f"training.device={device}", f"training.max_steps={steps}")
        assert load_progress(checkpoint_path(both, steps)).step == steps
        assert damage(checkpoint_path(both, steps)) == ""
    assert saved_steps(both)[-1] == 12
    assert_near(both, alone, 12, 1e-3)
    ours, theirs = ([record["loss"] for record in log_records(run) if "loss" in record] for run in (both, alone))
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_so_does_a_run_with_packed_sentences_in_bf16(experiment, tmp_path):
    """The CPU computes packed sentences in bf16 too, more slowly."""
    own = (*EQUAL, *PACKED)
    alone = train_tiny(experiment, tmp_path / "alone", *own, "training.device=cuda")
    both = tmp_path / "both"
    for device, steps in (("cuda", 4), ("cpu", 8), ("cuda", 12)):
        train_tiny(experiment, both, *own, f"training.device={device}", f"training.max_steps={steps}")
    assert load_progress(checkpoint_path(both, 12)).layout == "packed"
    # Of bf16 a rounding is 0.002 of a number; each of 12 updates adds at most 0.005 to weights of about 0.2.
    assert_near(both, alone, 12, 0.05)
