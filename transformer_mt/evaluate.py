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

from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import EvaluationError, TranslationError
from transformer_mt.base.wording import LineProgress, warn
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.decoding.loading import EngineOptions, check_files
from transformer_mt.decoding.translation import Translation
from transformer_mt.decoding.translator import Translator
from transformer_mt.evaluation import comparing, evaluated_texts, scores_json
from transformer_mt.evaluation.metrics import ALL_METRICS, METRICS, Comet, MetricName, score_corpus
from transformer_mt.evaluation.variations import check_perturbations, choices_of, perturbed, perturbed_scores, tune
from transformer_mt.preparing.prepared import VALIDATION_TEXT, read_prepared
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.checksums import weights_sha256
from transformer_mt.storage.files import read_json, write_json, write_whole
from transformer_mt.storage.own_directory import Owner, check_own, hold
from transformer_mt.storage.records import processor, versions
from transformer_mt.terminal import cli
from transformer_mt.terminal.translation_output import TranslationSummary
from transformer_mt.text.modifiers import symbols_in

OWNER = Owner("evaluate", "writes scores here", "evaluate a copy of the model elsewhere")
_COMET = "comet="  # begins the metric that names a model of COMET
PATIENCE = 60.0  # seconds to wait while another evaluation of this run writes its results


def main(argv: Sequence[str] | None = None) -> int:
    """Score a model on its test sets, or a file of translations, and print where the results are."""
    arguments = _parser().parse_intermixed_args(argv)
    _check(arguments)
    if arguments.compare:
        return _compare(arguments)
    if arguments.json is not None:
        scores_json.read_scores(arguments.json)  # raises an error if `evaluate` may not replace the file
    metrics, comet = _chosen_metrics(arguments)
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
    made_by = _what_ran(model, others, options, translator.engine.hardware)
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
    titles = [cli.shown(file), f"reference of {name}"]
    scored = scores_json.score_lines(hypotheses, [text.references], languages, titles, details, text.sources)
    if details.perturb:
        plain = score_corpus(hypotheses, [text.references], languages[1], metrics=["chrf"])["chrF2"].value
        scored["perturbed"] = {}
        for change in details.perturb:
            changed = perturbed(text, change, symbols_in(translator.tokenizer))
            found, _ = _translate(translator, changed.sources, f"{name}, {change}")
            scored["perturbed"][change] = perturbed_scores(changed, found, languages[1], plain)
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
    text = evaluated_texts.read_texts(Path(config.data_dir), VALIDATION_TEXT)

    def translate(decoding: DecodingConfig) -> list[str]:
        return [best.text for best in _best(translator, text.sources, decoding, "validation set")]

    metric = "bleu" if config.training.metric == "nll" else config.training.metric
    _, language = config.corpus.languages_of(config.corpus.validation_sets["valid"])
    tuning = tune(choices, translate, text.references, metric, language)
    print(f"best on the {tuning.num_lines:,} sentences of the validation set: {' '.join(tuning.chosen)}\n")
    return tuning


def _what_ran(model: Path, others: Sequence[Path], options: EngineOptions, hardware: str) -> dict[str, Any]:
    """Return the fields of scores.json about a model, the others of its ensemble, the engine, and what it runs on."""
    made_of, gpu = None, None if hardware == "CPU" else hardware
    if options.engine == "torch":  # exports do not have this field
        from transformer_mt.storage.weights import read_metadata  # here, because it imports PyTorch

        made_of = read_metadata(model / "model.safetensors").get("made_of")
    return {
        "model": cli.shown(model),
        "model_sha256": weights_sha256(model),
        "made_of": made_of,
        "ensemble": [cli.shown(other) for other in others],
        "ensemble_sha256": [weights_sha256(other) for other in others],
        **{name: getattr(options, name) for name in ("engine", "dtype", "quantize", "plain")},
        "hardware": {"processor": processor(), "num_cores": num_cores(), "gpu": gpu},
        "versions": versions([options.engine, "sentencepiece", "sacrebleu"]),
    }


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


def _parser() -> argparse.ArgumentParser:
    found = cli.parser(
        "evaluate",
        "Reads a run or a model, translates its test sets, prints BLEU, chrF and TER with sacreBLEU's signatures, and\n"
        "writes evaluation/<test>.hypotheses.txt and evaluation/scores.json into its directory.\n"
        "Or, with --hypothesis and --reference, reads a file of translations and its references, and only prints\n"
        "their scores. Or, with --compare, tests with sacreBLEU's paired bootstrap whether other runs or files are\n"
        "better than the first. Runs that differ only by training.seed are compared as one, by their mean score.",
        "python -m transformer_mt.evaluate runs/demo_en_de --test demo beam_size=5\n"
        "  python -m transformer_mt.evaluate --hypothesis hypotheses.txt --reference references.txt\n"
        "  python -m transformer_mt.evaluate --compare runs/old runs/new",
    )
    about = "a run or a model; an export needs --engine ctranslate2"
    found.add_argument(
        "model", metavar="RUN_DIR|MODEL_DIR|EXPORT_DIR", type=Path, action=cli.BeforeSettings, nargs="?", help=about
    )
    cli.add_settings(found, "settings of decoding, such as beam_size=5")
    found.add_argument("--test", metavar="NAME", help="translate only this test set of the configuration")
    about = "try these settings, such as beam_size=4,8, on the validation set, and use the best for the test sets"
    found.add_argument("--tune", metavar="key=value,value", nargs="+", default=[], help=about)
    about = (
        "also score the test sets in capitals (upper), with a capital for each word (title), with a typo in each "
        "source (typos), without full stops at the end (punct)"
    )
    changes = ["upper", "title", "typos", "punct"]
    found.add_argument("--perturb", metavar="CHANGE", nargs="+", choices=changes, default=[], help=about)
    cli.add_engine_arguments(found)
    _add_arguments_of_scores(found)
    return found


