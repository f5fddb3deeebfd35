"""The part curve: the loss of packed training, compiled on a GPU, beside that of padded training on the same pairs."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, count, islice

import torch

from benchmarks.gpu_parts import own_process
from benchmarks.gpu_parts.report import Measurement, Part
from benchmarks.gpu_parts.settings import Figures, Settings
from benchmarks.gpu_parts.text import prepared
from benchmarks.gpu_parts.trainee import Trainee, new_trainee
from transformer_mt.batches.loader import BatchLayout
from transformer_mt.batches.packing import packed_epoch_batches, packed_shape
from transformer_mt.kernels.device import choose_device

UPDATES, UPDATES_OF_TRIAL, WINDOW = 300, 60, 20
PACKED, PADDED, OTHER = "packed", "padded", "padded, other dropout"
RUNS: dict[str, tuple[BatchLayout, int]] = {PACKED: ("packed", 1), PADDED: ("padded", 1), OTHER: ("padded", 2)}


def part(settings: Settings) -> Part:
    measurements = [
        Measurement(name, name, 90.0, partial(own_process.in_own_process, "curve", name, settings)) for name in RUNS
    ]
    return Part("curve", measurements, summary)


def measure(name: str, settings: Settings) -> Figures:
    """The loss of each update, in nats a target token, unsmoothed. Compilation is for a GPU."""
    layout, seed = RUNS[name]
    text = prepared(settings)
    device = choose_device(settings.device, settings.training_precision, settings.threads)
    changes = {"layout": layout, "compile": layout == "packed" and settings.on_gpu, "seed": seed}
    num_updates = UPDATES_OF_TRIAL if settings.is_trial else UPDATES
    training = text.config.training.model_copy(update=changes | {"warmup_steps": num_updates})
    trainee = new_trainee(text.model, text.tokenizer.target_vocab_size, text.corpus, training, device)
    losses = losses_of(trainee, settings.tokens_per_batch, num_updates)
    return {
        "layout": layout,
        "compiled": bool(training.compile),
        "seed_of_dropout": seed,
        "device": device.description,
        "vocabulary": text.tokenizer.target_vocab_size,
        "dropout": text.config.model.dropout,
        "peak_lr": training.peak_lr,
        "losses": losses,
    }


def losses_of(trainee: Trainee, tokens_per_batch: int, num_updates: int) -> list[float]:
    """The losses of the first updates, on the pairs of packed batches whatever the layout."""
    corpus, loader = trainee.loader.corpus, trainee.loader
    shape = packed_shape(corpus, tokens_per_batch)
    epochs = (packed_epoch_batches(corpus, shape, loader.seed, epoch) for epoch in count())
    orders = islice((pairs for epoch in epochs for pairs in epoch), num_updates)
    sums = []
    for step, pairs in enumerate(orders, start=1):
        update = trainee.update(step, [loader.batch(pairs, step, 0)])
        sums.append(update.numbers.nll / update.num_labels)
    losses: list[float] = torch.stack(sums).tolist()
    return losses


def summary(found: dict[str, Figures]) -> Figures:
    """The largest difference of the running means, and that of two padded runs that only differ in dropout."""
    means = {name: running_means(figures["losses"], WINDOW) for name, figures in found.items()}
    report: Figures = {"window": WINDOW, "updates": [len(figures["losses"]) for figures in found.values()]}
    if PACKED in means and PADDED in means:
        report["largest_difference"] = largest_difference(means[PACKED], means[PADDED])
    if OTHER in means and PADDED in means:
        report["largest_difference_by_dropout_alone"] = largest_difference(means[OTHER], means[PADDED])
    return report | {"last_means": {name: of_one[-1] for name, of_one in means.items()}}


def running_means(losses: Sequence[float], window: int) -> list[float]:
    """The mean of each `window` losses in a row."""
    sums = [0.0, *accumulate(losses)]
    return [(end - begin) / window for begin, end in zip(sums, sums[window:], strict=False)]


def largest_difference(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    own_process.answer(measure)
