"""A test set that stands in the training text of its run is told of, and one that cannot be compared is not."""

import pytest
from helpers.tiny import demo_pairs, write_experiment

from transformer_mt import prepare
from transformer_mt.evaluation.evaluated_texts import NOT_KNOWN, TestSet, seen_in_training
from transformer_mt.evaluation.scores_json import AlsoInTraining
from transformer_mt.preparing.prepared import data_digests
from transformer_mt.settings.reading import load_config
from transformer_mt.text.tokenizer import Tokenizer

TRAINING = demo_pairs(340)  # the first 300 are trained on
OTHERS = [(source.replace(".", "!"), target) for source, target in TRAINING[:3]]
# Spaces do not count, as they do not in training.
TEST = [*OTHERS, (f" {TRAINING[7][0]}  ", TRAINING[7][1]), (TRAINING[9][0], "Etwas anderes."), TRAINING[20]]


@pytest.fixture(params=[None, "<2de>"], scope="module")
def prepared(request, tmp_path_factory):
    """The configuration of a corpus, its data_dir and its tokenizer."""
    directory = tmp_path_factory.mktemp("seen")
    overrides = [f"corpus.train={{path: {directory / 'train'}, tag: {request.param}}}"] if request.param else []
    config = load_config(write_experiment(directory), [*overrides, "filters.held_out=false"])
    prepare.prepare(config)
    return config.corpus, directory / "data", Tokenizer.load(directory / "data")


def texts(pairs: list[tuple[str, str]]) -> dict[str, TestSet]:
    sources, targets = map(list, zip(*pairs, strict=True))
    return {"news": TestSet(sources, [["Nichts."] * len(targets), targets])}


def test_pairs_and_sources_are_counted_and_named(prepared):
    config, data_dir, tokenizer = prepared
    seen = seen_in_training([data_dir / "nowhere", data_dir], tokenizer, config, texts(TEST))
    assert seen.found == {"news": AlsoInTraining(sources=3, pairs=2, source_lines=[4, 5, 6], pair_lines=[4, 6])}
    [said] = seen.messages
    assert said.startswith(
        "warning: news: 2 of 6 pairs and 3 of the sources also stand in the training text of the run"
    )
    assert f"The pairs are on lines 4, 6 of the test set; line 4 is line 8 of {data_dir.parent / 'train.en'}." in said


def test_sources_alone_are_a_note_and_nothing_is_said_of_nothing(prepared):
    config, data_dir, tokenizer = prepared
    [said] = seen_in_training([data_dir], tokenizer, config, texts(TEST[4:5])).messages
    assert said.startswith("note: news: 0 of 1 pair and 1 of the sources") and "The sources are on line 1 of" in said
    nothing = AlsoInTraining(sources=0, pairs=0, source_lines=[], pair_lines=[])
    seen = seen_in_training([data_dir], tokenizer, config, texts(OTHERS))
    assert (seen.found, seen.messages) == ({"news": nothing}, [])


def test_training_text_of_another_tokenizer_or_nowhere_is_not_looked_at(prepared, separate_tokenizer):
    config, data_dir, tokenizer = prepared
    assert seen_in_training([data_dir], separate_tokenizer, config, texts(TEST)) is NOT_KNOWN
    assert seen_in_training([data_dir / "nowhere"], tokenizer, config, texts(TEST)) is NOT_KNOWN


def test_another_training_text_than_that_of_the_run_is_not_looked_at(prepared):
    config, data_dir, tokenizer = prepared
    digest = data_digests(data_dir)["train"]
    assert seen_in_training([data_dir], tokenizer, config, texts(TEST), digest).found["news"].pairs == 2
    seen = seen_in_training([data_dir], tokenizer, config, texts(TEST), "of another text")
    assert seen.found == {} and "was prepared anew since the run was trained" in seen.messages[0]
