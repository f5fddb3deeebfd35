"""Measure how fast this machine trains and decodes with our program and with other programs, the peers.

    python scripts/benchmark.py [data] [train] [decode] [--shape base] [--rounds 3] [--threads 1] [--json FILE]
        [--text SOURCE TARGET] [--peer NAME=PYTHON …] [--warm-up N] [--updates N] [--device cpu] [--precision fp32 …]
    python scripts/benchmark.py prepare --text SOURCE TARGET [--rounds 3] [--peer fairseq=PYTHON] [--json FILE]
    python scripts/benchmark.py decode --model MODEL_DIR --text SOURCE REFERENCE [--rounds 3] [--threads 2]
        [--beam 4 …] [--peer NAME=PYTHON …] [--device cpu] [--precision fp32 …] [--json FILE]

Our program and its peers take turns. A speed is the median of the rounds. The speed of a machine changes with time, so
a ratio compares speeds of the same round: the script prints the median of the ratios, with the lowest and the highest.

train: each program is a separate process. All have the same text, vocabulary, shape, batch size, number of threads and
thresholds of glibc's malloc. The speed is taken from the program's own log, in real target tokens, without padding.
Ours, nn.Transformer and Hugging Face's Marian train on the same batches; the last two in a hand-written loop, with
our initial weights, and their first loss must equal ours. fairseq, eole, JoeyNMT and Sockeye make their own batches
and run by their own commands. Peers have PyTorch's default settings.

prepare: compares the stage with sentencepiece and fairseq, on the text of --text, which benchmarks/generated_text.py
can make; benchmarks/prepare_race.py describes what is timed.

decode: the peer is nn.Transformer with our weights, with greedy search and without a cache. Both run in one process,
with the settings of `choose_device`, and in fp32 both must find the same words.

decode --model: a trained model translates a text, on a GPU if there is one, by greedy search and by beam search: ours,
CTranslate2, and with --peer Hugging Face's generate and, on a CPU, fairseq and JoeyNMT, all with the same weights. Each
is a separate process, as above, and translates the complete text after a warm-up, with the batch size that is fastest
for it. The time is measured from text to text; for fairseq and JoeyNMT from pieces to pieces.
  "alone": the mean time of each of the first 50 sentences, if they are translated one at a time.
  "first line": the time of a complete process that gets one line; files are in the disk cache.
  Memory: that of a process and its children; shared memory counts once.
CTranslate2 runs an export of the model, once with a translator of one thread for each core (its fastest setting) and
once with one translator with all threads (its default); on a GPU there is one. Greedy translations must agree with
ours. In beam search each program has its own length penalty, set as close to ours as possible; compare their BLEU.

The script always measures nn.Transformer and CTranslate2. It measures another peer if --peer gives the Python of an
environment with this program. We made such environments on Python 3.11 with PyTorch 2.13 as follows:

    huggingface  pip install torch numpy transformers==5.23.0 sentencepiece
    joeynmt      pip install torch joeynmt==2.3.0 importlib_metadata
    eole         pip install torch eole==0.6.4 aiohttp
    sockeye      pip install torch "numpy<2" pyyaml tensorboard sacrebleu portalocker
                 pip install --no-deps sockeye==3.1.34
    fairseq      pip install torch numpy==1.23.5 "cython<3" "setuptools<81" wheel hydra-core==1.0.7 \\
                     omegaconf==2.0.6 regex tqdm bitarray cffi sacrebleu scikit-learn packaging
                 PIP_CONSTRAINT=a-file-with-these-pins pip install --no-deps fairseq==0.12.2

omegaconf 2.0.6 needs a pip before 24.1. Python 3.11 rejects some dataclasses of fairseq; benchmarks/contenders/
run_fairseq.py makes Python accept them.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from check_requirements import stop

try:
    import torch
    from benchmarks.decoding_race import GREEDY, measure_decoding
    from benchmarks.environment import processor_and_load
    from benchmarks.prepare_race import measure_prepare
    from benchmarks.random_weights import Works, random_decoding
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

Results = dict[str, dict[str, Any]]


def benchmark_data(directory: Path, vocab_size: int, tokens_per_batch: int) -> Works:
    """Return work that shuffles the pairs of an epoch of random words and makes its batches."""
    write_encoded(directory, random_rows(vocab_size), vocab_size, vocab_size)
    corpus = EncodedCorpus.load(directory)

    def work() -> dict[str, int]:
        order = epoch_batches(corpus, tokens_per_batch, seed=1, epoch=0)
        return {"pairs": sum(len(collate(corpus, pairs).pairs_B) for pairs in order)}

    return {"ours": work}


def compete(works: Works, rounds: int, on_gpu: bool) -> Results:
    """Call each work once without timing; then time each in every round, and compare ours with its peer.

    Every second round has the reverse order, so that no work is always the first.
    """
    done = {name: work() for name, work in works.items()}
    results: Results = {name: {"seconds": []} for name in works}
    synchronize: Callable[[], None] = torch.cuda.synchronize if on_gpu else lambda: None
    for number in range(rounds):
        for name in works if number % 2 == 0 else reversed(works):
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()
            synchronize()
            began = time.perf_counter()
            works[name]()
            synchronize()
            results[name]["seconds"].append(time.perf_counter() - began)
            results[name]["gpu_megabytes"] = torch.cuda.max_memory_allocated() / 1e6 if on_gpu else None
    for name, result in results.items():
        result["per_second"] = {unit: count / median(result["seconds"]) for unit, count in done[name].items()}
        peer = name.replace("ours", "peer")
        if peer != name and peer in results:
            seconds = zip(results[peer]["seconds"], result["seconds"], strict=True)
            result["ratios"] = [theirs / ours for theirs, ours in seconds]
            result["ratio"] = median(result["ratios"])
    return results


def print_results(results: Results) -> None:
    for name, result in results.items():
        speeds = ", ".join(f"{speed:,.0f} {unit}/s" for unit, speed in result["per_second"].items())
        ratios = result.get("ratios")
        ratio = f"{result['ratio']:.2f} times the peer ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""
        memory = f"{result['gpu_megabytes']:,.0f} MB" if result["gpu_megabytes"] else ""
        print(f"  {name:14} {speeds:42} {ratio:32} {memory}".rstrip())


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
        for name in arguments.names or ["data", "train", "decode"]:
            print(name)
            if arguments.model:
                report[name] = trained_decoding(arguments, best.torch_device.type, Path(directory) / "race")
            elif name == "train":
                race = race_of(arguments, training, best.torch_device.type, Path(directory) / "race")
                both = ["fp32", "bf16"] if best.dtype == torch.bfloat16 else ["fp32"]
                precisions, pythons = arguments.precision or both, dict(arguments.peer)
                report[name] = measure_training(race, arguments.text, precisions, pythons, arguments.rounds)
            elif name == "prepare":
                report[name] = measure_prepare(
                    arguments.text, Path(directory) / "prepare", arguments.rounds, dict(arguments.peer)
                )
            elif name == "data":
                works = benchmark_data(Path(directory) / "random", vocab_size, training.tokens_per_batch)
                report[name] = raced(works, arguments.rounds, on_gpu)
            else:
                for precision in arguments.precision or ["fp32"]:
                    device = choose_device(arguments.device, precision, arguments.threads)
                    works = random_decoding(config, vocab_size, 256 if on_gpu else 48, device)
                    found = raced(works, arguments.rounds, on_gpu)
                    report[name] = {**report.get(name, {}), **named_by(precision, found)}
    report["peak_rss_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process: {report['peak_rss_megabytes']:,.0f} MB")
    return report


def raced(works: Works, rounds: int, on_gpu: bool) -> Results:
    print_results(results := compete(works, rounds, on_gpu))
    return results


def named_by(precision: str, results: Results) -> Results:
    """Return the results with the precision in their names, except for fp32."""
    return {name if precision == "fp32" else f"{name}, {precision}": result for name, result in results.items()}


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
        "names", metavar="data|train|decode|prepare", nargs="*", help="what to measure (default: the first three)"
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
        help="default: fp32, and in training also bf16 if the hardware supports it; with --model fp32 and int8, on a "
        "GPU fp32 and fp16",
    )


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Stop with an error for arguments that exclude each other, or need others."""
    numbers = arguments.threads, arguments.warm_up, arguments.updates
    if not {*arguments.names} <= {"data", "train", "decode", "prepare"} or arguments.rounds < 1 or min(numbers) < 0:
        parser.error("give data, train, decode or prepare; --rounds must be at least 1, other numbers at least 0")
    if arguments.model and (arguments.names != ["decode"] or not arguments.text or min(arguments.beam) < 1):
        parser.error("--model is only for decode and needs --text SOURCE REFERENCE; --beam must be at least 1")
    if "prepare" in arguments.names and not arguments.text:
        parser.error("prepare needs --text SOURCE TARGET")
    trains = not arguments.names or "train" in arguments.names
    if "int8" in arguments.precision and not arguments.model:
        parser.error("--precision int8 is only for --model")
    if "fp16" in arguments.precision and trains:
        parser.error("--precision fp16 is only for decode")


if __name__ == "__main__":
    sys.exit(cli.run(main))
