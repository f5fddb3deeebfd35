"""Writes a model in the format of CTranslate2 (github.com/OpenNMT/CTranslate2), and packs it for Argos Translate.

D model width  V vocabulary  T positions
"""

import json
import zipfile
from pathlib import Path

from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import FeedForwardSpec, TransformerSpec

from transformer_mt.base.languages import BOS, EOS, NAMES, UNK, short_code
from transformer_mt.decoding.ctranslate2_engine import search_options
from transformer_mt.exporting.trained_model import LONGEST_TRANSLATION, Trained
from transformer_mt.models.attention_weights import index_of
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.reading import dump_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.files import replacing, write_whole
from transformer_mt.text.tokenizer import pieces_of
from transformer_mt.version import __version__

ARGOS_ENDING = ".argosmodel"
_ARGOS_VERSION = "1.9.0"  # the oldest version that reads this form
# With swiglu, ffn_glu adds the product with the linear map.
_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU} | dict.fromkeys(("swish", "swiglu"), Activation.SWISH)
_MODEL_FILES = ("config.json", "model.bin", "shared_vocabulary.json")


def write(trained: Trained, directory: Path, quantization: str) -> None:
    """Write the files for CTranslate2, and those that only this package reads, into an existing directory."""
    model, decoding = trained.model, trained.config.decoding
    spec = _empty_spec(model, decoding)
    _fill_embeddings(spec, trained)
    for i, layer in enumerate(spec.encoder.layer):
        _fill_attention(layer.self_attention, trained, f"encoder.{i}.attention", f"encoder.{i}.around_attention")
        _fill_feed_forward(layer.ffn, trained, f"encoder.{i}")
    for i, layer in enumerate(spec.decoder.layer):
        here = f"decoder.{i}"
        _fill_attention(layer.self_attention, trained, f"{here}.self_attention", f"{here}.around_self_attention")
        _fill_attention(layer.attention, trained, f"{here}.cross_attention", f"{here}.around_cross_attention")
        _fill_feed_forward(layer.ffn, trained, here)
    if model.norm == "pre":
        _fill_norm(spec.encoder.layer_norm, trained, "encoder_norm")
        _fill_norm(spec.decoder.layer_norm, trained, "decoder_norm")
    source, target = trained.tokenizer.source, trained.tokenizer.target
    spec.register_source_vocabulary(pieces_of(source))
    spec.register_target_vocabulary(pieces_of(target))
    spec.config.unk_token = target.id_to_piece(UNK)
    spec.config.bos_token = spec.config.decoder_start_token = target.id_to_piece(BOS)
    spec.config.eos_token = target.id_to_piece(EOS)
    spec.config.add_source_eos = True  # so that users of CTranslate2 give the pieces of a text without EOS
    spec.config.layer_norm_epsilon = 1e-5  # the default of nn.LayerNorm
    # The settings of decoding, as arguments of `translate_batch`, for users who run CTranslate2 without this package.
    options = search_options(decoding) | {
        "num_hypotheses": decoding.n_best,
        "max_input_length": model.max_positions - 1,  # without EOS
        "max_decoding_length": min(LONGEST_TRANSLATION, model.max_positions),
    }
    spec.config.add_attribute("translate_batch", options)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(directory))
    trained.tokenizer.save(directory)
    trained.training_lines.save(directory)
    write_whole(directory / "config.yaml", dump_config(trained.config))


def _empty_spec(model: TransformerConfig, decoding: DecodingConfig) -> TransformerSpec:
    return TransformerSpec.from_config(
        (model.encoder_layers, model.decoder_layers),
        model.num_heads,
        pre_norm=model.norm == "pre",
        activation=_ACTIVATIONS[model.activation],
        ffn_glu=model.activation == "swiglu",
        alignment_layer=index_of("cross", decoding.alignment_layer, model.decoder_layers),
        alignment_heads=model.num_heads,  # the mean over all heads
    )


