"""The contenders of the decoding benchmark, and the model files of each, made from the same weights."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.environment import SCRIPTS, PeerError, own_path

SENTENCES = (16, 32, 64, 128, 256)  # batch sizes to choose from
POSITIONS = (1024, 2048, 4096, 8192, 16384)  # of ours: padded positions times beam size
SENTENCES_ON_GPU, POSITIONS_ON_GPU = (32, 128, 512), (4096, 16384, 65536)
COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}  # CTranslate2's
UNABLE = {"cpu": {"fp16"}, "cuda": {"int8"}}  # precisions


@dataclass(frozen=True)
class Decoder:
    """A program that translates, with its model files."""

    name: str
    precision: str
    python: str
    module: str
    """The module of benchmarks.contenders that it runs."""
    model: Path
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Its own settings, besides those that all contenders share."""
    sizes: tuple[int, ...] = SENTENCES
    """Batch sizes, of which the fastest is used."""
    pythonpath: str = SCRIPTS
    """Where it finds modules; a peer with a Python of its own finds only our scripts."""
    line_command: tuple[str, ...] = ()
    """The command that a user types to translate standard input; empty if there is none."""
    libraries: str = ""
    """Where it finds libraries before all other places, as a value of LD_LIBRARY_PATH."""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.precision}"


def line_up(
    model_dir: Path,
    directory: Path,
    pythons: Mapping[str, str],
    threads: int,
    device: str,
    precisions: Sequence[str],
) -> list[Decoder]:
    """Ours first, then CTranslate2, then the peers in `pythons`. Raises PeerError."""
    if unable := set(precisions) & UNABLE[device]:
        raise PeerError(f"--precision {' '.join(unable)} is not for decoding on {device}: leave it out")
    if device == "cuda":
        return _on_gpu(model_dir, directory, pythons, precisions or ["fp32", "fp16"])
    kinds = {precision: COMPUTE_TYPES[precision] for precision in precisions or ["fp32", "int8"]}
    numbers = list(dict.fromkeys((threads, 1)))
    exported = {
        precision: export(model_dir, directory / f"ctranslate2.{precision}", "ctranslate2", kind)
        for precision, kind in kinds.items()
    }
    contenders = [
        *(ours(model_dir, precision, workers, threads) for workers in numbers for precision in kinds),
        *(ours_by_ctranslate2(exported[precision], threads) for precision in kinds if precision == "fp32"),
    ]
    for precision, kind in kinds.items():
        contenders += [ctranslate2(exported[precision], precision, kind, n, threads) for n in numbers]
    if "huggingface" in pythons:
        model = export(model_dir, directory / "huggingface", "huggingface", "float32")
        contenders += [
            huggingface(model, precision, pythons["huggingface"], device) for precision in kinds if precision != "int8"
        ]
    return contenders


def ours(model_dir: Path, precision: str, workers: int, threads: int) -> Decoder:
    """Ours with a number of worker processes: one for each thread, or one."""
    name = "ours" if workers == threads else f"ours, {workers} worker"
    return _by_translate(name, precision, model_dir, "cpu", _in(precision) | {"engine": "torch", "workers": workers})


def ours_by_ctranslate2(exported: Path, threads: int) -> Decoder:
    """Our command with the engine CTranslate2, which needs no PyTorch."""
    settings = _in("fp32") | {"engine": "ctranslate2", "workers": threads}
    return _by_translate("ours by CTranslate2", "fp32", exported, "cpu", settings)


def ours_on_gpu(model_dir: Path, precision: str) -> Decoder:
    return replace(
        _by_translate("ours", precision, model_dir, "cuda", _in(precision) | {"engine": "torch"}),
        sizes=POSITIONS_ON_GPU,
    )


def _on_gpu(model_dir: Path, directory: Path, pythons: Mapping[str, str], precisions: Sequence[str]) -> list[Decoder]:
    contenders = [ours_on_gpu(model_dir, precision) for precision in precisions]
    for precision in precisions:
        kind = COMPUTE_TYPES[precision]
        exported = export(model_dir, directory / f"ctranslate2.{precision}", "ctranslate2", kind)
        contenders.append(ctranslate2_on_gpu(exported, precision, directory))
    if "huggingface" in pythons:
        model = export(model_dir, directory / "huggingface", "huggingface", "float32")
        contenders += [huggingface(model, precision, pythons["huggingface"], "cuda") for precision in precisions]
    return contenders


def _in(precision: str) -> dict[str, Any]:
    """The options of `translate` that ask for this precision."""
    return {"quantize": precision} if precision == "int8" else {"dtype": precision}


def _by_translate(name: str, precision: str, model: Path, device: str, own: Mapping[str, Any]) -> Decoder:
    command, settings = (sys.executable, "-m", "transformer_mt.translate", str(model)), {"device": device, **own}
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
    """CTranslate2: fastest with one translator of one thread for each core; its default is one of all threads."""
    return Decoder(
        f"CTranslate2, {translators} × {threads // translators}",
        precision,
        sys.executable,
        "decode_ctranslate2",
        exported,
        {"device": "cpu", "compute_type": compute_type, "translators": translators},
    )


def ctranslate2_on_gpu(exported: Path, precision: str, directory: Path) -> Decoder:
    settings = {"device": "cuda", "compute_type": COMPUTE_TYPES[precision], "translators": 1}
    decoder = Decoder("CTranslate2", precision, sys.executable, "decode_ctranslate2", exported, settings)
    return replace(decoder, sizes=SENTENCES_ON_GPU, pythonpath=own_path(), libraries=cublas_path(directory))


def huggingface(exported: Path, precision: str, python: str, device: str) -> Decoder:
    settings = {"device": device, "dtype": precision}
    sizes = SENTENCES_ON_GPU if device == "cuda" else SENTENCES
    return Decoder("Hugging Face", precision, python, "decode_huggingface", exported, settings, sizes=sizes)


def cublas_path(directory: Path) -> str:
    """A value of LD_LIBRARY_PATH with which CTranslate2 finds libcublas.so.12; empty if no cuBLAS is found.

    It looks for that name. PyTorch's wheels have the file where the loader does not look, and those for CUDA 13 have
    libcublas.so.13, which a link gives the name. Not tried on a GPU.
    """
    nvidia = find_spec("nvidia")
    places = [Path(path) for path in (nvidia.submodule_search_locations or [] if nvidia else [])]
    found = [file for place in places for file in sorted(place.glob("*/lib/libcublas.so.1[0-9]"))]
    found += sorted(Path("/usr/local/cuda/lib64").glob("libcublas.so.1[0-9]"))
    if not found:
        return ""
    links = directory / "cublas"
    links.mkdir(parents=True, exist_ok=True)
    link = links / "libcublas.so.12"
    link.unlink(missing_ok=True)
    link.symlink_to(found[0])
    return os.pathsep.join([str(links), str(found[0].parent)])


def export(model_dir: Path, output: Path, format: str, quantization: str) -> Path:
    """Export by our own command, and return the directory. Raises PeerError."""
    command = [sys.executable, "-m", "transformer_mt.export", str(model_dir), str(output), "--format", format]
    command += ["--quantization", quantization]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise PeerError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return output
