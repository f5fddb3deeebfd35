"""The stage `train`: trains a model on token ids, and writes checkpoints."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from transformer_mt.base.errors import CheckpointError, ConfigError, CorpusError, RankError, TrainingError
from transformer_mt.base.languages import has_spaces
from transformer_mt.base.torchrun import may_restart, num_processes
from transformer_mt.base.wording import counted, warn
from transformer_mt.batches.batching import stages_of
from transformer_mt.batches.encoded import EncodedCorpus, described, places_of_pairs
from transformer_mt.batches.loader import BatchLayout, Loader
from transformer_mt.batches.modifier_sampling import ModifierSampler
from transformer_mt.kernels.device import Device, usable_device
from transformer_mt.prepare import changed_settings
from transformer_mt.preparing.prepared import data_digests, read_prepared
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import differences, dump_config, load_config, other_meaning_than
from transformer_mt.settings.training_settings import ModifiersConfig, TrainingConfig
from transformer_mt.storage.checksums import checkpoint_path, saved_steps
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.own_directory import Owner, hold
from transformer_mt.terminal import cli
from transformer_mt.text.protection import check_kept
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.distributed import Ranks, all_ranks
from transformer_mt.training.loop import train
from transformer_mt.training.out_of_memory import is_out_of_memory
from transformer_mt.training.progress import ENDS, Progress, is_at_end, is_trained, may_change, share_of_time
from transformer_mt.training.run.beginning import build_learner, choose_layout, choose_rank_device
from transformer_mt.training.run.checkpoint import (
    check_settings,
    finish_saving,
    load_progress,
    newest_whole_checkpoint,
    point_best_at,
)
from transformer_mt.training.run.estimate import estimate
from transformer_mt.training.run.run_log import check_same_data, copy_from_data, record_start
from transformer_mt.training.run.running import Run
from transformer_mt.training.run.validation import ValidationSet, diverges, load_validation, validate

OWNER = Owner("train", "trains here", "choose another run_dir")
PATIENCE = 120.0  # seconds in which a rank ends whose torchrun was killed, and which a restart has replaced


def main(argv: Sequence[str] | None = None) -> int:
    """Train the model of a configuration, or resume its run."""
    parser = cli.parser(
        "train",
        "Reads what prepare wrote; writes checkpoints, log.jsonl, run.json and config.yaml to the run_dir.\n"
        "You can stop or kill it at any time: the same command resumes from the newest checkpoint.",
        "python -m transformer_mt.train configs/demo_en_de.yaml training.max_steps=200",
    )
    parser.add_argument("config", metavar="CONFIG", action=cli.BeforeSettings, help="YAML file of the experiment")
    cli.add_settings(parser, "change a setting, for example training.max_steps=200")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--all", action="store_true", help="prepare the corpus first, then train, average and evaluate the model"
    )
    instead.add_argument(
        "--estimate", action="store_true", help="print how much time, memory and disk training takes; train nothing"
    )
    arguments = parser.parse_intermixed_args(argv)
    if arguments.estimate:
        return _print_estimate(arguments.config, arguments.overrides)
    if arguments.all:
        command = cli.command("train", arguments.config, *arguments.overrides, "--all")
        return run_all_stages(arguments.config, arguments.overrides, command)
    with all_ranks() as ranks:
        try:
            with ranks.together():
                config = load_config(arguments.config, arguments.overrides)
            if warning := config.training.schedule_warning():
                ranks.say(warning, warning=True)
            signum = train_run(config, ranks)
        except TrainingError as error:  # not another error, which the first rank may not have
            if ranks.is_first or isinstance(error, RankError):
                raise
            return 2  # the first rank has the same error, and prints it
    if signum:
        command = cli.command("train", arguments.config, *arguments.overrides)
        ranks.say(f"To resume: {command}" + (", by torchrun as before" if ranks.size > 1 else ""))
    return 128 + signum if signum else 0


@contextmanager
def _lack_of_memory_explained() -> Iterator[None]:
    """Inside this context, an error for lack of memory becomes a RankError that says what to do."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RankError(
            "out of memory: lower training.tokens_per_batch, in a new run_dir; to keep the size of an update, "
            "leave training.tokens_per_update as it is"
        ) from None


@_lack_of_memory_explained()
def run_all_stages(config: str, overrides: Sequence[str], command: str) -> int:
    """Prepare, train and average; evaluate if there are test sets. A stage resumes, or finds that it is done already.

    Returns the exit status of the first stage that was stopped, or 0. If one is stopped, prints `command`, which
    resumes it and runs the later ones, too. Raises UserError.
    """
    if num_processes():
        raise ConfigError("--all is for one process: under torchrun, start the stages one after another")
    settings = load_config(config, overrides)
    usable_device(settings.training.device)  # an error now is better than one after `prepare`
    resume = f"To resume, and to run the later stages, too: {command}"
    for name, arguments in stages(config, overrides, settings.run_dir, bool(settings.corpus.test)):
        stage = importlib.import_module(f"transformer_mt.{name}").main
        try:
            status: int = stage(arguments)
        except KeyboardInterrupt:
            print(resume, file=sys.stderr)
            raise
        if status:
            print(resume)
            return status
    return 0


