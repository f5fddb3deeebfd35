"""Measure this machine: ours beside a peer, in one run, in turn.

    python scripts/benchmark.py [data] [train] [decode] [--shape base] [--rounds 3] [--threads 1] [--json FILE]

The peer is nn.Transformer with the weights of ours; that both compute the same is checked before anything is
timed. It gets the allocator and the products that `choose_device` sets, which are the whole process's.
A speed is the median of the rounds; a ratio that of each round's own, since machines drift, its range beside it.
Memory of a GPU is its peak, in which the weights and optimizer states of both sides lie.

B sentences  S source positions  T target positions  N positions of all sentences  D model width  V vocabulary
"""

import argparse
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from transformer_mt import cli
from transformer_mt.config import ModelConfig, TrainingConfig
from transformer_mt.data.batching import Batch, collate, epoch_batches
from transformer_mt.data.encoded import EncodedCorpus, write_encoded
from transformer_mt.decoding.search import beam_search, greedy, max_lengths
from transformer_mt.device import Device, choose_device
from transformer_mt.evaluate import write_json
from transformer_mt.models.attention import causal_mask
from transformer_mt.models.positions import sinusoidal
from transformer_mt.models.transformer import Transformer
from transformer_mt.training.loop import one_update
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.vocabulary import BOS, EOS, PAD

# With the size of a vocabulary. Speeds of tiny mean nothing: it tries the script.
SHAPES = {
    "tiny": (ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, ffn_dim=32, num_heads=2), 50),
    "small": (ModelConfig(encoder_layers=3, decoder_layers=3, d_model=256, ffn_dim=1024, num_heads=4), 8000),
    "base": (ModelConfig(), 32000),
}
NUM_PAIRS = 50_000
BEAM_SIZE, LENGTH_PENALTY, MAX_EXTRA_LENGTH = 4, 0.6, 10

Work = Callable[[], dict[str, int]]  # a round; returns how much of each unit was done
Works = dict[str, Work]  # by name; the peer of `ours, x` is `peer, x`
Results = dict[str, dict[str, Any]]


class Peer(nn.Module):
    """nn.Transformer made the same function as ours: tied embeddings, our positions, no norms at the ends."""

    def __init__(self, ours: Transformer, config: ModelConfig) -> None:
        super().__init__()
        layers = (config.encoder_layers, config.decoder_layers, config.ffn_dim, config.dropout)
        self.transformer = nn.Transformer(config.d_model, config.num_heads, *layers, batch_first=True)
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.transformer.encoder.use_nested_tensor = False  # it warns that it is a prototype
        for module in self.transformer.modules():  # no dropout on attention weights and inside of the feed-forward
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0
        self.embedding = nn.Embedding(*ours.output_VD.shape)
        self.dropout, self.scale = nn.Dropout(config.dropout), config.d_model**0.5
        self.positions_TD = nn.Buffer(sinusoidal(config.max_positions, config.d_model))
        # The parameters of both stand in the same order, and keys, queries and values in the same rows.
        theirs = [*self.transformer.parameters(), self.embedding.weight]
        for parameter, value in zip(theirs, ours.parameters(), strict=True):
            parameter.data.copy_(value.data)

    def encode(self, source_BS: Tensor) -> Tensor:
        return self.transformer.encoder(self._embed(source_BS), src_key_padding_mask=source_BS == PAD)

    def decode(self, decoder_input_BT: Tensor, memory_BSD: Tensor, source_BS: Tensor) -> Tensor:
        """Features BTD. A padded target stands after all real ones: the causal mask hides it."""
        x_BTD, padding_BS = self._embed(decoder_input_BT), source_BS == PAD
        future_TT = ~causal_mask(x_BTD.shape[1], x_BTD.device)
        return self.transformer.decoder(x_BTD, memory_BSD, future_TT, None, None, padding_BS, tgt_is_causal=True)

    @torch.inference_mode()
    def greedy(self, source_BS: Tensor, max_length: list[int]) -> list[list[int]]:
        """Translations, EOS included, as written by hand: without a cache, each step reads the prefix again."""
        memory_BSD = self.encode(source_BS)
        last_B = torch.tensor(max_length, device=source_BS.device)
        tokens_BT = torch.full((len(max_length), 1), BOS, device=source_BS.device)
        for length in range(1, max(max_length) + 1):
            features_BD = self.decode(tokens_BT, memory_BSD, source_BS)[:, -1]
            logits_BV = F.linear(features_BD, self.embedding.weight)
            logits_BV[:, [PAD, BOS]] = -torch.inf
            token_B = logits_BV.argmax(dim=-1).masked_fill(last_B == length, EOS)
            tokens_BT = torch.cat([tokens_BT, token_B[:, None]], dim=1)
            if (tokens_BT == EOS).any(dim=1).all():
                break
        return [tokens[1 : tokens.index(EOS) + 1] for tokens in tokens_BT.tolist()]

    def _embed(self, tokens_BT: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens_BT) * self.scale + self.positions_TD[: tokens_BT.shape[1]])


