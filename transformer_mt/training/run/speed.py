"""Measures how fast this machine trains a model, before there are data."""

import time

import numpy as np
import torch
from numpy.typing import NDArray

from transformer_mt.base.languages import EOS
from transformer_mt.batches.encoded import EncodedCorpus, EncodedText
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.inference.fast import build_model
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.loop import one_update
from transformer_mt.training.run.beginning import choose_layout, choose_rank_device, new_learner

WARM_UP = 3  # updates that are not timed, because kernels are slow at their first call and threads have to start
LEAST = 5  # updates that are timed


def tokens_per_second(
    model: ModelConfig,
    settings: TrainingConfig,
    vocab_size: int,
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]],
    seconds: float,
) -> float:
    """Return the target tokens a second, for random sentences of these lengths, source and target, in tokens.

    Times updates until they have taken `seconds`, and are at least 5, or have taken four times as long.
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
    learner.loss.train()
    loader = Loader(EncodedCorpus(source, target), settings.tokens_per_batch, 0, settings.seed, layout)
    updates = enumerate(loader.updates(Position()), start=1)  # an endless iterator

    def measured(least: int, seconds: float, most: float) -> float:
        begun, num_updates, num_labels = time.perf_counter(), 0, 0
        for step, (pairs, _) in updates:
            batches = [loader.batch(part, step, number) for number, part in enumerate(pairs)]
            num_labels += one_update(learner, batches, settings.peak_lr, step, settings, ranks).num_labels
            num_updates, passed = num_updates + 1, time.perf_counter() - begun
            if passed >= most or (num_updates >= least and passed >= seconds):
                break
        device.synchronize()  # so that the time includes the work of a GPU
        return num_labels / (time.perf_counter() - begun)

    measured(WARM_UP, 0.0, seconds)
    return measured(LEAST, seconds, 4 * seconds)