def stages(config: str, overrides: Sequence[str], run_dir: str, has_test_sets: bool) -> list[tuple[str, list[str]]]:
    """Return the names of the stages, in order, with their arguments."""
    named, of_run = [config, *overrides], [run_dir]
    found = [("prepare", named), ("train", named), ("average", of_run)]
    return [*found, ("evaluate", of_run)] if has_test_sets else found


@_lack_of_memory_explained()
def _print_estimate(config_path: str, overrides: Sequence[str]) -> int:
    """Make a few updates, as a new run would make them, and print what all of them take. Leaves run_dir alone."""
    if num_processes():
        raise ConfigError("--estimate is for one process: start it without torchrun")
    config, ranks = load_config(config_path, overrides), Ranks()
    settings, data_dir = config.training, Path(config.data_dir)
    tokenizer = _prepared_tokenizer(data_dir, config, ranks)
    device = choose_rank_device(settings, ranks)
    layout = choose_layout(settings, config.model, device)
    loader = _loader(config, EncodedCorpus.load(data_dir / "train"), tokenizer, layout)
    learner = build_learner(config.model, settings, tokenizer, None, layout, device, ranks)
    if len(loader.stages) > 1:
        print(f"measured with the text of the first of {len(loader.stages)} stages:")
    print(estimate(learner, loader))
    return 0


@_lack_of_memory_explained()
def train_run(config: Config, ranks: Ranks) -> int:
    """Train until the end, or until a signal stops it. Returns the number of the signal, or 0."""
    run_dir, data_dir = Path(config.run_dir), Path(config.data_dir)
    with ExitStack() as held:
        with ranks.together():
            tokenizer = _prepared_tokenizer(data_dir, config, ranks)
            data = data_digests(data_dir) if ranks.is_first else {}
            device = choose_rank_device(config.training, ranks)
            corpus = EncodedCorpus.load(data_dir / "train")
            validation = load_validation(
                data_dir, tokenizer, config.corpus, config.model, config.training, config.decoding
            )
            path = None
            if ranks.is_first:
                held.enter_context(hold(run_dir, OWNER, data_dir, PATIENCE if may_restart() else 0.0))
                finish_saving(run_dir)
                _claim(run_dir, config)
                path = _checkpoint_to_resume(run_dir)
        path, data = ranks.gather((path, data))[0]  # those of the first rank
        return _train(config, corpus, validation, data, path, device, ranks)


def _train(
    config: Config,
    corpus: EncodedCorpus,
    validation: Sequence[ValidationSet],
    data: dict[str, str],
    path: Path | None,
    device: Device,
    ranks: Ranks,
) -> int:
    """Train from the checkpoint at `path`, or from the beginning. Returns the number of the stopping signal, or 0."""
    settings, tokenizer, run_dir = config.training, validation[0].tokenizer, Path(config.run_dir)
    with ranks.together():
        progress = _progress_at(path, config, data, device)
    if is_trained(progress, settings):
        end = "training.max_steps" if progress.step >= settings.max_steps else "training.max_minutes"
        how = f"; to continue, raise {end}" if is_at_end(progress, settings) and may_change(end, settings) else ""
        ranks.say(f"{run_dir}: already trained, {counted(progress.step, 'update')}{how}\n{_next(config)}")
        return 0
    with ranks.together():
        loader = _loader(config, corpus, tokenizer, progress.layout)
    learner = build_learner(config.model, settings, tokenizer, path, progress.layout, device, ranks)
    if ranks.is_first:
        copy_from_data(Path(config.data_dir), tokenizer, run_dir)
    record_start(run_dir, progress, settings.seed, device, ranks)
    hardware = device.description + (f", {ranks.size} ranks" if ranks.size > 1 else "")
    num_weights = sum(parameter.numel() for parameter in learner.model.parameters())
    ranks.say(f"{run_dir}: {num_weights:,} parameters, {counted(sum(corpus.sizes), 'pair')}, {hardware}")
    if progress.step:
        ranks.say(f"resuming from update {progress.step}{_in_stage(progress, loader)}")
    places = partial(places_of_pairs, Path(config.data_dir))
    run = Run(run_dir, learner, tokenizer, progress, lambda pairs: described(places(pairs)))
    measure = partial(validate, learner, validation)
    progress, signum = train(loader, measure, progress, run)
    summary = f"{run_dir}: {_summary(progress, settings)}"
    if progress.validated and diverges(progress.validated["values"]["nll"], tokenizer.target_vocab_size):
        summary += ", but training diverged"
    if not signum and progress.position.stage + 1 < len(loader.stages):
        ranks.say(f"training ended before the last stage{_in_stage(progress, loader)}", warning=True)
    ranks.say(summary if signum else f"{summary}\n{_next(config)}")
    return signum


