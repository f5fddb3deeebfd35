"""The numerics for benchmarks/gpu.py: what is fast on a GPU equals what is plain, in numbers.

An error is the norm of a difference by the norm of the right value, which is computed in fp64.

N target tokens  D model width  V vocabulary
"""

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.shapes import SHAPES
from benchmarks.training_text import random_rows
from transformer_mt.base.languages import EOS, PAD
from transformer_mt.batches.batching import Batch, collate
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.packing import PackedBatch, collate_packed, packed_shape
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.cross_entropy import chunked_cross_entropy
from transformer_mt.kernels.device import Device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.preparing.shards import write_encoded
from transformer_mt.training.learning import features_and_labels
from transformer_mt.training.loss import label_smoothed

PAIRS, FEW, SMOOTHING = 400, 3, 0.1

Figures = dict[str, Any]


def layouts(shape: str, device: Device, work: Path) -> Figures:
    """The errors of features and of all gradients, packed and padded: for usual batches, a window, and few pairs."""
    config, _ = SHAPES[shape]
    kinds: dict[str, tuple[Mapping[str, Any], int]] = {
        "usual": ({}, PAIRS),
        "heads twice as wide": ({"num_heads": config.num_heads // 2}, PAIRS),
        "window": ({"attention_window": 5}, PAIRS),
        "batch nearly empty": ({}, FEW),
    }
    return {name: compare_layouts(shape, changes, pairs, device, work) for name, (changes, pairs) in kinds.items()}


def losses(shape: str, device: Device, work: Path) -> Figures:
    """The errors of the chunked and of the plain loss, and of a vocabulary that is not a multiple of 8."""
    names = {"whole vocabulary": 0, "vocabulary not a multiple of 8": 3}
    return {name: compare_losses(shape, more, device) for name, more in names.items()}


def compare_layouts(shape: str, changes: Mapping[str, Any], pairs: int, device: Device, work: Path) -> Figures:
    config, vocab_size = SHAPES[shape]
    config = config.model_copy(update={"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0, **changes})
    torch.manual_seed(1)
    model = build_model(config, vocab_size, vocab_size).to(device.torch_device).train()
    padded, packed = (
        batch.to(device.torch_device) for batch in batches(pairs, vocab_size, 20 if shape == "tiny" else PAIRS, work)
    )
    weights_ND = torch.randn(padded.num_labels, config.d_model, device=device.torch_device)
    found = {"padded": features_and_gradients(model, model.features, padded, weights_ND, device)}
    if device.torch_device.type == "cpu" or device.dtype == torch.bfloat16:  # its kernels on a GPU know nothing else
        found["packed"] = features_and_gradients(model, model.features, packed, weights_ND, device)
    exact = Device(device.torch_device, torch.float32, "")  # without autocast the model's own type decides
    right = features_and_gradients(model.double(), model.features, padded, weights_ND.double(), exact, torch.float64)
    return {"tokens": padded.num_labels} | {name: errors(*one, *right) for name, one in found.items()}


def batches(num_pairs: int, vocab_size: int, num_corpus: int, work: Path) -> tuple[Batch, PackedBatch]:
    """The same pairs of random words, padded and packed. What is packed has the rows of the whole corpus."""
    rows = list(islice(random_rows(vocab_size), num_corpus))
    write_encoded(work / "numerics", rows, vocab_size, vocab_size)
    corpus = EncodedCorpus.load(work / "numerics")
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


def compare_losses(shape: str, more_pieces: int, device: Device) -> Figures:
    """Loss and gradients, with PAD rows."""
    config, vocab_size = SHAPES[shape]
    vocab_size, num_tokens = vocab_size + more_pieces, 300 if shape == "tiny" else 9000
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
    parts = ("loss", "nll", "features_gradient", "output_gradient")
    return {name: dict(zip(parts, map(error, one, right), strict=True)) for name, one in found.items()}


def loss_and_gradients(
    loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], features_ND: Tensor, output_VD: Tensor
) -> list[Tensor]:
    """The loss, the unsmoothed one, and the gradients of the features and of the output matrix; fp64."""
    features_ND, output_VD = (x.detach().clone().requires_grad_() for x in (features_ND, output_VD))
    smoothed, nll = loss(features_ND, output_VD)
    smoothed.backward()  # type: ignore[no-untyped-call]
    assert features_ND.grad is not None and output_VD.grad is not None
    return [x.detach().double() for x in (smoothed, nll, features_ND.grad, output_VD.grad)]
