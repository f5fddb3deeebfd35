"""The stage `new`: measures a text and this machine, and writes a configuration with numbers that suit both."""

import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from transformer_mt.base.cores import OtherPrograms
from transformer_mt.base.errors import CheckpointError, ConfigError, CorpusError, UserError
from transformer_mt.base.languages import short_code
from transformer_mt.base.wording import counted, duration, warn
from transformer_mt.corpora.filters import KEPT
from transformer_mt.corpora.opening import open_corpus
from transformer_mt.evaluation.evaluated_texts import model_in
from transformer_mt.preparing import text_warnings
from transformer_mt.preparing.fill_data_dir import open_texts
from transformer_mt.preparing.measured_text import SideMeasures, TextMeasures, measure, table
from transformer_mt.preparing.prepared import SUMMARY, files_of, read_prepared
from transformer_mt.settings import choosing
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText, StageConfig
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model_settings import ModelConfig, TransformerConfig
from transformer_mt.settings.reading import load_config, parse_yaml
from transformer_mt.settings.text_settings import FiltersConfig, TokenizerConfig
from transformer_mt.settings.training_settings import Optimizer, TrainingConfig
from transformer_mt.storage.checksums import CONFIG, MODEL, how_to_get_a_model
from transformer_mt.storage.files import write_whole
from transformer_mt.terminal import cli
from transformer_mt.text.tokenizer import Tokenizer

HELD_OUT = 1000  # pairs of the validation set, and of the test set, if the text has enough
LARGEST_SHARE, LARGEST_SHARE_TO_TUNE = 0.05, 0.1
NO_SHARE = 1e-9  # while the text is measured, because its share depends on the measures
SECONDS = 20.0  # in which the speeds of all sizes are measured, with a few more for their beginnings
SAMPLE = 10_000  # sentences
PIECES = 130  # for 100 words, about
LONGEST = 256  # tokens; longer sentences are left out of training
NEW, OLD = "new", "old"
"""The names of the new text and of the old text in lists of corpora."""
WANTED, REVERSED = "wanted", "reversed"
"""The names of a text in the direction that is wanted, and in the other one."""