def _progress_at(path: Path | None, config: Config, data: dict[str, str], device: Device) -> Progress:
    """The progress in the checkpoint at `path`, or that of a new run. Raises CheckpointError for other data."""
    if path:
        check_settings(path, config.model, "Set the values that it was trained with, or choose another run_dir")
    begun = load_progress(path) if path else None
    layout = choose_layout(config.training, config.model, device, begun.layout if begun else None)
    progress = begun or Progress(layout=layout, model=config.model.model_dump())
    advice = "or choose another run_dir, where training.initialise_from can start a run with the weights of this one"
    check_same_data(progress, data, config.data_dir, advice)
    return replace(progress, data=data)


def _next(config: Config) -> str:
    return f"next: {cli.command('average', config.run_dir)}"


def _summary(progress: Progress, settings: TrainingConfig) -> str:
    return (
        f"{counted(progress.step, 'update')}"
        + (f" in training.max_minutes={settings.max_minutes:g}" if share_of_time(progress, settings) >= 1 else "")
        + f", {progress.tokens:,} target tokens in "
        f"{progress.seconds:.0f} s, {progress.tokens / max(progress.seconds, 1e-9):,.0f} a second"
        + (f"; best {settings.metric} at update {progress.best_steps[0]}" if progress.best else "")
    )


def _loader(config: Config, corpus: EncodedCorpus, tokenizer: Tokenizer, layout: BatchLayout) -> Loader:
    settings, sampler = config.training, None
    if settings.modifiers != ModifiersConfig():
        languages = [config.corpus.languages_of(text) for text in config.corpus.training_corpora]
        sampler = ModifierSampler(tokenizer, settings.modifiers, [has_spaces(source) for source, _ in languages])
    sizes, stages = (settings.tokens_per_batch, settings.tokens_per_update), stages_of(config.corpus, corpus.sizes)
    return Loader(corpus, *sizes, settings.seed, layout, sampler, config.model.max_positions, stages)


def _in_stage(progress: Progress, loader: Loader) -> str:
    """The stage in which the next update is, as text; empty if there is only one."""
    num_stages = len(loader.stages)
    return f", in stage {progress.position.stage + 1} of {num_stages}" if num_stages > 1 else ""


def _prepared_tokenizer(data_dir: Path, config: Config, ranks: Ranks) -> Tokenizer:
    """Load the tokenizer. Raises CorpusError if the data are incomplete, damaged, or made with other settings."""
    advice = "run `python -m transformer_mt.prepare` with this configuration"
    prepared = read_prepared(data_dir)
    if prepared is None:
        raise CorpusError(f"{data_dir} is not prepared: {advice}")
    if ranks.is_first:  # one rank reads all files; if it fails, all stop
        prepared.check_files()
    if changes := changed_settings(prepared, config, {}):
        changed = "; ".join(changes)
        raise CorpusError(f"{data_dir} was prepared differently: {changed}. Choose another data_dir, and {advice}")
    tokenizer = prepared.load_tokenizer()
    check_kept(tokenizer, config.training.modifiers.protect)
    return tokenizer


def _claim(run_dir: Path, config: Config) -> None:
    """Write the configuration into the run. Raises CheckpointError if the run has another configuration."""
    path = run_dir / "config.yaml"
    if saved_steps(run_dir) and path.exists():
        changed = differences(load_config(path), config)
        changed = {key: line for key, line in changed.items() if not may_change(key, config.training)}
        if changed:
            newest, ways = checkpoint_path(run_dir, saved_steps(run_dir)[-1]), ""
            if not other_meaning_than(path, config.model):
                ways = f", where training.initialise_from={newest} starts a new run with the weights of this one"
            if any(key.startswith("corpus.") for key in changed):
                ways += ". To mix corpora differently later in a run, begin it with corpus.stages"
            raise CheckpointError(
                f"{run_dir} is a run of another configuration:\n  "
                + "\n  ".join(changed.values())
                + "\nGive the values with which it began"
                + "".join(f" (this schedule depends on {end})" for end in ENDS if end in changed)
                + f", delete it, or choose another run_dir{ways}"
            )
    write_whole(path, dump_config(config))


def _checkpoint_to_resume(run_dir: Path) -> Path | None:
    """The newest complete checkpoint; prints a warning for each damaged one."""
    path, complaints = newest_whole_checkpoint(run_dir)
    if path is None and complaints:
        advice = "No undamaged checkpoint is left: choose another run_dir, or delete this one to start again"
        raise CheckpointError("\n".join([*complaints, advice]))
    warn(*(f"{complaint}: training resumes from the one before" for complaint in complaints))
    if path is not None:
        best = load_progress(path).best_steps[:1]
        if best and checkpoint_path(run_dir, best[0]).is_dir():
            point_best_at(run_dir, best[0])  # `train` may have been killed between the checkpoint and this link
    return path


if __name__ == "__main__":
    sys.exit(cli.run(main))
