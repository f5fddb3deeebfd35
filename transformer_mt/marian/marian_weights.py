"""The weights of Marian under our names, and ours under Marian's. No number changes, only names and orders.

Marian (Junczys-Dowmunt et al. 2018) puts all sines of a position before all cosines; we alternate them. The order of
the D columns does not matter as long as all matrices have the same one, so every matrix is put into the other order.

D model width  V vocabulary
"""

from collections.abc import Mapping
from itertools import product

import numpy as np
from numpy.typing import NDArray

from transformer_mt.base.languages import BOS, EOS, PAD, UNK
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.settings.model_settings import TransformerConfig

Array = NDArray[np.float32]

ATTENTIONS = {
    "encoder": {"attention": "self_attn"},
    "decoder": {"self_attention": "self_attn", "cross_attention": "encoder_attn"},
}
"""Marian's names of the attentions of a layer, by ours."""
# The bias of a piece that must never be written. Its probability is below 1e-12, but label smoothing can still add it.
NEVER = -30.0


def names_of_layers(model: TransformerConfig) -> dict[str, list[str]]:
    """Marian's names of the weights and biases of all layers, by ours. For one of ours, Marian has one or three.

    We have one matrix (or bias) for queries, keys and values; Marian has three.
    """
    names = dict[str, list[str]]()
    for side, number in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        parts = {"feed_forward.inner": ["fc1"], "feed_forward.outer": ["fc2"]}
        parts["around_feed_forward.norm"] = ["final_layer_norm"]
        for ours, theirs in ATTENTIONS[side].items():
            parts[f"{ours}.in_projection"] = [f"{theirs}.{letter}_proj" for letter in "qkv"]
            parts[f"{ours}.out_projection"] = [f"{theirs}.out_proj"]
            parts[f"around_{ours}.norm"] = [f"{theirs}_layer_norm"]
        for layer, (ours, all_theirs), kind in product(range(number), parts.items(), ("weight", "bias")):
            there = f"model.{side}.layers.{layer}"
            names[f"{side}.{layer}.{ours}.{kind}"] = [f"{there}.{theirs}.{kind}" for theirs in all_theirs]
    return names


def to_marian(ours: Mapping[str, Array], model: TransformerConfig) -> dict[str, Array]:
    """The weights under Marian's names, with columns in Marian's order."""
    target_VD = ours["target_embedding.weight"]
    if model.tied_embeddings == "all":
        weights = {"model.shared.weight": target_VD}
    else:
        source_VD = ours["source_embedding.weight"]
        weights = {"model.encoder.embed_tokens.weight": source_VD, "model.decoder.embed_tokens.weight": target_VD}
    if model.tied_embeddings == "none":
        weights["lm_head.weight"] = ours["output_embedding.weight"]
    if model.output_bias:
        weights["final_logits_bias"] = ours["output_bias_V"][None]
    for name, theirs in names_of_layers(model).items():
        weights |= zip(theirs, np.split(ours[name], len(theirs)), strict=True)
    return {name: _reordered(name, weight, _columns(model.d_model)) for name, weight in weights.items()}


def from_marian(
    theirs: Mapping[str, Array], model: TransformerConfig, source_ids: list[int], target_ids: list[int]
) -> dict[str, Array]:
    """The weights under our names. `source_ids` and `target_ids` are Marian's ids of our pieces.

    If Marian has one piece for our PAD and BOS, the model never writes PAD. Raises KeyError if a weight is missing.
    """
    to_ours_D = np.argsort(_columns(model.d_model))
    theirs = {name: _reordered(name, weight, to_ours_D) for name, weight in theirs.items()}
    for name, positions_TD in theirs.items():
        if "embed_positions" in name and np.abs(positions_TD - sinusoidal(*positions_TD.shape).numpy()).max() > 0.01:
            raise ValueError(f"{name} has other numbers than sines and cosines")
    shared = theirs.get("model.shared.weight")
    source_VD, target_VD = (
        (shared if shared is not None else theirs[f"model.{side}.embed_tokens.weight"]) for side in ATTENTIONS
    )
    weights = {"target_embedding.weight": target_VD[target_ids]}
    if model.tied_embeddings != "all":
        weights["source_embedding.weight"] = source_VD[source_ids]
    if model.tied_embeddings == "none":
        weights["output_embedding.weight"] = theirs["lm_head.weight"][target_ids]
    bias_V = theirs.get("final_logits_bias", np.zeros((1, len(target_VD)), np.float32))[0, target_ids]
    if target_ids[PAD] in target_ids[1:]:
        bias_V[PAD] = NEVER
    if target_ids[BOS] in (target_ids[UNK], target_ids[EOS]):
        bias_V[BOS] = NEVER
    weights["output_bias_V"] = bias_V
    for name, parts in names_of_layers(model).items():
        weights[name] = np.concatenate([theirs[part] for part in parts])
    return weights


def _columns(d_model: int) -> NDArray[np.int64]:
    """Our column at each of Marian's places."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def _reordered(name: str, weight: Array, columns_D: NDArray[np.int64]) -> Array:
    """Reorder the D columns: the first axis of matrices with D outputs, the second axis of those with D inputs."""
    if name == "final_logits_bias":  # has the axis V only
        return weight
    if any(part in name for part in ("out_proj", "fc2", "layer_norm")):
        return weight.take(columns_D, axis=0)
    return weight.take(columns_D, axis=1) if weight.ndim == 2 else weight  # a bias beside D inputs has no axis D
