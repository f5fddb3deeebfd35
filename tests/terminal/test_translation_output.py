"""What is written of a translation, in every form."""

import itertools
import json

import pytest

from transformer_mt.decoding.translation import BLANK, Translation
from transformer_mt.terminal.translation_output import OutputForm, output_lines

BEST = Translation("Der Hund", -0.5, -1.25, ["▁Der", "▁Hund"], [(0, 0), (1, 1)])
OTHER = Translation("Hunde", -0.75, -2.0000004, ["▁Hund", "e"], [(1, 0)])


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (OutputForm(), "Der Hund\n"),
        (OutputForm(scores=True), "-0.5000\tDer Hund\n"),
        (OutputForm(alignment=True), "Der Hund\t0-0 1-1\n"),
        (OutputForm(scores=True, alignment=True), "-0.5000\tDer Hund\t0-0 1-1\n"),
        (OutputForm(n_best=True), "7\t-0.5000\tDer Hund\n7\t-0.7500\tHunde\n"),
        (OutputForm(n_best=True, scores=True), "7\t-0.5000\tDer Hund\n7\t-0.7500\tHunde\n"),
        (OutputForm(n_best=True, alignment=True), "7\t-0.5000\tDer Hund\t0-0 1-1\n7\t-0.7500\tHunde\t1-0\n"),
    ],
)
def test_columns(form, expected):
    assert output_lines([BEST, OTHER], 7, 0.1, form) == expected


def test_a_tab_of_a_translation_stays_unless_tabs_separate_columns():
    indented = Translation("\tDer Hund", -0.5, -1.25)
    assert output_lines([indented], 7, 0.1, OutputForm()) == "\tDer Hund\n"
    assert output_lines([indented], 7, 0.1, OutputForm(scores=True)) == "-0.5000\t Der Hund\n"


@pytest.mark.parametrize(("scores", "alignment", "n_best"), list(itertools.product([False, True], repeat=3)))
def test_a_blank_line_has_the_columns_of_any_other_in_one_line(scores, alignment, n_best):
    form = OutputForm(n_best=n_best, scores=scores, alignment=alignment)
    blank, other = output_lines([BLANK], 7, 0.1, form), output_lines([BEST], 7, 0.1, form)
    assert blank.count("\t") == other.count("\t")
    assert blank.strip("\n\t") == ("7\t0.0000" if n_best else "0.0000" if scores else "")
    assert blank.count("\n") == 1


def test_an_object_has_what_was_asked_for():
    plain = json.loads(output_lines([BEST, OTHER], 7, 0.25, OutputForm(json=True)))
    assert plain == {
        "line": 7,
        "translation": "Der Hund",
        "score": -0.5,
        "log_prob": -1.25,
        "pieces": ["▁Der", "▁Hund"],
        "seconds": 0.25,
    }
    full = json.loads(output_lines([BEST, OTHER], 7, 0.25, OutputForm(json=True, alignment=True, n_best=True)))
    assert full["alignment"] == "0-0 1-1"
    assert [other["translation"] for other in full["n_best"]] == ["Der Hund", "Hunde"]
    assert full["n_best"][1] == {
        "translation": "Hunde",
        "score": -0.75,
        "log_prob": -2.0,
        "pieces": ["▁Hund", "e"],
        "alignment": "1-0",
    }


def test_an_object_is_a_line_of_readable_text():
    odd = Translation('ä "🙂" \x00\\', -1.0, -1.0, ["▁ä"], None)
    line = output_lines([odd], 1, 0.0, OutputForm(json=True))
    assert line.count("\n") == 1
    assert "ä" in line and "🙂" in line
    assert json.loads(line)["translation"] == odd.text
