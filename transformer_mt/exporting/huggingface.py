"""Writes a model in the format of Hugging Face's MarianMTModel and MarianTokenizer, without using transformers."""

from pathlib import Path
from typing import Any

from safetensors.numpy import save_file
from sentencepiece import SentencePieceProcessor

from transformer_mt.base.languages import BOS, EOS, PAD, UNK
from transformer_mt.decoding.engine import power_of_length
from transformer_mt.exporting.trained_model import LONGEST_TRANSLATION, SUPPORTED, Trained, unsupported_setting
from transformer_mt.marian.marian_tokenizer import name_in_marian
from transformer_mt.marian.marian_weights import to_marian
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model_settings import ModelConfig, TransformerConfig
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.files import write_json, write_whole
from transformer_mt.text.tokenizer import pieces_of

_SPECIAL_IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}


def unsupported(model: ModelConfig) -> str | None:
    """The reason why MarianMTModel cannot run this model; None if it can."""
    if isinstance(model, TransformerConfig) and model.norm == "pre":
        return "MarianMTModel has layer norms after the residual sums, this model has them before (model.norm=pre)"
    if isinstance(model, TransformerConfig) and model.activation == "swiglu":
        return "MarianMTModel's feed-forward layers have two matrices, and SwiGLU has three (model.activation=swiglu)"
    return unsupported_setting(model, SUPPORTED - {"positions"})


def write(trained: Trained, directory: Path) -> None:
    """Write weights, configurations and tokenizer into an existing directory."""
    save_file(to_marian(trained.weights, trained.model), directory / "model.safetensors", {"format": "pt"})
    config, tokenizer = trained.config, trained.tokenizer
    sizes = {"vocab_size": tokenizer.source_vocab_size, "decoder_vocab_size": tokenizer.target_vocab_size}
    write_json(directory / "config.json", _architecture(trained.model) | sizes)
    write_json(directory / "generation_config.json", _generation(config.decoding, config.model.max_positions))
    write_json(directory / "tokenizer_config.json", _tokenizer(config, tokenizer.joint, tokenizer.target))
    write_json(directory / "vocab.json", _ids(tokenizer.source))
    if not tokenizer.joint:
        write_json(directory / "target_vocab.json", _ids(tokenizer.target))
    write_whole(directory / "source.spm", tokenizer.source.serialized_model_proto())
    write_whole(directory / "target.spm", tokenizer.target.serialized_model_proto())


def _architecture(model: TransformerConfig) -> dict[str, Any]:
    sides = {
        f"{side}_{key}": value
        for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers))
        for key, value in (("layers", layers), ("ffn_dim", model.ffn_dim), ("attention_heads", model.num_heads))
    }
    return sides | {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "d_model": model.d_model,
        "activation_function": model.activation,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": 0.0,
        "max_position_embeddings": model.max_positions,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": model.tied_embeddings == "all",
        "tie_word_embeddings": model.tied_embeddings != "none",
        "dtype": "float32",
        **_SPECIAL_IDS,
        "forced_eos_token_id": None,  # the default is 0, which is wrong here; generation_config.json has the right id
    }


def _generation(decoding: DecodingConfig, max_positions: int) -> dict[str, Any]:
    """The settings of decoding for `generate`. Its lengths include BOS, and are the same for all sentences."""
    settings = {
        "num_beams": decoding.beam_size,
        "num_return_sequences": decoding.n_best,
        "length_penalty": power_of_length(decoding.length_penalty, decoding.length_penalty_form),
        "max_length": min(LONGEST_TRANSLATION, max_positions),
        "min_length": decoding.min_length + 1,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "bad_words_ids": [[PAD], [BOS]],
        "forced_eos_token_id": EOS,
        **_SPECIAL_IDS,
    }
    if not decoding.sampling:
        return settings
    return settings | {
        "num_beams": 1,
        "length_penalty": 1.0,
        "do_sample": True,
        "temperature": decoding.temperature,
        "top_k": decoding.top_k,
        "top_p": decoding.top_p,
    }


def _tokenizer(config: Config, joint: bool, target: SentencePieceProcessor) -> dict[str, Any]:
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": config.corpus.source_language,
        "target_lang": config.corpus.target_language,
        "model_max_length": config.model.max_positions,
        "separate_vocabs": not joint,
        "clean_up_tokenization_spaces": False,
        "unk_token": target.id_to_piece(UNK),
        "eos_token": target.id_to_piece(EOS),
        "pad_token": target.id_to_piece(PAD),
    }


def _ids(processor: SentencePieceProcessor) -> dict[str, int]:
    return {name_in_marian(piece): i for i, piece in enumerate(pieces_of(processor))}
