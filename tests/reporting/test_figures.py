"""Pictures of positions, masks, schedules and curves: what they show, their numbers, and what is refused."""

import json
import os

import numpy as np
import pytest
from helpers.messages import says
from helpers.thorough import thorough
from helpers.tiny import ROOT, status_and_error

from transformer_mt import plot
from transformer_mt.models.embeddings import sinusoidal
from transformer_mt.reporting import picture_file, plot_textbook
from transformer_mt.reporting.plot_textbook import CURVES, DRAWN
from transformer_mt.settings.reading import load_config
from transformer_mt.training.optimization import learning_rate

pytest.importorskip("matplotlib")

CONFIG = ROOT / "configs" / "demo_en_de.yaml"


@pytest.fixture
def shown(monkeypatch, tmp_path, capsys):
    """A function that runs `plot`: what the figure was made of, and what was printed.

    With an ending, files are written, which takes most of the time; twice, since the same input gives the same bytes.
    """

    def run(*words, ending=None):
        output, got = tmp_path / f"picture.{ending or 'png'}", []
        for name in ("positions_figure", "masks_figure", "lines_figure"):
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


def test_schedules_are_those_of_training(shown):
    other = ROOT / "configs" / "wmt14_en_de_base.yaml"
    (panels,), _ = shown("schedule", CONFIG, other, "training.max_steps=5000")
    (lines,) = panels.values()
    assert list(lines) == [str(CONFIG), str(other)]
    for path, (steps, rates) in zip((CONFIG, other), lines.values(), strict=True):
        settings = load_config(path, ["training.max_steps=5000"]).training
        assert steps[0] == 1 and 4990 < steps[-1] <= 5000 and len(steps) <= 2000
        assert rates == [learning_rate(step, settings) for step in steps]


def write_log(run, *records, end="\n"):
    run.mkdir()
    (run / "log.jsonl").write_text("\n".join(map(json.dumps, records)) + end)
    return run


def test_curves_are_the_numbers_of_the_log(shown, tmp_path):
    """Of a run that is just writing its last line, too."""
    records = [{"step": step, "loss": 9 - step, "nll": 8 - step, "learning_rate": 0.1} for step in (1, 2, 3)]
    one = write_log(tmp_path / "one", *records, {"step": 3, "valid_nll": 4.0, "valid_bleu": 5.5}, {"step": 4}, end="")
    other = write_log(tmp_path / "two", *records[:2])
    (panels,), said = shown("curves", one, other)
    assert panels[CURVES["loss"]] == {str(one): ([1, 2, 3], [8, 7, 6]), str(other): ([1, 2], [8, 7])}
    assert panels[CURVES["valid_bleu"]] == {str(one): ([3], [5.5])}
    assert list(panels) == [CURVES[name] for name in DRAWN] and said.endswith("; ".join(panels))


def test_a_loss_that_was_not_finite_is_a_gap_and_a_point_without_neighbours_is_marked(shown, tmp_path):
    """The log has null for it."""
    losses = [1.5, None, 2.5, None, *[3.5] * 30]
    run = write_log(tmp_path / "run", *({"step": step, "loss": loss} for step, loss in enumerate(losses)))
    (panels,), _ = shown("curves", run)
    assert panels[CURVES["loss"]] == {str(run): (list(range(len(losses))), losses)}
    [line] = plot_textbook.lines_figure({"loss": {"run": (range(len(losses)), losses)}}).axes[0].lines
    assert np.array_equal(line.get_ydata(), np.array(losses, float), equal_nan=True)
    assert np.flatnonzero(line.get_markevery()).tolist() == [0, 2]


def test_curves_of_a_pipe_are_not_waited_for(at_once, tmp_path, capsys):
    os.mkfifo(tmp_path / "log.jsonl")
    status, error = status_and_error(plot.main, "curves", tmp_path, "--output", tmp_path / "x.png", capsys=capsys)
    assert status == 2 and "log.jsonl: it is not a regular file" in error


@pytest.mark.parametrize("number", [1, 2, 3, 5, 10])
def test_panels_of_lines_are_as_wide_and_high_as_a_slide(number):
    figure = plot_textbook.lines_figure({f"quantity {panel}": {"run": ([1, 2], [3.0, 4.0])} for panel in range(number)})
    width, height = figure.get_size_inches()
    assert 4 / 3 <= width / height <= 16 / 9 + 1e-9
    assert len(figure.axes) == number
    boxes = [axes.get_position() for axes in figure.axes]
    assert all(box.width / box.height * width / height < 4 for box in boxes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ("log-cannot-be-read", "No such file or directory")),
        ("", ("log-without-update",)),
        ('{"step": 1}\n', ("log-without-update",)),
        ('{"step": 1}\n{]\n', ("log-not-by-train", "log.jsonl, line 2:")),
        ('{"epoch": 1}\n', ("log-not-by-train", "line 1: step: Field required")),
        ('{"step": 1, "loss": "low"}\n', ("log-not-by-train", "line 1: loss: Input should be a valid number")),
        ('{"step": 1, "loss": 1e999}\n', ("log-not-by-train", "line 1: loss: Input should be a finite number")),
        ("[]\n", ("log-not-by-train", "line 1: Input should be an object")),
    ],
)
def test_logs_that_are_none_are_named(text, expected, tmp_path, capsys):
    if text is not None:
        (tmp_path / "log.jsonl").write_text(text)
    status, error = status_and_error(plot.main, "curves", tmp_path, "--output", tmp_path / "x.png", capsys=capsys)
    assert status == 2 and says(error, *expected) and not (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["positions", "--width", "7"],
        ["positions", "--positions", "100000"],
        ["positions", "--positions", "0"],
        ["masks", "--padding", "8"],
        ["masks", "--window", "0"],
        ["schedule", "training.max_steps=3"],
    ],
)
def test_numbers_that_make_no_sense_are_refused(words, tmp_path, capsys):
    status, error = status_and_error(plot.main, *words, "--output", tmp_path / "x.png", capsys=capsys)
    assert status == 2 and error.count("\n") == 1 and ("--" in error or "at least one" in error)


def test_the_word_attention_can_be_left_out(tmp_path, capsys):
    for words in ([], ["attention"]):
        status, error = status_and_error(
            plot.main, *words, tmp_path / "none", "--source", "x", "--output", tmp_path / "x.png", capsys=capsys
        )
        assert status == 2 and str(tmp_path / "none") in error
