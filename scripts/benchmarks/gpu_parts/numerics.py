"""The part numerics: what is fast on a GPU equals what is plain, in numbers.

An error is the norm of a difference by the norm of the right value.

N target tokens  D model width  V vocabulary
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu_parts import own_process
from benchmarks.gpu_parts.report import LeftOut, Measurement, Part
from benchmarks.gpu_parts.searches import captured_search, search_on_both
from benchmarks.gpu_parts.settings import Figures, Settings
from benchmarks.training_text import random_rows
from transformer_mt.base.languages import EOS, PAD
from transformer_mt.batches.batching import Batch, collate
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.packing import PackedBatch, collate_packed, packed_shape
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.cross_entropy import chunked_cross_entropy
from transformer_mt.kernels.device import Device, choose_device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.preparing.shards import write_encoded
from transformer_mt.storage.weights import use_own_cache
from transformer_mt.training.learning import features_and_labels
from transformer_mt.training.loss import label_smoothed

PAIRS = 400  # of a corpus; a batch of few has 3
SMOOTHING = 0.1


@dataclass(frozen=True)
class Layout:
    """Sentences on which packed and padded features are compared."""

    changes: Mapping[str, Any]
    """Of the model's shape."""
    pairs: int = PAIRS


LAYOUTS = {
    "usual heads": Layout({}),
    "heads twice as wide": Layout({"num_heads": 0.5}),
    "window": Layout({"attention_window": 5}),
    "batch nearly empty": Layout({}, pairs=3),
}
MORE_PIECES = {"whole vocabulary": 0, "vocabulary not a multiple of 8": 3}  # than the shape has
CAPTURED = "captured against not captured"


def part(settings: Settings) -> Part:
    measurements = [Measurement(name, name, 60.0, partial(measured, name, settings)) for name in MEASURES]
    return Part("numerics", measurements)


def measured(name: str, settings: Settings, seconds: float) -> Figures:
    if name == CAPTURED and not settings.on_gpu:
        raise LeftOut("steps are captured only on a GPU")
    return own_process.in_own_process("numerics", name, settings, seconds)


def measure(name: str, settings: Settings) -> Figures:
    return MEASURES[name](settings)


def all_layouts(settings: Settings) -> Figures:
    return {name: compare_layouts(layout, settings) for name, layout in LAYOUTS.items()}


def both_losses(settings: Settings) -> Figures:
    return {name: compare_losses(more, settings) for name, more in MORE_PIECES.items()}


MEASURES: dict[str, Callable[[Settings], Figures]] = {
    "packed and padded against fp64": all_layouts,
    "chunked and plain loss against fp64": both_losses,
    CAPTURED: captured_search,
    "search here and on the CPU": search_on_both,
}


