"""Parts of the page: what differs comes first, and text stays text."""

import sys

import pytest
from helpers.messages import says
from helpers.tiny import status_and_error
from helpers.untrained import write_untrained
from helpers.web_page import WebPage, alphas

from transformer_mt import report
from transformer_mt.reporting.gathered import SECTIONS, open_runs
from transformer_mt.reporting.page import settings_table, with_code

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("run `average <b>` & wait", "run <code>average &lt;b&gt;</code> &amp; wait"),
        ("one ` only <i>", "one ` only &lt;i&gt;"),
        ("<script>", "&lt;script&gt;"),
    ],
)
def test_text_between_backticks_is_code_and_all_text_is_escaped(text, html):
    assert with_code(text) == html


def test_settings_that_differ_are_told_from_the_others(tmp_path, joint_tokenizer):
    one = write_untrained(tmp_path / "one", joint_tokenizer)
    other = write_untrained(tmp_path / "other", joint_tokenizer, num_heads=4, norm="pre")
    differ, same = settings_table(open_runs([one, other], {section: [] for section in SECTIONS}))
    assert dict(differ) == {"model.num_heads": ["2", "4"], "model.norm": ["post", "pre"]}
    assert dict(same)["model.d_model"] == ["16", "16"]
    assert not dict(differ).keys() & dict(same).keys()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "has_self_attention"),
    [
        ({"kind": "rnn"}, False),
        ({"kind": "rnn", "attention": "none"}, False),
        ({"kind": "convolutional"}, False),
        ({"positions": "learned"}, True),
        ({}, True),
    ],
)
def test_every_architecture_has_a_report(settings, has_self_attention, tmp_path, joint_tokenizer):
    model = write_untrained(tmp_path / "model", joint_tokenizer, **settings)
    output = tmp_path / "report.html"
    assert report.main([str(model), "--sentence", "The child is sleeping.", "--output", str(output)]) == 0
    page = WebPage.read(output)
    kinds = {name.split("-")[1] for name in alphas(page) if name.startswith("s0-")}
    if settings.get("attention") == "none":
        assert not kinds and "has no attention" in page.text
    else:
        assert kinds == ({"cross", "encoder", "decoder"} if has_self_attention else {"cross"})


def test_the_attention_of_long_sentences_is_left_out_and_that_is_said(tmp_path, joint_tokenizer, monkeypatch):
    model = write_untrained(tmp_path / "model", joint_tokenizer)
    monkeypatch.setattr("transformer_mt.reporting.gathered.MOST_PIECES", 3)
    output = tmp_path / "report.html"
    assert report.main([str(model), "--sentence", "He sees.", "--output", str(output)]) == 0
    page = WebPage.read(output)
    assert [name for name in alphas(page) if name.startswith("s")] == []
    assert "“He sees.”: attention is drawn only up to 3 pieces" in page.text


def test_without_matplotlib_the_error_says_how_to_install_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, error = status_and_error(report.main, tmp_path, "--output", tmp_path / "report.html", capsys=capsys)
    assert status == 2 and says(error, "matplotlib-not-installed") and error.count("\n") == 1
