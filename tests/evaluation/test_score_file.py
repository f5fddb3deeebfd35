"""scores.json: documented field by field, and never replaced if it is not ours."""

import hashlib
import json
import re
from dataclasses import fields, is_dataclass
from typing import get_args

import pytest
from helpers.messages import message
from helpers.tiny import ROOT
from pydantic import BaseModel

from transformer_mt.base.errors import EvaluationError
from transformer_mt.evaluation.metrics import MetricScore
from transformer_mt.evaluation.scores_json import (
    SCHEMA_VERSION,
    Checksums,
    ScoreFile,
    TestSetScores,
    lines_sha256,
    read_scores,
    write_scores,
)
from transformer_mt.settings.search_settings import DecodingConfig

CHECKSUMS = {"references": ["a1"], "hypotheses": "b2"}
SCORES = {
    "news": TestSetScores(
        num_lines=3,
        scores={"BLEU": MetricScore(12.5, "nrefs:1")},
        checksums=Checksums.model_validate(CHECKSUMS),
        made_of=None,
    )
}


def inner(annotation: object) -> object:
    """The record in a type such as `list[Record] | None`; None if there is none."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        return annotation
    return next(filter(None, map(inner, get_args(annotation))), None)


def field_names(record: type, prefix: str = "") -> list[str]:
    """The fields of a record and of those in it. The settings of decoding have a page of their own."""
    if record is DecodingConfig:
        return []
    if issubclass(record, BaseModel):
        types = {name: field.annotation for name, field in record.model_fields.items()}
    else:
        types = {field.name: field.type for field in fields(record)}
    found = []
    for name, annotation in types.items():
        found.append(prefix + name)
        key = {"test_sets": ".NAME", "scores": ".METRIC", "perturbed": ".CHANGE"}.get(name, "")
        if (record_in := inner(annotation)) is not None:
            found += field_names(record_in, f"{prefix}{name}{key}.")
    return found


def test_the_page_names_every_field_and_no_other():
    page = (ROOT / "docs" / "run_files.md").read_text(encoding="utf-8")
    section = page.split("## Fields of `scores.json`\n")[1].split("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(named) == sorted(field_names(ScoreFile))
    assert f"the version of these fields, {SCHEMA_VERSION} |" in section


def test_what_is_written_is_read_again_with_the_fields_that_were_given(tmp_path):
    write_scores(tmp_path / "new" / "scores.json", SCORES)
    assert read_scores(tmp_path / "new" / "scores.json") == SCORES
    content = json.loads((tmp_path / "new" / "scores.json").read_text())
    bleu = {"value": 12.5, "signature": "nrefs:1", "interval": None}
    given = {"num_lines": 3, "scores": {"BLEU": bleu}, "checksums": CHECKSUMS, "made_of": None}
    assert content == {"schema_version": SCHEMA_VERSION, "test_sets": {"news": given}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"schema_version": 6, "test_sets": {}}, "schema_version: Input should be 4"),
        ({"schema_version": 1, "test_sets": {}}, "schema_version: Input should be 4"),
        ({"schema_version": SCHEMA_VERSION}, "test_sets: Field required"),
        (
            {"schema_version": SCHEMA_VERSION, "test_sets": {"news": {"num_lines": 3, "scores": {"BLEU": {}}}}},
            "test_sets.news.scores.BLEU.value: Field required",
        ),
        (
            {"schema_version": SCHEMA_VERSION, "test_sets": {"news": {"num_lines": 3, "scores": {}}}},
            "test_sets.news.checksums: Field required",
        ),
        (
            {
                "schema_version": SCHEMA_VERSION,
                "test_sets": {"news": {"num_lines": 3, "scores": {}, "checksums": CHECKSUMS, "mine": 1}},
            },
            "test_sets.news.mine: Extra inputs are not permitted",
        ),
        ({"schema_version": "2", "test_sets": {}}, ""),
        ({"news": {"bleu": 3}}, ""),
        ([1], ""),
        ("cut", "JSON: Unterminated"),
    ],
)
def test_any_other_file_is_named_with_its_fault_and_stays(tmp_path, content, why):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(content)[: 3 if content == "cut" else None])
    before = path.read_bytes()
    with pytest.raises(EvaluationError, match=message("scores-file-not-ours", str(path), why)):
        read_scores(path)
    with pytest.raises(EvaluationError, match=message("scores-file-not-ours", str(path))):
        write_scores(path, SCORES)
    assert path.read_bytes() == before


def test_the_checksum_of_lines_is_that_of_their_file(tmp_path):
    (tmp_path / "text").write_bytes("ein Satz\näöü\n\n".encode())
    assert lines_sha256(["ein Satz", "äöü", ""]) == hashlib.sha256((tmp_path / "text").read_bytes()).hexdigest()
