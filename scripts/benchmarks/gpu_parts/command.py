"""Measure everything on a machine with a GPU, and write a folder of JSON that you can send us.

    python scripts/benchmarks/gpu.py all --out FOLDER
    python scripts/benchmarks/gpu.py PART … --out FOLDER [--text SOURCE TARGET] [--precision bf16]
    python scripts/benchmarks/gpu.py all --device cpu --shape tiny --out FOLDER      a trial, in two minutes

The parts, in this order, so that a short loan of a machine brings the most important first:
  numerics  errors of packed and padded features and gradients against fp64; the chunked loss against the plain one;
            decoding with and without CUDA graphs; search on the GPU against search on the CPU
  train     ours, Hugging Face's Marian and nn.Transformer, with the base and the big model and 32,000 pieces: real
            target tokens/s. Peers run twice, with cuDNN's attention and without
  profile   20 updates: time of each kernel, launches per update, the share of time in which the GPU is idle, tokens/s;
            the two kernels of packed attention; the updates again, tuned by max-autotune
  learn     two minutes of training on a text: loss, BLEU on held-out pairs, tokens/s
  decode    ours, CTranslate2 and Hugging Face, with batches of 1, 32 and 512 sentences, greedy and with beam 4
  curve     the loss over 300 updates, packed and compiled against padded, on the same pairs in the same order

After each measurement, the command writes PART.json in FOLDER. It skips a part with a complete report: to repeat the
part, delete the file. A part takes at most --minutes; call the command again for the remaining measurements. The
output of all processes is in FOLDER/log.txt. The command uses no network. It skips transformers and ctranslate2 if they
are not installed.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.environment import PeerError
from benchmarks.gpu_parts import curve, decoding, learning, machine, numerics, profiling, training
from benchmarks.gpu_parts.report import Part, is_finished, measure_part
from benchmarks.gpu_parts.settings import Settings
from benchmarks.shapes import SHAPES
from transformer_mt.base.cores import num_cores
from transformer_mt.terminal import cli

PARTS: dict[str, Callable[[Settings], Part]] = {
    "numerics": numerics.part,
    "train": training.part,
    "profile": profiling.part,
    "learn": learning.part,
    "decode": decoding.part,
    "curve": curve.part,
}
NOT_IN_FP16 = {"numerics", "profile", "train", "learn", "curve"}


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if all parts are complete, 1 if something is missing. Raises UserError."""
    arguments = parse(argv)
    names = list(PARTS) if "all" in arguments.parts else [name for name in PARTS if name in arguments.parts]
    if arguments.precision == "fp16" and (unable := [name for name in names if name in NOT_IN_FP16]):
        raise PeerError(f"--precision fp16 is only for the part decode, not for {', '.join(unable)}: give bf16 or fp32")
    # SIGTERM, too, ends the measuring processes and removes the temporary directory.
    with cli.sigterm_raised(), tempfile.TemporaryDirectory() as temporary:
        settings = settings_of(arguments, arguments.work or Path(temporary))
        missing = [name for name in names if not measure(name, settings)]
    if missing:
        print(f"left: {', '.join(missing)}. Call the command again", flush=True)
    return 1 if missing else 0


def measure(name: str, settings: Settings) -> bool:
    """Make the missing measurements of a part, and return whether it is complete."""
    path = settings.out / f"{name}.json"
    if is_finished(path, settings):
        print(f"{name}: finished before; delete {path} to repeat it", flush=True)
        return True
    print(name, flush=True)
    report = measure_part(PARTS[name](settings), settings, lambda: machine.describe(settings))
    state = "complete" if report["complete"] else "not complete; call the command again to continue"
    print(f"{name}: {state}, {report['seconds']:.0f} s, {path}", flush=True)
    return bool(report["complete"])


def settings_of(arguments: argparse.Namespace, work: Path) -> Settings:
    """Return the settings. Raises PeerError if the device or a file does not exist."""
    device = arguments.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise PeerError("--device cuda: PyTorch finds no GPU here; give cpu")
    for path in (*arguments.text, *filter(None, [arguments.model])):
        if not path.exists():
            raise PeerError(f"{path} does not exist; give an existing one")
    return Settings(
        out=arguments.out.absolute(),
        work=work.absolute(),
        device=device,
        precision=arguments.precision,
        shape=arguments.shape,
        text=tuple(path.absolute() for path in arguments.text),
        model=arguments.model and arguments.model.absolute(),
        rounds=arguments.rounds or (1 if arguments.shape == "tiny" else 2),
        threads=arguments.threads or (1 if arguments.shape == "tiny" else num_cores()),
        minutes=arguments.minutes,
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", metavar="PART", nargs="+", choices=[*PARTS, "all"], help=", ".join([*PARTS, "all"]))
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="write the JSON to this folder")
    parser.add_argument(
        "--work", metavar="FOLDER", type=Path, help="keep corpora and models here (default: a temporary folder)"
    )
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="(default: auto)")
    parser.add_argument(
        "--precision",
        choices=["auto", "fp32", "bf16", "fp16"],
        default="auto",
        help="on a GPU, auto means bf16 in training and fp16 in decoding",
    )
    parser.add_argument("--shape", choices=SHAPES, default="", help="of the models (default: depends on the part)")
    parser.add_argument(
        "--text",
        metavar=("SOURCE", "TARGET"),
        type=Path,
        nargs=2,
        default=(),
        help="text for learn, decode and curve (default: the demo corpus)",
    )
    parser.add_argument("--model", metavar="MODEL_DIR", type=Path, help="model for decode (default: train one)")
    parser.add_argument("--rounds", metavar="N", type=int, default=0, help="rounds of train; 0: two (tiny: one)")
    parser.add_argument("--threads", metavar="N", type=int, default=0, help="threads of the CPU; 0: all (tiny: one)")
    parser.add_argument("--minutes", metavar="N", type=float, default=8.0, help="maximum time of a part (default: 8)")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 0 or arguments.threads < 0 or arguments.minutes <= 0:
        parser.error("--rounds and --threads must be at least 0, --minutes above 0")
    return arguments
