"""Pictures of positions and masks: what they show, and what is refused."""

import numpy as np
import pytest
from helpers.thorough import thorough
from helpers.tiny import status_and_error

from transformer_mt import plot
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.reporting import picture_file, plot_textbook

pytest.importorskip("matplotlib")


@pytest.fixture
def shown(monkeypatch, tmp_path, capsys):
    """A function that runs `plot`: what the figure was made of, and what was printed.

    With an ending, files are written, which takes most of the time; twice, since the same input gives the same bytes.
    """

    def run(*words, ending=None):
        output, got = tmp_path / f"picture.{ending or 'png'}", []
        for name in ("positions_figure", "masks_figure"):
            real = getattr(plot_textbook, name)
            monkeypatch.setattr(plot_textbook, name, lambda *given, real=real: (got.append(given), real(*given))[1])
        written = []
        for _ in range(2 if ending else 1):
            with monkeypatch.context() as patch:
                if ending is None:
                    patch.setattr(picture_file, "write", lambda _, make, __: make())
                assert plot.main([*map(str, words), "--output", str(output)]) == 0
            written.append(output.read_bytes() if ending else b"")
        assert written[0] == written[-1]
        assert ending is None or output.stat().st_size > 1000
        return got[0], capsys.readouterr().out.splitlines()[0]

    return run


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["png", *thorough("svg", "pdf")])
def test_sinusoids(shown, ending):
    (table_TD,), said = shown("positions", "--positions", 30, "--width", 16, ending=ending)
    assert np.array_equal(table_TD, sinusoidal(30, 16))
    assert said.endswith("30 positions of 16 dimensions")
    products = plot_textbook.positions_figure(table_TD).axes[2].images[0].get_array()
    plain_TT = [[sum(a * b for a, b in zip(one, two, strict=True)) for two in table_TD] for one in table_TD]
    assert np.allclose(products, plain_TT, atol=1e-5)


def test_masks_are_those_of_the_models(shown):
    (masks,), said = shown("masks", "--length", 5, "--padding", 1, "--window", 1)
    sees = {
        "encoder and cross-attention": lambda t, s: s < 4,
        "decoder": lambda t, s: s <= t,
        "encoder, window 1": lambda t, s: t == s or (s < 4 and abs(t - s) <= 1),
        "decoder, window 1": lambda t, s: t == s or (s < 4 and 0 <= t - s <= 1),
    }
    assert list(masks) == list(sees) and said.endswith("; ".join(sees))
    for name, mask_TT in masks.items():
        assert mask_TT.tolist() == [[sees[name](t, s) for s in range(5)] for t in range(5)], name


@pytest.mark.parametrize(
    "words",
    [
        ["positions", "--width", "7"],
        ["positions", "--positions", "100000"],
        ["positions", "--positions", "0"],
        ["masks", "--padding", "8"],
        ["masks", "--window", "0"],
    ],
)
def test_numbers_that_make_no_sense_are_refused(words, tmp_path, capsys):
    status, error = status_and_error(plot.main, *words, "--output", tmp_path / "x.png", capsys=capsys)
    assert status == 2 and error.count("\n") == 1 and "--" in error


def test_the_word_attention_can_be_left_out(tmp_path, capsys):
    for words in ([], ["attention"]):
        status, error = status_and_error(
            plot.main, *words, tmp_path / "none", "--source", "x", "--output", tmp_path / "x.png", capsys=capsys
        )
        assert status == 2 and str(tmp_path / "none") in error
