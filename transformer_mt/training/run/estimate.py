"""Estimates what training will take: makes a few updates, and measures their time and memory."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from transformer_mt.base.languages import EOS
from transformer_mt.base.wording import counted, duration
from transformer_mt.batches.encoded import EncodedCorpus, EncodedText
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.batches.packing import MicroBatch
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import peak_memory_on
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.learning import Learner
from transformer_mt.training.loop import one_update
from transformer_mt.training.run.beginning import choose_layout, choose_rank_device, new_learner
from transformer_mt.training.run.checkpoint import Tensors
from transformer_mt.training.scale.distributed import Ranks

WARM_UP = 3  # updates that are not timed, because kernels are slow at their first call and threads have to start
LEAST = 5  # updates that are timed


@dataclass(frozen=True)
class Estimate:
    """What the updates of a learner take on this machine."""

    num_updates: int
    tokens_per_second: float
    """Real target tokens, on all ranks together."""
    seconds_per_update: float
    peak_memory: int
    """Bytes: of the GPU, or of this process on a CPU, each since the process began."""
    checkpoint_size: int
    """Bytes of the tensors that a checkpoint holds."""

    def said(self, settings: TrainingConfig, hardware: str) -> str:
        """Lines to print, about all updates and all checkpoints of a run with these settings."""
        num_steps, num_validations = settings.max_steps, -(-settings.max_steps // settings.validate_every)
        num_saved = num_steps // settings.save_every + num_steps // settings.validate_every + 1
        num_kept = min(settings.keep_last + settings.keep_best, num_saved)
        kept = f"; the run keeps at most {num_kept}, {_bytes(num_kept * self.checkpoint_size)}" if num_kept > 1 else ""
        return (
            f"{hardware}: {self.tokens_per_second:,.0f} target tokens a second, measured in "
            f"{counted(self.num_updates, 'update')}\n"
            f"{counted(num_steps, 'update')}: about {duration(num_steps * self.seconds_per_update)}, without the time "
            f"of {counted(num_validations, 'validation')}\n"
            f"memory: {_bytes(self.peak_memory)} at the peak of these updates\n"
            f"disk: a checkpoint takes {_bytes(self.checkpoint_size)}{kept}"
        )


def estimate(
    learner: Learner,
    updates: Iterable[Sequence[MicroBatch]],
    settings: TrainingConfig,
    ranks: Ranks,
    seconds: float = 5.0,
    most: float = 60.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Estimate:
    """Make updates of these micro-batches until they have taken `seconds`, and are at least 5, or have taken `most`.

    Up to 3 updates come before, and are not timed. The time includes that of taking micro-batches from `updates`, which
    must not end (`itertools.cycle` repeats a list). The weights stay the same, because the learning rate is 0.
    """
    learner.loss.train()
    steps = enumerate(updates, start=1)

    def timed(least: int, seconds: float, most: float) -> tuple[int, int, float]:
        """Make updates. Returns the numbers of updates and of labels, and the seconds."""
        begun, num_updates, num_labels = clock(), 0, 0
        for step, batches in steps:
            num_labels += one_update(learner, batches, 0.0, step, settings, ranks).num_labels
            num_updates, passed = num_updates + 1, clock() - begun
            if ranks.max(passed >= most or (num_updates >= least and passed >= seconds)):  # all ranks stop together
                break
        learner.device.synchronize()  # so that the time includes the work of a GPU
        return num_updates, num_labels, clock() - begun

    timed(WARM_UP, 0.0, seconds)
    num_updates, num_labels, taken = timed(LEAST, seconds, most)
    tensors = Tensors.of(learner, ranks)
    return Estimate(
        num_updates,
        num_labels / taken,
        taken / num_updates,
        peak_memory_on(learner.device.torch_device),
        sum(tensor.nbytes for tensor in [*tensors.model.values(), *tensors.training.values()]),
    )


def updates_of(loader: Loader) -> Iterator[list[MicroBatch]]:
    """The micro-batches of each update of a new run."""
    for step, (pairs, _) in enumerate(loader.updates(Position()), start=1):
        yield [loader.batch(part, step, number) for number, part in enumerate(pairs)]


def trial(
    model: ModelConfig,
    settings: TrainingConfig,
    vocab_size: int,
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]],
    seconds: float,
) -> Estimate:
    """Estimate a model before there are data: on random sentences of these lengths, source and target, in tokens."""
    ranks = Ranks()
    device = choose_rank_device(settings, ranks)
    layout = choose_layout(settings, model, device)
    random = np.random.default_rng(settings.seed)
    source, target = (
        EncodedText(random.integers(EOS, vocab_size, side.sum(), np.uint16), np.concatenate([[0], side.cumsum()]))
        for side in lengths
    )
    torch.manual_seed(settings.seed)
    learner = new_learner(build_model(model, vocab_size, vocab_size), settings, layout, device, ranks)
    loader = Loader(EncodedCorpus(source, target), settings.tokens_per_batch, 0, settings.seed, layout)
    return estimate(learner, updates_of(loader), settings, ranks, seconds, most=4 * seconds)


def _bytes(number: int) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"
