"""The stage `average`: makes the model of a run from its checkpoints."""

import json
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from safetensors import SafetensorError

from transformer_mt.base.errors import CheckpointError
from transformer_mt.base.wording import warn
from transformer_mt.kernels.device import Device, check_c_compiler, choose_device
from transformer_mt.preparing.prepared import check_data, files_of, validation_digest
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.settings.section import fingerprint
from transformer_mt.settings.training_settings import VALIDATION_METRICS, TrainingConfig
from transformer_mt.storage import checksums
from transformer_mt.storage.files import cure, write_whole
from transformer_mt.storage.own_directory import temporary_directory
from transformer_mt.storage.weights import read_metadata, save_weights, use_own_cache
from transformer_mt.terminal import cli
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.training_lines import TrainingLines
from transformer_mt.training.run.candidates import (
    MOST_LOST,
    Candidate,
    best_of,
    find_candidates,
    scores_of_training,
    validate_candidates,
)
from transformer_mt.training.run.checkpoint import STATE, added_pieces, check_settings, check_tokenizer, load_progress
from transformer_mt.training.run.run_log import check_same_data
from transformer_mt.training.run.validation import ValidationScores, load_validation, shown_metrics, way_of_validation


def main(argv: Sequence[str] | None = None) -> int:
    """Make the model of a run, runs/<name>/model, from its checkpoints."""
    parser = cli.parser(
        "average",
        "Reads the checkpoints of a run, and writes <run>/model: model.safetensors, config.yaml and the tokenizer.\n"
        "Translation needs only this directory. `average` validates the mean of the last checkpoints, means of fewer\n"
        "checkpoints, and the single best checkpoint, and takes the best of these as the model. To choose yourself,\n"
        "set choose=last, choose=best or choose=moving_average.",
        "python -m transformer_mt.average runs/demo_en_de checkpoints=3",
    )
    parser.add_argument("run", metavar="RUN_DIR", type=Path, action=cli.BeforeSettings, help="such as runs/<name>")
    cli.add_settings(parser, "change a setting of averaging, for example checkpoints=3")
    parser.add_argument(
        "--device", help="the device to validate on: auto, cpu, cuda or cuda:N (default: training.device of the run)"
    )
    arguments = parser.parse_intermixed_args(argv)
    if not (arguments.run / "config.yaml").is_file():
        raise CheckpointError(f"{arguments.run} has no config.yaml: give the directory of a run, such as runs/<name>")
    config = load_config(arguments.run / "config.yaml", arguments.overrides, "averaging")
    average_run(arguments.run, config, arguments.device)
    return 0


def average_run(run_dir: Path, config: Config, device: str | None = None) -> None:
    """Write the model of a run, unless it exists already. Raises CheckpointError if no checkpoint is complete."""
    # Looked up first, because training may still write checkpoints.
    newest = str((checksums.saved_steps(run_dir) or [0])[-1])
    candidates = find_candidates(run_dir, config.averaging, config.training)
    model_dir, tokenizer = run_dir / "model", _tokenizer_of(run_dir, config)
    _check_ours(model_dir)
    paths = sorted({path for candidate in candidates for path in candidate.paths})
    mixed_with = {candidate.initial for candidate in candidates if candidate.initial}
    _check_weights(paths, mixed_with, run_dir, config, tokenizer)
    can_validate = (Path(config.data_dir) / "valid.target.txt").is_file()
    # Without the checksum of state.json, which contains times.
    sums = [{**checksums.read_sums(path), STATE: ""} for path in (run_dir, *paths, *mixed_with)]
    made_from = fingerprint(dump_config(config), tokenizer.digest, newest, f"validated: {can_validate}", str(sums))
    former = read_metadata(model_dir / checksums.MODEL)
    gone = config.training.initialise_from if config.averaging.choose == "auto" and not mixed_with else None
    was_mixed = gone and "initial weights" in former.get("validation", "") and former.get("newest") == newest
    if (was_mixed or former.get("made_from") == made_from) and not checksums.fault(model_dir, checksums.MODEL_FILES):
        print(f"{model_dir}: already averaged, {former['made_of']}")
        return
    if gone:
        what = "so it is not mixed with the trained weights, and only the first validation set counts"
        warn(f"training.initialise_from={gone} is not there any more, {what}")
    scores = _validate(candidates, config, paths[-1], tokenizer, device) if can_validate else []
    is_free = scores and config.averaging.choose == "auto"
    initial = next((found for each, found in zip(candidates, scores, strict=False) if each.initial_share == 1), None)
    chosen = candidates[best_of(scores, config.training.metric, initial) if is_free else 0]
    validated = [{"made_of": str(each), **found.values} for each, found in zip(candidates, scores, strict=False)]
    metadata = {
        "made_from": made_from,
        "made_of": str(chosen),
        "updates": ", ".join(map(str, chosen.steps)),
        "newest": newest,
        "tokenizer": tokenizer.digest,
        "validation": json.dumps(validated),
    }
    _write(model_dir, chosen, metadata, config, tokenizer)
    print(f"{model_dir}: {chosen}, {_reason(scores, config, bool(initial and initial.others))}")
    if initial is not None:
        print(_gains(initial, scores[candidates.index(chosen)]))
    warn(_warning(model_dir, candidates, scores, config))


