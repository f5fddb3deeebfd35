"""eole in the training benchmark: its command, its configuration and its log.

Speeds are compared in real target tokens, with the end of sentence and without padding: the second number of its tok/s.
"""

import json
import re
from typing import Any

from benchmarks.training_process import Contender, Race

EOLE_LOG = re.compile(r"Step +(?P<update>\d+)/.*\d+/ *(?P<speed>\d+) tok/s")


def eole(python: str, precision: str, race: Race) -> Contender:
    """eole 0.6. Its decoder has only pre-norm; it batches sentences of similar length."""
    vocabulary = race.directory / "eole.vocabulary"
    pieces = (race.directory / "pieces.txt").read_text(encoding="utf-8").split()
    vocabulary.write_text("".join(f"{piece}\t1\n" for piece in pieces), encoding="utf-8")
    config = {
        "data": {"corpus_1": {"path_src": "train.source", "path_tgt": "train.target"}},
        "src_vocab": str(vocabulary),
        "share_vocab": True,
        "src_vocab_size": race.vocab_size,
        "tgt_vocab_size": race.vocab_size,
        "report_every": 1,
        "seed": race.training.seed,
        "model": _eole_model(race),
        "training": _eole_training(race) | {"compute_dtype": precision},
    }
    path = race.directory / f"eole.{precision}.yaml"
    path.write_text(json.dumps(config, indent=1, ensure_ascii=False), encoding="utf-8")  # JSON is YAML
    command = python, "-m", "eole.bin.main", "train", "-c", str(path)
    return Contender("eole", precision, command, re.compile(r" INFO\] "), EOLE_LOG)


def _eole_model(race: Race) -> dict[str, Any]:
    model = race.model
    return {
        "architecture": "transformer",
        "encoder": {"encoder_type": "transformer", "layers": model.encoder_layers},
        "decoder": {"decoder_type": "transformer", "layers": model.decoder_layers},
        "embeddings": {"word_vec_size": model.d_model, "position_encoding_type": "SinusoidalInterleaved"},
        "hidden_size": model.d_model,
        "heads": model.num_heads,
        "transformer_ff": model.ffn_dim,
        "add_qkvbias": True,
        "add_ffnbias": True,
        "generator_bias": False,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
    }


def _eole_training(race: Race) -> dict[str, Any]:
    return {
        "optim": "adam",
        "adam_beta1": 0.9,
        "adam_beta2": 0.98,
        "learning_rate": 1e-4,
        "max_grad_norm": 0.0,
        "normalization": "tokens",
        "dropout": [race.model.dropout],
        "attention_dropout": [0.0],
        "label_smoothing": race.training.label_smoothing,
        "batch_type": "tokens",
        "batch_size": race.training.tokens_per_batch,
        # Its default of 262,144 would read a small corpus again and again before the first update.
        "bucket_size": (race.directory / "train.source").read_bytes().count(b"\n"),
        "train_steps": race.last_update,
        "num_workers": 0,
        "log_attention_entropy": False,
        "model_path": str(race.directory / "eole.model"),
        **({"world_size": 1, "gpu_ranks": [0]} if race.device == "cuda" else {}),
    }
