"""scores.json: its fields, and how it is read and written. docs/run_files.md describes the same fields."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.analysis import Analysis
from transformer_mt.evaluation.metrics import MetricScore
from transformer_mt.evaluation.tuning import Tuning
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.wording import cut

SCHEMA_VERSION: Literal[3] = 3
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
    """What of the test set stands in the training text of the run; the lines are numbered from 1."""

    sources: int
    pairs: int
    source_lines: list[int]
    pair_lines: list[int]


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

    schema_version: Literal[3]
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
