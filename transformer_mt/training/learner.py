"""What a run begins with: how sentences lie, the loss, the optimizer."""

import torch

from transformer_mt.config import TrainingConfig
from transformer_mt.data.loading import Layout
from transformer_mt.device import Device
from transformer_mt.errors import ConfigError
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.training.averaging import MovingAverage
from transformer_mt.training.distributed import Ranks, shard
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.training.update import BatchLoss, Learner


def choose_layout(settings: TrainingConfig, attention_dropout: float, device: Device) -> Layout:
    """How sentences lie in micro-batches. Raises ConfigError if the device cannot have them so."""
    on_gpu, is_bf16 = device.torch_device.type == "cuda", device.dtype == torch.bfloat16
    if settings.layout == "packed" and on_gpu and not is_bf16:
        raise ConfigError("training.layout=packed needs training.precision=bf16 on a GPU: its attention knows no fp32")
    if settings.layout == "auto":
        return "packed" if on_gpu and is_bf16 and not attention_dropout else "padded"
    return settings.layout


def new_learner(model: Seq2Seq, settings: TrainingConfig, layout: Layout, device: Device, ranks: Ranks) -> Learner:
    """The model on the device, sharded and compiled as the settings say, with its optimizer."""
    on_gpu = device.torch_device.type == "cuda"
    compiled = on_gpu and layout == "packed" if settings.compile == "auto" else settings.compile
    loss = BatchLoss(model.to(device.torch_device), settings, device, compiled)
    if settings.sharding == "full":
        shard(loss, model.units, ranks, device.torch_device)
    return Learner(loss, build_optimizer(model, settings), MovingAverage(model, settings.average_decay))
