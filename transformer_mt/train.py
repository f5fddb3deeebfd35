"""Token ids become checkpoints."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from transformer_mt import cli
from transformer_mt.config import Config, differences, dump_config, load_config
from transformer_mt.data.corpus import read_lines
from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.device import choose_device
from transformer_mt.errors import CheckpointError, CorpusError
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.transformer import Transformer
from transformer_mt.training.checkpoint import Progress, load_checkpoint, newest_whole_checkpoint
from transformer_mt.training.loop import is_trained, train
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.training.validation import ValidationSet

# A run may go on with other values of these: they do not change what it has done so far. Directories may
# have been moved: what counts of the data is in `corpus` and in the tokenizer's digest.
FREE_TO_CHANGE = (
    "data_dir:",
    "run_dir:",
    "decoding.",
    "averaging.",
    "training.device:",
    "training.num_threads:",
    "training.max_steps:",
    "training.patience:",
    "training.keep_last:",
    "training.log_every:",
    "training.save_every:",
    "training.validate_every:",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Train the configuration's model, or go on where its run was stopped."""
    parser = cli.parser(
        "train",
        "Reads what prepare wrote; writes checkpoints, log.jsonl and config.yaml to the run_dir.\n"
        "Stopped at any instant, the same command goes on from the newest checkpoint.",
        "python -m transformer_mt.train configs/demo_en_de.yaml training.max_steps=200",
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the experiment")
    parser.add_argument("overrides", metavar="key=value", nargs="*", help="a setting, as training.max_steps=200")
    arguments = parser.parse_intermixed_args(argv)
    config = load_config(arguments.config, arguments.overrides)
    signum = train_run(config)
    if signum:
        command = ["python", "-m", "transformer_mt.train", arguments.config, *arguments.overrides]
        print(f"To go on: {shlex.join(command)}")
        return 128 + signum
    return 0


def train_run(config: Config) -> int:
    """Train until nothing is left to do or a signal stops it; that signal's number, or 0."""
    run_dir, data_dir, settings = Path(config.run_dir), Path(config.data_dir), config.training
    _check_prepared(data_dir, config)
    _claim(run_dir, config)
    device = choose_device(settings.device, settings.precision, settings.num_threads)
    tokenizer = Tokenizer.load(data_dir)
    corpus = EncodedCorpus.load(data_dir / "train")
    validation = ValidationSet(
        EncodedCorpus.load(data_dir / "valid"),
        list(read_lines(data_dir / "valid.target.txt")),
        tokenizer,
        config.corpus.target_language,
        config.decoding.max_extra_length,
        config.model.max_positions,
    )
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
        f"{progress.tokens / max(progress.seconds, 1e-9):,.0f} a second; best {settings.metric} at update "
        f"{progress.best_step}"
    )
    return signum


def _describe(model: Seq2Seq) -> str:
    return f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters"


def _check_prepared(data_dir: Path, config: Config) -> None:
    """Raises CorpusError unless `prepare` has finished there with this corpus and tokenizer."""
    advice = "python -m transformer_mt.prepare, with this configuration, does it"
    try:
        prepared = json.loads((data_dir / "prepare.json").read_text(encoding="utf-8"))
    except OSError:
        raise CorpusError(f"{data_dir} is not prepared; {advice}") from None
    for section in ("corpus", "tokenizer"):
        if prepared[section] != getattr(config, section).model_dump():
            raise CorpusError(f"{data_dir} was prepared with another {section}: choose another data_dir; {advice}")


def _claim(run_dir: Path, config: Config) -> None:
    """Write the configuration into the run, unless that is another's. Raises CheckpointError."""
    path = run_dir / "config.yaml"
    if path.exists():
        changed = [line for line in differences(load_config(path), config) if not _may_change(line, config)]
        if changed:
            raise CheckpointError(
                f"{run_dir} is a run of another configuration:\n  "
                + "\n  ".join(changed)
                + "\nChoose another run_dir, delete this one, or give the values that it began with"
            )
    run_dir.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(dump_config(config), encoding="utf-8")
    os.replace(partial, path)


def _may_change(difference: str, config: Config) -> bool:
    # The linear schedule knows its end: with another one, the updates so far would have been others.
    if difference.startswith("training.max_steps") and config.training.schedule == "linear":
        return False
    return difference.startswith(FREE_TO_CHANGE)


def _resume(run_dir: Path, model: Seq2Seq, optimizer: torch.optim.Optimizer, tokenizer: Tokenizer) -> Progress:
    path, complaints = newest_whole_checkpoint(run_dir)
    for complaint in complaints:
        print(f"warning: {complaint}", file=sys.stderr)
    if path is None:
        return Progress()
    return load_checkpoint(path, model, optimizer, tokenizer.digest)


if __name__ == "__main__":
    sys.exit(cli.run(main))