def peer_update(peer: Peer, optimizer: Optimizer, batch: Batch, settings: TrainingConfig, device: Device) -> Tensor:
    """What `one_update` does with one batch; the loss in nats a target token."""
    batch = batch.to(device.torch_device)
    with device.autocast():
        memory_BSD = peer.encode(batch.source_BS)
        features_ND = peer.decode(batch.decoder_input_BT, memory_BSD, batch.source_BS).flatten(0, 1)
        logits_NV, labels_N = F.linear(features_ND, peer.embedding.weight), batch.labels_BT.flatten()
        loss = F.cross_entropy(logits_NV, labels_N, ignore_index=PAD, label_smoothing=settings.label_smoothing)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def benchmark_data(corpus: EncodedCorpus, tokens_per_batch: int) -> Works:
    """An epoch: the order of its pairs, and its batches."""

    def work() -> dict[str, int]:
        order = epoch_batches(corpus, tokens_per_batch, seed=1, epoch=0)
        return {"pairs": sum(len(collate(corpus, pairs).pairs_B) for pairs in order)}

    return {"ours": work}


def benchmark_train(config: ModelConfig, vocab_size: int, batches: list[Batch], devices: dict[str, Device]) -> Works:
    """Whole updates on the same few batches each round, in each precision; padding is no target token."""
    torch.manual_seed(1)
    settings, fp32 = TrainingConfig(peak_lr=1e-4), devices["fp32"]
    ours = Transformer(config, vocab_size, vocab_size).to(fp32.torch_device)
    peer = Peer(ours, config).to(fp32.torch_device)
    our_optimizer, peer_optimizer = build_optimizer(ours, settings), build_optimizer(peer, settings)

    def our_update(batch: Batch, device: Device) -> Tensor:
        update = one_update(ours, our_optimizer, [batch], settings, device)
        return update.smoothed / update.num_labels

    def their_update(batch: Batch, device: Device) -> Tensor:
        return peer_update(peer, peer_optimizer, batch, settings, device)

    def work(update: Callable[[Batch, Device], Tensor], device: Device) -> dict[str, int]:
        for batch in batches:
            update(batch, device)
        return {"target tokens": sum(batch.num_labels for batch in batches)}

    both = nn.ModuleList([ours, peer]).eval()  # without dropout
    for batch in batches[:2]:  # the second loss shows whether the first updates were the same
        torch.testing.assert_close(our_update(batch, fp32), their_update(batch, fp32), rtol=0.0, atol=1e-4)
    both.train()
    sides = {"ours": our_update, "peer": their_update}
    runs = product(devices.items(), sides.items())
    return {f"{side}, {precision}": partial(work, update, device) for (precision, device), (side, update) in runs}


def benchmark_decode(config: ModelConfig, vocab_size: int, num_sentences: int, device: Device) -> Works:
    """One batch of random sentences, in fp32 as Translator has it."""
    torch.manual_seed(1)
    ours = Transformer(config, vocab_size, vocab_size).to(device.torch_device).eval()
    # Tied embeddings make a fresh model repeat itself, whatever its source; a last norm of random signs does not.
    nn.init.normal_(ours.get_parameter(f"decoder.{config.decoder_layers - 1}.around_feed_forward.norm.weight"))
    peer = Peer(ours, config).to(device.torch_device).eval()
    last_B1 = torch.randint(9, 20, (num_sentences, 1))
    source_BS = torch.randint(EOS + 1, vocab_size, (num_sentences, 20)).scatter(1, last_B1, EOS)
    source_BS = source_BS.masked_fill(torch.arange(20) > last_B1, PAD).to(device.torch_device)
    limits = max_lengths(source_BS, MAX_EXTRA_LENGTH, config.max_positions)

    def our_greedy() -> list[list[int]]:
        return [hypothesis.tokens for hypothesis in greedy(ours, source_BS, limits)]

    def our_beam() -> list[list[int]]:
        return [best.tokens for best, *_ in beam_search(ours, source_BS, BEAM_SIZE, LENGTH_PENALTY, limits)]

    def work(search: Callable[[], list[list[int]]]) -> dict[str, int]:
        found = search()
        return {"sentences": len(found), "output tokens": sum(map(len, found))}

    their_greedy = partial(peer.greedy, source_BS, limits)
    assert our_greedy() == their_greedy(), "the peer finds other words"
    searches: dict[str, Callable[[], list[list[int]]]]
    searches = {"ours, greedy": our_greedy, "peer, greedy": their_greedy, f"ours, beam {BEAM_SIZE}": our_beam}
    return {name: partial(work, search) for name, search in searches.items()}


