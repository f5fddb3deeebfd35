"""Attention weights as heat maps: the right cells, any text."""

import numpy as np
import pytest
import torch
from helpers.thorough import thorough

from transformer_mt.reporting import picture_file
from transformer_mt.reporting.plot_attention import Side, heat_maps_of

matplotlib = pytest.importorskip("matplotlib")

UNASSIGNED = "\u0378"  # by Unicode: no font has it
ROWS, COLUMNS = Side("target", ["▁Er", "▁sieht", "</s>"]), Side("source", ["▁He", "▁sees", ".", "</s>"])


def weights(num_maps=1, num_rows=3, num_columns=4):
    return np.random.default_rng(1).dirichlet(np.ones(num_columns), (num_maps, num_rows)).astype(np.float32)


def figure(maps_MTS, rows=ROWS, columns=COLUMNS, across=2):
    titles = [f"head {head}" for head in range(1, len(maps_MTS) + 1)]
    return heat_maps_of(maps_MTS, titles, across, rows, columns)


def draw(maps_MTS, rows, columns, path):
    picture_file.write(path, lambda: figure(maps_MTS, rows, columns), "".join(rows.pieces + columns.pieces))


def maps(figure):
    """Those of the axes that show one, not the colours."""
    return [axes for axes in figure.axes if axes.images]


@pytest.mark.parametrize("num_heads", [1, 2, 5, 8])
def test_each_head_is_a_map_of_its_weights_between_named_pieces(num_heads):
    weights_HTS = weights(num_heads)
    found = maps(figure(weights_HTS))
    assert len(found) == num_heads
    for head, (axes, weights_TS) in enumerate(zip(found, weights_HTS, strict=True), start=1):
        [image] = axes.images
        assert np.array_equal(image.get_array(), weights_TS)
        assert [text.get_text() for text in axes.get_yticklabels()] == ROWS.pieces
        assert [text.get_text() for text in axes.get_xticklabels()] == COLUMNS.pieces
        assert (axes.get_ylabel(), axes.get_xlabel()) == ("target", "source")
        assert axes.get_title() == f"head {head}"


def test_a_shade_means_the_same_in_every_picture():
    """From 0 to 1, not from the least to the greatest weight."""
    for scale in (0.1, 1.0):
        for axes in maps(figure(scale * weights(2))):
            assert axes.images[0].get_clim() == (0.0, 1.0)


def test_the_first_row_is_at_the_top_and_a_weight_of_one_is_dark(tmp_path):
    draw(np.eye(3)[None], Side("", ["", "", ""]), Side("", ["", "", ""]), tmp_path / "x.png")
    picture_HW = torch.tensor(matplotlib.image.imread(tmp_path / "x.png"))[..., :3].mean(dim=-1)
    height, width = picture_HW.shape
    # To the right of the map there are the colours.
    dark = torch.nonzero(picture_HW[:, : int(width * 0.7)] < 0.35).float()
    low, high = dark[dark[:, 0] < height / 4], dark[dark[:, 0] > 3 * height / 4]
    assert low[:, 1].median() < high[:, 1].median()


@pytest.mark.thorough
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
    for name in picture_file.FORMATS:
        draw(weights(1, len(pieces), len(pieces)), side, side, tmp_path / f"x.{name}")
    [axes] = maps(figure(weights(1, len(pieces), len(pieces)), side, side))
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert shown == pieces


@pytest.mark.thorough
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 150, 2), *thorough((1, 2, 150), (4, 5, 60), (3, 1, 1))])
def test_maps_of_any_size_fit(sizes, tmp_path):
    _, num_rows, num_columns = sizes
    rows, columns = Side("target", ["▁undzwanzig"] * num_rows), Side("source", ["▁twenty"] * num_columns)
    draw(weights(*sizes), rows, columns, tmp_path / "x.png")
    assert max(matplotlib.image.imread(tmp_path / "x.png").shape) < 3500


@pytest.mark.parametrize(("across", "shape"), [(1, (6, 1)), (2, (3, 2)), (3, (2, 3)), (4, (2, 4)), (6, (1, 6))])
def test_so_many_maps_stand_side_by_side(across, shape):
    found = maps(figure(weights(6), across=across))
    assert len(found) == 6
    assert {axes.get_subplotspec().get_gridspec().get_geometry() for axes in found} == {shape}
