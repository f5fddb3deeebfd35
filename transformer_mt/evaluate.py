"""The stage `evaluate`: scores a model on its test sets, or a file of translations."""

import argparse
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformer_mt.decoding.loading import EngineOptions, check_files
from transformer_mt.decoding.translation import Translation
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import EvaluationError, TranslationError
from transformer_mt.evaluation.analysis import rarest_pieces
from transformer_mt.evaluation.comet import Comet
from transformer_mt.evaluation.compare_text import check_comparison_file, comparison, text_of, write_comparison
from transformer_mt.evaluation.compared_runs import compared_files, compared_runs
from transformer_mt.evaluation.score_file import AlsoInTraining, TestSetScores, read_scores, write_scores
from transformer_mt.evaluation.scores import ONLY_SCORES, Details, Results, print_scores, score_files, score_lines
from transformer_mt.evaluation.seen_in_training import seen_in_training
from transformer_mt.evaluation.test_sets import (
    TestSet,
    check_same_tokenizer,
    chosen_test_sets,
    hypotheses_file,
    model_in,
    read_named_sets,
    read_test_sets,
    read_validation_set,
    results_dir,
)
from transformer_mt.evaluation.tuning import Trial, TuneMetric, choices_of, tune
from transformer_mt.line_progress import LineProgress
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.storage.own_directory import Owner, check_own, hold
from transformer_mt.terminal import cli, model_arguments
from transformer_mt.terminal.evaluate_arguments import check, chosen_metrics, parser
from transformer_mt.terminal.model_arguments import engine_options
from transformer_mt.terminal.translation_summary import TranslationSummary
from transformer_mt.terminal.what_ran import machine, what_ran

OWNER = Owner("evaluate", "writes scores here", "evaluate a copy of the model that lies elsewhere")
DEFAULT_ENGINE = EngineOptions()
PATIENCE = 60.0  # seconds to wait for another evaluation of this run to write


def main(argv: Sequence[str] | None = None) -> int:
    """Score a model on its test sets, or a file of translations, and say where the results are."""
    arguments = parser().parse_intermixed_args(argv)
    check(arguments)
    if arguments.compare:
        return _compare(arguments)
    if arguments.json is not None:
        read_scores(arguments.json)  # raises an error if it may not be replaced
    metrics, comet = chosen_metrics(arguments)
    details = Details(
        arguments.confidence,
        arguments.by_length,
        metrics=metrics,
        analyse=arguments.analyse,
        comet=None if comet is None else Comet(comet, arguments.device),
    )
    if arguments.hypothesis is not None:
        results = score_files(arguments.hypothesis, arguments.reference, arguments.language, details, arguments.source)
        print_scores(results)
    else:
        models = model_arguments.model_dirs(arguments)
        results = evaluate_model(
            models,
            arguments.overrides,
            arguments.test,
            engine_options(arguments),
            details,
            arguments.tune,
            arguments.test_set,
        )
    if arguments.json is not None:
        write_scores(arguments.json, results)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    """Compare runs, or files of translations, and print what may be concluded."""
    if arguments.json is not None:
        check_comparison_file(arguments.json)
    if all(path.is_file() for path in arguments.compare):
        if not arguments.reference:
            raise EvaluationError("--compare of files needs --reference: give the file that they are compared with")
        tests = [compared_files(arguments.compare, arguments.reference, arguments.language)]
    else:
        if arguments.reference or arguments.language:
            raise EvaluationError("--reference and --language are for files; the configuration of a run names its own")
        tests = compared_runs(arguments.compare, arguments.test, arguments.test_set)
    for note in [note for test in tests for note in test.notes]:
        print(note, file=sys.stderr)
    found = [comparison(test, arguments.metrics) for test in tests]
    print("\n\n".join(map(text_of, found)))
    if arguments.json is not None:
        write_comparison(arguments.json, found)
    return 0


