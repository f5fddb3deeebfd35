"""Ours in the training benchmark: trains as `train` does, without validation and checkpoints.

python -m benchmarks.contenders.train_ours DIRECTORY fp32|bf16
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from benchmarks.contenders.timed_training import Pace
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.storage.weights import copy_weights, read_weights
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import BatchLoss
from transformer_mt.training.loop import one_update
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.run.beginning import choose_layout, new_learner
from transformer_mt.training.update import Update


class Ours:
    """A model in training with the settings of a race's directory, and the batches that it trains on."""

    def __init__(self, directory: Path, precision: str) -> None:
        self.race = race = json.loads((directory / "race.json").read_text(encoding="utf-8"))
        self.settings = TrainingConfig.model_validate(race["training"])
        self.device = choose_device(race["device"], precision, race["threads"])
        config = TransformerConfig.model_validate(race["model"])
        self.model = build_model(config, race["vocab_size"], race["vocab_size"])
        self.weights = directory / "ours.safetensors"
        copy_weights(read_weights(self.weights), self.model, self.weights)
        layout = choose_layout(self.settings, config, self.device)
        self.learner = new_learner(self.model.train(), self.settings, layout, self.device, Ranks())
        corpus = EncodedCorpus.load(directory / "corpus")
        self.loader = Loader(corpus, self.settings.tokens_per_batch, 0, self.settings.seed, layout)

    def updates(self) -> Iterator[Update]:
        """Make one update after another, without end."""
        for step, (pairs, _) in enumerate(self.loader.updates(Position()), start=1):
            batches = [self.loader.batch(part, step, 0) for part in pairs]
            rate = learning_rate(step, self.settings)
            yield one_update(self.learner, batches, rate, step)

    def first_loss(self) -> float:
        """The loss of the first batch with the first weights, in fp32 and without dropout, in nats a target token."""
        copy_weights(read_weights(self.weights), self.model, self.weights)
        fp32 = choose_device(self.race["device"], "fp32", self.race["threads"])
        padded = replace(self.loader, layout="padded")
        first = padded.batch(padded.order(0)[0], 1, 0)
        with torch.no_grad():
            sums = BatchLoss(self.model.eval(), fp32, self.settings.label_smoothing, compiled=False)(first)
        return sums.smoothed.item() / first.num_labels


def train(directory: Path, precision: str) -> None:
    """Print the speed, and at the end the first loss."""
    ours = Ours(directory, precision)
    warm_up, updates = ours.race["warm_up"], ours.race["updates"]
    pace = Pace(warm_up, updates, ours.device.torch_device)
    for update in islice(ours.updates(), warm_up + updates):
        pace.updated(update.num_labels)
    pace.finish(ours.first_loss())


if __name__ == "__main__":
    print("imported")
    train(Path(sys.argv[1]), sys.argv[2])