def compete(works: Works, rounds: int, on_gpu: bool) -> Results:
    """Each once untimed, then all in turn, every other round backwards; ours against its peer."""
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


def synthetic_corpus(directory: Path, vocab_size: int) -> EncodedCorpus:
    """Random words, seeded; lengths log-normal, 27 pieces in the mean, a target about as long as its source."""
    random = np.random.default_rng(1)
    log_lengths = random.normal(3.1, 0.6, (NUM_PAIRS, 1)) + random.normal(0.0, 0.15, (NUM_PAIRS, 2))
    lengths = np.exp(log_lengths).clip(1, 150).astype(int).tolist()
    words = random.integers(EOS + 1, vocab_size, NUM_PAIRS + 150).tolist()
    rows = (([*words[i : i + s], EOS], [*words[i : i + t], EOS]) for i, (s, t) in enumerate(lengths))
    write_encoded(directory / "train", rows, vocab_size, vocab_size)
    return EncodedCorpus.load(directory / "train")


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else ""
    name = text.partition("model name")[2].partition(": ")[2].partition("\n")[0] or platform.machine()
    return f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before"


def print_results(benchmark: str, results: Results) -> None:
    print(benchmark)
    for name, result in results.items():
        speeds = ", ".join(f"{speed:,.0f} {unit}/s" for unit, speed in result["per_second"].items())
        ratios = result.get("ratios")
        ratio = f"{result['ratio']:.2f} times the peer ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""
        memory = f"{result['gpu_megabytes']:,.0f} MB" if result["gpu_megabytes"] else ""
        print(f"  {name:14} {speeds:42} {ratio:32} {memory}".rstrip())


def measure(names: Sequence[str], shape: str, rounds: int, threads: int) -> dict[str, Any]:
    """Print conditions and results as they come; all of it, for JSON."""
    devices = {"fp32": choose_device("auto", "fp32", threads)}
    if (best := choose_device("auto", "auto", threads)).dtype == torch.bfloat16:
        devices["bf16"] = best
    on_gpu = best.torch_device.type == "cuda"
    tokens_per_batch, num_updates, num_sentences = (25_000, 20, 256) if on_gpu else (4096, 3, 48)
    config, vocab_size = SHAPES[shape]
    report: dict[str, Any] = {
        "processor": processor(),
        "devices": "; ".join(device.description for device in devices.values()) + f"; torch {torch.__version__}",
        "peer": "nn.Transformer, greedy without a cache; allocator and products are set for the whole process",
        "model": f"{shape}: {config}, vocabulary {vocab_size}",
        "rounds": f"{rounds} of {NUM_PAIRS} pairs of data; {num_updates} updates of at most {tokens_per_batch} "
        f"positions on the longer side; {num_sentences} sentences of 10 to 20 ids, {MAX_EXTRA_LENGTH} more allowed",
    }
    print(*(f"{key}: {value}" for key, value in report.items()), sep="\n")
    with tempfile.TemporaryDirectory() as directory:
        corpus = synthetic_corpus(Path(directory), vocab_size)
        order = epoch_batches(corpus, tokens_per_batch, seed=1, epoch=0)[:num_updates]
        batches = [collate(corpus, pairs) for pairs in order]
        benchmarks: dict[str, Callable[[], Works]] = {
            "data": lambda: benchmark_data(corpus, tokens_per_batch),
            "train": lambda: benchmark_train(config, vocab_size, batches, devices),
            "decode": lambda: benchmark_decode(config, vocab_size, num_sentences, devices["fp32"]),
        }
        for name in names:
            report[name] = compete(benchmarks[name](), rounds, on_gpu)
            print_results(name, report[name])
    report["peak_rss_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {report['peak_rss_megabytes']:,.0f} MB")
    return report


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="data|train|decode", nargs="*", help="all if none is named")
    parser.add_argument("--shape", choices=SHAPES, default="small", help="of the model")
    parser.add_argument("--rounds", metavar="N", type=int, default=3)
    parser.add_argument("--threads", metavar="N", type=int, default=0, help="of the CPU; 0 takes one a core")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write here too, with the seconds of each round")
    arguments = parser.parse_args(argv)
    names = arguments.names or ["data", "train", "decode"]
    if not {*names} <= {"data", "train", "decode"} or arguments.rounds < 1 or arguments.threads < 0:
        parser.error("name data, train or decode; --rounds is at least 1, --threads at least 0")
    report = measure(names, arguments.shape, arguments.rounds, arguments.threads)
    if arguments.json is not None:
        write_json(arguments.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
