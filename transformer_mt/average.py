"""Checkpoints become a model."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError

from transformer_mt import cli
from transformer_mt.config import dump_config, fingerprint, load_config
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.data.training_lines import TrainingLines, copy_training_lines
from transformer_mt.errors import CheckpointError
from transformer_mt.files import write_whole
from transformer_mt.settings import AveragingConfig, Config, TrainingConfig
from transformer_mt.training.checkpoint import (
    SUMS,
    average_weights,
    check_tokenizer,
    checkpoint_path,
    damage,
    load_progress,
    moving_average,
    saved_steps,
    scheduled_steps,
)
from transformer_mt.weights import read_metadata, save_weights


def main(argv: Sequence[str] | None = None) -> int:
    """Average a run's checkpoints into runs/<name>/model."""
    parser = cli.parser(
        "average",
        "Reads the checkpoints of a run; writes <run>/model: model.safetensors, config.yaml and the\n"
        "tokenizer, all that translation needs.",
        "python -m transformer_mt.average runs/demo_en_de checkpoints=3",
    )
    parser.add_argument("run", metavar="RUN_DIR", type=Path, help="as runs/<name>")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="of averaging, as checkpoints=3")
    arguments = parser.parse_intermixed_args(argv)
    if not (arguments.run / "config.yaml").is_file():
        raise CheckpointError(f"{arguments.run} holds no config.yaml: name the directory of a run, as runs/<name>")
    config = load_config(arguments.run / "config.yaml", arguments.overrides, "averaging")
    average_run(arguments.run, config)
    return 0


def average_run(run_dir: Path, config: Config) -> None:
    """Write the model, unless it is there already. Raises CheckpointError if the run has no whole checkpoint."""
    paths = choose_checkpoints(run_dir, config.averaging, config.training)
    steps = ", ".join(str(int(path.name[5:])) for path in paths)
    tokenizer = Tokenizer.load(run_dir)
    cure = f"Copy the tokenizer that it was trained with, from its data_dir, into {run_dir}"
    for path in paths:
        check_tokenizer(path, tokenizer.digest, cure)
    made_from = fingerprint(dump_config(config), tokenizer.digest, *((path / SUMS).read_text() for path in paths))
    model_dir = run_dir / "model"
    if _is_whole(model_dir, made_from, config, tokenizer):
        print(f"{model_dir}: already averaged, updates {steps}")
        return
    metadata = {"made_from": made_from, "updates": steps, "tokenizer": tokenizer.digest}
    partial = model_dir / "model.safetensors.partial"
    of_updates = config.averaging.choose == "moving_average"
    try:
        model_dir.mkdir(exist_ok=True)
        save_weights(moving_average(paths[0]) if of_updates else average_weights(paths), partial, metadata)
        tokenizer.save(model_dir)
        copy_training_lines(run_dir, model_dir)
        write_whole(model_dir / "config.yaml", dump_config(config))
        os.replace(partial, model_dir / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{model_dir}: cannot be written ({error}); make room on the disk") from None
    finally:
        if partial.is_file():
            partial.unlink()
    asked = 1 if of_updates else config.averaging.checkpoints
    fewer = f" (of {asked} asked for: there are no more)" if len(paths) < asked else ""
    of = "the moving average" if of_updates else f"the mean of {len(paths)} checkpoints{fewer}"
    print(f"{model_dir}: {of}, updates {steps}")


def _is_whole(model_dir: Path, made_from: str, config: Config, tokenizer: Tokenizer) -> bool:
    try:
        text = (model_dir / "config.yaml").read_text(encoding="utf-8")
        digest = Tokenizer.load(model_dir).digest
        same_lines = TrainingLines.load(model_dir) == TrainingLines.load(model_dir.parent)
    except (OSError, ValueError):
        return False
    found = read_metadata(model_dir / "model.safetensors").get("made_from")
    return same_lines and (found, text, digest) == (made_from, dump_config(config), tokenizer.digest)


def choose_checkpoints(run_dir: Path, settings: AveragingConfig, training: TrainingConfig) -> list[Path]:
    """The checkpoints to average, all whole: the best, or the newest that were saved on schedule.

    Others are there because a run was stopped, and would make its model depend on when that was.
    """
    steps = saved_steps(run_dir)
    if not steps:
        raise CheckpointError(f"{run_dir} holds no checkpoint; name a run that has been trained, as runs/<name>")
    newest = checkpoint_path(run_dir, steps[-1])
    if settings.choose == "moving_average":
        paths = [newest]
    elif settings.choose == "best":
        best = [step for step in load_progress(newest).best_steps if step in steps]
        if not best:
            raise CheckpointError(f"{newest} knows no best checkpoint: no validation yet; train on, or say choose=last")
        paths = [checkpoint_path(run_dir, step) for step in sorted(best[: settings.checkpoints])]
    else:
        scheduled = scheduled_steps(run_dir, training) or steps[-1:]
        paths = [checkpoint_path(run_dir, step) for step in scheduled[-settings.checkpoints :]]
    for path in paths:
        fault = damage(path)
        if fault:
            raise CheckpointError(f"{path} is damaged ({fault}); delete it and average again, or train on")
    return paths


if __name__ == "__main__":
    sys.exit(cli.run(main))
