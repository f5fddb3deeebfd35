"""Weights become a picture: the right cells, any text, the same bytes."""

import re
import sys
from pathlib import Path

import pytest
import torch
from helpers.thorough import thorough

from transformer_mt.errors import PictureError, UserError
from transformer_mt.evaluation import heat_map
from transformer_mt.evaluation.heat_map import FORMATS, Side, draw, figure_of

matplotlib = pytest.importorskip("matplotlib")

UNASSIGNED = "\u0378"  # by Unicode: no font has it
ROWS, COLUMNS = Side("target", ["▁Er", "▁sieht", "</s>"]), Side("source", ["▁He", "▁sees", ".", "</s>"])


def weights(num_heads=1, num_rows=3, num_columns=4):
    return torch.rand(num_heads, num_rows, num_columns, generator=torch.Generator().manual_seed(1)).softmax(dim=-1)


def maps(figure):
    """Those of the axes that show one, not the colours."""
    return [axes for axes in figure.axes if axes.images]


@pytest.mark.parametrize("num_heads", [1, 2, 5, 8])
def test_each_head_is_a_map_of_its_weights_between_named_pieces(num_heads):
    weights_HTS = weights(num_heads)
    found = maps(figure_of(weights_HTS, ROWS, COLUMNS))
    assert len(found) == num_heads
    for head, (axes, weights_TS) in enumerate(zip(found, weights_HTS, strict=True), start=1):
        [image] = axes.images
        assert torch.equal(torch.tensor(image.get_array()), weights_TS)
        assert [text.get_text() for text in axes.get_yticklabels()] == ROWS.pieces
        assert [text.get_text() for text in axes.get_xticklabels()] == COLUMNS.pieces
        assert (axes.get_ylabel(), axes.get_xlabel()) == ("target", "source")
        assert axes.get_title() == (f"head {head}" if num_heads > 1 else "")


def test_a_shade_means_the_same_in_every_picture():
    """From 0 to 1, not from the least to the greatest weight."""
    for scale in (0.1, 1.0):
        for axes in maps(figure_of(scale * weights(2), ROWS, COLUMNS)):
            assert axes.images[0].get_clim() == (0.0, 1.0)


def test_the_first_row_is_at_the_top_and_a_weight_of_one_is_dark(tmp_path):
    draw(torch.eye(3)[None], Side("", ["", "", ""]), Side("", ["", "", ""]), tmp_path / "x.png")
    picture_HW = torch.tensor(matplotlib.image.imread(tmp_path / "x.png"))[..., :3].mean(dim=-1)
    height, width = picture_HW.shape
    # To the right of the map there are the colours.
    dark = torch.nonzero(picture_HW[:, : int(width * 0.7)] < 0.35).float()
    low, high = dark[dark[:, 0] < height / 4], dark[dark[:, 0] > 3 * height / 4]
    assert low[:, 1].median() < high[:, 1].median()


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_maps_are_the_same_bytes_whatever_the_user_likes(name, tmp_path):
    draw(weights(2), ROWS, COLUMNS, tmp_path / f"one.{name}")
    liked = {"font.size": 30.0, "font.family": ["serif"], "axes.grid": True, "savefig.facecolor": "black"}
    with matplotlib.rc_context(liked):
        draw(weights(2), ROWS, COLUMNS, tmp_path / f"other.{name}")
        assert matplotlib.rcParams["font.size"] == 30.0, "which stays as it was"
    content = (tmp_path / f"one.{name}").read_bytes()
    assert content == (tmp_path / f"other.{name}").read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[name])


@pytest.mark.parametrize("name", FORMATS)
def test_a_picture_has_no_date_and_no_version(name, tmp_path):
    draw(weights(), ROWS, COLUMNS, tmp_path / f"x.{name}")
    content = (tmp_path / f"x.{name}").read_bytes()
    assert not re.search(rb"CreationDate|dc:date|Matplotlib v|matplotlib-|Software", content)


def test_pieces_may_be_any_text(tmp_path):
    """A warning of matplotlib would be an error here."""
    pieces = [
        "$x^$",
        "\\frac{",
        "#",
        "%",
        "_",
        "&<>\"'",
        "▁ﷺشكرا",
        "▁中国",
        "😀",
        UNASSIGNED,
        "\x00\x1b",
        "e\u0301",
        "",
    ]
    side = Side("source", pieces)
    for name in FORMATS:
        draw(weights(1, len(pieces), len(pieces)), side, side, tmp_path / f"x.{name}")
    [axes] = maps(figure_of(weights(1, len(pieces), len(pieces)), side, side))
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert shown[:6] == pieces[:6]
    assert shown[9] == "U+0378"


def test_characters_of_no_font_are_named():
    assert heat_map.without_font(f"▁a{UNASSIGNED}ß{UNASSIGNED}") == [UNASSIGNED]
    assert heat_map.without_font("▁ab$ßäé") == []


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 150, 2), *thorough((1, 2, 150), (4, 5, 60), (3, 1, 1))])
def test_maps_of_any_size_fit(sizes, tmp_path):
    _, num_rows, num_columns = sizes
    rows, columns = Side("target", ["▁undzwanzig"] * num_rows), Side("source", ["▁twenty"] * num_columns)
    draw(weights(*sizes), rows, columns, tmp_path / "x.png")
    assert max(matplotlib.image.imread(tmp_path / "x.png").shape) < 3500


@pytest.mark.parametrize("name", ["x", "x.jpg", "x.png.gz", ".png"])
def test_an_unknown_format_is_refused(name):
    with pytest.raises(PictureError, match=r"x?.*: the name of a picture must end in .png, .svg, .pdf"):
        heat_map.check(Path(name))


def test_capital_letters_name_a_format_too():
    assert heat_map.check(Path("x.PNG")) == "png"


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PictureError, match=r"pip install 'transformer-mt\[plot\]'"):
        heat_map.check(Path("x.png"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_picture_is_replaced_and_a_file_of_something_else_is_not(name, tmp_path):
    path = tmp_path / f"x.{name}"
    for _ in range(2):
        draw(weights(), ROWS, COLUMNS, path)
    path.write_text("mine")
    with pytest.raises(PictureError, match=rf"{path}: is there already, and is not a picture in the format {name}"):
        draw(weights(), ROWS, COLUMNS, path)
    assert path.read_text() == "mine"


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path):
    with pytest.raises(UserError, match=r"nowhere/x\.png: cannot be written"):
        draw(weights(), ROWS, COLUMNS, tmp_path / "nowhere" / "x.png")
    assert list(tmp_path.iterdir()) == []
