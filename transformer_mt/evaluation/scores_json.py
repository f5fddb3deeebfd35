"""Scores of lines of text: what is written to scores.json, how it is read, and what is printed."""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from transformer_mt.base.errors import EvaluationError
from transformer_mt.base.wording import counted, cut
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.evaluation.analysis import Analysis, analyse, text_of_analysis
from transformer_mt.evaluation.comet import Comet
from transformer_mt.evaluation.metrics import (
    METRICS,
    MetricName,
    MetricScore,
    case_warning,
    language_warning,
    score_corpus,
    tokenised_warning,
)
from transformer_mt.evaluation.tuning import Tuning
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.files import read_json, write_whole
from transformer_mt.storage.records import versions

SCHEMA_VERSION: Literal[4] = 4
"""Of the files that are written and read. It grows with every change of the fields, here and in `ScoreFile`."""


class Record(BaseModel):
    """An object in the file. A field that it does not know is an error: it belongs to another version, or to others."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class Checksums(Record):
    """SHA-256 of lines, as `lines_sha256` computes it."""

    source: str | None = None
    references: list[str]
    hypotheses: str


class AlsoInTraining(Record):
    """How many texts of the test set stand in the training text of the run."""

    sources: int
    targets: int
    pairs: int


class Hardware(Record):
    """What the translations were computed on."""

    processor: str
    num_cores: int | None
    gpu: str | None


class TestSetScores(Record):
    """All about one test set, or about one file of translations. What was not known is left out."""

    __test__ = False  # pytest takes it for tests otherwise

    num_lines: int
    scores: dict[str, MetricScore]
    references: list[str] | None = None
    checksums: Checksums
    also_in_training: AlsoInTraining | None = None
    analysis: Analysis | None = None
    num_split: int | None = None
    num_short: int | None = None
    num_at_limit: int | None = None
    seconds: float | None = None
    sentences_per_second: float | None = None
    decoding: DecodingConfig | None = None
    tuning: Tuning | None = None
    model: str | None = None
    model_sha256: str | None = None
    made_of: str | None = None
    ensemble: list[str] | None = None
    ensemble_sha256: list[str] | None = None
    engine: str | None = None
    dtype: str | None = None
    quantize: str | None = None
    plain: bool = False
    time: str | None = None
    hardware: Hardware | None = None
    versions: dict[str, str] | None = None


class ScoreFile(Record):
    """The whole file."""

    schema_version: Literal[4]
    test_sets: dict[str, TestSetScores]


def read_scores(path: Path) -> dict[str, TestSetScores]:
    """Return the scores in a file, by the name of the test set; an empty dict if there is no file, or an empty one.

    Raises EvaluationError, which says what is wrong, if the file is damaged, of another version, or something else.
    """
    if not path.is_file() or not path.stat().st_size:
        return {}
    try:
        return ScoreFile.model_validate(read_json(path)).test_sets
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        why = cut(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")
    except (OSError, ValueError) as error:
        why = f"it cannot be read as JSON: {error}"
    raise EvaluationError(
        f"{path}: is there already, and holds something else than scores of this version of `evaluate`, or is damaged "
        f"({why}), so it is left as it is. Move it away, or delete it, and evaluate again"
    )


def write_scores(path: Path, scores: Mapping[str, TestSetScores]) -> None:
    """Write the scores, and make the directory if it is missing. Of each test set, the fields that were given.

    Raises EvaluationError as `read_scores` does, and UserError if the file cannot be written.
    """
    read_scores(path)
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    file = ScoreFile(schema_version=SCHEMA_VERSION, test_sets=dict(scores))
    content = file.model_dump(mode="json", exclude_unset=True)
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


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
) -> dict[str, Any]:
    """Score these lines against their references; returns fields of `TestSetScores`.

    Prints a warning if scores mean nothing. `names` are the names of the hypotheses and of each set of references in
    errors and warnings. `rarest` is as in `analyse`.
    """
    confidence, metrics = details.confidence, details.metrics
    scores = score_corpus(hypotheses, references, language, names, confidence=confidence, metrics=metrics)
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