def _tokenizer_of(run_dir: Path, config: Config) -> Tokenizer:
    """Raises CheckpointError if a file that the run has copied from its data is damaged."""
    if damage := checksums.fault(run_dir, checksums.COPIED_FROM_DATA):
        raise CheckpointError(f"{run_dir / damage.name} {damage.what}. Copy it again from {config.data_dir}")
    TrainingLines.load(run_dir)  # raises an error now if the file is damaged, not after the validation
    return Tokenizer.load(run_dir)


def _check_weights(
    checkpoints: Sequence[Path], mixed_with: Collection[Path], run_dir: Path, config: Config, tokenizer: Tokenizer
) -> None:
    """Raise CheckpointError if a checkpoint, or the model from which training started, does not fit this run."""
    advice = (
        f"The tokenizer in {run_dir} is damaged, or was replaced by another one: copy the tokenizer of the run's "
        f"data_dir into {run_dir}"
    )
    for path in checkpoints:
        check_tokenizer(path, tokenizer.digest, advice)
        check_settings(path, config.model, f"Set these values again in {run_dir}/config.yaml")
    advice = "It is not the model from which training started: put that model back, or set averaging.choose=last"
    for path in mixed_with:
        added_pieces(path, tokenizer, advice)
        check_settings(path, config.model, advice)


def _validate(
    candidates: Sequence[Candidate], config: Config, newest: Path, tokenizer: Tokenizer, device_name: str | None
) -> list[ValidationScores]:
    """Validate the candidates on the data of the checkpoint `newest`; print a table of their scores, line by line."""
    data_dir, training = Path(config.data_dir), config.training
    check_data(
        data_dir, [*checksums.TOKENIZERS, *(file for name in config.corpus.validation_sets for file in files_of(name))]
    )
    found_digest = Tokenizer.load(data_dir).digest
    if found_digest != tokenizer.digest:
        raise CheckpointError(
            f"{data_dir} was prepared with another tokenizer (digest {found_digest[:8]}) than this run "
            f"({tokenizer.digest[:8]}), so the models cannot be validated on it: average again, with "
            "data_dir=DIRECTORY naming the data of this run"
        )
    data, advice = {"valid": validation_digest(data_dir)}, "or average again with data_dir=DIRECTORY naming them"
    check_same_data(load_progress(newest), data, config.data_dir, advice)
    validation = load_validation(data_dir, tokenizer, config.corpus, config.model, training, config.decoding)
    device = _device(device_name or training.device, training)
    width = max(len(str(candidate)) for candidate in candidates)
    columns = {name: max(5, len(VALIDATION_METRICS[name].name)) for name in shown_metrics(training.metric)}
    others = {each.name: max(9, len(each.name) + 5) for each in validation[1:]}
    names = "".join(f"  {VALIDATION_METRICS[name].name:>{size}}" for name, size in columns.items())
    names += "".join(f"  {f'{name} BLEU':>{size}}" for name, size in others.items())
    print(f"{'on the validation set':{width}}{names}", flush=True)
    scores = []
    # A single candidate is compared with no other, so its scores may come from training.
    way = way_of_validation(validation, averaged=candidates[0].of_updates)
    known = scores_of_training(candidates[0], way) if len(candidates) == 1 else None
    all_of = [known] if known else validate_candidates(candidates, config.model, validation, device)
    for candidate, found in zip(candidates, all_of, strict=True):
        scores.append(found)
        values = "".join(f"  {found.shown(name):>{size}}" for name, size in columns.items())
        values += "".join(f"  {found.others[name].shown('bleu'):>{size}}" for name, size in others.items())
        print(f"{candidate!s:{width}}{values}", flush=True)
    return scores


