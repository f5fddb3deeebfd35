"""Token ids become checkpoints."""

import fcntl
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from transformer_mt import cli
from transformer_mt.config import Config, differences, dump_config, load_config
from transformer_mt.data.corpus import read_lines
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.device import Device, choose_device
from transformer_mt.errors import CheckpointError, CorpusError, TrainingError
from transformer_mt.evaluation.metrics import bleu
from transformer_mt.files import write_whole
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.transformer import Transformer
from transformer_mt.training.checkpoint import (
    Progress,
    load_checkpoint,
    newest_whole_checkpoint,
    point_best_at,
    saved_steps,
)
from transformer_mt.training.loop import is_trained, train
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.training.validation import ValidationSet

# A run may go on with other values of these: they do not change what it has done so far. Directories may
# have been moved: what counts of the data is in `corpus` and in the tokenizer's digest.
FREE_TO_CHANGE = {
    "data_dir",
    "run_dir",
    "training.device",
    "training.num_threads",
    "training.max_steps",
    "training.patience",
    "training.keep_last",
    "training.log_every",
    "training.save_every",
    "training.validate_every",
}
FREE_SECTIONS = ("decoding.", "averaging.")


def main(argv: Sequence[str] | None = None) -> int:
    """Train the configuration's model, or go on where its run was stopped."""
    parser = cli.parser(
        "train",
        "Reads what prepare wrote; writes checkpoints, log.jsonl and config.yaml to the run_dir.\n"
        "Stopped at any instant, the same command goes on from the newest checkpoint.",
        "python -m transformer_mt.train configs/demo_en_de.yaml training.max_steps=200",
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the experiment")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="a setting, as training.max_steps=200"
    )
    arguments = parser.parse_intermixed_args(argv)
    config = load_config(arguments.config, arguments.overrides)
    signum = train_run(config)
    if signum:
        command = [cli.python(), "-m", "transformer_mt.train", arguments.config, *arguments.overrides]
        print(f"To go on: {shlex.join(command)}")
        return 128 + signum
    return 0


def train_run(config: Config) -> int:
    """Train until nothing is left to do or a signal stops it; that signal's number, or 0."""
    run_dir, data_dir = Path(config.run_dir), Path(config.data_dir)
    _check_prepared(data_dir, config)
    device = choose_device(config.training.device, config.training.precision, config.training.num_threads)
    tokenizer = Tokenizer.load(data_dir)
    corpus = EncodedCorpus.load(data_dir / "train")
    validation = _load_validation(data_dir, tokenizer, config)
    try:
        with _alone(run_dir):
            _claim(run_dir, config)
            return _train(config, corpus, validation, run_dir, device)
    except torch.OutOfMemoryError:
        raise TrainingError(
            f"out of memory: lower training.tokens_per_batch={config.training.tokens_per_batch} and raise "
            "training.micro_batches_per_update as much, in a new run_dir"
        ) from None


def _train(config: Config, corpus: EncodedCorpus, validation: ValidationSet, run_dir: Path, device: Device) -> int:
    settings, tokenizer = config.training, validation.tokenizer
    torch.manual_seed(settings.seed)
    model = Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    model.to(device.torch_device)
    optimizer = build_optimizer(model, settings)
    progress = _resume(run_dir, model, optimizer, tokenizer)
    if is_trained(progress, settings):
        print(f"{run_dir}: already trained, {progress.step} updates")
        return 0
    tokenizer.save(run_dir)
    print(f"{run_dir}: {_describe(model)}, {len(corpus):,} pairs, {device.description}", flush=True)
    if progress.step:
        print(f"going on from update {progress.step}", flush=True)
    progress, signum = train(model, optimizer, corpus, validation, settings, run_dir, device, progress)
    print(
        f"{run_dir}: {progress.step} updates, {progress.tokens:,} target tokens in {progress.seconds:.0f} s, "
        f"{progress.tokens / max(progress.seconds, 1e-9):,.0f} a second"
        + (f"; best {settings.metric} at update {progress.best_step}" if progress.best_step else "")
    )
    if not signum:
        print(f"next: {cli.python()} -m transformer_mt.average {shlex.quote(config.run_dir)}")
    return signum


