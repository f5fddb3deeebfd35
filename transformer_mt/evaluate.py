"""The stage `evaluate`: scores a model on its test sets, or a file of translations."""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformer_mt.base.errors import EvaluationError, TranslationError
from transformer_mt.base.wording import LineProgress, warn
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.decoding.loading import check_files
from transformer_mt.decoding.translation import Translation
from transformer_mt.decoding.translator import Translator
from transformer_mt.evaluation import comparing, evaluated_texts, scores_json
from transformer_mt.evaluation.metrics import Comet, score_corpus
from transformer_mt.evaluation.variations import check_perturbations, choices_of, perturbed, perturbed_scores, tune
from transformer_mt.preparing.prepared import read_prepared
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.files import read_json, write_json, write_whole
from transformer_mt.storage.own_directory import Owner, check_own, hold
from transformer_mt.terminal import cli
from transformer_mt.terminal.evaluate_arguments import check, chosen_metrics, parser, what_ran
from transformer_mt.terminal.translation_output import TranslationSummary
from transformer_mt.text.modifiers import symbols_in

OWNER = Owner("evaluate", "writes scores here", "evaluate a copy of the model elsewhere")
PATIENCE = 60.0  # seconds to wait while another evaluation of this run writes its results


def main(argv: Sequence[str] | None = None) -> int:
    """Score a model on its test sets, or a file of translations, and print where the results are."""
    arguments = parser().parse_intermixed_args(argv)
    check(arguments)
    if arguments.compare:
        return _compare(arguments)
    if arguments.json is not None:
        scores_json.read_scores(arguments.json)  # raises an error if `evaluate` may not replace the file
    metrics, comet = chosen_metrics(arguments)
    comet_model = None if comet is None else Comet(comet, arguments.device)
    details = scores_json.Details(arguments.confidence, metrics, arguments.analyse, comet_model, arguments.perturb)
    if arguments.hypothesis is not None:
        results = scores_json.score_files(
            arguments.hypothesis, arguments.reference, arguments.language, details, arguments.source
        )
        scores_json.print_scores(results)
    else:
        results = _evaluate_models(arguments, details)
    if arguments.json is not None:
        scores_json.write_scores(arguments.json, results)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    """Compare runs or files of translations, and print the scores and the conclusions."""
    if arguments.json is not None:
        comparing.check_comparison_file(arguments.json)
    if all(path.is_file() for path in arguments.compare):
        if not arguments.reference:
            raise EvaluationError("--compare with files needs --reference FILE: the file with correct translations")
        systems = [(str(path), [list(read_lines(path))]) for path in arguments.compare]
        references = [list(read_lines(path)) for path in arguments.reference]
        tests = [comparing.ComparedTest("files", references, systems, arguments.language)]
    else:
        if arguments.reference or arguments.language:
            raise EvaluationError("--reference and --language are only for files: to compare runs, leave them out")
        tests = comparing.compared_runs(arguments.compare, arguments.test)
    for note in [note for test in tests for note in test.notes]:
        print(note, file=sys.stderr)
    found = [comparing.comparison(test, arguments.metrics) for test in tests]
    print("\n\n".join(map(comparing.text_of, found)))
    if arguments.json is not None:
        write_json(arguments.json, found)
    return 0


def _evaluate_models(arguments: argparse.Namespace, details: scores_json.Details) -> scores_json.Results:
    """Translate the test sets of a run or a model, and score the translations.

    Several models form an ensemble, with the test sets and settings of the first. Writes <test>.hypotheses.txt and
    scores.json to evaluation/ in the run; for a model or an export outside a run, to evaluation/ in its directory.
    """
    options = cli.engine_options(arguments)
    model, *others = [evaluated_texts.model_in(path) for path in cli.model_dirs(arguments)]
    for each in (model, *others):
        check_files(each, options.engine)
    file, output = model / "config.yaml", evaluated_texts.results_dir(model)
    config = load_config(file, arguments.overrides, "decoding")
    # The configuration of a MarianMT model names no test sets: then those of its data_dir count.
    if not config.corpus.test and (prepared := read_prepared(Path(config.data_dir))):
        config = config.model_copy(update={"corpus": prepared.corpus})
    if not any(override.startswith("data_dir=") for override in arguments.overrides):
        evaluated_texts.check_same_tokenizer(model, cli.shown(model), Path(config.data_dir))
    names = evaluated_texts.chosen_test_sets([*config.corpus.test], arguments.test)
    texts = {name: evaluated_texts.read_test_set(Path(config.data_dir), name) for name in names}
    check_perturbations(details.perturb, [config.corpus.languages_of_test(name)[0] for name in texts])
    check_own(output, OWNER)
    scores_json.read_scores(output / "scores.json")  # raises an error if `evaluate` may not replace the file
    tried = choices_of(arguments.tune)
    choices = [(each, load_config(file, [*arguments.overrides, *each], "decoding").decoding) for each in tried]
    translator = Translator.load([model, *others], **vars(options))
    tuning = _tuned(translator, choices, config) if arguments.tune else None
    translator.decoding = choices[tuning.best if tuning else 0][1]
    seen = _also_in_training(model, config, [*texts])
    made_by = what_ran(model, others, options, translator.engine.hardware)
    made_by |= {"decoding": translator.decoding} | ({"tuning": tuning} if tuning else {})
    output.mkdir(exist_ok=True)  # before the translation, because it may fail
    results = scores_json.Results()
    for name, text in texts.items():
        scored = _scored(translator, name, text, config.corpus.languages_of_test(name), model, details)
        scored |= {"also_in_training": seen.get(name)} | made_by
        results[name] = scores_json.TestSetScores.model_validate(scored)
    scores_json.print_scores(results)
    with hold(output, OWNER, patience=PATIENCE):
        scores_json.write_scores(output / "scores.json", scores_json.read_scores(output / "scores.json") | results)
    _say_where(made_by, output, example=next(iter(texts.values())).sources[0])
    return results


