"""The stage `evaluate`: scores a model on its test sets, or a file of translations."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_mt.data.corpus import read_lines
from transformer_mt.data.prepared import check_data, files_of_test_set, read_prepared
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.loading import EngineName, check_files
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import EvaluationError, TranslationError
from transformer_mt.evaluation.metrics import check_aligned
from transformer_mt.evaluation.scores import (
    ONLY_SCORES,
    Details,
    Results,
    check_scores_file,
    earlier_scores,
    print_scores,
    score_files,
    score_lines,
    write_json,
)
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.own_directory import Owner, check_own, hold
from transformer_mt.terminal import cli, model_arguments
from transformer_mt.terminal.model_arguments import EngineOptions, engine_options
from transformer_mt.terminal.translation_summary import TranslationSummary

DEFAULT_ENGINE = EngineOptions()
OWNER = Owner("evaluate", "writes scores here", "evaluate a copy of the model that lies elsewhere")
PATIENCE = 60.0  # seconds to wait for another evaluation of this run to write


def main(argv: Sequence[str] | None = None) -> int:
    """Score a model on its test sets, or a file of translations, and say where the results are."""
    arguments = _parser().parse_intermixed_args(argv)
    _check(arguments)
    if arguments.json is not None:
        check_scores_file(arguments.json)
    details = Details(arguments.confidence, arguments.by_length)
    if arguments.hypothesis is not None:
        results = score_files(arguments.hypothesis, arguments.reference, arguments.language, details)
        print_scores(results)
    else:
        models = model_arguments.model_dirs(arguments)
        results = evaluate_model(models, arguments.overrides, arguments.test, engine_options(arguments), details)
    if arguments.json is not None:
        write_json(arguments.json, results)
    return 0


def evaluate_model(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    test: str | None = None,
    options: EngineOptions = DEFAULT_ENGINE,
    details: Details = ONLY_SCORES,
) -> Results:
    """Translate the test sets of a run or a model, or only the one named `test`, and score the translations.

    Several directories are an ensemble, with the test sets and settings of the first. <test>.hypotheses.txt and
    scores.json are written to evaluation/ in the run, or in the model or export if it is not in a run.
    """
    model, *others = [_model_in(path, options.engine) for path in paths]
    output = _results_dir(model)
    config = load_config(model / "config.yaml", overrides, "decoding")
    if not any(override.startswith("data_dir=") for override in overrides):
        _check_data(model, Path(config.data_dir))
    texts = _read_test_sets(Path(config.data_dir), _test_names(config, test))
    details = replace(details, source_language=config.corpus.source_language)
    is_older = (output / "scores.json").is_file()
    check_own(output, OWNER, is_older=is_older)
    check_scores_file(output / "scores.json")
    translator, results = _load([model, *others], options), Results()
    what_ran = {"decoding": config.decoding.model_dump()} | _what_ran(model, others, options)
    output.mkdir(exist_ok=True)  # now, because it may fail
    for name, (sources, references) in texts.items():
        hypotheses, lines, seconds = _translate(translator, sources, config.decoding, name)
        file = output / f"{name}.hypotheses.txt"
        with hold(output, OWNER, is_older=is_older, patience=PATIENCE):
            write_whole(file, "".join(f"{line}\n" for line in hypotheses))
        titles = cli.shown(file), f"reference of {name}"
        scored = score_lines(hypotheses, [references], config.corpus.target_language, titles, details, sources)
        speed = {"seconds": round(seconds, 3), "sentences_per_second": round(len(sources) / seconds, 2)}
        results[name] = scored | lines | speed | what_ran
    print_scores(results)
    with hold(output, OWNER, is_older=is_older, patience=PATIENCE):
        write_json(output / "scores.json", earlier_scores(output / "scores.json") | results)
    _say_where(what_ran, output, example=next(iter(texts.values()))[0][0])
    return results


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(
        "evaluate",
        "Reads a run or a model, translates its test sets, prints BLEU, chrF and TER with sacreBLEU's signatures, and\n"
        "writes evaluation/<test>.hypotheses.txt and evaluation/scores.json there.\n"
        "Or reads a file of translations and its references, and only prints their scores.",
        "python -m transformer_mt.evaluate runs/demo_en_de --test demo beam_size=5\n"
        "  python -m transformer_mt.evaluate --hypothesis hypotheses.txt --reference references.txt",
    )
    parser.add_argument(
        "model",
        metavar="RUN_DIR|MODEL_DIR|EXPORT_DIR",
        type=Path,
        nargs="?",
        help="a run or a model; an export needs --engine ctranslate2",
    )
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="settings of decoding, such as beam_size=5"
    )
    parser.add_argument("--test", metavar="NAME", help="only this test set of the configuration")
    model_arguments.add_engine_arguments(parser)
    model_arguments.add_compile(parser)
    _add_arguments_of_scores(parser)
    return parser


def _add_arguments_of_scores(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hypothesis", metavar="FILE", type=Path, help="score these translations; no model is run")
    parser.add_argument(
        "--reference", metavar="FILE", type=Path, nargs="+", action="extend", default=[], help="their references"
    )
    language = "their language, such as zh, ja, ko or th: chooses the tokenisation of BLEU"
    parser.add_argument("--language", metavar="CODE", default="", help=language)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the scores to this file")
    parser.add_argument(
        "--confidence", action="store_true", help="add 95%% confidence intervals, from 1,000 bootstrap samples"
    )
    parser.add_argument(
        "--by-length",
        metavar="WORDS",
        type=int,
        help="add BLEU by source length: 10 is for 1 to 10 words, 11 to 20, …; characters if a language has no spaces",
    )


def _check(arguments: argparse.Namespace) -> None:
    if arguments.hypothesis is None and (arguments.reference or arguments.language):
        raise EvaluationError("--reference and --language need --hypothesis: give the file of translations, too")
    if arguments.model is None and arguments.hypothesis is None:
        raise EvaluationError("name a run or a model to evaluate, or give --hypothesis and --reference files")
    if arguments.hypothesis is not None and not arguments.reference:
        raise EvaluationError("--hypothesis needs --reference: give the file that the translations are compared with")
    if arguments.by_length is not None and arguments.by_length < 1:
        raise EvaluationError(f"--by-length {arguments.by_length}: it must be 1 word or more, such as 10")
    if arguments.hypothesis is not None and arguments.by_length is not None:
        raise EvaluationError("--by-length needs source sentences: evaluate a run, or leave --by-length out")
    of_model = [arguments.model is not None, arguments.test is not None, arguments.ensemble]
    if arguments.hypothesis is not None and (any(of_model) or engine_options(arguments) != DEFAULT_ENGINE):
        raise EvaluationError(
            "--hypothesis scores a file and cannot be combined with a run, a model, --test, key=value or options of an "
            "engine: leave these out, or --hypothesis"
        )


def _load(models: Sequence[Path], options: EngineOptions) -> Translator:
    return Translator.load(
        models,
        options.device,
        engine=options.engine,
        dtype=options.dtype,
        quantize=options.quantize,
        workers=options.workers,
        compile=options.compile,
    )


def _translate(
    translator: Translator, sources: Sequence[str], decoding: DecodingConfig, name: str
) -> tuple[list[str], dict[str, int], float]:
    """The translations; the numbers of lines that were split or should be looked at; and the seconds it took.

    Prints a warning about such lines. Raises EvaluationError, which names the test set, if a line cannot be translated.
    """
    begun, summary = time.perf_counter(), TranslationSummary()
    try:
        found = [best for best, *_ in translator.translations(sources, decoding, scores=False)]
    except TranslationError as error:
        raise EvaluationError(f"test set {name}: {error}") from None
    seconds = time.perf_counter() - begun
    for line, best in enumerate(found, start=1):
        summary.add(line, best)
    for warning in summary.warnings():
        print(f"warning: {name}: {warning}", file=sys.stderr)
    lines = {"num_split": summary.num_split, "num_short": len(summary.short), "num_at_limit": len(summary.at_limit)}
    return [best.text for best in found], lines, seconds


def _model_in(path: Path, engine: EngineName) -> Path:
    """The model directory at `path`, or in the run at `path`, once it is checked that the engine can run it."""
    model = path / "model" if (path / "model").is_dir() else path
    check_files(model, engine)
    return model


def _results_dir(model: Path) -> Path:
    """The directory for the results of a model: in its run if it lies in one, else in the model."""
    model = Path(os.path.abspath(model))
    in_run = model.name == "model" and (model.parent / "config.yaml").is_file()
    return (model.parent if in_run else model) / "evaluation"


def _what_ran(model: Path, others: Sequence[Path], options: EngineOptions) -> dict[str, Any]:
    """What scores.json says about the models and the engine."""
    made_of = None
    if options.engine == "torch":  # exports do not have it
        from transformer_mt.storage.weights import read_metadata  # here, because it imports PyTorch

        made_of = read_metadata(model / "model.safetensors").get("made_of")
    return {
        "model": cli.shown(model),
        "made_of": made_of,
        "ensemble": [cli.shown(other) for other in others],
        "engine": options.engine,
        "dtype": options.dtype,
        "quantize": options.quantize,
    }


def _test_names(config: Config, test: str | None) -> list[str]:
    names = list(config.corpus.test)
    if not names:
        raise EvaluationError("corpus.test of the configuration names no test set: give --hypothesis and --reference")
    if test is None:
        return names
    if test not in names:
        raise EvaluationError(f"--test {test}: no such test set. The configuration has: {', '.join(names)}")
    return [test]


def _check_data(model: Path, data_dir: Path) -> None:
    """Raises EvaluationError if the data were prepared with another tokenizer after the model was trained."""
    prepared = read_prepared(data_dir)
    if prepared is None:
        return
    digest = Tokenizer.load(model).digest
    if prepared.tokenizer_digest != digest:
        raise EvaluationError(
            f"{data_dir} is prepared with another tokenizer (digest {prepared.tokenizer_digest[:8]}) than "
            f"{cli.shown(model)} was trained with ({digest[:8]}): it was prepared again since then, and its test sets "
            f"may have changed. To score these test sets, give data_dir={data_dir}; or give the data_dir that "
            "belongs to the model"
        )


def _read_test_sets(data_dir: Path, names: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """The sources and references of each test set. Raises a UserError if a file is missing or damaged."""
    files = {name: files_of_test_set(name) for name in names}
    all_files = [file for both in files.values() for file in both]
    for file in all_files:
        if not (data_dir / file).is_file():
            raise EvaluationError(
                f"{data_dir / file} is missing. `python -m transformer_mt.prepare CONFIG` writes it; if the data are "
                "elsewhere, give data_dir=DIRECTORY; or score files with --hypothesis and --reference"
            )
    check_data(data_dir, all_files)
    texts = {}
    for name, both in files.items():
        sources, references = (list(read_lines(data_dir / file)) for file in both)
        check_aligned([sources, references], [str(data_dir / file) for file in both])
        texts[name] = sources, references
    return texts


def _say_where(what_ran: dict[str, Any], output: Path, example: str) -> None:
    flags = ["--engine", "ctranslate2"] if what_ran["engine"] == "ctranslate2" else []
    translate = shlex.join(cli.command("translate", what_ran["model"], *flags))
    made_of = f", {what_ran['made_of']}" if what_ran["made_of"] else ""
    print(
        f"\nTranslations  {cli.shown(output)}\n"
        f"Scores        {cli.shown(output / 'scores.json')}\n"
        f"Model         {what_ran['model']}{made_of}\n"
        "Next:\n"
        f"  echo {shlex.quote(example)} | {translate}\n"
        f"  {translate} < SOURCE_FILE > TRANSLATION_FILE"
    )


if __name__ == "__main__":
    sys.exit(cli.run(main))