def _describe(model: Seq2Seq) -> str:
    return f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters"


def _check_prepared(data_dir: Path, config: Config) -> None:
    """Raises CorpusError unless `prepare` has finished there with this corpus and tokenizer."""
    advice = "python -m transformer_mt.prepare, with this configuration, does it"
    try:
        prepared = json.loads((data_dir / "prepare.json").read_text(encoding="utf-8"))
        found = {section: prepared[section] for section in ("corpus", "tokenizer")}
    except (OSError, ValueError, KeyError, TypeError):
        raise CorpusError(f"{data_dir} is not prepared; {advice}") from None
    for section, settings in found.items():
        if settings != getattr(config, section).model_dump():
            raise CorpusError(f"{data_dir} was prepared with another {section}: choose another data_dir; {advice}")


def _load_validation(data_dir: Path, tokenizer: Tokenizer, config: Config) -> ValidationSet:
    corpus = EncodedCorpus.load(data_dir / "valid")
    references = list(read_lines(data_dir / "valid.target.txt"))
    if len(references) != len(corpus):
        raise CorpusError(f"{data_dir}/valid.target.txt is not as it was written; delete {data_dir} and prepare again")
    language = config.corpus.target_language
    bleu(references[:1], references[:1], language)  # its tokeniser may not be installed: better said now than later
    return ValidationSet(
        corpus, references, tokenizer, language, config.decoding.max_extra_length, config.model.max_positions
    )


def _claim(run_dir: Path, config: Config) -> None:
    """Write the configuration into the run, unless that is another's. Raises CheckpointError."""
    path = run_dir / "config.yaml"
    if saved_steps(run_dir) and path.exists():
        changed = differences(load_config(path), config)
        changed = {key: line for key, line in changed.items() if not _may_change(key, config)}
        if changed:
            raise CheckpointError(
                f"{run_dir} is a run of another configuration:\n  "
                + "\n  ".join(changed.values())
                + "\nChoose another run_dir, delete this one, or give the values that it began with"
                + (" (this schedule depends on its end)" if "training.max_steps" in changed else "")
            )
    run_dir.mkdir(parents=True, exist_ok=True)
    write_whole(path, dump_config(config))


def _may_change(key: str, config: Config) -> bool:
    # These schedules know their end: with another one, the updates so far would have been others.
    if key == "training.max_steps" and config.training.schedule in ("linear", "cosine", "cooldown"):
        return False
    return key in FREE_TO_CHANGE or key.startswith(FREE_SECTIONS)


@contextmanager
def _alone(run_dir: Path) -> Iterator[None]:
    """Hold the run's directory. Raises CheckpointError if another process trains in it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(run_dir, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CheckpointError(f"{run_dir}: another process trains here; wait, or choose another run_dir") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _resume(run_dir: Path, model: Seq2Seq, optimizer: torch.optim.Optimizer, tokenizer: Tokenizer) -> Progress:
    path, complaints = newest_whole_checkpoint(run_dir)
    if path is None and complaints:
        advice = "No whole checkpoint is left: choose another run_dir, or delete this one to begin anew"
        raise CheckpointError("\n".join([*complaints, advice]))
    for complaint in complaints:
        print(f"warning: {complaint}: the one before it is used", file=sys.stderr)
    if path is None:
        return Progress()
    progress = load_checkpoint(path, model, optimizer, tokenizer.digest)
    if progress.best_step:  # the link is made after its checkpoint: a kill may have come between
        point_best_at(run_dir, progress.best_step)
    return progress


if __name__ == "__main__":
    sys.exit(cli.run(main))
