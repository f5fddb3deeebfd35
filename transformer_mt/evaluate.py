"""Translations become scores: of a model on its test sets, or of a file of translations."""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt import cli, model_arguments
from transformer_mt.config import load_config
from transformer_mt.data.corpus import read_lines
from transformer_mt.data.prepared import read_prepared
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.opening import EngineName, check_files
from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.metrics import (
    Score,
    bleu_by_length,
    check_aligned,
    language_warning,
    score_corpus,
    tokenised_warning,
)
from transformer_mt.files import write_whole
from transformer_mt.model_arguments import EngineOptions, engine_options
from transformer_mt.settings import Config
from transformer_mt.wording import counted

if TYPE_CHECKING:
    from transformer_mt.decoding.translator import Translator

# A test set's, or a file's, name: what scores.json says of it.
Results = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Details:
    """What is found out besides the scores."""

    confidence: bool = False
    """Their 95 % confidence intervals."""
    by_length: int | None = None
    """BLEU of sources of up to so many words, of up to twice as many, and so on; characters without spaces."""
    source_language: str = ""
    """Code of the language in which these are counted."""


SCORES_ALONE = Details()
DEFAULT_ENGINE = EngineOptions()


def main(argv: Sequence[str] | None = None) -> int:
    """Score a model's translations of its test sets, or a file's lines, and say where the results lie."""
    arguments = _parser().parse_intermixed_args(argv)
    _check(arguments)
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


def score_files(
    hypothesis: Path, references: Sequence[Path], language: str = "", details: Details = SCORES_ALONE
) -> Results:
    """Score a file of detokenised translations against files of references, aligned by line; not by length."""
    files = [hypothesis, *references]
    texts = [list(read_lines(file)) for file in files]
    scored = _score(texts[0], texts[1:], language, [str(file) for file in files], details)
    return {str(hypothesis): {"references": [str(file) for file in references], **scored}}


def evaluate_model(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    test: str | None = None,
    options: EngineOptions = DEFAULT_ENGINE,
    details: Details = SCORES_ALONE,
) -> Results:
    """Translate the test sets of a run or model directory, or the one named `test`, and score them.

    Several directories are an ensemble; the test sets and the settings are those of the first. Writes
    <test>.hypotheses.txt and scores.json to evaluation/ in the run, or in a model or an export outside a run.
    """
    model, *others = [_model_in(path, options.engine) for path in paths]
    output = _results_dir(model)
    config = load_config(model / "config.yaml", overrides, "decoding")
    names = _test_names(config, test)
    if not any(override.startswith("data_dir=") for override in overrides):
        _check_data(model, Path(config.data_dir))
    texts = {name: _read_test_set(Path(config.data_dir), name) for name in names}
    details = replace(details, source_language=config.corpus.source_language)
    translator = _load([model, *others], options)
    what_ran = {"decoding": config.decoding.model_dump()} | _what_ran(model, others, options)
    output.mkdir(exist_ok=True)
    results: Results = {}
    for name, (sources, references) in texts.items():
        start = time.perf_counter()
        hypotheses = translator.translate(sources, config.decoding)
        seconds = time.perf_counter() - start
        file = output / f"{name}.hypotheses.txt"
        write_whole(file, "".join(f"{line}\n" for line in hypotheses))
        titles = [cli.shown(file), f"reference of {name}"]
        scored = _score(hypotheses, [references], config.corpus.target_language, titles, details, sources)
        speed = {"seconds": round(seconds, 3), "sentences_per_second": round(len(sources) / seconds, 2)}
        results[name] = scored | speed | what_ran
    print_scores(results)
    write_json(output / "scores.json", _other_scores(output / "scores.json") | results)
    _say_where(what_ran, output, example=texts[names[0]][0][0])
    return results


