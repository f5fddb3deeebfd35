"""The other trainers in the training benchmark: the command, the data and the log of each.

Speeds are compared in real target tokens, with the end of sentence and without padding. In the logs these are:
fairseq's wps, the second number of eole's tok/s, and JoeyNMT's Tokens per Sec. Sockeye's tok/sec counts padded source
positions; train_sockeye.py makes it count real target tokens. Sockeye logs nothing of the first update, so its second
stands for the first.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.environment import SCRIPTS, PeerError
from benchmarks.training_process import Contender, Race

BETAS, LEARNING_RATE = [0.9, 0.98], 1e-4  # of Adam
FAIRSEQ_LOG = re.compile(r'"wps": "(?P<speed>[\d.]+)".*"num_updates": "(?P<update>\d+)"')
EOLE_LOG = re.compile(r"Step +(?P<update>\d+)/.*\d+/ *(?P<speed>\d+) tok/s")
JOEYNMT_LOG = re.compile(r"Step: +(?P<update>\d+), .*Tokens per Sec: +(?P<speed>\d+)")
SOCKEYE_LOG = re.compile(r"B=(?P<update>\d+).*tok/sec=(?P<speed>[\d.]+)")


def fairseq(python: str, precision: str, race: Race) -> Contender:
    """fairseq 0.12. It batches sentences of similar length; tokens_per_batch limits the longer side."""
    runner = "benchmarks.contenders.run_fairseq"
    dictionary, binary = race.directory / "fairseq.dict", race.directory / "fairseq"
    if not binary.exists():
        dictionary.write_text("".join(f"{piece} 1\n" for piece in _pieces(race)), encoding="utf-8")
        files = ["--trainpref", "train", "--validpref", "valid", "--srcdict", str(dictionary), "--destdir", str(binary)]
        languages = ["--source-lang", "source", "--target-lang", "target", "--joined-dictionary"]
        _prepare([python, "-m", runner, "fairseq_cli.preprocess", *files, *languages], race)
    flags = ["--share-all-embeddings", "--no-save", "--disable-validation"]
    flags += ["--cpu"] * (race.device == "cpu") + ["--bf16"] * (precision == "bf16")
    command = python, "-m", runner, "fairseq_cli.train", str(binary), *_options(_fairseq_options(race)), *flags
    return Contender("fairseq", precision, command, re.compile(r"\| INFO \| fairseq_cli.train \|"), FAIRSEQ_LOG)


def _fairseq_options(race: Race) -> dict[str, Any]:
    model, training = race.model, race.training
    return {
        "arch": "transformer",
        "encoder-layers": model.encoder_layers,
        "decoder-layers": model.decoder_layers,
        "encoder-embed-dim": model.d_model,
        "encoder-ffn-embed-dim": model.ffn_dim,
        "decoder-ffn-embed-dim": model.ffn_dim,
        "encoder-attention-heads": model.num_heads,
        "decoder-attention-heads": model.num_heads,
        "dropout": model.dropout,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": training.label_smoothing,
        "optimizer": "adam",
        "adam-betas": BETAS,
        "lr": LEARNING_RATE,
        "max-tokens": training.tokens_per_batch,
        "max-update": race.last_update,
        "num-workers": 0,
        "log-format": "json",
        "log-interval": 1,
    }


def eole(python: str, precision: str, race: Race) -> Contender:
    """eole 0.6. Its decoder has only pre-norm; it batches sentences of similar length."""
    vocabulary = race.directory / "eole.vocabulary"
    vocabulary.write_text("".join(f"{piece}\t1\n" for piece in _pieces(race)), encoding="utf-8")
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
    path = _written(race.directory / f"eole.{precision}.yaml", config)
    command = python, "-m", "eole.bin.main", "train", "-c", path
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
        "adam_beta1": BETAS[0],
        "adam_beta2": BETAS[1],
        "learning_rate": LEARNING_RATE,
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


def joeynmt(python: str, precision: str, race: Race) -> Contender:
    """JoeyNMT 2.3. It batches random sentences; tokens_per_batch limits the longer side, with padding."""
    vocabulary = race.directory / "joeynmt.vocabulary"
    pieces = ["<unk>", "<pad>", "<s>", "</s>", *_pieces(race)]
    vocabulary.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    side = {"level": "word", "max_length": race.model.max_positions, "voc_file": str(vocabulary)}
    config = {
        "name": "benchmark",
        "joeynmt_version": "2.3.0",
        "model_dir": str(race.directory / "joeynmt.model"),
        "use_cuda": race.device == "cuda",
        "num_workers": 0,
        "random_seed": race.training.seed,
        "data": {
            "train": str(race.directory / "train"),
            "dev": str(race.directory / "valid"),
            "dataset_type": "plain",
            "src": {"lang": "source"} | side,
            "trg": {"lang": "target"} | side,
        },
        "testing": {},
        "training": _joeynmt_training(race),
        "model": _joeynmt_model(race),
    }
    command = python, "-m", "joeynmt", "train", _written(race.directory / "joeynmt.yaml", config), "--skip-test"
    return Contender("JoeyNMT", precision, command, re.compile("Hello! This is Joey-NMT"), JOEYNMT_LOG)


def _joeynmt_training(race: Race) -> dict[str, Any]:
    return {
        "optimizer": "adam",
        "adam_betas": BETAS,
        "learning_rate": LEARNING_RATE,
        "learning_rate_min": 0.0,
        "scheduling": "warmupinversesquareroot",  # it refuses none; plateau needs an argument that PyTorch removed
        "label_smoothing": race.training.label_smoothing,
        "normalization": "tokens",
        "batch_type": "token",
        "batch_size": race.training.tokens_per_batch,
        "epochs": race.last_update,
        "updates": race.last_update,
        "logging_freq": 1,
        "validation_freq": race.last_update + 1,
        "overwrite": True,
    }


def _joeynmt_model(race: Race) -> dict[str, Any]:
    model = race.model
    half = {
        "type": "transformer",
        "num_heads": model.num_heads,
        "embeddings": {"embedding_dim": model.d_model, "scale": True, "dropout": model.dropout},
        "hidden_size": model.d_model,
        "ff_size": model.ffn_dim,
        "dropout": model.dropout,
        "layer_norm": "post",
    }
    return {
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": half | {"num_layers": model.encoder_layers},
        "decoder": half | {"num_layers": model.decoder_layers},
    }


def sockeye(python: str, precision: str, race: Race) -> Contender:
    """Sockeye 3.1 with pre-norm, its default. It batches sentences of similar length; the limit is in target words."""
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *_pieces(race)]
    vocabulary = _written(race.directory / "sockeye.json", {piece: i for i, piece in enumerate(pieces)})
    files = {
        "source": "train.source",
        "target": "train.target",
        "validation-source": "valid.source",
        "validation-target": "valid.target",
        "source-vocab": vocabulary,
        "target-vocab": vocabulary,
        "output": race.directory / "sockeye.model",
    }
    flags = ["--shared-vocab", "--overwrite-output"] + ["--use-cpu"] * (race.device == "cpu")
    words = _options(files | _sockeye_options(race))
    command = python, "-m", "benchmarks.contenders.train_sockeye", *words, *flags
    return Contender("Sockeye", precision, command, re.compile(r"Sockeye: \d"), SOCKEYE_LOG)


def _sockeye_options(race: Race) -> dict[str, Any]:
    model, training = race.model, race.training
    return {
        "max-seq-len": model.max_positions,
        "num-layers": f"{model.encoder_layers}:{model.decoder_layers}",
        "transformer-model-size": model.d_model,
        "transformer-attention-heads": model.num_heads,
        "transformer-feed-forward-num-hidden": model.ffn_dim,
        "transformer-dropout-prepost": model.dropout,
        "transformer-dropout-act": 0.0,
        "transformer-dropout-attention": 0.0,
        "embed-dropout": 0.0,
        "weight-tying-type": "src_trg_softmax",
        "label-smoothing": training.label_smoothing,
        "optimizer": "adam",
        "optimizer-betas": ":".join(map(str, BETAS)),
        "initial-learning-rate": LEARNING_RATE,
        "batch-type": "max-word",
        "batch-size": training.tokens_per_batch,
        "batch-sentences-multiple-of": 1,
        "max-updates": race.last_update,
        "min-num-epochs": 0,
        "checkpoint-interval": race.last_update,
        "decode-and-evaluate": 0,
        "seed": training.seed,
    }


BF16_ON_GPU = ["fairseq", "eole"]  # the others offer only fp16
TRAINERS: Mapping[str, Callable[[str, str, Race], Contender]]
TRAINERS = {"fairseq": fairseq, "eole": eole, "joeynmt": joeynmt, "sockeye": sockeye}


def _pieces(race: Race) -> list[str]:
    return (race.directory / "pieces.txt").read_text(encoding="utf-8").split()


def _options(values: Mapping[str, Any]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def _prepare(command: list[str], race: Race) -> None:
    """Run an untimed command that prepares a trainer's data. Raises PeerError."""
    environment = os.environ | {"PYTHONPATH": SCRIPTS}
    done = subprocess.run(
        command, cwd=race.directory, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise PeerError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")


def _written(path: Path, content: Mapping[str, Any]) -> str:
    """Write JSON, which is also YAML, and return its path."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    return str(path)
