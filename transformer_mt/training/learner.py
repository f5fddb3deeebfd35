"""Makes what a run begins with: its device, how sentences lie in a batch, and the learner on it."""

import sys

import torch
from torch import nn

from transformer_mt.data.loader import BatchLayout
from transformer_mt.device import Device, check_c_compiler, choose_device, why_gpu_unused
from transformer_mt.errors import ConfigError
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.experiment import TrainingConfig
from transformer_mt.settings.model import ModelConfig, TransformerConfig
from transformer_mt.storage.compiler_files import make_no_cache, use_own_cache
from transformer_mt.training.averaging import MovingAverage
from transformer_mt.training.distributed import Ranks, shard
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.training.update import BatchLoss, Learner


def choose_rank_device(settings: TrainingConfig, ranks: Ranks) -> Device:
    """The device of this rank: each rank of a machine has a GPU of its own. Sets up the CPU as `choose_device` does.

    If that is the CPU because PyTorch cannot use the GPU, a warning says why. Raises ConfigError.
    """
    if ranks.size > 1 and settings.device.startswith("cuda:"):
        raise ConfigError(f"training.device={settings.device} is one GPU, and there are {ranks.size} ranks: say cuda")
    device = choose_device(ranks.own_gpu(settings.device), settings.precision, settings.num_threads)
    if device.torch_device.type == "cuda":
        check_c_compiler()
    elif settings.device == "auto" and ranks.is_first and (reason := why_gpu_unused()):
        print(f"warning: training runs on the CPU, because PyTorch cannot use the GPU: {reason}", file=sys.stderr)
    return device


def choose_layout(settings: TrainingConfig, model: ModelConfig, device: Device) -> BatchLayout:
    """How sentences lie in micro-batches. Raises ConfigError if the device cannot have them so."""
    fault = "needs training.kernels=fast" if settings.kernels == "plain" else _packed_fault(model, device)
    if settings.layout == "packed" and fault:
        raise ConfigError(f"training.layout=packed {fault}")
    if settings.layout == "auto":
        return "padded" if fault or device.torch_device.type == "cpu" else "packed"
    return settings.layout


def check_layout(layout: BatchLayout, model: ModelConfig, device: Device) -> None:
    """Raises ConfigError if a run that began with this layout cannot go on on this device."""
    fault = _packed_fault(model, device)
    if layout == "packed" and fault:
        raise ConfigError(f"this run began with packed sentences, and training.layout=packed {fault}")


def new_learner(model: Seq2Seq, settings: TrainingConfig, layout: BatchLayout, device: Device, ranks: Ranks) -> Learner:
    """The model on the device, sharded and compiled as the settings say, with its optimizer.

    Raises ConfigError for what cannot be compiled, CompilerFilesError if it can be kept nowhere safely.
    """
    is_sharded = settings.sharding == "full" and ranks.size > 1
    if settings.compile is True and (layout == "padded" or is_sharded):
        raise ConfigError(
            "training.compile=true needs training.layout=packed, since padded batches are of many shapes, and "
            "training.sharding=none"
        )
    on_gpu = device.torch_device.type == "cuda"
    compiled = on_gpu and layout == "packed" and not is_sharded if settings.compile == "auto" else settings.compile
    if compiled or on_gpu:  # on a GPU the loss is compiled in any case
        use_own_cache()
    else:
        make_no_cache()
    loss = BatchLoss(model.to(device.torch_device), settings, device, compiled)
    if is_sharded:
        shard(loss, _units(model), ranks, device.torch_device)
    return Learner(loss, build_optimizer(model, settings), MovingAverage(model, settings.average_decay))


def _units(model: Seq2Seq) -> list[nn.Module]:
    """Parts whose own `forward` runs once a pass: sharded training gathers their parameters one at a time."""
    if not isinstance(model, Transformer):
        return []
    # The attention of a decoder layer is used outside of the layer too: for the keys of the encoder's output.
    return [*model.encoder, *(layer.feed_forward for layer in model.decoder_layers())]


def _packed_fault(model: ModelConfig, device: Device) -> str:
    """Why sentences cannot be packed; empty if they can."""
    if fault := model.why_not_packed():
        return fault
    if device.torch_device.type == "cpu":
        return ""
    assert isinstance(model, TransformerConfig), "nothing else is packed"
    width = model.d_model // model.num_heads
    if device.dtype != torch.bfloat16 or torch.cuda.get_device_capability(device.torch_device) < (8, 0):
        return "needs training.precision=bf16 and a GPU of compute capability 8.0: its attention knows no fp32"
    if width % 8 or width > 256:
        return f"needs heads whose width is a multiple of 8 and at most 256, not {width}"
    return ""
