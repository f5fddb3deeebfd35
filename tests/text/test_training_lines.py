"""What is known of the lines that a model was trained on."""

import json

import numpy as np
import pytest
from helpers.thorough import thorough
from helpers.tiny import demo_pairs, write_experiment

from transformer_mt import average, prepare
from transformer_mt.base.errors import CheckpointError
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.training_lines import FILE, TrainingLines, TrainingLinesCounter, count_sentences


def counted(pairs):
    counter = TrainingLinesCounter()
    sources, num_source, num_target = zip(*pairs, strict=True)
    counter.sentences.update(count_sentences(sources, "en"))
    counter.add_lengths(np.array(num_source), np.array(num_target))
    return counter.result()


def test_what_nine_in_ten_have_is_usual():
    rare = [("One. Two. Three.", 50, 50)]
    lines = counted([("One.", 10, 9)] * 90 + 10 * rare)
    assert (lines.pairs, lines.usual_sentences, lines.most_sentences) == (100, 1, 3)
    assert (lines.usual_pieces, lines.most_pieces) == (10, 50)
    assert counted([("One.", 10, 9)] * 89 + 11 * rare).usual_sentences == 3


def test_a_target_is_short_that_one_pair_in_a_thousand_has():
    pairs = [("a", 10, 10)] * 900 + [("a", 10, 6)] * 99
    assert counted([*pairs, ("a", 10, 1)]).least_ratio == 0.1  # one in a thousand is not fewer than that
    lines = counted([*pairs * 2, ("a", 10, 1)])
    assert lines.least_ratio == 0.6
    assert [lines.is_short(10, num_target) for num_target in (5, 6, 10)] == [True, False, False]
    assert not lines.is_short(7, 0)  # of so short a source nothing is expected


def test_short_sources_tell_nothing_of_the_ratio():
    lines = counted([("a", 7, 1)] * 10)
    assert lines.least_ratio == 0.0
    assert not lines.is_short(50, 0)


def test_prepare_counts_the_pairs_that_it_keeps(tmp_path):
    config = write_experiment(tmp_path)
    long = " ".join(source for source, _ in demo_pairs(40))
    with (tmp_path / "train.en").open("a", encoding="utf-8") as file:
        file.write(f"\nOne. Two. Three. Four.\n{long}\n")
    with (tmp_path / "train.de").open("a", encoding="utf-8") as file:
        file.write("Leer\nEins. Zwei. Drei. Vier.\nZu lang.\n")
    assert prepare.main([str(config)]) == 0
    lines = TrainingLines.load(tmp_path / "data")
    counts = json.loads((tmp_path / "data" / "prepare.json").read_text())["counts"]["train"]
    assert (lines.pairs, counts["read"] - counts["kept"]) == (counts["kept"], 2)
    assert (lines.usual_sentences, lines.most_sentences) == (1, 4)
    tokenizer = Tokenizer.load(tmp_path / "data")
    sources = (tmp_path / "train.en").read_text().splitlines()[:300]
    assert lines.most_pieces == max(len(ids) - 1 for ids in tokenizer.encode_source(sources))


def test_they_go_from_the_data_to_the_run_and_the_model(run, experiment):
    average.main([str(run)])
    data = experiment.parent / "data"
    assert (data / FILE).read_bytes() == (run / FILE).read_bytes() == (run / "model" / FILE).read_bytes()


@pytest.mark.parametrize("change", [*thorough(lambda path: path.unlink()), lambda path: path.write_text("{}")])
def test_a_model_is_averaged_anew_whose_lines_are_missing_or_damaged(run, change, capsys):
    average.main([str(run)])
    change(run / "model" / FILE)
    average.main([str(run)])
    assert "already averaged" not in capsys.readouterr().out
    assert TrainingLines.load(run / "model") == TrainingLines.load(run)


@pytest.mark.parametrize("content", [None, b"", b"{", b"{}", b"\xff", b'{"pairs": 1}'])
def test_a_damaged_or_missing_file_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{FILE}: is missing or damaged"):
        TrainingLines.load(tmp_path)
