"""A test set that stands in the training text of its run is told of, and one that cannot be compared is not."""

import pytest
from helpers.tiny import demo_pairs, write_experiment

from transformer_mt import prepare
from transformer_mt.evaluation.evaluated_texts import also_in_training, overlap_warning
from transformer_mt.evaluation.scores_json import AlsoInTraining
from transformer_mt.preparing.prepared import data_digests
from transformer_mt.settings.reading import load_config

TRAINING = demo_pairs(300)
OTHERS = [(source.replace(".", "!"), "Nichts.") for source, _ in TRAINING[:3]]
# Spaces do not count, as they do not in training.
TEST = [*OTHERS, (f" {TRAINING[7][0]}  ", TRAINING[7][1]), (TRAINING[9][0], "Etwas anderes."), TRAINING[20]]
NOTHING = AlsoInTraining(sources=0, targets=0, pairs=0)


@pytest.fixture(params=[None, "<2de>"])
def prepared(request, tmp_path):
    """A function that prepares a corpus and this test set; returns the data_dir."""

    def prepare_with(*overrides):
        overrides = [f"corpus.test={{news: {tmp_path / 'news'}}}", *overrides]
        if request.param:
            overrides.append(f"corpus.train={{path: {tmp_path / 'train'}, tag: {request.param}}}")
        for number, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[number]}\n" for pair in TEST)
            (tmp_path / f"news.{language}").write_text(lines, encoding="utf-8")
        prepare.prepare(load_config(write_experiment(tmp_path), overrides))
        return tmp_path / "data"

    return prepare_with


def test_pairs_and_sources_are_counted_where_they_stay_in_training(prepared):
    data_dir = prepared("filters.held_out=false")
    found = also_in_training(data_dir, ["news"], data_digests(data_dir)["train"])
    assert found == {"news": AlsoInTraining(sources=3, targets=2, pairs=2)}
    assert found == also_in_training(data_dir, ["news"], None)
    said = overlap_warning("news", found["news"], data_dir)
    assert said.startswith("news: 2 pairs and 3 sources are also in the training text of the run (")
    assert overlap_warning("news", NOTHING, data_dir) is None


def test_nothing_is_there_of_what_was_left_out(prepared):
    data_dir = prepared("filters.held_out=true")
    assert also_in_training(data_dir, ["news"], None) == {"news": NOTHING}


def test_another_training_text_or_none_is_not_known(prepared, tmp_path):
    data_dir = prepared("filters.held_out=false")
    assert also_in_training(data_dir, ["news"], "of another text") == {}
    assert also_in_training(tmp_path / "nowhere", ["news"], None) == {}