def _fill_embeddings(spec: TransformerSpec, trained: Trained) -> None:
    # CTranslate2 stores equal weights only once, so tied weights need no special treatment.
    # Position encodings must be given, because by default CTranslate2 puts all sines before all cosines.
    model = trained.model
    if model.positions == "learned":
        positions_TD = trained.weights["positions.table_TD"]
    else:
        positions_TD = sinusoidal(model.max_positions, model.d_model).numpy()
    target_VD = trained.weights["target_embedding.weight"]
    spec.encoder.embeddings[0].weight = trained.weights.get("source_embedding.weight", target_VD)
    spec.decoder.embeddings.weight = target_VD
    spec.decoder.projection.weight = trained.weights.get("output_embedding.weight", target_VD)
    if model.output_bias:
        spec.decoder.projection.bias = trained.weights["output_bias_V"]
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        side.position_encodings.encodings = positions_TD


def _fill_attention(spec: MultiHeadAttentionSpec, trained: Trained, attention: str, residual: str) -> None:
    """CTranslate2's self-attention has one matrix for queries, keys and values; cross-attention has two."""
    weight = trained.weights[f"{attention}.in_projection.weight"]
    bias = trained.weights[f"{attention}.in_projection.bias"]
    *inputs, output = spec.linear
    borders = [0, len(weight)] if len(inputs) == 1 else [0, len(weight) // 3, len(weight)]
    for linear, first, last in zip(inputs, borders[:-1], borders[1:], strict=True):
        linear.weight, linear.bias = weight[first:last], bias[first:last]
    _fill_linear(output, trained, f"{attention}.out_projection")
    _fill_norm(spec.layer_norm, trained, f"{residual}.norm")


def _fill_feed_forward(spec: FeedForwardSpec, trained: Trained, layer: str) -> None:
    _fill_linear(spec.linear_0, trained, f"{layer}.feed_forward.inner")
    _fill_linear(spec.linear_1, trained, f"{layer}.feed_forward.outer")
    if trained.model.activation == "swiglu":
        _fill_linear(spec.linear_0_noact, trained, f"{layer}.feed_forward.factor")
    _fill_norm(spec.layer_norm, trained, f"{layer}.around_feed_forward.norm")


def _fill_linear(spec: LinearSpec, trained: Trained, name: str) -> None:
    spec.weight, spec.bias = trained.weights[f"{name}.weight"], trained.weights[f"{name}.bias"]


def _fill_norm(spec: LayerNormSpec, trained: Trained, name: str) -> None:
    spec.gamma, spec.beta = trained.weights[f"{name}.weight"], trained.weights[f"{name}.bias"]


def unsupported_in_argos(trained: Trained) -> str | None:
    """The reason why Argos Translate cannot run this model; None if it can."""
    if trained.tokenizer.source is not trained.tokenizer.target:
        return "an .argosmodel has one sentencepiece model, and this model has one for each language"
    if trained.config.corpus.tags:
        return "Argos Translate writes no tags before sources, which this model needs"
    return None


def pack_argos(directory: Path, trained: Trained, output: Path) -> None:
    """Write the export for CTranslate2 in `directory` as the .argosmodel `output`, completely or not at all."""
    source, target = (
        short_code(code) for code in (trained.config.corpus.source_language, trained.config.corpus.target_language)
    )
    name = f"translate-{source}_{target}-1_0"
    metadata = {
        "package_version": "1.0",
        "argos_version": _ARGOS_VERSION,
        "from_code": source,
        "from_name": NAMES.get(source, source),
        "to_code": target,
        "to_name": NAMES.get(target, target),
    }
    readme = f"# {metadata['from_name']} to {metadata['to_name']}\n\nMade by transformer_mt {__version__}.\n"
    with replacing(output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=2) + "\n")
        archive.writestr(f"{name}/README.md", readme)
        archive.write(directory / "tokenizer.model", f"{name}/sentencepiece.model")
        for part in _MODEL_FILES:
            archive.write(directory / part, f"{name}/model/{part}")
