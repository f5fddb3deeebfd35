"""nn.Transformer or Hugging Face's Marian in the training benchmark: a hand-written loop on our batches.

    PYTHON -m benchmarks.contenders.train_plain nn.Transformer|Marian DIRECTORY fp32|bf16 [WITHOUT_CUDNN]

PYTHON needs PyTorch, and transformers for Marian, but not transformer_mt.
Both compute the same function as ours, with our weights: post-norm, ReLU, scaled tied embeddings, our positions, and
dropout only on embeddings and sub-layers.

B sentences  S source positions  T target positions  N positions of a batch  D model width  V vocabulary
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.contenders.timed_training import Pace

PAD, BOS, EOS = 0, 2, 3
WITHOUT_CUDNN = "--without-cudnn-attention"  # PyTorch's default takes it for nearly every batch in bf16
Shape = Mapping[str, Any]  # the fields of TransformerConfig
Weights = Mapping[str, Tensor]  # by their names in NnTransformer


class NnTransformer(nn.Module):
    """Tied embeddings around nn.Transformer without its norms at the ends; all weights are to be loaded."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        d_model, layers = shape["d_model"], (shape["encoder_layers"], shape["decoder_layers"])
        self.transformer = nn.Transformer(
            d_model, shape["num_heads"], *layers, shape["ffn_dim"], shape["dropout"], batch_first=True
        )
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.transformer.encoder.use_nested_tensor = False  # it warns that it is a prototype
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0  # inside of the feed-forward
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.dropout, self.scale = nn.Dropout(shape["dropout"]), d_model**0.5
        self.positions_TD = nn.Buffer(torch.empty(shape["max_positions"], d_model))

    def forward(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """Logits BTV. A padded target stands after all real ones: the causal mask hides it."""
        x_BTD, padding_BS = self._embed(decoder_input_BT), source_BS == PAD
        memory_BSD = self.transformer.encoder(self._embed(source_BS), src_key_padding_mask=padding_BS)
        future_TT = torch.ones(x_BTD.shape[1], x_BTD.shape[1], dtype=torch.bool, device=x_BTD.device).triu(1)
        x_BTD = self.transformer.decoder(x_BTD, memory_BSD, future_TT, None, None, padding_BS, tgt_is_causal=True)
        return F.linear(x_BTD, self.embedding.weight)

    def _embed(self, tokens_BT: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens_BT) * self.scale + self.positions_TD[: tokens_BT.shape[1]])


class Marian(nn.Module):
    """MarianMTModel; all weights are to be loaded."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        config = MarianConfig(
            vocab_size=vocab_size,
            d_model=shape["d_model"],
            encoder_layers=shape["encoder_layers"],
            decoder_layers=shape["decoder_layers"],
            encoder_attention_heads=shape["num_heads"],
            decoder_attention_heads=shape["num_heads"],
            encoder_ffn_dim=shape["ffn_dim"],
            decoder_ffn_dim=shape["ffn_dim"],
            max_position_embeddings=shape["max_positions"],
            dropout=shape["dropout"],
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            use_cache=False,
            pad_token_id=PAD,
            eos_token_id=EOS,
            forced_eos_token_id=EOS,
            decoder_start_token_id=BOS,
        )
        self.marian = MarianMTModel(config)

    def forward(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        """Logits BTV."""
        return self.marian(source_BS, attention_mask=source_BS != PAD, decoder_input_ids=decoder_input_BT).logits


def marian_weights(weights: Weights) -> dict[str, Tensor]:
    """The same by their names in Marian."""
    embedding, positions = weights["embedding.weight"], weights["positions_TD"]
    renamed = {"lm_head.weight": embedding, "model.shared.weight": embedding}
    renamed["final_logits_bias"] = torch.zeros(1, len(embedding))
    for side, norms in (
        ("encoder", ["self_attn_layer_norm", "final_layer_norm"]),
        ("decoder", ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]),
    ):
        renamed[f"model.{side}.embed_tokens.weight"] = embedding
        renamed[f"model.{side}.embed_positions.weight"] = positions
        parts = {f"norm{number}": norm for number, norm in enumerate(norms, start=1)}
        parts |= {"linear1": "fc1", "linear2": "fc2", "self_attn": "self_attn", "multihead_attn": "encoder_attn"}
        prefix = f"transformer.{side}.layers."
        for name, value in weights.items():
            if name.startswith(prefix):
                layer, part, *leaf = name.removeprefix(prefix).split(".")
                renamed |= _renamed(f"model.{side}.layers.{layer}.{parts[part]}", ".".join(leaf), value)
    return {f"marian.{name}": value for name, value in renamed.items()}


def _renamed(part: str, leaf: str, value: Tensor) -> dict[str, Tensor]:
    if leaf.startswith("in_proj_"):
        leaf = leaf.removeprefix("in_proj_")
        return {f"{part}.{x}_proj.{leaf}": chunk for x, chunk in zip("qkv", value.chunk(3), strict=True)}
    return {f"{part}.{leaf}": value}


def train(kind: str, directory: Path, precision: str) -> None:
    """Print the speed, and at the end the first loss."""
    race = json.loads((directory / "race.json").read_text(encoding="utf-8"))
    torch.set_num_threads(race["threads"])
    weights = torch.load(directory / "weights.pt", weights_only=True)
    model: nn.Module
    if kind == "Marian":
        model, weights = Marian(race["model"], race["vocab_size"]), marian_weights(weights)
    else:
        model = NnTransformer(race["model"], race["vocab_size"])
    model.load_state_dict(weights)
    device, smoothing = torch.device(race["device"]), race["training"]["label_smoothing"]
    model.to(device).train()
    optimizer = adam(model)
    batches = torch.load(directory / "batches.pt", weights_only=True)  # source_BS, decoder_input_BT, labels_BT
    counts = [int((labels_BT != PAD).sum()) for _, _, labels_BT in batches]
    if device.type == "cuda":
        batches = [[ids.pin_memory() for ids in batch] for batch in batches]
    pace = Pace(race["warm_up"], race["updates"], device)
    for batch, count in zip(batches, counts, strict=True):
        one_update(model, optimizer, batch, smoothing, device, precision)
        pace.updated(count)
    model.load_state_dict(weights)
    with torch.no_grad():
        pace.finish(smoothed_loss(model.eval(), batches[0], smoothing, device).item())


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)


def one_update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[Tensor],
    smoothing: float,
    device: torch.device,
    precision: str,
) -> Tensor:
    """The loss before it, in nats a target token."""
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        loss = smoothed_loss(model, batch, smoothing, device)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def smoothed_loss(model: nn.Module, batch: Sequence[Tensor], smoothing: float, device: torch.device) -> Tensor:
    """In nats a target token."""
    source_BS, decoder_input_BT, labels_BT = (ids.to(device, non_blocking=True) for ids in batch)
    logits_NV, labels_N = model(source_BS, decoder_input_BT).flatten(0, 1), labels_BT.flatten()
    return F.cross_entropy(logits_NV, labels_N, ignore_index=PAD, label_smoothing=smoothing)


if __name__ == "__main__":
    kind, directory, precision, *options = sys.argv[1:]
    if WITHOUT_CUDNN in options:
        torch.backends.cuda.enable_cudnn_sdp(False)
    if kind == "Marian":
        import transformers  # noqa: F401  here, so that it counts as an import
    print("imported")
    train(kind, Path(directory), precision)
