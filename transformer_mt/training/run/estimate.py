"""Measures how much time and memory training takes: makes a few updates."""

import time
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from transformer_mt.base.cores import OtherPrograms
from transformer_mt.base.languages import EOS
from transformer_mt.base.wording import counted, duration
from transformer_mt.batches.encoded import EncodedCorpus, EncodedText
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.batches.packing import PackedBatch, PackedShape
from transformer_mt.inference.fast import build_model
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import Learner
from transformer_mt.training.loop import one_update
from transformer_mt.training.run.beginning import choose_layout, choose_rank_device, new_learner
from transformer_mt.training.run.checkpoint import Tensors
from transformer_mt.training.run.run_log import beside_others, peak_memory_on

WARM_UP = 3  # updates that are not timed, because kernels are slow at their first call and threads have to start
LEAST = 3  # updates of each half that is timed
SAME = 1.1  # times as fast: the halves of a measurement do not differ more by chance


class Timed(NamedTuple):
    """What some updates took."""

    num_updates: int
    num_labels: int
    """Target tokens, without padding."""
    seconds: float

    @property
    def speed(self) -> float:
        """Target tokens a second."""
        return self.num_labels / self.seconds


def timed_updates(learner: Learner, loader: Loader, seconds: float) -> list[Timed]:
    """Make updates in two halves, and return the slower one first: other programs may have taken the cores meanwhile.

    A half lasts half of `seconds` and at least 3 updates, or four times as long. Up to 3 updates come before, and are
    not timed. A half begins again after the first update with packed batches of a shape: a GPU captures that one, and
    replays the others. The weights stay the same, because the learning rate is 0.
    """
    learner.loss.train()
    steps, device = enumerate(loader.updates(Position()), start=1), learner.device
    known = set[tuple[PackedShape, bool]]()

    def timed(least: int, seconds: float, most: float) -> Timed:
        begun, num_updates, num_labels = time.perf_counter(), 0, 0
        for step, (pairs, _) in steps:
            batches = [loader.batch(part, step, number) for number, part in enumerate(pairs)]
            num_labels += one_update(learner, batches, 0.0, step).num_labels
            num_updates += 1
            shapes = {(batch.shape, len(batches) == 1) for batch in batches if isinstance(batch, PackedBatch)}
            if not shapes <= known:  # it was launched and captured: begin again
                known.update(shapes)
                device.synchronize()
                begun, num_updates, num_labels = time.perf_counter(), 0, 0
                continue
            if 16 % num_updates == 0 or num_updates % 16 == 0:  # else the host would start seconds of replays ahead
                device.synchronize()
            passed = time.perf_counter() - begun
            if passed >= most or (num_updates >= least and passed >= seconds):
                break
        device.synchronize()  # so that the time includes the work of a GPU
        return Timed(num_updates, num_labels, time.perf_counter() - begun)

    timed(WARM_UP, 0.0, seconds)
    return sorted((timed(LEAST, seconds / 2, 2 * seconds) for _ in range(2)), key=lambda half: half.speed)


def estimate(learner: Learner, loader: Loader, seconds: float = 5.0) -> str:
    """Make a few updates, and return lines about the time, memory and disk that all updates of a run take."""
    others, settings = OtherPrograms(), learner.settings
    slower, faster = timed_updates(learner, loader, seconds)
    told = beside_others(others.cores()) if learner.device.torch_device.type == "cpu" else ""
    slow = f"{slower.speed:,.0f} to " if faster.speed > SAME * slower.speed else ""
    tensors = Tensors.of(learner)
    size = sum(tensor.nbytes for tensor in [*tensors.model.values(), *tensors.training.values()])
    num_steps, num_validations = settings.max_steps, -(-settings.max_steps // settings.validate_every)
    num_kept = settings.keep_last + settings.keep_best
    limit = f"; training.max_minutes={settings.max_minutes:g} ends training" if settings.max_minutes else ""
    return (
        f"{learner.device.description}: {slow}{faster.speed:,.0f} target tokens a second, measured in "
        f"{counted(slower.num_updates + faster.num_updates, 'update')}{told and f'; {told}'}\n"
        f"{counted(num_steps, 'update')}: about {duration(num_steps * faster.seconds / faster.num_updates)}, without "
        f"the time of {counted(num_validations, 'validation')}{limit}\n"
        f"memory: {peak_memory_on(learner.device.torch_device) / 1e6:,.0f} MB at the peak of these updates\n"
        f"disk: a checkpoint takes {size / 1e6:,.0f} MB; the run keeps at most {num_kept}"
    )


def tokens_per_second(
    model: ModelConfig,
    settings: TrainingConfig,
    vocab_size: int,
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]],
    seconds: float,
) -> float:
    """Return the target tokens a second, for random sentences of these lengths, source and target, in tokens.

    Of two measurements it is the faster one: training.max_minutes ends a training that other programs make slower.
    """
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
    return timed_updates(learner, loader, seconds)[1].speed
