"""Turns a directory of MarianMT into a model directory of ours, once, and keeps it in the user's cache."""

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from transformer_mt.base.errors import CheckpointError, ConfigError
from transformer_mt.marian.marian_tokenizer import ADVICE, SIDES, has_two_vocabularies, read_json_object, read_tokenizer
from transformer_mt.marian.marian_weights import Array, from_marian
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.reading import dump_config
from transformer_mt.storage.checksums import CONFIG, MODEL, MODEL_FILES, fault, write_sums
from transformer_mt.storage.files import open_locked
from transformer_mt.storage.own_directory import replacing_directory
from transformer_mt.storage.weights import check_weights, private_cache, save_weights
from transformer_mt.text.training_lines import TrainingLines

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "target_vocab.json")
_NEEDED = (
    *("d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim", "max_position_embeddings"),
    *("encoder_attention_heads", "decoder_attention_heads"),
    *("pad_token_id", "decoder_start_token_id", "eos_token_id"),
)
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
_PATIENCE = 600  # seconds for the conversion by another process
_FORM = 1  # of what this module writes; another number makes it read all directories again


def converted(path: Path) -> Path:
    """`as_model_dir` of a directory with a config.json; a model of another type is returned as given."""
    config = read_json_object(path / "config.json")
    if config.get("model_type") != "marian":
        return path
    if missing := next((name for name in _NEEDED if not isinstance(config.get(name), int)), None):
        raise CheckpointError(f"{path / 'config.json'}: has no number {missing}; {ADVICE}")
    try:
        made = private_cache() / "marian" / f"{path.resolve().name}-{_digest(path)[:12]}"
        made.parent.mkdir(exist_ok=True)
        lock = open_locked(made.with_suffix(".lock"), _PATIENCE)  # another process may convert the same directory
    except (OSError, RuntimeError, ConfigError) as error:
        raise CheckpointError(
            f"{path} is a model of MarianMT, which is converted before use, but the cache of this user cannot be "
            f"written ({error}): set XDG_CACHE_HOME to a directory that only you can write to"
        ) from None
    if lock is None:
        raise CheckpointError(f"{path}: for {_PATIENCE} seconds another process was converting it; try again")
    with os.fdopen(lock):
        if fault(made, MODEL_FILES):
            with replacing_directory(made) as directory:
                _write(path, config, directory)
            print(f"{path} is a model of MarianMT: converted, and kept in {made}", file=sys.stderr)
    return made


def _digest(path: Path) -> str:
    """Of the small files, and of place, size and times of the large ones, which take seconds to read."""
    digest = hashlib.sha256(f"{_FORM} {path.resolve()}".encode())
    for name in (*_FILES, *SIDES):
        if (path / name).is_file():
            digest.update(name.encode() + (path / name).read_bytes())
    for name in _WEIGHTS:
        if (path / name).is_file():
            status = (path / name).stat()
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}".encode())
    return digest.hexdigest()


def _write(path: Path, config: Mapping[str, Any], directory: Path) -> None:
    file = next((path / name for name in _WEIGHTS if (path / name).is_file()), None)
    if file is None:
        raise CheckpointError(f"{path}: has none of {' and '.join(_WEIGHTS)}; {ADVICE}")
    for name in SIDES:
        if not (path / name).is_file():
            raise CheckpointError(f"{path}: has no {name}; {ADVICE}")
    place = path / "tokenizer_config.json"
    texts = read_json_object(place) if place.is_file() else {}
    tokenizer, source_ids, target_ids = read_tokenizer(path, config, texts)
    try:
        settings = _settings(path, config, texts)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise CheckpointError(f"{path}: its configuration has a value that ours cannot have: {reason}") from None
    assert isinstance(settings.model, TransformerConfig)
    theirs = _read_weights(file)
    try:
        weights = from_marian(theirs, settings.model, source_ids, target_ids)
    except KeyError as error:
        raise CheckpointError(f"{file}: has no weights {error.args[0]}; {ADVICE}") from None
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{path}: the files do not fit each other ({error}); {ADVICE}") from None
    tokenizer.save(directory)
    most = settings.model.max_positions - 1
    # Nothing is known of the training text; such models are trained on single sentences.
    lines = TrainingLines(
        pairs=1, usual_sentences=1, most_sentences=1, usual_pieces=most, most_pieces=most, least_ratio=0.0
    )
    lines.save(directory)
    (directory / CONFIG).write_text(dump_config(settings), encoding="utf-8")
    tensors = {name: torch.from_numpy(weight) for name, weight in weights.items()}
    metadata = {"tokenizer": tokenizer.digest, "made_of": f"MarianMT, {path.resolve()}"}
    save_weights(tensors, directory / MODEL, metadata)
    write_sums(directory, sorted(os.listdir(directory)))


