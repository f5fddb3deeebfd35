"""Parts of the page: what differs comes first, and text stays text."""

import sys

import pytest
from helpers.messages import says
from helpers.tiny import status_and_error
from helpers.untrained import write_untrained

from transformer_mt import report
from transformer_mt.reporting.page import SECTIONS, open_run, settings_table, with_code

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
    differ, same = settings_table([open_run(path, {section: [] for section in SECTIONS}) for path in (one, other)])
    assert dict(differ) == {"model.num_heads": ["2", "4"], "model.norm": ["post", "pre"]}
    assert dict(same)["model.d_model"] == ["16", "16"]
    assert not dict(differ).keys() & dict(same).keys()


def test_without_matplotlib_the_error_says_how_to_install_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, error = status_and_error(report.main, tmp_path, "--output", tmp_path / "report.html", capsys=capsys)
    assert status == 2 and says(error, "matplotlib-not-installed") and error.count("\n") == 1
