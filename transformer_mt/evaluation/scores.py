"""Scores of lines of text: what is written to scores.json, and what is printed."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_mt.corpora.text_files import read_lines
from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.analysis import analyse, text_of_analysis
from transformer_mt.evaluation.guards import case_warning, direction_warning, tokenised_warning
from transformer_mt.evaluation.metrics import (
    METRICS,
    MetricName,
    MetricScore,
    bleu_by_length,
    language_warning,
    score_corpus,
    ter_warning,
)
from transformer_mt.languages import has_spaces
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.wording import counted

# For the name of each test set or file: what scores.json says about it.
Results = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Details:
    """Which details are computed besides the scores."""

    confidence: bool = False
    """Whether to compute their 95 % confidence intervals."""
    by_length: int | None = None
    """Compute BLEU by source length, in steps of this many words, or characters in a language without spaces."""
    source_language: str = ""
    """The code of the source language, which decides whether words or characters are counted."""
    metrics: Sequence[MetricName] = METRICS
    analyse: bool = False
    """Whether to look for weaknesses, which needs the sources."""


ONLY_SCORES = Details()


def score_files(
    hypothesis: Path,
    references: Sequence[Path],
    language: str = "",
    details: Details = ONLY_SCORES,
    source: Path | None = None,
) -> Results:
    """Score a file of detokenised translations against files of references, line by line.

    What depends on the source, such as scores by its length, needs the file `source`.
    """
    files = [hypothesis, *references]
    texts = [list(read_lines(file)) for file in files]
    sources = None if source is None else list(read_lines(source))
    scored = score_lines(texts[0], texts[1:], language, [str(file) for file in files], details, sources)
    return {str(hypothesis): {"references": [str(file) for file in references], **scored}}


def score_lines(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str,
    names: Sequence[str],
    details: Details,
    sources: Sequence[str] | None = None,
    rarest: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Score these lines against their references; returns what scores.json says about them.

    Prints a warning if scores mean nothing or if TER is left out. `names` are the names of the hypotheses and of each
    set of references in errors and warnings. `rarest` is as in `analyse`.
    """
    scores = score_corpus(
        hypotheses, references, language, names, confidence=details.confidence, metrics=details.metrics
    )
    for name, lines in zip(names, [hypotheses, *references], strict=True):
        warning = tokenised_warning(name, lines)
        if warning is not None:
            print(f"warning: {warning}", file=sys.stderr)
    of_all = (
        case_warning(names, hypotheses, references[0]),
        direction_warning(names[0], sources, hypotheses, references[0]) if sources is not None else None,
        language_warning(names[1], references[0], language),
        ter_warning([hypotheses, *references], names, language) if "ter" in details.metrics else None,
    )
    for warning in filter(None, of_all):
        print(f"warning: {warning}", file=sys.stderr)
    result = {"num_lines": len(hypotheses), "scores": {score.name: _fields(score) for score in scores}}
    if sources is None:
        return result
    if details.by_length is not None:
        buckets = bleu_by_length(sources, hypotheses, references, details.by_length, language, details.source_language)
        result["by_length"] = [asdict(bucket) for bucket in buckets]
    if details.analyse:
        found = analyse(sources, hypotheses, references[0], (details.source_language, language), rarest)
        unit = "word" if has_spaces(details.source_language) else "character"
        result["analysis"] = {"unit": unit, **asdict(found)}
    return result


def _fields(score: MetricScore) -> dict[str, float | str]:
    fields: dict[str, float | str] = {"value": score.value, "signature": score.signature}
    return fields if score.interval is None else fields | {"interval": score.interval}


def print_scores(results: Results) -> None:
    """Print one line for each score (name, metric, value, signature), each source length and the speed, if known."""
    width = max(len(name) for name in results)
    longest = max(5, *(len(metric) for result in results.values() for metric in result["scores"]))
    for name, result in results.items():
        for metric, score in result["scores"].items():
            interval = f" ± {score['interval']:.1f}" if "interval" in score else ""
            print(f"{name:{width}}  {metric:{longest}} {score['value']:5.1f}{interval}  {score['signature']}")
        for bucket in result.get("by_length", []):
            length = f"{bucket['shortest']} to {counted(bucket['longest'], bucket['unit'])}"
            number = counted(bucket["num_sentences"], "source")
            print(f"{name:{width}}  {'BLEU':{longest}} {bucket['bleu']:5.1f}  {number} of {length}")
        if "analysis" in result:
            print(f"\n{name}: weaknesses\n{text_of_analysis(result['analysis'], result['analysis']['unit'])}\n")
        if "seconds" in result:
            print(
                f"{name:{width}}  {counted(result['num_lines'], 'sentence')} in {result['seconds']:.1f} s, "
                f"{result['sentences_per_second']:.1f} a second, beam_size {result['decoding']['beam_size']}"
                + (
                    f", {counted(result['num_split'], 'line')} split at ends of sentences"
                    if result["num_split"]
                    else ""
                )
            )


def write_json(path: Path, results: Results) -> None:
    """Write the results to `path`: for each test set, scores, signatures, and how the translations were made.

    Raises EvaluationError if the file exists and holds something else.
    """
    check_scores_file(path)
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    write_whole(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def earlier_scores(path: Path) -> Results:
    """The scores that the file holds already, if it exists. Raises EvaluationError if it holds something else."""
    check_scores_file(path)
    return _scores_in(path) or {}


def check_scores_file(path: Path) -> None:
    """Raises EvaluationError if the file exists and holds something else than scores."""
    if path.is_file() and path.stat().st_size and _scores_in(path) is None:
        raise EvaluationError(
            f"{path}: is there already, and holds something else than scores of `evaluate`, so it is left as it is. "
            "Move it away, or delete it"
        )


def _scores_in(path: Path) -> Results | None:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return None
    is_ours = isinstance(found, dict) and all(isinstance(each, dict) and "scores" in each for each in found.values())
    return found if is_ours else None
