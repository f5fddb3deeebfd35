"""The pictures of positions and masks show what the model computes."""

import numpy as np
import plot_textbook
import pytest

from transformer_mt.models.embeddings import sinusoidal

pytest.importorskip("matplotlib")


def test_sinusoids():
    table_TD = sinusoidal(30, 16).numpy()
    image, _, products, *_ = plot_textbook.positions_figure(table_TD).axes
    assert np.array_equal(image.images[0].get_array(), table_TD)
    plain_TT = [[sum(a * b for a, b in zip(one, two, strict=True)) for two in table_TD] for one in table_TD]
    assert np.allclose(products.images[0].get_array(), plain_TT, atol=1e-5)


def test_masks_are_those_of_the_models():
    masks = plot_textbook.masks(length=5, padding=1, window=1)
    sees = {
        "encoder and cross-attention": lambda t, s: s < 4,
        "decoder": lambda t, s: s <= t,
        "encoder, window 1": lambda t, s: t == s or (s < 4 and abs(t - s) <= 1),
        "decoder, window 1": lambda t, s: t == s or (s < 4 and 0 <= t - s <= 1),
    }
    assert list(masks) == list(sees)
    for name, mask_TT in masks.items():
        assert mask_TT.tolist() == [[sees[name](t, s) for s in range(5)] for t in range(5)], name
    shown = [axes.images[0].get_array() for axes in plot_textbook.masks_figure(masks).axes]
    assert all(np.array_equal(found, mask_TT) for found, mask_TT in zip(shown, masks.values(), strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("picture", ["positions", "masks"])
def test_the_command_writes_the_same_file_again(picture, tmp_path):
    written = []
    for _ in range(2):
        assert plot_textbook.main([picture, str(tmp_path / "x.svg")]) == 0
        written.append((tmp_path / "x.svg").read_bytes())
    assert written[0] == written[1] and len(written[0]) > 1000
