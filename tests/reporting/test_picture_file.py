"""Pictures as files: the same bytes, safely written."""

import re
import sys
from pathlib import Path

import pytest
from helpers.messages import message

from transformer_mt.base.errors import UserError
from transformer_mt.reporting import picture_file
from transformer_mt.reporting.picture_file import FORMATS

matplotlib = pytest.importorskip("matplotlib")

UNASSIGNED = "\u0378"  # by Unicode: no font has it


def draw(path):
    def make():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2, 2))
        axes = figure.subplots()
        axes.plot([0.0, 1.0], [0.0, 0.3])
        axes.set(title="a title", xlabel="a label")
        return figure

    picture_file.write(path, make)


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_picture_is_the_same_bytes_whatever_the_user_likes(name, tmp_path):
    draw(tmp_path / f"one.{name}")
    liked = {"font.size": 30.0, "font.family": ["serif"], "axes.grid": True, "savefig.facecolor": "black"}
    with matplotlib.rc_context(liked):
        draw(tmp_path / f"other.{name}")
        assert matplotlib.rcParams["font.size"] == 30.0, "which stays as it was"
    content = (tmp_path / f"one.{name}").read_bytes()
    assert content == (tmp_path / f"other.{name}").read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[name])


@pytest.mark.parametrize("name", FORMATS)
def test_a_picture_has_no_date_and_no_version(name, tmp_path):
    draw(tmp_path / f"x.{name}")
    content = (tmp_path / f"x.{name}").read_bytes()
    assert not re.search(rb"CreationDate|dc:date|Matplotlib v|matplotlib-|Software", content)


def test_characters_of_no_font_are_named():
    assert picture_file.fonts_for(f"▁a{UNASSIGNED}ß{UNASSIGNED}")[1] == {UNASSIGNED}
    assert picture_file.fonts_for("▁ab$ßäé") == (["DejaVu Sans"], set())


@pytest.mark.parametrize("name", ["x", "x.jpg", "x.png.gz", ".png"])
def test_an_unknown_format_is_refused(name):
    with pytest.raises(UserError, match=message("picture-suffix-unknown", "png, .svg, .pdf")):
        picture_file.check(Path(name))


def test_capital_letters_name_a_format_too():
    assert picture_file.check(Path("x.PNG")) == "png"


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=message("matplotlib-not-installed")):
        picture_file.check(Path("x.png"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_picture_is_replaced_and_a_file_of_something_else_is_not(name, tmp_path):
    path = tmp_path / f"x.{name}"
    for _ in range(2):
        draw(path)
    path.write_text("mine")
    with pytest.raises(UserError, match=message("picture-place-taken", str(path), f".{name}")):
        draw(path)
    assert path.read_text() == "mine"


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path):
    with pytest.raises(UserError, match=message("file-cannot-be-written", "nowhere/x.png")):
        draw(tmp_path / "nowhere" / "x.png")
    assert list(tmp_path.iterdir()) == []
