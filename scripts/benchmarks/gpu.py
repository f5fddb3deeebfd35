"""Measure a machine with a GPU: print each figure when it is known, and write all of them to one file of JSON.

    python scripts/benchmarks/gpu.py PART … [--out FILE] [--minutes 8] [--rounds 2] [--shape base32k …]
    python scripts/benchmarks/gpu.py decode --model MODEL_DIR --text SOURCE REFERENCE [--out FILE]
    python scripts/benchmarks/gpu.py all --device cpu --shape tiny        a trial without a GPU, in a minute

train     ours, Hugging Face's Marian and nn.Transformer with 32,000 pieces: real target tokens/s, memory and seconds
          to the first update. The peers run without cuDNN's attention, and once more with it
decode    a trained model translates a text in batches of 32 and 512 sentences, greedily and with beam 4: ours,
          CTranslate2 and Hugging Face, each once without timing
profile   20 updates of ours: the kernels that take most time, launches, and the share of time in which the GPU is idle
numerics  errors of packed and padded features and gradients against fp64, and of both forms of the loss

The command starts a measurement only if its time suffices: as long as the same one took before, or else 90 seconds. It
needs no network. It leaves out Hugging Face without transformers, and CTranslate2 without ctranslate2.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

# Python looks for modules beside this file; ours are in scripts/ and, if it is not installed, in the checkout.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks.contenders import decoding
from benchmarks.contenders.train_plain import WITHOUT_CUDNN
from benchmarks.decoding_process import Conditions, Pass, run_passes
from benchmarks.decoding_race import one_spaced, read_texts, write_texts
from benchmarks.environment import SCRIPTS, PeerError, own_path, processor_and_load
from benchmarks.gpu_numerics import layouts, losses
from benchmarks.gpu_profile import profile_updates
from benchmarks.shapes import SHAPES
from benchmarks.training_process import Contender, Race, run
from benchmarks.training_race import IMPORTED, OWN_LOG, check_first_loss
from benchmarks.training_text import write_race
from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import UserError
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.storage.files import write_whole
from transformer_mt.terminal import cli

PARTS = ("train", "decode", "profile", "numerics")
PACKAGES = ("numpy", "triton", "transformers", "ctranslate2", "sentencepiece")
PEERS = {"Hugging Face Marian": "Marian", "nn.Transformer": "nn.Transformer"}  # with what train_plain calls them
WITHOUT = ", without cuDNN's attention"
LINES = {32: 512, 512: 2048}  # that are translated, by the number of sentences in a batch
BEAMS = {1: "greedy", 4: "beam 4"}
USUAL_SECONDS = 90.0  # that a measurement may take

Figures = dict[str, Any]


class Report:
    """The file of results, written again after each measurement."""

    def __init__(self, path: Path, head: Figures, minutes: float) -> None:
        self.path, self.until, self.longest = path, time.monotonic() + 60 * minutes, dict[str, float]()
        self.content: Figures = head | {"measurements": {}, "failed": {}, "not_measured": []}

    def measure(self, name: str, measure: Callable[[float], Figures], kind: str = "") -> None:
        """Call `measure` with the seconds that are left, if they suffice; one that fails does not stop the next.

        Measurements of one kind take equally long.
        """
        began, kind = time.monotonic(), kind or name
        left = self.until - began
        if left < self.longest.get(kind, USUAL_SECONDS):
            self.content["not_measured"].append(name)
            print(f"{name}: not measured, only {max(0.0, left):.0f} s are left", flush=True)
        else:
            try:
                figures = self.content["measurements"][name] = measure(left)
                self.longest[kind] = max(self.longest.get(kind, 0.0), time.monotonic() - began)
                shown = {key: value for key, value in figures.items() if not isinstance(value, list)}
                print(f"{name}: {json.dumps(shown, ensure_ascii=False)}", flush=True)
            except Exception as error:  # whatever it is, the other measurements are wanted
                reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                self.content["failed"][name] = reason
                print(f"{name}: failed. {reason}", flush=True)
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, json.dumps(self.content, indent=1, ensure_ascii=False) + "\n")

    @property
    def complete(self) -> bool:
        return not self.content["failed"] and not self.content["not_measured"]


def describe(arguments: argparse.Namespace) -> Figures:
    """What was measured on: the head of the file."""

    def printed(*command: str) -> str | None:
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return None

    def version_of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    on_gpu = arguments.device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else processor_and_load(),
        "driver": printed("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if on_gpu else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": printed("git", "-C", SCRIPTS, "describe", "--always", "--dirty", "--exclude=*"),
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
    }


def race_of(shape: str, arguments: argparse.Namespace, work: Path) -> Race:
    """The conditions of training with this shape; its files are written before the first measurement."""
    config, vocab_size = SHAPES[shape]
    on_gpu, is_trial = arguments.device == "cuda", shape == "tiny"
    return Race(
        directory=work / shape,
        model=config,
        training=TrainingConfig(tokens_per_batch=1024 if is_trial else 25_000 if on_gpu else 4096),
        vocab_size=vocab_size,
        warm_up=10 if on_gpu else 2,
        updates=60 if on_gpu else 4,
        threads=1 if is_trial else num_cores(),
        device=arguments.device,
    )


def train(report: Report, arguments: argparse.Namespace, work: Path) -> None:
    """Round by round, so that each contender has been measured once before one is measured again."""
    # cuDNN has no attention in fp32, nor on a CPU; where it has, it makes a plan for each shape: last.
    variants = [WITHOUT, ""] if arguments.device == "cuda" and arguments.precision == "bf16" else [""]
    known = [peer for peer in PEERS if peer != "Hugging Face Marian" or find_spec("transformers")]
    names = ["ours", *(peer + variant for variant in variants for peer in known)]
    for number in range(1, arguments.rounds + 1):
        for shape in arguments.shape or ["base32k", "big"]:
            race = race_of(shape, arguments, work)
            ours = report.content["measurements"].get
            for name in names:
                measure = partial(
                    trained, race, name, arguments.precision, ours(f"train, {shape}, ours, round {number}")
                )
                report.measure(f"train, {shape}, {name}, round {number}", measure, f"{shape}, {name}")
    summarize(report)


def trained(race: Race, name: str, precision: str, ours: Figures | None, seconds: float) -> Figures:
    """One run. Raises PeerError if it fails, or does not begin with our loss."""
    began = time.monotonic()
    if not (race.directory / "race.json").is_file():
        write_race(race, [])
    words: tuple[str, ...] = "train_ours", str(race.directory), precision
    if name != "ours":
        words = "train_plain", PEERS[name.removesuffix(WITHOUT)], *words[1:]
        words += (WITHOUT_CUDNN,) if name.endswith(WITHOUT) else ()
    command = sys.executable, "-m", f"benchmarks.contenders.{words[0]}", *words[1:]
    contender = Contender(name, precision, command, IMPORTED, OWN_LOG, own_path())
    result = run(contender, race, seconds - (time.monotonic() - began))
    if ours:
        check_first_loss(contender, result, replace(result, first_loss=ours["first_loss"]))
    return asdict(result)


def summarize(report: Report) -> None:
    """Add the median speed of each contender, and how many times as fast ours was in the same round."""
    found = report.content["measurements"]
    summary: Figures = {}
    for kind in dict.fromkeys(name.rpartition(", round ")[0] for name in found if name.startswith("train, ")):
        rounds = {name: found[name]["tokens_per_second"] for name in found if name.rpartition(", round ")[0] == kind}
        shape = kind.split(", ")[1]
        both = [(f"train, {shape}, ours, round {name.rpartition(' ')[2]}", speed) for name, speed in rounds.items()]
        ratios = [found[ours]["tokens_per_second"] / speed for ours, speed in both if ours in found]
        summary[kind] = {"tokens_per_second": median(rounds.values()), "rounds": len(rounds), "ratios": ratios}
        times = f", ours is {median(ratios):.2f} times as fast" if ratios and ", ours" not in kind else ""
        print(f"{kind}: {median(rounds.values()):,.0f} target tokens/s{times}", flush=True)
    report.content["summary"] = summary


def decode(report: Report, arguments: argparse.Namespace, work: Path) -> None:
    """Batches of a number of sentences, the same for all; the speed is that of the second of two passes."""
    device, precision = arguments.device, "fp16" if arguments.device == "cuda" else "fp32"
    model, threads = arguments.model.resolve(), num_cores()
    texts = read_texts(model, arguments.text)
    expected: dict[str, list[str]] = {}
    for size, number in LINES.items():
        times = -(-number // len(texts.source))
        part = replace(texts, source=(texts.source * times)[:number], reference=(texts.reference * times)[:number])
        conditions = write_texts(model, part, work / f"decode.{size}", threads)
        for name in ("ours", "CTranslate2", "Hugging Face"):
            package = {"CTranslate2": "ctranslate2", "Hugging Face": "transformers"}.get(name)
            if package is None or find_spec(package):
                decoder = partial(decoder_of, name, model, work, device, precision)
                measure = partial(decoded, decoder, conditions, size, expected)
                report.measure(f"decode, {name}, {precision}, batches of {size}", measure)


def decoder_of(name: str, model: Path, work: Path, device: str, precision: str) -> decoding.Decoder:
    """The contender, with its export. Raises PeerError."""
    on_gpu, kind = device == "cuda", decoding.COMPUTE_TYPES[precision]
    if name == "ours":
        own = decoding.ours_on_gpu(model, precision) if on_gpu else decoding.ours(model, precision, 1, 1)
        return replace(own, settings={**own.settings, "in_sentences": True})
    format, kind = ("ctranslate2", kind) if name == "CTranslate2" else ("huggingface", "float32")
    exported = work / format
    if not exported.is_dir():
        decoding.export(model, exported, format, kind)
    if name == "Hugging Face":
        return replace(decoding.huggingface(exported, precision, sys.executable, device), pythonpath=own_path())
    if on_gpu:
        return decoding.ctranslate2_on_gpu(exported, precision, work)
    return decoding.ctranslate2(exported, precision, kind, 1, num_cores())


def decoded(
    decoder: Callable[[], decoding.Decoder],
    conditions: Conditions,
    size: int,
    expected: dict[str, list[str]],
    seconds: float,
) -> Figures:
    """Greedily and with beam 4. `expected` gets the translations of ours, which come first."""
    began, chosen, figures = time.monotonic(), decoder(), Figures()
    passes = [Pass(beam, size) for beam in BEAMS for _ in range(2)]
    outcomes, _ = run_passes(chosen, conditions, passes, seconds=seconds - (time.monotonic() - began))
    for search, first, second in zip(BEAMS.values(), outcomes[::2], outcomes[1::2], strict=True):
        lines = one_spaced(second.lines)
        ours = expected.setdefault(f"{search}, {size}", lines)
        figures[search] = {
            "lines_per_second": len(lines) / second.seconds,
            "seconds_of_first_pass": first.seconds,
            "lines_as_ours": sum(one == other for one, other in zip(ours, lines, strict=True)) / len(lines),
        }
    return figures


def measure_parts(names: Sequence[str], report: Report, arguments: argparse.Namespace, work: Path) -> None:
    """What needs processes of its own comes first, while this one holds no memory of the GPU."""
    if "train" in names:
        train(report, arguments, work)
    if "decode" in names:
        decode(report, arguments, work)
    shape = (arguments.shape or ["base32k"])[0]
    race = race_of(shape, arguments, work)
    if "profile" in names:
        report.measure("profile", lambda _: profile_updates(race, arguments.precision))
    if "numerics" in names:
        device = choose_device(arguments.device, arguments.precision, race.threads)
        for name, compare in (("features and gradients", layouts), ("loss", losses)):
            report.measure(f"numerics, {name}", lambda _, compare=compare: compare(shape, device, work))


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if all was measured, 1 if something is missing. Raises PeerError."""
    arguments = parse(argv)
    names = [name for name in PARTS if name in arguments.parts or ("all" in arguments.parts and name != "decode")]
    if arguments.model and "decode" not in names:
        names.append("decode")
    path = arguments.out or Path(f"gpu_{'_'.join(names)}.json")
    report = Report(path, describe(arguments), arguments.minutes)
    with cli.sigterm_raised(), tempfile.TemporaryDirectory() as work:
        measure_parts(names, report, arguments, Path(work))
    report.write()
    print(f"written: {path}")
    return 0 if report.complete else 1


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", metavar="PART", nargs="+", choices=[*PARTS, "all"], help=", ".join([*PARTS, "all"]))
    parser.add_argument("--out", metavar="FILE", type=Path, help="(default: gpu_PARTS.json)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="(default: cuda)")
    parser.add_argument("--precision", choices=["bf16", "fp32"], help="of training (default: bf16 on a GPU)")
    parser.add_argument("--shape", choices=SHAPES, nargs="+", help="of the models (default: base32k, and big in train)")
    parser.add_argument("--model", metavar="MODEL_DIR", type=Path, help="model for decode, such as runs/<name>/model")
    parser.add_argument("--text", metavar=("SOURCE", "REFERENCE"), type=Path, nargs=2, help="text for decode")
    parser.add_argument("--rounds", metavar="N", type=int, default=2, help="of train (default: 2)")
    parser.add_argument("--minutes", metavar="N", type=float, default=8.0, help="of all parts together (default: 8)")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1 or arguments.minutes <= 0:
        parser.error("--rounds must be at least 1, --minutes above 0")
    if ("decode" in arguments.parts or arguments.model) and not (arguments.model and arguments.text):
        parser.error("decode needs --model MODEL_DIR and --text SOURCE REFERENCE")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise PeerError("PyTorch finds no GPU here; to try the command without one, add --device cpu --shape tiny")
    arguments.precision = arguments.precision or ("bf16" if arguments.device == "cuda" else "fp32")
    return arguments


if __name__ == "__main__":
    sys.exit(cli.run(main))