def _gains(before: ValidationScores, after: ValidationScores) -> str:
    """Say what fine-tuning gained and lost on each validation set."""
    sets = {"the validation set": (before, after)} | {
        name: (each, after.others[name]) for name, each in before.others.items()
    }
    said = [f"from {one.shown('bleu')} to {other.shown('bleu')} on {name}" for name, (one, other) in sets.items()]
    return f"fine-tuning changed BLEU {', and '.join(said)}"


def _device(name: str, training: TrainingConfig) -> Device:
    device = choose_device(name, training.precision, training.num_threads)
    if device.torch_device.type == "cuda":  # the loss is compiled for it
        check_c_compiler()
        use_own_cache()
    return device


def _reason(scores: Sequence[ValidationScores], config: Config, keeps_others: bool) -> str:
    """Say why this candidate became the model. `keeps_others`: it had to keep its scores on further validation sets."""
    if config.averaging.choose != "auto":
        return f"chosen by averaging.choose={config.averaging.choose}"
    of = f"those that lose at most {MOST_LOST:g} BLEU on the other sets," if keeps_others else "these"
    best = f"the best of {of} by {VALIDATION_METRICS[config.training.metric].name}"
    return best if scores else "not compared with any other"


def _warning(
    model_dir: Path, candidates: Sequence[Candidate], scores: Sequence[ValidationScores], config: Config
) -> str | None:
    """Return a warning if the model was not validated, or if another candidate is better; else None."""
    if not scores:
        return (
            f"{model_dir} was not validated, because {config.data_dir} has no validation set. If the data of "
            "this run are elsewhere, average again with data_dir=DIRECTORY"
        )
    metric, ours, others = config.training.metric, scores[0], scores[-1]
    if config.averaging.choose == "auto" or ours.rank(metric) >= others.rank(metric):
        return None
    return (
        f"{candidates[-1]} is better on the validation set: {VALIDATION_METRICS[metric].name} "
        f"{others.shown(metric)} instead of {ours.shown(metric)}. Average again with choose=auto to take the best"
    )


def _write(
    model_dir: Path, candidate: Candidate, metadata: dict[str, str], config: Config, tokenizer: Tokenizer
) -> None:
    """Write the model directory: the checksums first, so that they reveal a missing file if the process is killed."""
    try:
        # `model` may be a link to another disk, and files cannot be renamed across disks.
        with temporary_directory(model_dir.resolve()) as partial:
            save_weights(candidate.weights(), partial / checksums.MODEL, metadata)
            tokenizer.save(partial)
            TrainingLines.load(model_dir.parent).save(partial)
            write_whole(partial / checksums.CONFIG, dump_config(config))
            names = sorted(path.name for path in partial.iterdir())
            checksums.write_sums(partial, names)
            model_dir.mkdir(exist_ok=True)
            for name in [checksums.SUMS, *names]:
                os.replace(partial / name, model_dir / name)
            for name in set(checksums.MODEL_FILES) - set(names):
                (model_dir / name).unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{model_dir} cannot be written ({error}); {cure(error)}") from None


def _check_ours(model_dir: Path) -> None:
    """Raises CheckpointError unless the place is free, or has a complete or incomplete model."""
    if model_dir.exists() and not model_dir.is_dir():
        raise CheckpointError(f"{model_dir} is not a directory; nothing was changed. Move it away, and average again")
    names = sorted(os.listdir(model_dir)) if model_dir.is_dir() else []
    if names and checksums.SUMS not in names and "updates" not in read_metadata(model_dir / checksums.MODEL):
        raise CheckpointError(
            f"{model_dir} contains {names[0]}, and `average` did not write this directory; nothing was changed. Move "
            "the directory away, and average again"
        )


if __name__ == "__main__":
    sys.exit(cli.run(main))