def compare_layouts(layout: Layout, settings: Settings) -> Figures:
    """The errors of features and of all gradients: packed, compiled and padded, each against padded in fp64."""
    config, vocab_size = settings.shape_or("base32k")
    changes = dict(layout.changes)
    if "num_heads" in changes:
        changes["num_heads"] = int(config.num_heads * changes["num_heads"])
    config = config.model_copy(update={"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0} | changes)
    device = choose_device(settings.device, settings.training_precision, settings.threads)
    torch.manual_seed(1)
    model = build_model(config, vocab_size, vocab_size).to(device.torch_device).train()
    padded, packed = (batch.to(device.torch_device) for batch in batches(layout.pairs, vocab_size, settings))
    weights_ND = torch.randn(padded.num_labels, config.d_model, device=device.torch_device)
    found = {"padded": features_and_gradients(model, model.features, padded, weights_ND, device)}
    if not settings.on_gpu or device.dtype == torch.bfloat16:  # its kernels on a GPU know nothing else
        found["packed"] = features_and_gradients(model, model.features, packed, weights_ND, device)
    if settings.on_gpu and "packed" in found:
        use_own_cache()
        compiled = torch.compile(model.features, dynamic=False)
        found["compiled"] = features_and_gradients(model, compiled, packed, weights_ND, device)
    exact = Device(device.torch_device, torch.float32, "")  # without autocast the model's own type decides
    right = features_and_gradients(model.double(), model.features, padded, weights_ND.double(), exact, torch.float64)
    report: Figures = {"precision": settings.training_precision, "tokens": padded.num_labels, "model": str(config)}
    return report | {name: errors(*one, *right) for name, one in found.items()}


def batches(num_pairs: int, vocab_size: int, settings: Settings) -> tuple[Batch, PackedBatch]:
    """The same pairs of random words, padded and packed. What is packed has the rows of PAIRS pairs."""
    num_corpus = 20 if settings.is_trial else PAIRS
    rows = list(islice(random_rows(vocab_size), num_corpus))
    write_encoded(settings.work / "numerics", rows, vocab_size, vocab_size)
    corpus = EncodedCorpus.load(settings.work / "numerics")
    tokens = max(corpus.source.num_tokens, corpus.target.num_tokens)
    shape = packed_shape(corpus, tokens + 2 * max(map(len, (side for row in rows for side in row))))
    pairs = np.arange(min(num_pairs, num_corpus))
    return collate(corpus, pairs), collate_packed(corpus, pairs, shape)


def features_and_gradients(
    model: Seq2Seq,
    features: Callable[..., Tensor],
    batch: Batch | PackedBatch,
    weights_ND: Tensor,
    device: Device,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The features of the real target tokens, and the gradient of their weighted sum for each parameter; fp64."""
    model.zero_grad(set_to_none=True)
    as_type = device if dtype is None else Device(device.torch_device, dtype, "")
    found_ND = plain_features(features, batch) if dtype else features_and_labels(model, features, batch, as_type)[0]
    found_ND = found_ND[: len(weights_ND)]  # behind them, packed batches have dummies
    (found_ND.to(weights_ND.dtype) * weights_ND).sum().backward()  # type: ignore[no-untyped-call]
    gradients = {name: one.grad.double() for name, one in model.named_parameters() if one.grad is not None}
    return found_ND.detach().double(), gradients


def plain_features(features: Callable[..., Tensor], batch: Batch | PackedBatch) -> Tensor:
    """Those of a padded batch in the type of the weights; ND."""
    assert isinstance(batch, Batch)
    return features(batch.source_BS, batch.decoder_input_BT)[batch.decoder_input_BT != PAD]


def errors(features_ND: Tensor, gradients: dict[str, Tensor], right_ND: Tensor, right: dict[str, Tensor]) -> Figures:
    """Of all features together, of the worst token, of all gradients together, and of the worst parameter."""
    of_parameters = {name: error(gradients[name], right[name]) for name in right}
    worst = max(of_parameters, key=lambda name: of_parameters[name])
    all_of = [torch.cat([one[name].flatten() for name in right]) for one in (gradients, right)]
    return {
        "features": error(features_ND, right_ND),
        "features_worst_token": max(map(error, features_ND, right_ND)),
        "gradients": error(*all_of),
        "gradients_worst_parameter": of_parameters[worst],
        "worst_parameter": worst,
    }


def error(found: Tensor, right: Tensor) -> float:
    return float((found - right).norm() / right.norm().clamp_min(1e-300))


def compare_losses(more_pieces: int, settings: Settings) -> Figures:
    """The errors of chunked and plain loss and of their gradients, against the plain loss in fp64, with PAD rows."""
    config, vocab_size = settings.shape_or("base32k")
    vocab_size, num_tokens = vocab_size + more_pieces, 300 if settings.is_trial else 9000
    device = choose_device(settings.device, settings.training_precision, settings.threads)
    if settings.on_gpu:
        use_own_cache()
    torch.manual_seed(1)
    features_ND, output_VD = torch.randn(num_tokens, config.d_model), torch.randn(vocab_size, config.d_model)
    labels_N = torch.randint(EOS + 1, vocab_size, (num_tokens,)).masked_fill(torch.arange(num_tokens) % 7 == 0, PAD)
    features_ND, labels_N = features_ND.to(device.torch_device), labels_N.to(device.torch_device)
    output_VD = (output_VD / config.d_model**0.5).to(device.torch_device)
    in_type = features_ND.to(device.dtype)
    found = {
        "chunked": loss_and_gradients(
            lambda x, w: chunked_cross_entropy(x, w, labels_N, SMOOTHING), in_type, output_VD
        ),
        "plain": loss_and_gradients(
            lambda x, w: label_smoothed(x, w.to(x.dtype), labels_N, SMOOTHING), in_type, output_VD
        ),
    }
    right = loss_and_gradients(
        lambda x, w: label_smoothed(x, w, labels_N, SMOOTHING), in_type.double(), output_VD.double()
    )
    report: Figures = {"precision": settings.training_precision, "tokens": num_tokens, "vocabulary": vocab_size}
    parts = ("loss", "nll", "features_gradient", "output_gradient")
    return report | {name: dict(zip(parts, map(error, one, right), strict=True)) for name, one in found.items()}


def loss_and_gradients(
    loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], features_ND: Tensor, output_VD: Tensor
) -> list[Tensor]:
    """The loss, the unsmoothed one, and the gradients of the features and of the output matrix; fp64."""
    features_ND, output_VD = (x.detach().clone().requires_grad_() for x in (features_ND, output_VD))
    smoothed, nll = loss(features_ND, output_VD)
    smoothed.backward()  # type: ignore[no-untyped-call]
    assert features_ND.grad is not None and output_VD.grad is not None
    return [x.detach().double() for x in (smoothed, nll, features_ND.grad, output_VD.grad)]


if __name__ == "__main__":
    own_process.answer(measure)
