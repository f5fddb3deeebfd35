"""What the documentation names is there, and its commands are commands."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from helpers.tiny import ROOT

from transformer_mt import plot
from transformer_mt.settings.reading import load_config

PACKAGE = ROOT / "transformer_mt"
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FAMILY = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")

each_document = pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)


def commands(stage: str) -> list[list[str]]:
    """The arguments of each command of a stage in docs/attention.md."""
    lines = FAMILY.replace("\\\n", " ")
    found = re.findall(rf"^python -m transformer_mt\.{stage} (.*)$", lines, flags=re.MULTILINE)
    return [shlex.split(arguments) for arguments in found]


def defined_in(path: Path) -> set[str]:
    """Functions and classes."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@each_document
def test_every_file_that_is_named_exists(path):
    names = re.findall(r"(?<![\w./-])((?:\w+/)*\w+\.(?:py|yaml|sh))\b", path.read_text(encoding="utf-8"))
    places = [ROOT, ROOT / "configs", ROOT / "scripts", PACKAGE, *(place for place in PACKAGE.iterdir())]
    missing = {name for name in names if not any((place / name).is_file() for place in places)}
    assert len(names) > 20 or path.stem not in ("README", "attention")
    assert missing <= {"config.yaml", "model/config.yaml"}, "which are in a run"


@each_document
def test_every_link_to_a_file_leads_there(path):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).is_file()] == []


def test_what_computes_a_member_of_the_attention_family_is_where_it_is_said_to_be():
    # As `this` in `models/x.py`, and `this`, `that` and `another` in it; or in a table, with the file above.
    named = re.findall(r"((?:`\w+`[,;]?\s+(?:and\s+)?)+)in\s+`([\w/]+\.py)`", FAMILY)
    for table in re.findall(r"(?:^\|.*\n)+", FAMILY, flags=re.MULTILINE):
        head, _, *rows = [line.strip("| \n").split(" | ") for line in table.splitlines()]
        for column, title in enumerate(head):
            if place := re.fullmatch(r"in `([\w/]+\.py)`", title):
                named += [(row[column], place[1]) for row in rows]
    pairs = [(name, file) for names, file in named for name in re.findall(r"`(\w+)`", names)]
    assert len(pairs) > 20
    assert [(name, file) for name, file in pairs if name not in defined_in(PACKAGE / file)] == []


def test_every_training_of_the_attention_family_is_a_configuration_of_a_run_of_its_own():
    trainings = commands("train")
    assert len(trainings) > 10
    runs = [load_config(ROOT / config, overrides).run_dir for config, *overrides in trainings]
    assert len(set(runs)) == len(runs)


def test_every_picture_of_the_attention_family_is_of_a_run_that_was_trained():
    pictures = [plot._parser().parse_intermixed_args(arguments) for arguments in commands("plot")]
    assert len(pictures) > 10
    trained = {f"{load_config(ROOT / config, overrides).run_dir}/model" for config, *overrides in commands("train")}
    assert {str(picture.model) for picture in pictures} <= trained
    assert len({picture.output for picture in pictures}) == len(pictures)