@dataclass(frozen=True)
class OldText:
    """The text of which an old model was made, as far as it is still here."""

    training: tuple[PairedText, ...] = ()
    """Its training corpora, each with a name; empty if one of them is missing."""
    num_tokens: int = 0
    """The target tokens of its training corpora, about."""
    num_held: int = 0
    """The pairs of its validation sets."""
    valid: dict[str, dict[str, str]] = field(default_factory=dict)
    """The files of its validation sets, by names that begin with old."""
    tests: dict[str, dict[str, str]] = field(default_factory=dict)
    """The files of its test sets, by such names."""
    missing: str = ""
    """What is missing of its training text, if something is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the text and the machine, and write a configuration."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.minutes <= 1e7:
        parser.error("--minutes must be from 1 to 10000000")
    model = None if arguments.model is None else model_in(arguments.model)
    if model is not None and not all((model / name).is_file() for name in (MODEL, CONFIG)):
        raise CheckpointError(f"{model} holds no model: {how_to_get_a_model(model)}")
    old = None if model is None else load_config(model / CONFIG)
    corpus = corpus_of(arguments.corpus, *_languages(arguments, old, parser))
    output = arguments.output or Path(f"{name_of(corpus)}.yaml")
    _check_free(output)
    if model is None or old is None:
        content, said = from_scratch(corpus, arguments.minutes, output.stem)
    else:
        named = model if model.is_relative_to(arguments.model) else arguments.model  # not the copy of a MarianMT model
        content, said = from_model(model, named, old, corpus, arguments.minutes, output.stem)
    write_whole(output, content)
    try:
        load_config(output)
    except ConfigError:
        output.unlink()
        raise
    print(f"wrote {output}: {said}")
    print(f"next: {cli.command('train', str(output), '--all')}")
    return 0


def _check_free(output: Path) -> None:
    """Raise UserError if the configuration, its data_dir or its run_dir exists already, or cannot be made."""
    for place in (output, Path("data", output.stem), Path("runs", output.stem)):
        if os.path.lexists(place):
            raise UserError(f"{place} exists already; delete it, or choose another name with --output")
    if not output.parent.is_dir():
        raise UserError(f"{output.parent} is no directory: make it, or choose another place with --output")


def _languages(arguments: Namespace, old: Config | None, parser: ArgumentParser) -> tuple[str, str]:
    """Return the languages of the text: those that are given, or those of the old model. Raises ConfigError."""
    if old is None:
        if arguments.source is None or arguments.target is None:
            parser.error("--from and --to are required, except with --from-model")
        return arguments.source, arguments.target
    languages = old.corpus.source_language, old.corpus.target_language
    given = arguments.source or languages[0], arguments.target or languages[1]
    if given != languages:
        raise ConfigError(
            f"--from {given[0]} --to {given[1]}: the model of --from-model translates from {languages[0]} to "
            f"{languages[1]}: leave --from and --to out, or choose another model"
        )
    return languages


def from_scratch(corpus: CorpusConfig, minutes: float, name: str) -> tuple[str, str]:
    """Choose the settings of a new model. Returns the configuration, and what to say about it."""
    measures = measured(corpus, text_warnings.FEWEST_PAIRS)
    share, num_held = share_for(measures, LARGEST_SHARE)
    num_pairs = round(measures.num_usable * (1 - 2 * share))
    num_merges = min(10**6, measures.source.num_merges + measures.target.num_merges)
    text = choosing.Text(num_pairs, round(num_pairs * measures.target.mean_words), num_characters(measures), num_merges)
    sizes = [size for size in choosing.SIZES if text.num_words >= size.fewest_words]
    models = [TransformerConfig(**choosing.model_settings(size)) for size in sizes]
    speeds = dict(zip(sizes, measured_speeds(models, measures, "muon"), strict=True))
    chosen = choosing.choose(
        text, choosing.Stages(minutes, num_held, text.num_tokens / text.num_pairs, measures.seconds), speeds
    )
    if chosen.num_both:
        corpus = both_directions(corpus, chosen.num_both)
    read = f"{float(f'{chosen.num_epochs * text.num_pairs:.2g}'):,.0f} pairs"
    print(f"training reads the text about {chosen.num_epochs:.1f} times, {read} in all")
    print(f"for comparison, English to German on one core: {choosing.reached(text)}")
    tell_time(chosen, minutes)
    warn(choosing.too_little_read(chosen, text, minutes))
    content = choosing.new_configuration(corpus, text, share, num_held, chosen, name)
    return content, f"{chosen.size}, about {chosen.num_updates:,} updates"


def both_directions(corpus: CorpusConfig, num_updates: int) -> CorpusConfig:
    """Return a corpus with which a model learns both directions in its first updates (Ding et al. 2021).

    Without tags, only the language of a source says in which direction it is translated. So a text with tags, several
    texts, and two varieties of one language stay as they are.
    """
    text = corpus.training_corpora[0]
    source, target = corpus.languages_of(text)
    if isinstance(corpus.train, tuple) or text.tag or short_code(source) == short_code(target):
        return corpus
    sides = (2, 1) if text.form == "tsv" and text.source is None else (text.target, text.source)
    other = dict(zip(("source", "target", "source_language", "target_language"), (*sides, target, source), strict=True))
    train = text.model_copy(update={"name": WANTED}), text.model_copy(update={"name": REVERSED, **other})
    first = StageConfig(weights={WANTED: 1, REVERSED: 1}, updates=num_updates)
    return corpus.model_copy(update={"train": train, "stages": (first, StageConfig(weights={WANTED: 1}))})


def from_model(
    model: Path, named: Path, old: Config, corpus: CorpusConfig, minutes: float, name: str
) -> tuple[str, str]:
    """Choose the settings of fine-tuning a model, which the user called `named`. Returns what `from_scratch` does."""
    if isinstance(corpus.train, tuple):
        raise ConfigError("--from-model takes one corpus: put the new text into one file")
    tokenizer = Tokenizer.load(model)
    found = old_text(old.corpus, Path(old.data_dir), tokenizer.digest)
    measures = measured(corpus, text_warnings.FEWEST_TO_TUNE, tokenizer)
    share, num_held = share_for(measures, LARGEST_SHARE_TO_TUNE)
    (speed,) = measured_speeds([old.model], measures, "adam")
    pair, num_sets = measures.num_target_tokens / measures.num_pairs, 1 + len(found.valid)
    stages = choosing.Stages(
        minutes, num_held + found.num_held, pair, measures.seconds, num_sets, choosing.TUNING_CANDIDATES
    )
    new_tokens = round(measures.num_target_tokens * (1 - 2 * share))
    chosen = choosing.choose_tuning(new_tokens, bool(found.training), old.model.d_model, stages, speed)
    if found.missing:
        warn(
            f"the training text of the old model cannot be mixed with the new text: {found.missing}. The model will "
            "forget more of it"
        )
    texts = text_settings(corpus, share, found, measures.num_target_tokens)
    content = choosing.tuned_configuration(old, named, texts, chosen, name)
    tell_time(chosen, minutes)
    return content, f"about {chosen.num_updates:,} updates"


def tell_time(chosen: choosing.Tuning, minutes: float) -> None:
    """Tell what the time goes into; warn if all stages, or the fewest useful updates, take longer than there is."""
    plan = chosen.plan
    training = min(60 * plan.max_minutes, chosen.seconds * 60 * plan.max_minutes / plan.seconds)
    enough = " (more updates would teach little)" if training < 0.8 * 60 * plan.max_minutes else ""
    print(
        f"about {(training + plan.besides) / 60:.1f} min for all stages: {training / 60:.1f} of training with "
        f"{counted(plan.num_validations, 'validation')}{enough}, and {plan.besides / 60:.1f} of the others"
    )
    if max(chosen.seconds / plan.seconds, (training + plan.besides) / 60 / minutes) > 1.2:  # updates are rounded
        warn(
            f"this machine is too slow for --minutes {minutes:g}: {chosen.num_updates:,} updates take about "
            f"{duration(chosen.seconds)}, and the other stages {duration(plan.besides)}. Stop other programs on it, or "
            "give it more minutes"
        )


def old_text(corpus: CorpusConfig, data_dir: Path, tokenizer_digest: str) -> OldText:
    """Look for the text of an old model with these settings and this tokenizer. Raises ConfigError if it has tags."""
    if corpus.tags:
        raise ConfigError(
            f"the model was trained with tags ({', '.join(corpus.tags)}), which say how it translates, and only you "
            "know which of them the new text needs: write the configuration yourself, with tokenizer.from and "
            "training.initialise_from"
        )
    prepared = read_prepared(data_dir)
    if prepared is None or prepared.tokenizer_digest != tokenizer_digest:
        return OldText(missing=f"{data_dir}/{SUMMARY} cannot be read from here, or belongs to another model")
    valid, tests, num_held = dict[str, dict[str, str]](), dict[str, dict[str, str]](), 0
    own = corpus.source_language, corpus.target_language
    reversed_languages = own[::-1] if own != own[::-1] else None  # the model may have learnt this direction first
    for split, text in corpus.held_out.items():
        files = [str(data_dir / file) for file in files_of(split)[-2:]]
        if all(Path(file).is_file() for file in files) and corpus.languages_of(text) != reversed_languages:
            is_test, name = split.startswith("test/"), split.removeprefix("test/").removeprefix("valid/")
            named = OLD if split == "valid" else f"{OLD}_{name}"
            (tests if is_test else valid)[named] = dict(zip(("source", "target"), files, strict=True))
            num_held += 0 if is_test else prepared.counts[split]["kept"]
    corpora = [text for text in corpus.training_corpora if corpus.languages_of(text) != reversed_languages]
    num_kept = sum(found[KEPT] for text in corpora if (found := prepared.corpora.get(str(text.name))))
    num_tokens = prepared.counts["train"]["target_tokens"] * num_kept // max(1, prepared.counts["train"][KEPT])
    training = tuple(
        corpus.text_of(text).model_copy(update={"name": f"{OLD}_{text.name}" if len(corpora) > 1 else OLD})
        for text in corpora
    )
    try:
        for text in training:
            open_corpus(text)
    except CorpusError as error:
        return OldText(num_held=num_held, valid=valid, tests=tests, missing=str(error))
    return OldText(training, num_tokens, num_held, valid, tests)


def text_settings(corpus: CorpusConfig, share: float, old: OldText, new_tokens: int) -> dict[str, Any]:
    """Return the settings of the text: new text and old text, mixed; validation and test sets of both."""
    (new,) = corpus.training_corpora
    held_out = {"share": share, "name": NEW}
    return {
        "source_language": corpus.source_language,
        "target_language": corpus.target_language,
        "train": mixed_corpora(new.model_copy(update={"name": NEW}), new_tokens, old),
        "valid": [held_out, *({"name": name, **files} for name, files in old.valid.items())],
        "test": {NEW: held_out, **old.tests},
    }


def mixed_corpora(new: PairedText, new_tokens: int, old: OldText) -> list[dict[str, Any]]:
    """Return the corpora to train on: an epoch has each new pair once, and about as many tokens of old text.

    `new_tokens` are the target tokens of the new text. In our runs, such a mixture learnt nearly as much of the new
    text as the new text alone, and forgot next to nothing.
    """
    share = min(1.0, new_tokens / max(1, old.num_tokens))
    weights = [float(f"{share * (text.weight or 1.0):.2g}") for text in old.training]
    corpora = [text.model_dump() | {"weight": weight} for text, weight in zip(old.training, weights, strict=True)]
    return [*corpora, new.model_dump()]


def measured(corpus: CorpusConfig, fewest: int, tokenizer: Tokenizer | None = None) -> TextMeasures:
    """Measure the text, and print the measures and warnings. Raises CorpusError if it has too few usable pairs."""
    opened = open_texts(corpus)
    measures = measure(corpus, FiltersConfig(), opened, tokenizer)
    print(table(measures), flush=True)
    text_warnings.check_text(measures, fewest)
    warn(*text_warnings.corpus_warnings(corpus, opened), *text_warnings.text_warnings(measures))
    return measures


def _parser() -> ArgumentParser:
    parser = cli.parser(
        "new",
        "Measures a text and this machine, and writes a configuration for them: the sizes of vocabulary and model,\n"
        "the number of updates and other numbers, each with its reason. It holds out a validation and a test set.\n"
        "CORPUS is a file with both sides (.tsv, .csv, .jsonl, .parquet, .tmx, .zip, also compressed); or two files\n"
        "of lines, the source first; or the beginning of their names (my/train for my/train.en and my/train.de); or\n"
        "keys as in a configuration, such as '{path: my/pairs.csv, source: english, target: german}'.",
        "python -m transformer_mt.new my/pairs.tsv --from en --to de --minutes 30",
    )
    parser.add_argument("corpus", metavar="CORPUS", nargs="+", help="the text")
    parser.add_argument("--from", dest="source", metavar="CODE", help="the language of the source")
    parser.add_argument("--to", dest="target", metavar="CODE", help="the language of the target")
    old = "fine-tune this model, of a run or a model directory, on CORPUS, so that it forgets little of its old text"
    parser.add_argument("--from-model", dest="model", metavar="MODEL", type=Path, help=old)
    minutes = "how long all stages may take together on this machine (default: 60)"
    parser.add_argument("--minutes", type=float, default=60.0, help=minutes)
    output = "the configuration (default: <CORPUS>.yaml)"
    parser.add_argument("--output", metavar="FILE", type=Path, help=output)
    return parser


def name_of(corpus: CorpusConfig) -> str:
    """Return a name for a text: that of its first file, without endings."""
    first = corpus.training_corpora[0]
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", Path(first.path or first.hub or str(first.source)).name.split(".")[0])
    return name.strip("_") if name.strip("_") not in ("", corpus.source_language) else "mine"


def corpus_of(paths: Sequence[str], source_language: str, target_language: str) -> CorpusConfig:
    """Return the settings of a corpus at these places, with held-out shares of nearly nothing. Raises ConfigError."""
    texts = [parse_yaml(path, path)[0] if path.startswith("{") else {"path": path} for path in paths]
    train: Any = paths[0] if texts == [{"path": paths[0]}] else texts[0]
    if len(paths) == 2 and all(path and path[0] != "{" and PairedText(path=path).form == "prefix" for path in paths):
        train = {"source": paths[0], "target": paths[1]}
    elif len(paths) > 1:
        train = [{"name": f"corpus{number}"} | text for number, text in enumerate(texts, start=1)]
    share = {"share": NO_SHARE}
    values = {"source_language": source_language, "target_language": target_language, "train": train}
    try:
        return CorpusConfig.model_validate({**values, "valid": share, "test": {"own": share}})
    except ValidationError as error:
        first = error.errors()[0]
        keys = "".join(f"{key}: " for key in first["loc"] if not str(key).startswith("("))
        raise ConfigError(f"{' '.join(paths)}: {keys}{first['msg'].removeprefix('Value error, ')}") from None


def num_characters(measures: TextMeasures) -> int:
    """Return how many characters of both sides need pieces of their own: the most frequent 99.99 %."""
    counts = np.sort([*(measures.source.characters + measures.target.characters).values()])[::-1].cumsum()
    return int(np.searchsorted(counts, TokenizerConfig().character_coverage * counts[-1])) + 1


def measured_speeds(models: Sequence[ModelConfig], measures: TextMeasures, optimizer: Optimizer) -> list[float]:
    """Return the target tokens a second of each model on this machine, for random sentences as long as in the text."""
    # Imported here, because it takes seconds: mistakes in the text are told at once.
    import torch

    from transformer_mt.training.run.estimate import tokens_per_second
    from transformer_mt.training.run.run_log import beside_others

    found = []
    longest = min([LONGEST, *(model.max_positions for model in models)])
    lengths = random_lengths(measures.source, longest), random_lengths(measures.target, longest)
    training = TrainingConfig(tokens_per_batch=1024, optimizer=optimizer, clip_norm=1.0)
    others = OtherPrograms()
    for model in models:
        speed = tokens_per_second(model, training, 4000, lengths, SECONDS / 4)
        layers = f"{model.encoder_layers}+{model.decoder_layers} layers, width {model.d_model}"
        print(f"{layers}: {speed:,.0f} target tokens a second on this machine", flush=True)
        found.append(speed)
    if not torch.cuda.is_available():
        warn(beside_others(others.cores()))
    return found


def random_lengths(side: SideMeasures, longest: int) -> NDArray[np.int64]:
    """Return the numbers of tokens of 10,000 sentences, ascending, distributed as those of the text."""
    units = np.array(sorted(side.lengths))
    shares = np.array([side.lengths[unit] for unit in units]) / side.num_lines
    drawn = np.random.default_rng(1).choice(units, SAMPLE, p=shares)
    return np.sort(np.minimum(drawn * PIECES // 100 + 1, longest))


def share_for(measures: TextMeasures, largest: float) -> tuple[float, int]:
    """Return the share of the text for the validation set, and for the test set, and about how many pairs it has."""
    num_sources = measures.source.num_different  # a set has a source only once
    share = float(f"{min(largest, HELD_OUT / max(1, num_sources)):.1g}")
    num_held = round(share * num_sources)
    print(f"held out: about {num_held:,} pairs for validation, and as many for the test", flush=True)
    return share, num_held


if __name__ == "__main__":
    sys.exit(cli.run(main))