def evaluate_model(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    test: str | None = None,
    options: EngineOptions = DEFAULT_ENGINE,
    details: Details = ONLY_SCORES,
    tried: Sequence[str] = (),
    named: Sequence[str] = (),
) -> Results:
    """Translate the test sets of a run or a model, or only the one named `test`, and score the translations.

    `named` are test sets of sacreBLEU that are translated instead.

    `tried` are settings of decoding with several values, such as beam_size=4,8: those that are best on the validation
    set are taken. Several directories are an ensemble, with the test sets and settings of the first.
    <test>.hypotheses.txt and scores.json are written to evaluation/ in the run, or in the model or export if it is not
    in a run.
    """
    model, *others = [model_in(path) for path in paths]
    for each in (model, *others):
        check_files(each, options.engine)
    file, output = model / "config.yaml", results_dir(model)
    config = load_config(file, overrides, "decoding")
    texts = read_named_sets(named, config.corpus) if named else _own_test_sets(model, config, overrides, test)
    check_own(output, OWNER)
    read_scores(output / "scores.json")  # raises an error if it may not be replaced
    choices = [(each, load_config(file, [*overrides, *each], "decoding")) for each in choices_of(tried)]
    translator, results = Translator.load([model, *others], **vars(options)), Results()
    config, tuning = _tuned(translator, choices) if tried else (config, {})
    seen = _seen_in_training(model, config, translator, texts)
    made_by = what_ran(model, others, options) | tuning | machine(translator.engine.hardware, options.engine)
    output.mkdir(exist_ok=True)  # now, because it may fail
    for name, text in texts.items():
        hypotheses, told = _translate(translator, text.sources, config.decoding, name)
        with hold(output, OWNER, patience=PATIENCE):
            write_whole(hypotheses_file(model, name), "".join(f"{line}\n" for line in hypotheses))
        told |= {"decoding": config.decoding, "also_in_training": seen.get(name)} | made_by
        results[name] = _scored(hypotheses, text, name, translator, config, model, details, told)
    print_scores(results)
    with hold(output, OWNER, patience=PATIENCE):
        write_scores(output / "scores.json", read_scores(output / "scores.json") | results)
    _say_where(made_by, output, example=next(iter(texts.values())).sources[0])
    return results


def _own_test_sets(model: Path, config: Config, overrides: Sequence[str], test: str | None) -> dict[str, TestSet]:
    """Read the test sets of the configuration, or only the one named `test`."""
    if not any(override.startswith("data_dir=") for override in overrides):
        check_same_tokenizer(model, cli.shown(model), Path(config.data_dir))
    return read_test_sets(Path(config.data_dir), chosen_test_sets([*config.corpus.test], test))


def _scored(
    hypotheses: Sequence[str],
    text: TestSet,
    name: str,
    translator: Translator,
    config: Config,
    model: Path,
    details: Details,
    told: Mapping[str, Any],
) -> TestSetScores:
    """What scores.json says about the translations of a test set; `told` are its fields about how they were made."""
    source_language, target_language = config.corpus.languages_of(config.corpus.test.get(name, ""))
    details = replace(details, source_language=source_language)
    rarest = rarest_pieces(Path(config.data_dir), translator.tokenizer, text.sources) if details.analyse else None
    titles = [cli.shown(hypotheses_file(model, name)), *(f"reference of {name}" for _ in text.references)]
    scored = score_lines(
        hypotheses, text.references, target_language, titles, details, text.sources, rarest, text.named
    )
    return TestSetScores.model_validate({**scored, **told})


def _seen_in_training(
    model: Path, config: Config, translator: Translator, texts: Mapping[str, TestSet]
) -> dict[str, AlsoInTraining]:
    """What of each test set stands in the training text of the run; empty if that cannot be known. Warns of it."""
    own = load_config(model / "config.yaml").data_dir  # another may be given, with other test sets
    try:
        data_dirs = [Path(own), Path(config.data_dir)]
        seen = seen_in_training(data_dirs, translator.tokenizer, config.corpus, texts, _trained_on(model))
    except (OSError, ValueError) as error:  # an error of a user is a ValueError
        print(f"note: whether the test sets stand in the training text is not known: {error}", file=sys.stderr)
        return {}
    for message in seen.messages:
        print(message, file=sys.stderr)
    return seen.found