def _add_arguments_of_scores(parser: argparse.ArgumentParser) -> None:
    file: dict[str, Any] = {"metavar": "FILE", "type": cli.place}
    parser.add_argument("--hypothesis", **file, help="score these translations, without a model")
    parser.add_argument("--reference", **file, nargs="+", action="extend", default=[], help="their references")
    parser.add_argument("--source", **file, help="the sources of --hypothesis, for --analyse")
    about = "test whether runs that were evaluated, or files with --reference, are better than the first"
    parser.add_argument("--compare", metavar="RUN_DIR|FILE", type=Path, nargs="+", help=about)
    about = "bleu, chrf, chrf++, ter, comet=MODEL_DIR (default: bleu chrf ter)"
    parser.add_argument("--metrics", metavar="NAME", nargs="+", type=_metric, default=METRICS, help=about)
    about = "the language of the translations, such as zh, ja, ko or th, which chooses the tokenisation of BLEU"
    parser.add_argument("--language", metavar="CODE", default="", help=about)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the scores to this file")
    about = "add 95%% confidence intervals, from 1,000 bootstrap samples"
    parser.add_argument("--confidence", action="store_true", help=about)
    about = "show weaknesses: scores by source length, odd translations, the worst lines"
    parser.add_argument("--analyse", action="store_true", help=about)


def _metric(text: str) -> str:
    if text not in ALL_METRICS and (not text.startswith(_COMET) or text == _COMET):
        raise argparse.ArgumentTypeError(f"{text!r} is no metric; choose {', '.join(ALL_METRICS)} or comet=MODEL_DIR")
    return text


def _chosen_metrics(arguments: argparse.Namespace) -> tuple[list[MetricName], Path | None]:
    """Return the chosen metrics of sacreBLEU, and the directory of the COMET model, if there is one."""
    models = [Path(text.removeprefix(_COMET)) for text in arguments.metrics if text.startswith(_COMET)]
    if len(models) > 1:
        raise EvaluationError("--metrics contains comet= twice: give only one COMET model")
    return [text for text in arguments.metrics if not text.startswith(_COMET)], models[0] if models else None


def _check(arguments: argparse.Namespace) -> None:
    """Raises EvaluationError for arguments that do not fit together."""
    if arguments.compare is not None:
        if len(arguments.compare) < 2:
            raise EvaluationError(
                "--compare needs two or more runs or files; it compares the first with each of the others"
            )
        _check_alone(arguments, "compare", "test", "reference", "language", "metrics", "json")
        if _chosen_metrics(arguments)[1] is not None:
            raise EvaluationError("--compare cannot be combined with comet=: leave it out")
        return
    advice = "To score a file of translations, write --hypothesis FILE --reference FILE"
    cli.check_settings(arguments.overrides, "beam_size=5", advice)
    if arguments.hypothesis is None:
        if arguments.reference or arguments.language or arguments.source is not None:
            raise EvaluationError("--reference, --language and --source need --hypothesis FILE, with the translations")
        if arguments.model is None:
            raise EvaluationError("nothing to evaluate: name a run or a model, or give --hypothesis and --reference")
        return
    if not arguments.reference:
        raise EvaluationError("--hypothesis needs --reference FILE, with the reference translations")
    of_scores = ("metrics", "language", "json", "confidence", "analyse", "device")
    _check_alone(arguments, "hypothesis", "reference", "source", *of_scores)
    if (arguments.analyse or _chosen_metrics(arguments)[1] is not None) and arguments.source is None:
        raise EvaluationError("--analyse and comet= need the source sentences: give --source FILE, or evaluate a run")


def _check_alone(arguments: argparse.Namespace, name: str, *companions: str) -> None:
    """Raises EvaluationError if `name` was given together with an argument that is not one of `companions`."""
    shown = {"model": "RUN_DIR", "overrides": "key=value"}
    defaults = vars(_parser().parse_args([]))
    others = [
        shown.get(other, f"--{other.replace('_', '-')}")
        for other, value in vars(arguments).items()
        if other not in (name, *companions) and value != defaults[other]
    ]
    if others:
        raise EvaluationError(f"--{name} cannot be combined with {' and '.join(others)}: leave one of them out")


if __name__ == "__main__":
    sys.exit(cli.run(main))
