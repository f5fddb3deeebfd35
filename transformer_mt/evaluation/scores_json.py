"""Scores lines of text, prints the scores, and writes and reads scores.json."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from transformer_mt.base.errors import EvaluationError
from transformer_mt.base.remote import Place
from transformer_mt.base.wording import counted, cut, warn
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.evaluation.analysis import Analysis, analyse, text_of_analysis
from transformer_mt.evaluation.metrics import METRICS, Comet, MetricName, MetricScore, score_corpus, text_warnings
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.files import read_json, write_json
from transformer_mt.storage.records import versions

SCHEMA_VERSION: Literal[4] = 4
"""The version of the file format. Increase it, here and in `ScoreFile`, whenever fields change, except for new ones."""


class Record(BaseModel):
    """An object in the file. An unknown field is an error: the file is of another version, or of another program."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class Checksums(Record):
    """SHA-256 of lines, computed by `lines_sha256`."""

    source: str | None = None
    references: list[str]
    hypotheses: str


class AlsoInTraining(Record):
    """How many texts of the test set are also in the training text of the run."""

    sources: int
    targets: int
    pairs: int


class Hardware(Record):
    """The machine that computed the translations."""

    processor: str
    num_cores: int | None
    gpu: str | None


class PerturbedScores(Record):
    """The scores of a test set in which `evaluate --perturb` has changed every line."""

    bleu: float
    chrf: float
    share: float
    """Of the chrF2 of the test set as it is."""
    source: str
    """The checksum of the changed sources, computed by `lines_sha256`."""


class Trial(Record):
    """A choice of settings of decoding, and its score on the validation set in percent."""

    settings: list[str]
    """In the form of the command line: length_penalty=0.6."""
    score: float


class Tuning(Record):
    """All trials on a validation set of num_lines lines, and the best settings."""

    metric: MetricName
    num_lines: int
    trials: list[Trial]
    chosen: list[str]

    @property
    def best(self) -> int:
        """The number, from 0, of the trial with the highest score; the first of several with the same score."""
        return [trial.settings for trial in self.trials].index(self.chosen)


class TestSetScores(Record):
    """The results of one test set, or of one file of translations. Unknown fields are left out."""

    __test__ = False  # pytest takes it for tests otherwise

    num_lines: int
    scores: dict[str, MetricScore]
    references: list[str] | None = None
    checksums: Checksums
    also_in_training: AlsoInTraining | None = None
    analysis: Analysis | None = None
    perturbed: dict[str, PerturbedScores] | None = None
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
    schema_version: Literal[4]
    test_sets: dict[str, TestSetScores]


def read_scores(path: Path) -> dict[str, TestSetScores]:
    """Return the scores in a file, by the name of the test set; an empty dict if the file is missing or empty.

    Raises EvaluationError with the reason if the file is damaged, of another version, or not a file of scores.
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
        f"{path} exists, and is damaged or was not written by this version of `evaluate` ({why}); nothing was changed. "
        "Move it away, or delete it, and evaluate again"
    )


def write_scores(path: Path, scores: Mapping[str, TestSetScores]) -> None:
    """Write the scores, with only those fields that were given. Creates the directory if it is missing.

    Raises EvaluationError as `read_scores` does, and UserError if the file cannot be written.
    """
    read_scores(path)
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    file = ScoreFile(schema_version=SCHEMA_VERSION, test_sets=dict(scores))
    write_json(path, file.model_dump(mode="json", exclude_unset=True))


# The key is the name of the test set or file.
Results = dict[str, TestSetScores]


@dataclass(frozen=True)
class Details:
    confidence: bool = False
    """Whether to compute 95 % confidence intervals of the scores."""
    metrics: Sequence[MetricName] = METRICS
    analyse: bool = False
    """Whether to look for weaknesses. This needs the sources."""
    comet: Comet | None = None
    """If not None, also compute COMET with this model. This needs the sources, and uses only the first reference."""
    perturb: Sequence[str] = ()
    """The changes of the test sets with which to score the model, too. This needs the model."""


def score_files(
    hypothesis: Place, references: Sequence[Place], language: str, details: Details, source: Place | None
) -> Results:
    """Score a file of translations against references, line by line. Analysis and COMET need the file `source`."""
    files = [hypothesis, *references]
    texts = [list(read_lines(file)) for file in files]
    sources = None if source is None else list(read_lines(source))
    scored = score_lines(texts[0], texts[1:], ("", language), [str(file) for file in files], details, sources)
    made_by = {"references": [str(file) for file in references], "versions": versions(["sacrebleu"])}
    return {str(hypothesis): TestSetScores.model_validate(scored | made_by)}


def score_lines(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    languages: tuple[str, str],
    names: Sequence[str],
    details: Details,
    sources: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Score these lines against their references. Returns fields of `TestSetScores`.

    Prints a warning about each text that looks tokenised, lower-cased, or of another language; `names` are the names of
    the texts in warnings. For `languages`, see `analyse`.
    """
    confidence, metrics, language = details.confidence, details.metrics, languages[1]
    scores = score_corpus(hypotheses, references, language, names, confidence=confidence, metrics=metrics)
    if details.comet is not None and sources is not None:
        scores["COMET"] = details.comet.score(sources, hypotheses, references[0])
    warn(*text_warnings(names, [hypotheses, *references], language))
    result = {
        "num_lines": len(hypotheses),
        "scores": scores,
        "checksums": checksums_of(sources, references, hypotheses),
    }
    if details.analyse and sources is not None:
        result["analysis"] = analyse(sources, hypotheses, references[0], languages)
    return result


def checksums_of(
    sources: Sequence[str] | None, references: Sequence[Sequence[str]], hypotheses: Sequence[str]
) -> Checksums:
    return Checksums(
        source=None if sources is None else lines_sha256(sources),
        references=[lines_sha256(lines) for lines in references],
        hypotheses=lines_sha256(hypotheses),
    )


def lines_sha256(lines: Iterable[str]) -> str:
    """Return the hexadecimal SHA-256 of a UTF-8 file that has these lines, each with a newline at its end."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def print_scores(results: Results) -> None:
    """Print one line for each score (name, metric, value, signature), then analysis and speed if there are any."""
    width = max(len(name) for name in results)
    longest = max(5, *(len(metric) for result in results.values() for metric in result.scores))
    for name, result in results.items():
        for metric, score in result.scores.items():
            interval = "" if score.interval is None else f" ± {score.interval:.1f}"
            print(f"{name:{width}}  {metric:{longest}} {score.value:5.1f}{interval}  {score.signature}")
        for change, scores in (result.perturbed or {}).items():
            share = f"{100 * scores.share:.0f} % of the chrF2 without the change"
            print(f"{name:{width}}  {change:{longest}} BLEU {scores.bleu:.1f}, chrF2 {scores.chrf:.1f}: {share}")
        if result.analysis is not None:
            print(f"\n{name}: weaknesses\n{text_of_analysis(result.analysis)}\n")
        if result.seconds is not None:
            split = f", {counted(result.num_split, 'line')} split at ends of sentences" if result.num_split else ""
            beam = "" if result.decoding is None else f", beam_size {result.decoding.beam_size}"
            speed = f"{result.seconds:.1f} s, {result.sentences_per_second or 0:.1f} a second"
            print(f"{name:{width}}  {counted(result.num_lines, 'sentence')} in {speed}{beam}{split}")
