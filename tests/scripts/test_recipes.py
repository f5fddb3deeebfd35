"""The tables of docs/recipes.md are those of docs/recipes.tsv, and a run adds the right line to it."""

import csv

import pytest
import recipes
from recipes import Result


def row(settings, bleu, seed="1", tokens="1.50"):
    return Result("a table", settings, seed, tokens, "2.0", "greedy", bleu, "a processor", "abcdef0")


def test_the_page_has_the_tables_of_the_results():
    assert recipes.page() == recipes.PAGE.read_text(encoding="utf-8"), "run python scripts/recipes.py write"


def test_each_table_of_the_results_is_on_the_page():
    tables = {mark[2] for mark in recipes.MARK.finditer(recipes.PAGE.read_text(encoding="utf-8"))}
    assert tables == {row.table for row in recipes.results()}


def test_a_table_has_the_settings_that_differ_and_the_mean_of_the_seeds():
    rows = [
        row("model.dropout=0.3 training.r_drop=5", "20.0"),
        row("model.dropout=0.3 training.r_drop=5", "23.0", seed="2"),
        row("model.dropout=0.3", "19.0"),
    ]
    assert recipes.table_of(rows).splitlines() == [
        "| R-Drop | target tokens | BLEU |",
        "| --- | --- | --- |",
        "| 5 | 1.50 million | 21.5 (20.0–23.0, 2 seeds) |",
        "|  | 1.50 million | 19.0 |",
    ]
    without_tokens = recipes.table_of([one._replace(tokens="") for one in rows])
    assert "target tokens" not in without_tokens and "21.5" in without_tokens
    some_tokens = recipes.table_of([*rows[:2], rows[2]._replace(tokens="")])
    assert some_tokens.splitlines()[-1] == "|  |  | 19.0 |"


@pytest.mark.thorough
def test_a_run_adds_its_settings_and_its_score(evaluated, tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "RESULTS", tmp_path / "recipes.tsv")
    (tmp_path / "recipes.tsv").write_text("\t".join(Result._fields) + "\n", encoding="utf-8")
    recipes.add([recipes.result_of("a table", evaluated)])
    (added,) = recipes.results()
    assert (added.table, added.seed, added.search) == ("a table", "1", "beam 2")
    assert "run_dir" not in added.settings
    assert 0 <= float(added.bleu) <= 100
    with (tmp_path / "recipes.tsv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file, delimiter="\t"))) == 2
