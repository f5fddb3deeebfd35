"""Measure how fast this machine trains and decodes with our program and with other programs, the peers.

    python scripts/benchmark.py [data] [train] [--shape base] [--rounds 3] [--threads 1] [--json FILE]
        [--text SOURCE TARGET] [--peer NAME=PYTHON …] [--warm-up N] [--updates N] [--device cpu] [--precision fp32 …]
    python scripts/benchmark.py prepare --text SOURCE TARGET [--rounds 3] [--json FILE]
    python scripts/benchmark.py decode --model MODEL_DIR --text SOURCE REFERENCE [--rounds 3] [--threads 2]
        [--beam 4 …] [--peer NAME=PYTHON …] [--device cpu] [--precision fp32 …] [--json FILE]

Our program and its peers take turns. A speed is the median of the rounds. The speed of a machine changes with time, so
a ratio compares speeds of the same round: the script prints the median of the ratios, with the lowest and the highest.

train: each program is a separate process. All have the same text, vocabulary, shape, batch size, number of threads and
thresholds of glibc's malloc. The speed is taken from the program's own log, in real target tokens, without padding.
Ours, nn.Transformer and Hugging Face's Marian train on the same batches; the last two in a hand-written loop, with
our initial weights, and their first loss must equal ours. eole makes its own batches and runs by its own command. Peers
have PyTorch's default settings.

prepare: compares the stage with sentencepiece, on the text of --text, which benchmarks/generated_text.py can make;
benchmarks/prepare_race.py describes what is timed.

decode: a trained model translates a text, on a GPU if there is one, by greedy search and by beam search: ours,
CTranslate2, and with --peer Hugging Face's generate, all with the same weights. Each is a separate process, as above,
and translates the complete text after a warm-up, with the batch size that is fastest for it. The time is measured from
text to text.
  "alone": the mean time of each of the first 50 sentences, if they are translated one at a time.
  "first line": the time of a complete process that gets one line; files are in the disk cache.
  Memory: that of a process and its children; shared memory counts once.
CTranslate2 runs an export of the model, once with a translator of one thread for each core (its fastest setting) and
once with one translator with all threads (its default); on a GPU there is one. Greedy translations must agree with
ours. In beam search each program has its own length penalty, set as close to ours as possible; compare their BLEU.

The script always measures nn.Transformer and CTranslate2. It measures another peer if --peer gives the Python of an
environment with this program. We made such environments on Python 3.11 with PyTorch 2.13 as follows:

    huggingface  pip install torch numpy transformers==5.23.0 sentencepiece
    eole         pip install torch eole==0.6.4 aiohttp
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from check_requirements import stop

try:
    import torch
    from benchmarks.decoding_race import GREEDY, measure_decoding
    from benchmarks.environment import processor_and_load
    from benchmarks.prepare_race import measure_prepare
    from benchmarks.shapes import SHAPES
    from benchmarks.training_process import Race
    from benchmarks.training_race import PEERS, measure_training, named_python
    from benchmarks.training_text import random_rows

    from transformer_mt.base.cores import num_cores
    from transformer_mt.batches.batching import collate, epoch_batches
    from transformer_mt.batches.encoded import EncodedCorpus
    from transformer_mt.kernels.device import choose_device
    from transformer_mt.preparing.shards import write_encoded
    from transformer_mt.settings.training_settings import TrainingConfig
    from transformer_mt.storage.files import write_whole
    from transformer_mt.terminal import cli
except ModuleNotFoundError as error:
    stop(error)


def measure_reading(directory: Path, vocab_size: int, tokens_per_batch: int, rounds: int) -> dict[str, Any]:
    """Shuffle the pairs of an epoch of random words and make its batches: once without timing, then in each round."""
    write_encoded(directory, random_rows(vocab_size), vocab_size, vocab_size)
    corpus, seconds = EncodedCorpus.load(directory), list[float]()
    for _ in range(1 + rounds):
        began = time.perf_counter()
        order = epoch_batches(corpus, tokens_per_batch, seed=1, epoch=0)
        pairs = sum(len(collate(corpus, pairs).pairs_B) for pairs in order)
        seconds.append(time.perf_counter() - began)
    speed = pairs / median(seconds[1:])
    print(f"  {speed:,.0f} pairs/s")
    return {"seconds": seconds[1:], "pairs_per_second": speed}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure; print conditions and results at once, and return all of them for JSON.

    Raises PeerError, CorpusError and TokenizerError.
    """
    best = choose_device(arguments.device, "auto", arguments.threads)
    on_gpu = best.torch_device.type == "cuda"
    config, vocab_size = SHAPES[arguments.shape]
    training = TrainingConfig(tokens_per_batch=25_000 if on_gpu else 4096)
    report: dict[str, Any] = {
        "processor": processor_and_load(),
        "device": f"{best.description}; torch {torch.__version__}",
        "model": str(arguments.model or f"{arguments.shape}: {config}, vocabulary {vocab_size}"),
        "rounds": arguments.rounds,
    }
    print(*(f"{key}: {value}" for key, value in report.items()), sep="\n")
    with tempfile.TemporaryDirectory() as directory:
        for name in arguments.names or ["data", "train"]:
            print(name)
            if name == "decode":
                report[name] = trained_decoding(arguments, best.torch_device.type, Path(directory) / "race")
            elif name == "train":
                race = race_of(arguments, training, best.torch_device.type, Path(directory) / "race")
                both = ["fp32", "bf16"] if best.dtype == torch.bfloat16 else ["fp32"]
                precisions, pythons = arguments.precision or both, dict(arguments.peer)
                report[name] = measure_training(race, arguments.text, precisions, pythons, arguments.rounds)
            elif name == "prepare":
                report[name] = measure_prepare(arguments.text, Path(directory) / "prepare", arguments.rounds)
            else:
                size = training.tokens_per_batch
                report[name] = measure_reading(Path(directory) / "random", vocab_size, size, arguments.rounds)
    return report


