"""The arguments of `evaluate`, which of them belong together, and what scores.json says of them."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.base.errors import EvaluationError
from transformer_mt.decoding.loading import EngineOptions
from transformer_mt.evaluation.metrics import ALL_METRICS, METRICS, MetricName
from transformer_mt.storage.checksums import weights_sha256
from transformer_mt.storage.records import processor, versions
from transformer_mt.terminal import cli, model_arguments


def what_ran(model: Path, others: Sequence[Path], options: EngineOptions) -> dict[str, Any]:
    """Return the fields about a model, the other models of its ensemble, and the engine."""
    made_of = None
    if options.engine == "torch":  # exports do not have it
        from transformer_mt.storage.weights import read_metadata  # here, because it imports PyTorch

        made_of = read_metadata(model / "model.safetensors").get("made_of")
    return {
        "model": cli.shown(model),
        "model_sha256": weights_sha256(model),
        "made_of": made_of,
        "ensemble": [cli.shown(other) for other in others],
        "ensemble_sha256": [weights_sha256(other) for other in others],
        "engine": options.engine,
        "dtype": options.dtype,
        "quantize": options.quantize,
        "plain": options.plain,
    }


def machine(hardware: str, engine: str) -> dict[str, Any]:
    """Return the fields about the machine and the software; `hardware` is that of the engine."""
    gpu = None if hardware == "CPU" else hardware
    return {
        "hardware": {"processor": processor(), "num_cores": os.cpu_count(), "gpu": gpu},
        "versions": versions([engine, "sentencepiece", "sacrebleu"]),
    }


_COMET = "comet="


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments of `evaluate`."""
    found = cli.parser(
        "evaluate",
        "Reads a run or a model, translates its test sets, prints BLEU, chrF and TER with sacreBLEU's signatures, and\n"
        "writes evaluation/<test>.hypotheses.txt and evaluation/scores.json there.\n"
        "Or reads a file of translations and its references, and only prints their scores.\n"
        "Or, with --compare, says whether one of several runs or files is better than the first of them, by\n"
        "sacreBLEU's paired tests, and shows the sentences that differ most.",
        "python -m transformer_mt.evaluate runs/demo_en_de --test demo beam_size=5\n"
        "  python -m transformer_mt.evaluate --hypothesis hypotheses.txt --reference references.txt\n"
        "  python -m transformer_mt.evaluate --compare runs/old runs/new",
    )
    found.add_argument(
        "model",
        metavar="RUN_DIR|MODEL_DIR|EXPORT_DIR",
        type=Path,
        nargs="?",
        help="a run or a model; an export needs --engine ctranslate2",
    )
    cli.add_settings(found, "settings of decoding, such as beam_size=5")
    found.add_argument("--test", metavar="NAME", help="only this test set of the configuration")
    found.add_argument(
        "--tune",
        metavar="key=value,value",
        nargs="+",
        default=[],
        help="try these settings on the validation set, and translate the test sets with the best: beam_size=4,8",
    )
    model_arguments.add_engine_arguments(found)
    _add_arguments_of_scores(found)
    return found


def _add_arguments_of_scores(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hypothesis", metavar="FILE", type=Path, help="score these translations; no model is run")
    parser.add_argument(
        "--reference", metavar="FILE", type=Path, nargs="+", action="extend", default=[], help="their references"
    )
    language = "their language, such as zh, ja, ko or th: chooses the tokenisation of BLEU"
    parser.add_argument("--source", metavar="FILE", type=Path, help="the sources of --hypothesis, for --analyse")
    parser.add_argument(
        "--compare",
        metavar="RUN_DIR|FILE",
        type=Path,
        nargs="+",
        help="whether the later ones are better than the first: runs that were evaluated, or files with --reference",
    )
    parser.add_argument(
        "--metrics",
        metavar="NAME",
        nargs="+",
        type=_metric,
        default=METRICS,
        help="bleu, chrf, chrf++, ter, comet=MODEL_DIR (default: bleu chrf ter)",
    )
    parser.add_argument("--language", metavar="CODE", default="", help=language)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the scores to this file")
    parser.add_argument(
        "--confidence", action="store_true", help="add 95%% confidence intervals, from 1,000 bootstrap samples"
    )
    parser.add_argument(
        "--analyse",
        action="store_true",
        help="look for weaknesses: scores by source length and by rare words, odd translations, the worst lines",
    )


def _metric(text: str) -> str:
    if text not in ALL_METRICS and (not text.startswith(_COMET) or text == _COMET):
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(ALL_METRICS)} and comet=MODEL_DIR")
    return text


def chosen_metrics(arguments: argparse.Namespace) -> tuple[list[MetricName], Path | None]:
    """Return the metrics of sacreBLEU that were asked for, and the model of COMET, if there is one."""
    models = [Path(text.removeprefix(_COMET)) for text in arguments.metrics if text.startswith(_COMET)]
    if len(models) > 1:
        raise EvaluationError("--metrics has comet= twice: give one model of COMET at a time")
    return [text for text in arguments.metrics if not text.startswith(_COMET)], models[0] if models else None


def check(arguments: argparse.Namespace) -> None:
    """Raises EvaluationError for arguments that do not belong together."""
    if arguments.compare is not None:
        if len(arguments.compare) < 2:
            raise EvaluationError(
                "--compare needs two or more runs or files; the first is what the others are compared with"
            )
        _check_alone(arguments, "compare", "test", "reference", "language", "metrics", "json")
        if chosen_metrics(arguments)[1] is not None:
            raise EvaluationError("--compare cannot be combined with comet=: leave it out")
        return
    advice = "To score a file of translations, write --hypothesis FILE --reference FILE"
    cli.check_settings(arguments.overrides, "beam_size=5", advice)
    if arguments.hypothesis is None:
        if arguments.reference or arguments.language or arguments.source is not None:
            raise EvaluationError("--reference, --language and --source need --hypothesis: give the translations, too")
        if arguments.model is None:
            raise EvaluationError("name a run or a model to evaluate, or give --hypothesis and --reference files")
        return
    if not arguments.reference:
        raise EvaluationError("--hypothesis needs --reference: give the file that the translations are compared with")
    of_scores = ("metrics", "language", "json", "confidence", "analyse", "device")
    _check_alone(arguments, "hypothesis", "reference", "source", *of_scores)
    if (arguments.analyse or chosen_metrics(arguments)[1] is not None) and arguments.source is None:
        raise EvaluationError("--analyse and comet= need the source sentences: give --source FILE, or evaluate a run")


def _check_alone(arguments: argparse.Namespace, name: str, *companions: str) -> None:
    """Raises EvaluationError if any other argument than these was given."""
    shown = {"model": "RUN_DIR", "overrides": "key=value"}
    defaults = vars(parser().parse_args([]))
    others = [
        shown.get(other, f"--{other.replace('_', '-')}")
        for other, value in vars(arguments).items()
        if other not in (name, *companions) and value != defaults[other]
    ]
    if others:
        raise EvaluationError(f"--{name} cannot be combined with {' and '.join(others)}: leave one of them out")
