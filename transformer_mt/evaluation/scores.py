"""Scores of lines of text: what is written to scores.json, and what is printed."""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt.corpora.text_files import read_lines
from transformer_mt.evaluation.analysis import analyse, text_of_analysis
from transformer_mt.evaluation.comet import Comet
from transformer_mt.evaluation.guards import case_warning, tokenised_warning
from transformer_mt.evaluation.metrics import METRICS, MetricName, language_warning, score_corpus
from transformer_mt.evaluation.named_sets import NamedSet
from transformer_mt.evaluation.score_file import Checksums, TestSetScores
from transformer_mt.machine import versions
from transformer_mt.wording import counted

# By the name of each test set or file.
Results = dict[str, TestSetScores]


@dataclass(frozen=True)
class Details:
    """Which details are computed besides the scores."""

    confidence: bool = False
    """Whether to compute their 95 % confidence intervals."""
    metrics: Sequence[MetricName] = METRICS
    analyse: bool = False
    """Whether to look for weaknesses, which needs the sources."""
    source_language: str = ""
    """Its code, which decides whether the analysis counts words or characters."""
    comet: Comet | None = None
    """Compute COMET with this model, too, which needs the sources; with several references, by the first."""


ONLY_SCORES = Details()


def score_files(
    hypothesis: Path,
    references: Sequence[Path],
    language: str = "",
    details: Details = ONLY_SCORES,
    source: Path | None = None,
) -> Results:
    """Score a file of detokenised translations against files of references, line by line.

    The analysis and COMET need the file `source`.
    """
    files = [hypothesis, *references]
    texts = [list(read_lines(file)) for file in files]
    sources = None if source is None else list(read_lines(source))
    scored = score_lines(texts[0], texts[1:], language, [str(file) for file in files], details, sources)
    told = {"references": [str(file) for file in references], "versions": versions(["sacrebleu"])}
    return {str(hypothesis): TestSetScores.model_validate(scored | told)}


def score_lines(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str,
    names: Sequence[str],
    details: Details,
    sources: Sequence[str] | None = None,
    rarest: Sequence[int] | None = None,
    named: NamedSet | None = None,
) -> dict[str, Any]:
    """Score these lines against their references; returns fields of `TestSetScores`.

    Prints a warning if scores mean nothing. `names` are the names of the hypotheses and of each
    set of references in errors and warnings. `rarest` is as in `analyse`, `named` as in `score_corpus`.
    """
    scores = score_corpus(
        hypotheses, references, language, names, confidence=details.confidence, metrics=details.metrics, named=named
    )
    if details.comet is not None and sources is not None:
        scores["COMET"] = details.comet.score(sources, hypotheses, references[0])
    _warn(hypotheses, references, language, names)
    result = {
        "num_lines": len(hypotheses),
        "scores": scores,
        "checksums": checksums_of(sources, references, hypotheses),
    }
    if details.analyse and sources is not None:
        languages = details.source_language, language
        result["analysis"] = analyse(sources, hypotheses, references[0], languages, rarest)
    return result


def _warn(hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str, names: Sequence[str]) -> None:
    """Print a warning about each text that should not be scored as it is."""
    found = [tokenised_warning(name, lines) for name, lines in zip(names, [hypotheses, *references], strict=True)]
    found += case_warning(names, hypotheses, references[0]), language_warning(names[1], references[0], language)
    for warning in filter(None, found):
        print(f"warning: {warning}", file=sys.stderr)


def checksums_of(
    sources: Sequence[str] | None, references: Sequence[Sequence[str]], hypotheses: Sequence[str]
) -> Checksums:
    """Return what scores.json says of the texts that were scored."""
    return Checksums(
        source=None if sources is None else lines_sha256(sources),
        references=[lines_sha256(lines) for lines in references],
        hypotheses=lines_sha256(hypotheses),
    )


def lines_sha256(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines, hexadecimal: that of a file with these lines in UTF-8, each ended by a newline."""
    found = hashlib.sha256()
    for line in lines:
        found.update(f"{line}\n".encode())
    return found.hexdigest()


def print_scores(results: Results) -> None:
    """Print one line for each score (name, metric, value, signature), the analysis, and the speed, if known."""
    width = max(len(name) for name in results)
    longest = max(5, *(len(metric) for result in results.values() for metric in result.scores))
    for name, result in results.items():
        for metric, score in result.scores.items():
            interval = "" if score.interval is None else f" ± {score.interval:.1f}"
            print(f"{name:{width}}  {metric:{longest}} {score.value:5.1f}{interval}  {score.signature}")
        if result.analysis is not None:
            print(f"\n{name}: weaknesses\n{text_of_analysis(result.analysis)}\n")
        if result.seconds is not None:
            print(f"{name:{width}}  {_speed(result)}")


def _speed(result: TestSetScores) -> str:
    split = f", {counted(result.num_split, 'line')} split at ends of sentences" if result.num_split else ""
    beam = "" if result.decoding is None else f", beam_size {result.decoding.beam_size}"
    sentences = counted(result.num_lines, "sentence")
    return f"{sentences} in {result.seconds:.1f} s, {result.sentences_per_second or 0:.1f} a second{beam}{split}"
