"""A few updates of several experiments and their validation, on however many ranks."""

from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import torch

from transformer_mt import train
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Position, split_evenly
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.reading import load_config
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.distributed import Ranks, all_ranks
from transformer_mt.training.loop import one_update
from transformer_mt.training.optimization import learning_rate
from transformer_mt.training.run.beginning import build_learner, choose_layout
from transformer_mt.training.run.checkpoint import Tensors
from transformer_mt.training.run.validation import load_validation, validate

NUM_UPDATES = 4


@dataclass(frozen=True)
class Job:
    """What to do."""

    overrides: list[str] = field(default_factory=list)
    multiple: int = 1
    """Of each update, only a multiple of so many micro-batches: what is over is left out."""
    pairs_per_batch: int = 1000
    """At most; what is over is left out."""
    only_validate: bool = False
    validates_between: bool = False
    """Whether a validation of a single batch comes after the first update: only the first rank has any of it to do."""
    scale: float = 2.0**16
    """Of the loss in fp16, at the beginning."""


def results(experiment: Path, job: Job, ranks: Ranks) -> dict:
    """What the updates or the validation saw, and all tensors afterwards: the same on every rank."""
    config = load_config(experiment, job.overrides)
    settings, data_dir = config.training, Path(config.data_dir)
    device = choose_device("cpu", settings.precision, 1)
    layout = choose_layout(settings, config.model, device)
    tokenizer = Tokenizer.load(data_dir)
    learner = build_learner(config.model, settings, tokenizer, None, layout, device, ranks)
    validation = load_validation(data_dir, tokenizer, config.corpus, config.model, settings, config.decoding)
    if job.only_validate:
        return dict(validate(learner, [replace(each, tokens_per_batch=60) for each in validation]).values)
    learner.loss.train()
    if state := learner.loss.scaler.state_dict():
        learner.loss.scaler.load_state_dict(state | {"scale": job.scale})
    loader = train._loader(config, EncodedCorpus.load(data_dir / "train"), tokenizer, layout)
    updates = []
    for step, (pairs, _) in enumerate(islice(loader.updates(Position()), NUM_UPDATES), start=1):
        if job.validates_between and step == 2:
            validate(learner, [replace(each, tokens_per_batch=100_000) for each in validation])
        chosen = [part[: job.pairs_per_batch] for part in pairs[: len(pairs) // job.multiple * job.multiple]]
        numbered = list(enumerate(split_evenly(chosen, ranks.size)))[ranks.rank :: ranks.size]
        batches = [loader.batch(part, step, number) for number, part in numbered]
        update = one_update(learner, batches, learning_rate(step, settings), step)
        updates.append(
            {
                "loss": update.numbers.smoothed.item() / update.num_labels,
                "nll": update.numbers.nll.item() / update.num_labels,
                "gradient_norm": update.numbers.gradient_norm.item(),
                "num_labels": update.num_labels,
                "num_batches": len(chosen),
                "pairs": sorted(pair for share in ranks.gather(update.pairs.tolist()) for pair in share),
                "empty": sum(ranks.gather(sum(len(part) == 0 for _, part in numbered))),
            }
        )
    tensors = Tensors.of(learner)
    return {"updates": updates, "tensors": tensors.model | tensors.training}


def write_results(experiment: Path, jobs: dict[str, Job], out: Path) -> None:
    """The results of each job; the first rank writes them."""
    with all_ranks() as ranks:
        found = {name: results(experiment, job, ranks) for name, job in jobs.items()}
        if ranks.is_first:
            torch.save(found, out)
