"""Begins a run: chooses its device and the layout of its batches, makes the learner, and loads initial weights."""

from pathlib import Path

import torch
from torch import nn

from transformer_mt.base.errors import ConfigError
from transformer_mt.batches.loader import BatchLayout
from transformer_mt.inference.cuda_graphs import CudaCapture
from transformer_mt.inference.fast import build_model, check_memory
from transformer_mt.kernels.device import Device, check_c_compiler, choose_device, why_gpu_unused
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.model_settings import ModelConfig, TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.storage.weights import use_own_cache
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.distributed import Ranks, shard
from transformer_mt.training.graphs import Graphs
from transformer_mt.training.learning import BatchLoss, Learner, MovingAverage
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.training.out_of_memory import Room
from transformer_mt.training.run.checkpoint import initialise_from, load_checkpoint


def choose_rank_device(settings: TrainingConfig, ranks: Ranks) -> Device:
    """The device of this rank: each rank of a machine has its own GPU. Sets up the CPU as `choose_device` does.

    Warns if it is the CPU because PyTorch cannot use the GPU. Raises ConfigError.
    """
    if ranks.size > 1 and settings.device.startswith("cuda:"):
        raise ConfigError(f"training.device={settings.device} is one GPU, but there are {ranks.size} ranks: set cuda")
    device = choose_device(ranks.own_gpu(settings.device), settings.precision, settings.num_threads)
    if device.torch_device.type == "cuda":
        check_c_compiler()
    elif settings.device == "auto" and (reason := why_gpu_unused()):
        ranks.say(f"training runs on the CPU, because PyTorch cannot use the GPU: {reason}", warning=True)
    return device


def choose_layout(
    settings: TrainingConfig, model: ModelConfig, device: Device, begun: BatchLayout | None = None
) -> BatchLayout:
    """The layout with which the run has `begun`, or that of the settings. Raises ConfigError if it is impossible."""
    wanted = begun or settings.layout
    fault = "needs training.kernels=fast" if settings.kernels == "plain" else _packed_fault(model, device)
    if wanted == "packed" and fault:
        of_run = "this run began with packed sentences, but " if begun else ""
        raise ConfigError(f"{of_run}training.layout=packed {fault}")
    if wanted == "auto":
        return "padded" if fault or device.torch_device.type == "cpu" else "packed"
    return wanted


def build_learner(
    model_settings: ModelConfig,
    settings: TrainingConfig,
    tokenizer: Tokenizer,
    path: Path | None,
    layout: BatchLayout,
    device: Device,
    ranks: Ranks,
) -> Learner:
    """Model and optimizer, from the checkpoint at `path`; if it is None, from the seed or another run's weights."""
    sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
    with ranks.together():
        torch.manual_seed(settings.seed)
        model = build_model(model_settings, *sizes, settings.kernels)
        if device.torch_device.type == "cpu" and ranks.size == 1:
            check_memory(model, numbers_per_weight=4)  # the weight, its gradient and Adam's two moving averages
        if path is None and settings.initialise_from is not None:
            initialise_from(Path(settings.initialise_from), model, model_settings, tokenizer)
    learner = new_learner(model, settings, layout, device, ranks)
    if path is not None:
        load_checkpoint(path, learner, tokenizer.digest)
    return learner


def new_learner(model: Seq2Seq, settings: TrainingConfig, layout: BatchLayout, device: Device, ranks: Ranks) -> Learner:
    """The model on the device, sharded and compiled as the settings say, with its optimizer.

    Raises ConfigError if these settings cannot be compiled, or if there is no safe directory for compiled code.
    """
    is_sharded = settings.sharding == "full" and ranks.size > 1
    compiled, on_gpu = settings.compile is True, device.torch_device.type == "cuda"
    with ranks.together():
        if compiled and (layout == "padded" or is_sharded):
            raise ConfigError(
                "training.compile=true needs training.layout=packed, because padded batches have too many shapes, and "
                "training.sharding=none"
            )
        if compiled or on_gpu:  # on a GPU, Triton compiles kernels in any case
            use_own_cache()
    loss = BatchLoss(model.to(device.torch_device), device, settings.label_smoothing, compiled)
    if is_sharded:
        shard(loss, _units(model), ranks, device.torch_device, settings.message_precision)
    parts = loss, build_optimizer(model, settings), MovingAverage(model, settings.average_decay), settings, ranks
    if not on_gpu or layout == "padded" or is_sharded:
        return Learner(*parts)
    stream = torch.cuda.Stream(device.torch_device)  # type: ignore[no-untyped-call]
    graphs = Graphs(list(loss.parameters()), lambda: CudaCapture(stream).captured)
    return Learner(*parts, Room(graphs.drop), graphs)


def _units(model: Seq2Seq) -> list[nn.Module]:
    """Modules that run `forward` once in a pass: sharded training gathers the parameters of one at a time."""
    if not isinstance(model, Transformer):
        return []
    # Without a decoder layer's attention: it is also used outside of the layer, for the keys of the encoder's output.
    return [*model.encoder, *(layer.feed_forward for layer in model.decoder_layers())]


def _packed_fault(model: ModelConfig, device: Device) -> str:
    """Why sentences cannot be packed; empty if they can."""
    if fault := model.why_not_packed():
        return fault
    if device.torch_device.type == "cpu":
        return ""
    assert isinstance(model, TransformerConfig), "only a Transformer takes packed sentences"
    width = model.d_model // model.num_heads
    if device.dtype != torch.bfloat16 or torch.cuda.get_device_capability(device.torch_device) < (8, 0):
        return "needs training.precision=bf16 and a GPU of compute capability 8.0 or higher: its attention has no fp32"
    if width % 8 or width > 256:
        return f"needs heads whose width is a multiple of 8 and at most 256, not {width}"
    return ""
