"""The line at the end of a training about the runs beside it, which no strange run can stop."""

import json
import os
import shutil
from pathlib import Path

import pytest
from helpers.tiny import train_tiny

from transformer_mt.other_runs import place_among_runs
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.storage.checksums import sums_of, write_sums

TEXT = ("valid.source.txt", "valid.target.txt")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data("data", "ids")


def data(directory: str, ids: str) -> None:
    """A data_dir with the same validation text, cut into these pieces."""
    place = Path(directory)
    (place / "valid").mkdir(parents=True)
    (place / "valid/source.ids").write_text(ids)
    for name in TEXT:
        (place / name).write_text("ein Satz\n")
    write_sums(place, sums_of(place, ["valid/source.ids", *TEXT]))


def write_run(name: str, bleu: list[float | None], *overrides: str, digest: str = "same") -> Path:
    """A run as `train` leaves it, as far as it matters."""
    run_dir = Path("runs", name)
    run_dir.mkdir(parents=True)
    settings = ["run_dir=" + str(run_dir), "data_dir=data", "corpus.train=t", "corpus.valid=v", *overrides]
    config = load_config(Path(__file__).parents[2] / "configs/demo_en_de.yaml", settings)
    (run_dir / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    (run_dir / "run.json").write_text(json.dumps([{"data": {"valid": "other"}}, {"data": {"valid": digest}}]))
    records = [{"step": 1, "loss": 2.0}, *({"step": 1, "valid_bleu": value, "valid_nll": 0.5} for value in bleu)]
    (run_dir / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run_dir


def said_of(run_dir: Path) -> str | None:
    return place_among_runs(load_config(run_dir / "config.yaml"))


def test_the_best_and_the_others_know_their_place():
    runs = [write_run("a", [3.0, 95.45, 95.0]), write_run("b", [None, 94.1]), write_run("c", [50.0, 90.0])]
    write_run("elsewhere", [99.0], digest="another")
    write_run("few", [99.0], "training.valid_sentences=5")
    assert said_of(runs[0]) == "validation BLEU 95.45: the best of 3 runs on this corpus (next: runs/b with 94.10)"
    assert said_of(runs[2]) == "validation BLEU 90.00: number 3 of 3 runs on this corpus (best: runs/a with 95.45)"


def test_a_perplexity_is_better_if_it_is_lower():
    run = write_run("a", [1.0], "training.metric=nll")
    other = write_run("b", [])
    (other / "log.jsonl").write_text(json.dumps({"step": 1, "valid_nll": 2.0}))
    assert said_of(run) == "validation perplexity 1.65: the best of 2 runs on this corpus (next: runs/b with 7.39)"


@pytest.mark.parametrize(("metric", "is_comparable"), [("bleu", True), ("nll", False)])
def test_the_same_text_in_other_pieces_is_compared_by_bleu_only(monkeypatch, metric, is_comparable):
    data("pieces", "other ids")
    digests = {"data": "same", "pieces": "of the pieces"}
    monkeypatch.setattr("transformer_mt.other_runs.data_digests", lambda place: {"valid": digests[str(place)]})
    run = write_run("a", [1.0], f"training.metric={metric}")
    write_run("b", [2.0], "data_dir=pieces", digest="of the pieces")
    assert (said_of(run) is not None) == is_comparable
    digests["pieces"] = "prepared anew since"
    assert said_of(run) is None


def test_runs_that_cannot_be_read_do_not_count():
    run = write_run("a", [1.0])
    for number, (file, content) in enumerate(
        [
            ("run.json", "[]"),
            ("run.json", "{"),
            ("run.json", '[{"data": 3}]'),
            ("config.yaml", "x: ["),
            ("log.jsonl", '{"valid_bleu": '),
            ("log.jsonl", '{"valid_bleu": "x"}'),
            ("log.jsonl", ""),
        ]
    ):
        (write_run(str(number), [9.0]) / file).write_text(content)
    for name in ("gone", "pipe"):
        (write_run(name, [9.0]) / "log.jsonl").unlink()
    os.mkfifo("runs/pipe/log.jsonl")
    Path("runs/link").symlink_to("a")
    assert said_of(run) is None
    write_run("good", [0.5])
    assert said_of(run) == "validation BLEU 1.00: the best of 2 runs on this corpus (next: runs/good with 0.50)"
    (run / "run.json").unlink()
    assert said_of(run) is None


def test_training_says_it_at_its_end(experiment, trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "runs/a", symlinks=True)
    train_tiny(experiment, tmp_path / "runs/b", "training.max_steps=1", "training.validate_every=1")
    *_, place, after = capsys.readouterr().out.splitlines()
    assert place.startswith("validation BLEU 0.") and "of 2 runs on this corpus (" in place
    assert after.startswith("next: ")
