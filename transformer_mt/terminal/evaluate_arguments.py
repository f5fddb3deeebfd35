"""The arguments of `evaluate`, the check that they fit together, and the fields about them in scores.json."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import EvaluationError
from transformer_mt.decoding.loading import EngineOptions
from transformer_mt.evaluation.metrics import ALL_METRICS, METRICS, MetricName
from transformer_mt.storage.checksums import weights_sha256
from transformer_mt.storage.records import processor, versions
from transformer_mt.terminal import cli


def what_ran(model: Path, others: Sequence[Path], options: EngineOptions, hardware: str) -> dict[str, Any]:
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


_COMET = "comet="


def parser() -> argparse.ArgumentParser:
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


def chosen_metrics(arguments: argparse.Namespace) -> tuple[list[MetricName], Path | None]:
    """Return the chosen metrics of sacreBLEU, and the directory of the COMET model, if there is one."""
    models = [Path(text.removeprefix(_COMET)) for text in arguments.metrics if text.startswith(_COMET)]
    if len(models) > 1:
        raise EvaluationError("--metrics contains comet= twice: give only one COMET model")
    return [text for text in arguments.metrics if not text.startswith(_COMET)], models[0] if models else None


def check(arguments: argparse.Namespace) -> None:
    """Raises EvaluationError for arguments that do not fit together."""
    if arguments.compare is not None:
        if len(arguments.compare) < 2:
            raise EvaluationError(
                "--compare needs two or more runs or files; it compares the first with each of the others"
            )
        _check_alone(arguments, "compare", "test", "reference", "language", "metrics", "json")
        if chosen_metrics(arguments)[1] is not None:
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
    if (arguments.analyse or chosen_metrics(arguments)[1] is not None) and arguments.source is None:
        raise EvaluationError("--analyse and comet= need the source sentences: give --source FILE, or evaluate a run")


def _check_alone(arguments: argparse.Namespace, name: str, *companions: str) -> None:
    """Raises EvaluationError if `name` was given together with an argument that is not one of `companions`."""
    shown = {"model": "RUN_DIR", "overrides": "key=value"}
    defaults = vars(parser().parse_args([]))
    others = [
        shown.get(other, f"--{other.replace('_', '-')}")
        for other, value in vars(arguments).items()
        if other not in (name, *companions) and value != defaults[other]
    ]
    if others:
        raise EvaluationError(f"--{name} cannot be combined with {' and '.join(others)}: leave one of them out")