def _trained_on(model: Path) -> str | None:
    """The digest of the training data of the run that a model lies in; None if that is not known."""
    try:
        return str(read_json(model.parent / "run.json")[-1]["data"]["train"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _translate(
    translator: Translator, sources: Sequence[str], decoding: DecodingConfig, name: str
) -> tuple[list[str], dict[str, Any]]:
    """The translations; the numbers of lines that were split or should be looked at, the speed, and when it ended.

    Prints a warning about such lines. Raises EvaluationError, which names the test set, if a line cannot be translated.
    """
    begun, summary = time.perf_counter(), TranslationSummary()
    try:
        found = _best(translator, sources, decoding, name)
    except TranslationError as error:
        raise EvaluationError(f"test set {name}: {error}") from None
    seconds = time.perf_counter() - begun
    for line, best in enumerate(found, start=1):
        summary.add(line, best)
    for warning in summary.warnings():
        print(f"warning: {name}: {warning}", file=sys.stderr)
    lines = {"num_split": summary.num_split, "num_short": len(summary.short), "num_at_limit": len(summary.at_limit)}
    speed = {"seconds": round(seconds, 3), "sentences_per_second": round(len(sources) / seconds, 2)}
    time_of = {"time": datetime.now(UTC).isoformat(timespec="seconds")}
    return [best.text for best in found], lines | speed | time_of


def _best(translator: Translator, sources: Sequence[str], decoding: DecodingConfig, name: str) -> list[Translation]:
    """The best translation of each line of the set with this name. Shows how many lines are done."""
    with LineProgress(len(sources), doing=f"{name}: ") as progress:
        found = translator.translations(sources, decoding, scores=False, progress=progress.more)
        progress.reached(len(sources))  # blank lines are not searched, so they are counted here
    return [best for best, *_ in found]


def _tuned(translator: Translator, choices: Sequence[tuple[list[str], Config]]) -> tuple[Config, dict[str, Any]]:
    """The configuration that is best on the validation set, and what scores.json says about all of them."""
    config = choices[0][1]
    text = read_validation_set(Path(config.data_dir))
    metric: TuneMetric = "chrf" if config.training.metric == "chrf" else "bleu"

    def translate(decoding: DecodingConfig) -> list[str]:
        return [best.text for best in _best(translator, text.sources, decoding, "validation set")]

    def tell(trial: Trial) -> None:
        print(f"validation set  {metric} {trial.score:5.2f}  {' '.join(trial.settings)}", flush=True)

    decodings = [(settings, each.decoding) for settings, each in choices]
    tuned = tune(decodings, translate, text.references[0], metric, config.corpus.target_language, tell)
    print(f"best on the {tuned.num_lines:,} sentences of the validation set: {' '.join(tuned.best.settings)}\n")
    return choices[tuned.trials.index(tuned.best)][1], {"tuning": tuned.as_json()}


def _say_where(made_by: dict[str, Any], output: Path, example: str) -> None:
    flags = ["--engine", "ctranslate2"] if made_by["engine"] == "ctranslate2" else []
    translate = shlex.join(cli.command("translate", made_by["model"], *flags))
    made_of = f", {made_by['made_of']}" if made_by["made_of"] else ""
    print(
        f"\nTranslations  {cli.shown(output)}\n"
        f"Scores        {cli.shown(output / 'scores.json')}\n"
        f"Model         {made_by['model']}{made_of}\n"
        "Next:\n"
        f"  echo {shlex.quote(example)} | {translate}\n"
        f"  {translate} < SOURCE_FILE > TRANSLATION_FILE"
    )


if __name__ == "__main__":
    sys.exit(cli.run(main))
