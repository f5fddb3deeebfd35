"""Train ours as `train` does, without validation and checkpoints, for the training benchmark.

python benchmark_ours.py DIRECTORY fp32|bf16
"""

import json
import sys
from pathlib import Path

import torch
from benchmark_pace import Pace

from transformer_mt.config import ModelConfig, TrainingConfig
from transformer_mt.data.batching import Position, training_batches
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.device import choose_device
from transformer_mt.models.transformer import Transformer
from transformer_mt.training.optimization import build_optimizer, learning_rate
from transformer_mt.training.update import batch_loss, one_update, set_learning_rate
from transformer_mt.weights import load_weights


def train(directory: Path, precision: str) -> None:
    """Print the speed, and at the end the first loss."""
    race = json.loads((directory / "race.json").read_text(encoding="utf-8"))
    settings = TrainingConfig.model_validate(race["training"])
    device = choose_device(race["device"], precision, race["threads"])
    model = Transformer(ModelConfig.model_validate(race["model"]), race["vocab_size"], race["vocab_size"])
    load_weights(model, directory / "ours.safetensors")
    model.to(device.torch_device).train()
    optimizer = build_optimizer(model, settings)
    corpus = EncodedCorpus.load(directory / "corpus")
    batches = training_batches(corpus, settings.tokens_per_batch, settings.seed, Position())
    pace = Pace(race["warm_up"], race["updates"], device.torch_device)
    for step in range(1, race["warm_up"] + race["updates"] + 1):
        batch, _ = next(batches)
        set_learning_rate(optimizer, learning_rate(step, settings))
        pace.updated(one_update(model, optimizer, [batch], settings, device).num_labels)
    load_weights(model, directory / "ours.safetensors")
    fp32 = choose_device(race["device"], "fp32", race["threads"])
    first, _ = next(training_batches(corpus, settings.tokens_per_batch, settings.seed, Position()))
    with torch.no_grad():
        sums = batch_loss(model.eval(), first.to(fp32.torch_device), settings.label_smoothing, fp32)
    pace.finish(sums.smoothed.item() / first.num_labels)


if __name__ == "__main__":
    print("imported")
    train(Path(sys.argv[1]), sys.argv[2])