def _read_weights(file: Path) -> dict[str, Array]:
    try:
        if file.suffix == ".safetensors":
            weights = load_file(file)
        else:
            weights = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, SafetensorError, UnpicklingError, EOFError):
        raise CheckpointError(f"{file}: is damaged, or is not a file of weights; {ADVICE}") from None
    if not isinstance(weights, dict) or not all(isinstance(weight, torch.Tensor) for weight in weights.values()):
        raise CheckpointError(f"{file}: does not hold weights by their names, as transformers writes them")
    in_fp32 = {str(name): weight.float() for name, weight in weights.items()}
    check_weights(in_fp32, file)
    return {name: weight.numpy() for name, weight in in_fp32.items()}


def _settings(path: Path, config: Mapping[str, Any], texts: Mapping[str, Any]) -> Config:
    """Our settings for this model. Raises CheckpointError if it is one that we cannot run."""
    if reason := _unsupported(config):
        raise CheckpointError(f"{path}: {reason}, which this package cannot run")
    search = dict(config)
    if (path / "generation_config.json").is_file():
        search |= read_json_object(path / "generation_config.json")
    languages = texts.get("source_lang") or "en", texts.get("target_lang") or "de"
    if not (texts.get("source_lang") and texts.get("target_lang")):
        print(f"note: {path} does not name its languages; they are taken as {' and '.join(languages)}", file=sys.stderr)
    return Config.model_validate(
        {
            "data_dir": "data/unknown",
            "run_dir": "runs/unknown",
            "corpus": {
                "source_language": languages[0],
                "target_language": languages[1],
                "train": "unknown",
                "valid": "unknown",
                "test": {},
                "max_length": min(256, config["max_position_embeddings"]),
            },
            "tokenizer": {"joint": not has_two_vocabularies(path, texts)},
            "model": _model_settings(config),
            "decoding": {
                "beam_size": search.get("num_beams") or 1,
                "length_penalty": max(0.0, search.get("length_penalty") or 0.0) if "length_penalty" in search else 1.0,
                "length_penalty_form": "average",
            },
        }
    )


def _model_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    is_shared = config.get("share_encoder_decoder_embeddings", True)
    ties = "all" if is_shared else "target" if config.get("tie_word_embeddings", True) else "none"
    return {
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "d_model": config["d_model"],
        "ffn_dim": config["encoder_ffn_dim"],
        "num_heads": config["encoder_attention_heads"],
        "activation": _ACTIVATIONS[config["activation_function"]],
        "norm": "post",
        "tied_embeddings": ties,
        "output_bias": True,
        "max_positions": config["max_position_embeddings"],
        "dropout": config.get("dropout") or 0.0,
        "attention_dropout": config.get("attention_dropout") or 0.0,
    }


def _unsupported(config: Mapping[str, Any]) -> str:
    """What this model has that ours cannot have; empty if there is nothing."""
    for name in ("ffn_dim", "attention_heads"):
        if config[f"encoder_{name}"] != config[f"decoder_{name}"]:
            return f"encoder_{name} and decoder_{name} differ"
    if not config.get("scale_embedding", False):
        return "its embeddings are not scaled (scale_embedding=false)"
    if config.get("normalize_before", False) or config.get("normalize_embedding", False):
        return "its layer norms are not after the residual sums (normalize_before or normalize_embedding)"
    if not config.get("static_position_embeddings", True):
        return "its positions are trained (static_position_embeddings=false)"
    if str(config.get("activation_function")) not in _ACTIVATIONS:
        return f"it has activation_function={config.get('activation_function')}"
    if config.get("share_encoder_decoder_embeddings", True) and not config.get("tie_word_embeddings", True):
        return "it shares the embeddings of source and target, but not that of the output"
    return ""