def _scored(
    translator: Translator,
    name: str,
    text: evaluated_texts.TestSet,
    languages: tuple[str, str],
    model: Path,
    details: scores_json.Details,
) -> dict[str, Any]:
    """Translate a test set, write the translations, and score them, and changed forms of the test set if asked for.

    Returns fields of scores.json.
    """
    file = evaluated_texts.hypotheses_file(model, name)
    hypotheses, measured = _translate(translator, text.sources, name)
    with hold(file.parent, OWNER, patience=PATIENCE):
        write_whole(file, "".join(f"{line}\n" for line in hypotheses))
    titles = [cli.shown(file), *(f"reference of {name}" for _ in text.references)]
    scored = scores_json.score_lines(hypotheses, text.references, languages, titles, details, text.sources)
    if details.perturb:
        scored["perturbed"] = perturbed_scores(
            {each: perturbed(text, each, symbols_in(translator.tokenizer)) for each in details.perturb},
            lambda sources, change: _translate(translator, sources, f"{name}, {change}")[0],
            languages[1],
            plain=score_corpus(hypotheses, text.references, languages[1], metrics=["chrf"])["chrF2"].value,
        )
    return scored | measured


def _also_in_training(model: Path, config: Config, names: Sequence[str]) -> dict[str, scores_json.AlsoInTraining]:
    """How much of each test set is also in the training text of the run, with warnings; empty if unknown."""
    data_dir = Path(config.data_dir)
    if config.data_dir != load_config(model / "config.yaml").data_dir:  # the test sets are not those of the run
        return {}
    trained_on = None  # unknown
    with suppress(OSError, ValueError, LookupError, TypeError):
        trained_on = str(read_json(model.parent / "run.json")[-1]["data"]["train"])
    found = evaluated_texts.also_in_training(data_dir, names, trained_on)
    for name, overlap in found.items():
        warn(evaluated_texts.overlap_warning(name, overlap, data_dir))
    return found


def _translate(translator: Translator, sources: Sequence[str], name: str) -> tuple[list[str], dict[str, Any]]:
    """Return the translations, and fields of scores.json. Prints warnings about doubtful lines.

    Raises EvaluationError with the name of the test set if a line has no translation.
    """
    begun, summary = time.perf_counter(), TranslationSummary()
    try:
        found = _best(translator, sources, translator.decoding, name)
    except TranslationError as error:
        raise EvaluationError(f"test set {name}: {error}") from None
    seconds = time.perf_counter() - begun
    for line, best in enumerate(found, start=1):
        summary.add(line, best)
    warn(*(f"{name}: {warning}" for warning in summary.warnings()))
    lines = {f"num_{kind}": len(summary.doubtful[kind]) for kind in ("short", "at_limit")}
    lines["num_split"] = summary.num_split
    speed = {"seconds": round(seconds, 3), "sentences_per_second": round(len(sources) / seconds, 2)}
    time_of = {"time": datetime.now(UTC).isoformat(timespec="seconds")}
    return [best.text for best in found], lines | speed | time_of


def _best(translator: Translator, sources: Sequence[str], decoding: DecodingConfig, name: str) -> list[Translation]:
    """The best translation of each line; `name` is that of the test set. Shows how many lines are done."""
    with LineProgress(len(sources), doing=f"{name}: ") as progress:
        found = translator.translations(sources, decoding, scores=False, progress=progress.more)
        progress.reached(len(sources))  # the search skips blank lines, so they are counted here
    return [best for best, *_ in found]


def _tuned(
    translator: Translator, choices: Sequence[tuple[list[str], DecodingConfig]], config: Config
) -> scores_json.Tuning:
    """Translate the validation set with each choice of settings, and print which one is best."""
    text = evaluated_texts.read_validation_set(Path(config.data_dir))

    def translate(decoding: DecodingConfig) -> list[str]:
        return [best.text for best in _best(translator, text.sources, decoding, "validation set")]

    metric = "bleu" if config.training.metric == "nll" else config.training.metric
    _, language = config.corpus.languages_of(config.corpus.validation_sets["valid"])
    tuning = tune(choices, translate, text.references[0], metric, language)
    print(f"best on the {tuning.num_lines:,} sentences of the validation set: {' '.join(tuning.chosen)}\n")
    return tuning


def _say_where(made_by: dict[str, Any], output: Path, example: str) -> None:
    flags = ["--engine", "ctranslate2"] if made_by["engine"] == "ctranslate2" else []
    translate = cli.command("translate", made_by["model"], *flags)
    made_of = f", {made_by['made_of']}" if made_by["made_of"] else ""
    print(
        f"\nTranslations  {cli.shown(output)}\n"
        f"Scores        {cli.shown(output / 'scores.json')}\n"
        f"Model         {made_by['model']}{made_of}\n"
        "Next:\n"
        f"  echo {shlex.quote(example)} | {translate}\n"
        f"  {translate} --input SOURCE_FILE --output TRANSLATION_FILE"
    )


if __name__ == "__main__":
    sys.exit(cli.run(main))