def print_scores(results: Results) -> None:
    """One line for each score: name, metric, value, signature; for each length; and for the speed, where known."""
    width = max(len(name) for name in results)
    for name, result in results.items():
        for metric, score in result["scores"].items():
            interval = f" ± {score['interval']:.1f}" if "interval" in score else ""
            print(f"{name:{width}}  {metric:5} {score['value']:5.1f}{interval}  {score['signature']}")
        for bucket in result.get("by_length", []):
            length = f"{bucket['shortest']} to {counted(bucket['longest'], bucket['unit'])}"
            print(
                f"{name:{width}}  BLEU  {bucket['bleu']:5.1f}  {counted(bucket['num_sentences'], 'source')} of {length}"
            )
        if "seconds" in result:
            print(
                f"{name:{width}}  {counted(result['num_lines'], 'sentence')} in {result['seconds']:.1f} s, "
                f"{result['sentences_per_second']:.1f} a second, beam_size {result['decoding']['beam_size']}"
            )


def write_json(path: Path, results: Results) -> None:
    """Replace `path` by the results: by test set, scores with signatures and how they came about."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    write_whole(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(
        "evaluate",
        "Reads a run or a model and its test sets, translates them, and prints BLEU, chrF and TER with\n"
        "sacreBLEU's signatures; writes evaluation/<test>.hypotheses.txt and evaluation/scores.json there.\n"
        "Or reads a file of translations and its references, and only prints.",
        "python -m transformer_mt.evaluate runs/demo_en_de --test demo beam_size=5\n"
        "  python -m transformer_mt.evaluate --hypothesis hypotheses.txt --reference references.txt",
    )
    parser.add_argument(
        "model",
        metavar="RUN_DIR|MODEL_DIR|EXPORT_DIR",
        type=Path,
        nargs="?",
        help="an export with --engine ctranslate2",
    )
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="a setting of decoding, as beam_size=5"
    )
    parser.add_argument("--test", metavar="NAME", help="this test set of the configuration alone")
    model_arguments.add_engine_arguments(parser)
    model_arguments.add_compile(parser)
    parser.add_argument("--hypothesis", metavar="FILE", type=Path, help="score these translations instead")
    parser.add_argument(
        "--reference", metavar="FILE", type=Path, nargs="+", action="extend", default=[], help="their references"
    )
    parser.add_argument("--language", metavar="CODE", default="", help="theirs, as zh, ja, ko or th: for BLEU's words")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the scores here too")
    parser.add_argument(
        "--confidence", action="store_true", help="with 95%% confidence intervals, from 1,000 bootstrap samples"
    )
    parser.add_argument(
        "--by-length",
        metavar="WORDS",
        type=int,
        help="BLEU by words of the source, too: 10 for 1 to 10, 11 to 20, …; by characters where it has no spaces",
    )
    return parser


def _check(arguments: argparse.Namespace) -> None:
    if arguments.hypothesis is None and (arguments.reference or arguments.language):
        raise EvaluationError("--reference and --language belong to --hypothesis: give the translations, too")
    if arguments.model is None and arguments.hypothesis is None:
        raise EvaluationError("name a run or a model to evaluate, or give --hypothesis and --reference files")
    if arguments.hypothesis is not None and not arguments.reference:
        raise EvaluationError("--hypothesis needs --reference: the file that the translations are compared with")
    if arguments.by_length is not None and arguments.by_length < 1:
        raise EvaluationError(f"--by-length {arguments.by_length}: it must be 1 word or more, as 10")
    if arguments.hypothesis is not None and arguments.by_length is not None:
        raise EvaluationError("--by-length needs the sources, which a run has and --hypothesis has not: leave it out")
    of_model = [arguments.model is not None, arguments.test is not None, arguments.ensemble]
    if arguments.hypothesis is not None and (any(of_model) or engine_options(arguments) != DEFAULT_ENGINE):
        raise EvaluationError(
            "--hypothesis scores a file and takes no run, model, --test, key=value or option of an engine: leave out "
            "the one or the other"
        )


def _score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str,
    names: Sequence[str],
    details: Details,
    sources: Sequence[str] | None = None,
) -> dict[str, Any]:
    scores = score_corpus(hypotheses, references, language, names, confidence=details.confidence)
    for name, lines in zip(names, [hypotheses, *references], strict=True):
        warning = tokenised_warning(name, lines)
        if warning is not None:
            print(f"warning: {warning}", file=sys.stderr)
    warning = language_warning(names[1], references[0], language)
    if warning is not None:
        print(f"warning: {warning}", file=sys.stderr)
    result = {"num_lines": len(hypotheses), "scores": {score.name: _fields(score) for score in scores}}
    if sources is None or details.by_length is None:
        return result
    buckets = bleu_by_length(sources, hypotheses, references, details.by_length, language, details.source_language)
    return result | {"by_length": [asdict(bucket) for bucket in buckets]}


def _fields(score: Score) -> dict[str, float | str]:
    fields: dict[str, float | str] = {"value": score.value, "signature": score.signature}
    return fields if score.interval is None else fields | {"interval": score.interval}


def _load(models: Sequence[Path], options: EngineOptions) -> "Translator":
    # Here, so that files are scored without waiting for PyTorch.
    from transformer_mt.decoding.translator import Translator

    return Translator.load(
        models,
        options.device,
        engine=options.engine,
        dtype=options.dtype,
        quantize=options.quantize,
        workers=options.workers,
        compile=options.compile,
    )


def _model_in(path: Path, engine: EngineName) -> Path:
    """The directory at `path` that the engine runs, or in the run at `path`."""
    model = path / "model" if (path / "model").is_dir() else path
    check_files(model, engine)
    return model


def _results_dir(model: Path) -> Path:
    """Where the results of a model are written: into its run, if it lies in one."""
    model = Path(os.path.abspath(model))
    in_run = model.name == "model" and (model.parent / "config.yaml").is_file()
    return (model.parent if in_run else model) / "evaluation"


def _what_ran(model: Path, others: Sequence[Path], options: EngineOptions) -> dict[str, Any]:
    """What scores.json says of the models and the engine."""
    from transformer_mt.weights import read_metadata  # it imports PyTorch

    return {
        "model": cli.shown(model),
        "made_of": read_metadata(model / "model.safetensors").get("made_of"),  # of an export nothing
        "ensemble": [cli.shown(other) for other in others],
        "engine": options.engine,
        "dtype": options.dtype,
        "quantize": options.quantize,
    }


def _test_names(config: Config, test: str | None) -> list[str]:
    names = list(config.corpus.test)
    if not names:
        raise EvaluationError("corpus.test of the configuration names no test set; give --hypothesis and --reference")
    if test is None:
        return names
    if test not in names:
        raise EvaluationError(f"--test {test}: no such test set. The configuration has: {', '.join(names)}")
    return [test]


def _check_data(model: Path, data_dir: Path) -> None:
    """Raises EvaluationError if the data were prepared anew, with another tokenizer, since the model was trained."""
    prepared = read_prepared(data_dir)
    if prepared is None:
        return
    digest = Tokenizer.load(model).digest
    if prepared.tokenizer_digest != digest:
        raise EvaluationError(
            f"{data_dir} is prepared with another tokenizer (digest {prepared.tokenizer_digest[:8]}) than "
            f"{cli.shown(model)} was trained with ({digest[:8]}): it was prepared anew since then, and its test sets "
            f"may be others. To score these test sets, say data_dir={data_dir}; or name the data_dir that belongs to "
            "the model"
        )


def _read_test_set(data_dir: Path, name: str) -> tuple[list[str], list[str]]:
    files = [data_dir / "test" / f"{name}.{side}.txt" for side in ("source", "target")]
    for file in files:
        if not file.is_file():
            raise EvaluationError(
                f"{file}: is missing. `python -m transformer_mt.prepare CONFIG` writes it; if the data lie elsewhere, "
                "say data_dir=…; or score files with --hypothesis and --reference"
            )
    sources, references = (list(read_lines(file)) for file in files)
    check_aligned([sources, references], [str(file) for file in files])
    return sources, references


def _other_scores(path: Path) -> Results:
    """What was written before, of these test sets and others."""
    try:
        scores: Results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return scores


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
