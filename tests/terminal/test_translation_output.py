"""What is written of a translation, in every form."""

import itertools
import json

import pytest

from transformer_mt.decoding.line_parts import Tags
from transformer_mt.decoding.translation import BLANK, Translation
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.terminal.translation_output import (
    Block,
    OutputForm,
    TranslationSummary,
    output_lines,
    translate_block,
)

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
    assert output_lines([BEST, OTHER], 7, 0.1, form, "The dog") == expected


def test_a_tab_of_a_translation_stays_unless_tabs_separate_columns():
    indented = Translation("\tDer Hund", -0.5, -1.25)
    assert output_lines([indented], 7, 0.1, OutputForm(), "") == "\tDer Hund\n"
    assert output_lines([indented], 7, 0.1, OutputForm(scores=True), "") == "-0.5000\t Der Hund\n"


@pytest.mark.parametrize(("scores", "alignment", "n_best"), list(itertools.product([False, True], repeat=3)))
def test_a_blank_line_has_the_columns_of_any_other_in_one_line(scores, alignment, n_best):
    form = OutputForm(n_best=n_best, scores=scores, alignment=alignment)
    blank, other = (output_lines([each], 7, 0.1, form, "") for each in (BLANK, BEST))
    assert blank.count("\t") == other.count("\t")
    assert blank.strip("\n\t") == ("7\t0.0000" if n_best else "0.0000" if scores else "")
    assert blank.count("\n") == 1


def test_an_object_has_what_was_asked_for():
    plain = json.loads(output_lines([BEST, OTHER], 7, 0.25, OutputForm(json=True), "The dog"))
    assert plain == {
        "line": 7,
        "translation": "Der Hund",
        "score": -0.5,
        "log_prob": -1.25,
        "pieces": ["▁Der", "▁Hund"],
        "seconds": 0.25,
    }
    form = OutputForm(json=True, alignment=True, n_best=True)
    full = json.loads(output_lines([BEST, OTHER], 7, 0.25, form, "The dog"))
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
    line = output_lines([odd], 1, 0.0, OutputForm(json=True), "")
    assert line.count("\n") == 1
    assert "ä" in line and "🙂" in line
    assert json.loads(line)["translation"] == odd.text


def test_each_translation_of_an_object_names_its_doubts():
    wrong, right = (Translation(text, -1.0, -1.0, ["▁1"]) for text in ("Es war 1978 1978 1978", "Es war 1987."))
    form = OutputForm(json=True, n_best=True)
    found = json.loads(output_lines([wrong, right], 1, 0.0, form, "It was 1987."))
    assert found["doubts"] == found["n_best"][0]["doubts"] == ["repeated", "numbers"]
    assert found["numbers"] == {"missing": ["1987"], "invented": ["1978"] * 3}
    assert not {"doubts", "numbers"} & found["n_best"][1].keys()
    assert "doubts" not in json.loads(output_lines([BLANK], 1, 0.0, form, "▁"))
    empty = Translation("", -1.0, -1.0)
    assert json.loads(output_lines([empty], 1, 0.0, form, "A dog."))["doubts"] == ["empty"]


class Echo:
    """Translates each line into itself, without its tag."""

    tags = Tags(tokens=("<22>",))

    def translations(self, lines, decoding, **settings):
        return [[Translation(self.tags.parted(line)[1], -1.0, -1.0) if line else BLANK] for line in lines]


def test_the_tag_of_a_line_is_no_part_of_its_source_and_doubts_are_warned_of_by_line():
    block = Block(11, ["<22> Berlin", "<22> an old dog", "", "<22> 1987"])
    summary = TranslationSummary()
    written = translate_block(Echo(), block, DecodingConfig(), OutputForm(json=True), summary)
    assert [json.loads(line).get("doubts") for line in written.splitlines()] == [None, ["copied"], None, None]
    assert list(summary.warnings()) == ["the translation of 1 line is identical to the source: look at line 12"]