def trained_decoding(arguments: argparse.Namespace, device: str, directory: Path) -> dict[str, Any]:
    return measure_decoding(
        arguments.model,
        arguments.text,
        directory,
        dict(arguments.peer),
        sorted({GREEDY, *arguments.beam}),
        arguments.threads or num_cores(),
        arguments.rounds,
        device,
        arguments.precision,
    )


def race_of(arguments: argparse.Namespace, training: TrainingConfig, device: str, directory: Path) -> Race:
    """Return the conditions for comparing training. Shapes with slow updates get fewer of them."""
    config, vocab_size = SHAPES[arguments.shape]
    warm_up, updates = (2, 6) if device == "cpu" and config.d_model >= 512 else (5, 25)
    return Race(
        directory=directory,
        model=config,
        training=training,
        vocab_size=vocab_size,
        warm_up=arguments.warm_up or warm_up,
        updates=arguments.updates or updates,
        threads=arguments.threads or num_cores(),
        device=device,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", metavar="data|train|decode|prepare", nargs="*", help="what to measure (default: data train)"
    )
    add_subjects(parser)
    add_conditions(parser)
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write the results to this file, with those of each round"
    )
    arguments = parser.parse_args(argv)
    check(parser, arguments)
    report = measure(arguments)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        write_whole(arguments.json, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return 0


def add_subjects(parser: argparse.ArgumentParser) -> None:
    """Add the options for models, texts and peers."""
    parser.add_argument("--shape", choices=SHAPES, default="small", help="shape of the model (default: small)")
    parser.add_argument(
        "--text",
        metavar=("SOURCE", "TARGET"),
        type=Path,
        nargs=2,
        default=(),
        help="text for training (default: random words); with --model, a source to translate and its reference",
    )
    parser.add_argument(
        "--model", metavar="MODEL_DIR", type=Path, help="for decode: a trained model, such as runs/<name>/model"
    )
    parser.add_argument(
        "--beam",
        metavar="N",
        type=int,
        nargs="+",
        default=[4],
        help="with --model: beam sizes to measure besides greedy search",
    )
    about = f"also measure this program, with this Python; NAME is {', '.join(PEERS)}"
    parser.add_argument("--peer", metavar="NAME=PYTHON", type=named_python, action="append", default=[], help=about)


def add_conditions(parser: argparse.ArgumentParser) -> None:
    """Add the options for the conditions of the measurement."""
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help="number of rounds (default: 3)")
    parser.add_argument("--threads", metavar="N", type=int, default=0, help="threads of the CPU; 0: one for each core")
    parser.add_argument(
        "--warm-up", metavar="N", type=int, default=0, help="updates before the timed ones; 0: depends on the shape"
    )
    parser.add_argument("--updates", metavar="N", type=int, default=0, help="timed updates; 0: depends on the shape")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="(default: auto)")
    parser.add_argument(
        "--precision",
        choices=["fp32", "bf16", "fp16", "int8"],
        nargs="+",
        default=[],
        help="default: fp32; in training also bf16 if the hardware supports it; in decoding int8 or, on a GPU, fp16",
    )


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Stop with an error for arguments that exclude each other, or need others."""
    numbers = arguments.threads, arguments.warm_up, arguments.updates
    if not {*arguments.names} <= {"data", "train", "decode", "prepare"} or arguments.rounds < 1 or min(numbers) < 0:
        parser.error("give data, train, decode or prepare; --rounds must be at least 1, other numbers at least 0")
    decodes, complete = arguments.names == ["decode"], arguments.model and arguments.text and min(arguments.beam) > 0
    if ("decode" in arguments.names or arguments.model) and not (decodes and complete):
        parser.error("decode needs --model MODEL_DIR and --text SOURCE REFERENCE, alone; --beam must be at least 1")
    if "prepare" in arguments.names and not arguments.text:
        parser.error("prepare needs --text SOURCE TARGET")
    trains = not arguments.names or "train" in arguments.names
    if only := {"int8", "fp16"} & {*arguments.precision} if trains else ():
        parser.error(f"--precision {' '.join(sorted(only))} is only for decode")


if __name__ == "__main__":
    sys.exit(cli.run(main))
