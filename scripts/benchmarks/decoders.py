"""Who takes part in the decoding benchmark, and the model of each, made of the same weights."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import nn_transformer_weights
from benchmarks.process import SCRIPTS, PeerError, own_path
from transformer_mt.config import load_config
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.models.transformer import Transformer
from transformer_mt.weights import load_weights

SENTENCES = (16, 32, 64, 128, 256)  # of a batch, to choose from
POSITIONS = (1024, 2048, 4096, 8192, 16384)  # likewise: of ours, padding included, times the width of the beam


@dataclass(frozen=True)
class Decoder:
    """A program with a model of its own."""

    name: str
    precision: str
    python: str
    module: str
    """Of benchmarks: what it runs."""
    model: Path
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Its own, beside those that are the same for all."""
    sizes: tuple[int, ...] = SENTENCES
    """Of a batch, to choose the best from."""
    reads_pieces: bool = False
    """Its text is cut by ours before, and joined by ours after, untimed."""
    pythonpath: str = SCRIPTS
    """A Python of its own is to find nothing else of ours."""
    line_command: tuple[str, ...] = ()
    """What a user types to translate standard input, if there is such a command."""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.precision}"


def line_up(model_dir: Path, directory: Path, pythons: Mapping[str, str], threads: int) -> list[Decoder]:
    """Ours first; the peers if their Python is named, CTranslate2 in any case. Raises PeerError."""
    contenders = [ours(model_dir)]
    for precision, compute_type in (("fp32", "float32"), ("int8", "int8")):
        exported = export(model_dir, directory / f"ctranslate2.{precision}", "ctranslate2", compute_type)
        contenders += ctranslate2(exported, precision, compute_type, threads)
    if "huggingface" in pythons:
        exported = export(model_dir, directory / "huggingface", "huggingface")
        contenders.append(Decoder("Hugging Face", "fp32", pythons["huggingface"], "decode_huggingface", exported))
    for name, title in (("fairseq", "fairseq"), ("joeynmt", "JoeyNMT")):
        if name in pythons:
            weights = plain_weights(model_dir, directory)
            contenders.append(Decoder(title, "fp32", pythons[name], f"decode_{name}", weights, reads_pieces=True))
    return contenders


def ours(model_dir: Path) -> Decoder:
    return Decoder(
        "ours",
        "fp32",
        sys.executable,
        "decode_ours",
        model_dir,
        sizes=POSITIONS,
        pythonpath=own_path(),
        line_command=(sys.executable, "-m", "transformer_mt.translate", str(model_dir)),
    )


def ctranslate2(exported: Path, precision: str, compute_type: str, threads: int) -> list[Decoder]:
    """Its best on a CPU, as many translators of one thread as there are cores; and its default, one of them all."""
    return [
        Decoder(
            f"CTranslate2, {translators} × {threads // translators}",
            precision,
            sys.executable,
            "decode_ctranslate2",
            exported,
            {"compute_type": compute_type, "translators": translators},
        )
        for translators in dict.fromkeys((threads, 1))
    ]


def export(model_dir: Path, output: Path, kind: str, quantization: str = "") -> Path:
    """By the command of ours. Raises PeerError."""
    command = [sys.executable, "-m", "transformer_mt.export", str(model_dir), str(output), "--format", kind]
    command += ["--quantization", quantization] if quantization else []
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise PeerError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return output


def plain_weights(model_dir: Path, directory: Path) -> Path:
    """The model by the names of NnTransformer, for peers that it is converted for by hand. Raises PeerError."""
    config = load_config(model_dir / "config.yaml")
    if config.model.norm != "post" or config.model.tied_embeddings != "all":
        raise PeerError(
            f"{model_dir}: fairseq and JoeyNMT are given post-norm models with tied embeddings alone; leave them out"
        )
    tokenizer = Tokenizer.load(model_dir)
    model = Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    load_weights(model, model_dir / "model.safetensors")
    path = directory / "weights.pt"
    torch.save(nn_transformer_weights(model, config.model, tokenizer.target_vocab_size), path)
    return path
