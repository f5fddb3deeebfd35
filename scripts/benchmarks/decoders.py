"""Who takes part in the decoding benchmark, and the model of each, made of the same weights."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import nn_transformer_weights
from benchmarks.process import SCRIPTS, PeerError, own_path
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.weights import load_weights

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
    kinds, numbers = {"fp32": "float32", "int8": "int8"}, list(dict.fromkeys((threads, 1)))
    exported = {
        precision: export(model_dir, directory / f"ctranslate2.{precision}", "ctranslate2", kind)
        for precision, kind in kinds.items()
    }
    contenders = [
        *(ours(model_dir, precision, workers, threads) for workers in numbers for precision in kinds),
        *(ours_compiled(model_dir, precision, threads) for precision in kinds if shutil.which("g++")),
        ours_by_ctranslate2(exported["fp32"], threads),
    ]
    for precision, kind in kinds.items():
        contenders += [ctranslate2(exported[precision], precision, kind, n, threads) for n in numbers]
    if "huggingface" in pythons:
        model = export(model_dir, directory / "huggingface", "huggingface", "float32")
        contenders.append(Decoder("Hugging Face", "fp32", pythons["huggingface"], "decode_huggingface", model))
    # JoeyNMT reads the prefix again at each step, so that it would try five sizes for ten minutes.
    for name, title, sizes in (("fairseq", "fairseq", SENTENCES), ("joeynmt", "JoeyNMT", SENTENCES[2::2])):
        if name in pythons:
            weights, module = plain_weights(model_dir, directory), f"decode_{name}"
            contenders.append(Decoder(title, "fp32", pythons[name], module, weights, sizes=sizes, reads_pieces=True))
    return contenders


def ours(model_dir: Path, precision: str, workers: int, threads: int) -> Decoder:
    """As many processes as there are threads; or one."""
    name = "ours" if workers == threads else f"ours, {workers} worker"
    settings = {"engine": "torch", "quantize": "none" if precision == "fp32" else precision, "workers": workers}
    return _by_translate(name, precision, model_dir, settings)


def ours_compiled(model_dir: Path, precision: str, threads: int) -> Decoder:
    """Ours as `translate --compile` makes it before the first translation."""
    settings = {"engine": "torch", "quantize": "none" if precision == "fp32" else precision, "workers": threads}
    compiled = _by_translate("ours, compiled", precision, model_dir, settings)
    return replace(
        compiled,
        settings=settings | {"compile": True},
        sizes=(POSITIONS[0] // 2, *POSITIONS),
        line_command=(*compiled.line_command, "--compile"),
    )


def ours_by_ctranslate2(exported: Path, threads: int) -> Decoder:
    """The command of ours without PyTorch."""
    settings = {"engine": "ctranslate2", "quantize": "none", "workers": threads}
    return _by_translate("ours by CTranslate2", "fp32", exported, settings)


def _by_translate(name: str, precision: str, model: Path, settings: Mapping[str, Any]) -> Decoder:
    command = sys.executable, "-m", "transformer_mt.translate", str(model), "--device", "cpu"
    options = (word for option, value in settings.items() for word in (f"--{option}", str(value)))
    return Decoder(
        name,
        precision,
        sys.executable,
        "decode_ours",
        model,
        settings,
        sizes=POSITIONS,
        pythonpath=own_path(),
        line_command=(*command, *options),
    )


def ctranslate2(exported: Path, precision: str, compute_type: str, translators: int, threads: int) -> Decoder:
    """Its best on a CPU is a translator of one thread on each core; its default, one translator of them all."""
    return Decoder(
        f"CTranslate2, {translators} × {threads // translators}",
        precision,
        sys.executable,
        "decode_ctranslate2",
        exported,
        {"compute_type": compute_type, "translators": translators},
    )


def export(model_dir: Path, output: Path, format: str, quantization: str) -> Path:
    """By the command of ours. Raises PeerError."""
    command = [sys.executable, "-m", "transformer_mt.export", str(model_dir), str(output), "--format", format]
    command += ["--quantization", quantization]
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
