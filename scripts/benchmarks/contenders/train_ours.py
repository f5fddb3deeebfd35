"""Ours in the training benchmark: trains as `train` does, without validation and checkpoints.

python -m benchmarks.contenders.train_ours DIRECTORY fp32|bf16
"""

import json
import sys
from dataclasses import replace
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


def train(directory: Path, precision: str) -> None:
    """Print the speed, and at the end the first loss."""
    race = json.loads((directory / "race.json").read_text(encoding="utf-8"))
    settings = TrainingConfig.model_validate(race["training"])
    device = choose_device(race["device"], precision, race["threads"])
    config = TransformerConfig.model_validate(race["model"])
    model = build_model(config, race["vocab_size"], race["vocab_size"])
    copy_weights(read_weights(directory / "ours.safetensors"), model, directory / "ours.safetensors")
    layout = choose_layout(settings, config, device)
    learner = new_learner(model.train(), settings, layout, device, Ranks())
    corpus = EncodedCorpus.load(directory / "corpus")
    loader = Loader(corpus, settings.tokens_per_batch, 0, settings.seed, layout)
    updates = loader.updates(Position())
    pace = Pace(race["warm_up"], race["updates"], device.torch_device)
    for step in range(1, race["warm_up"] + race["updates"] + 1):
        batches = [loader.batch(pairs, step, 0) for pairs in next(updates)[0]]
        update = one_update(learner, batches, learning_rate(step, settings), step, settings, Ranks())
        pace.updated(update.num_labels)
    copy_weights(read_weights(directory / "ours.safetensors"), model, directory / "ours.safetensors")
    fp32 = choose_device(race["device"], "fp32", race["threads"])
    padded = replace(loader, layout="padded")
    first = padded.batch(padded.order(0)[0], 1, 0)
    with torch.no_grad():
        sums = BatchLoss(model.eval(), fp32, settings.label_smoothing, compiled=False)(first)
    pace.finish(sums.smoothed.item() / first.num_labels)


if __name__ == "__main__":
    print("imported")
    train(Path(sys.argv[1]), sys.argv[2])
