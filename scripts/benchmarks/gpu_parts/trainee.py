"""A model in training, as the stage train runs it, without checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from transformer_mt.batches.batching import Batch, Pairs
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.batches.packing import PackedBatch
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import Device
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import Learner
from transformer_mt.training.loop import one_update
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.run.beginning import choose_layout, new_learner
from transformer_mt.training.update import Update

ALONE = Ranks()


@dataclass(frozen=True)
class Trainee:
    """What is trained, and on what."""

    learner: Learner
    loader: Loader
    training: TrainingConfig

    def updates(self) -> Iterator[Update]:
        """Make one update after another, without end."""
        for step, (pairs, _) in enumerate(self.loader.updates(Position()), start=1):
            yield self.update(step, [self.loader.batch(part, step, 0) for part in pairs])

    def update(self, step: int, batches: list[Batch | PackedBatch]) -> Update:
        """Make the update of that number, on these micro-batches."""
        rate = learning_rate(step, self.training)
        return one_update(self.learner, batches, rate, step, self.training, ALONE)

    def first_order(self) -> list[Pairs]:
        """The micro-batches of the first epoch."""
        return self.loader.order(0)


def new_trainee(
    config: TransformerConfig, vocab_size: int, corpus: EncodedCorpus, training: TrainingConfig, device: Device
) -> Trainee:
    """A fresh model with the weights of seed 1, whatever the seed of its dropout, and the loader of its batches."""
    torch.manual_seed(1)
    model = build_model(config, vocab_size, vocab_size)
    layout = choose_layout(training, config, device)
    learner = new_learner(model.train(), training, layout, device, ALONE)
    return Trainee(learner, Loader(corpus, training.tokens_per_batch, 0, 1, layout), training)
