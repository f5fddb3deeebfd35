"""A test set that stands in the training text of its run is told of, and one that cannot be compared is not."""

import json

import pytest
from helpers.tiny import demo_pairs

from transformer_mt.data.encoded import write_encoded
from transformer_mt.data.prepared import data_digests
from transformer_mt.data.tags import tagged
from transformer_mt.evaluation.score_file import AlsoInTraining
from transformer_mt.evaluation.seen_in_training import NOT_KNOWN, seen_in_training
from transformer_mt.evaluation.test_sets import TestSet
from transformer_mt.settings.corpus import CorpusConfig

TRAINING = demo_pairs(40)
OTHERS = [(source.replace(".", "!"), target) for source, target in TRAINING[:3]]
# Spaces do not count, as they do not in training.
TEST = [*OTHERS, (f" {TRAINING[7][0]}  ", TRAINING[7][1]), (TRAINING[9][0], "Etwas anderes."), TRAINING[20]]


def corpus(tag: str | None) -> CorpusConfig:
    train = {"prefix": "x", "tag": tag} if tag else "x"
    languages = {"source_language": "en", "target_language": "de"}
    return CorpusConfig.model_validate({**languages, "train": train, "valid": "v", "test": {}})


@pytest.fixture(params=[None, "<2de>"])
def prepared(request, tmp_path, joint_tokenizer):
    """The configuration of a corpus, and its data_dir."""
    config = corpus(request.param)
    sources = joint_tokenizer.encode_source([tagged(request.param, source) for source, _ in TRAINING])
    targets = joint_tokenizer.encode_target([target for _, target in TRAINING])
    write_encoded(tmp_path / "train", zip(sources, targets, strict=True), 400, 400)
    (tmp_path / "train.lines").write_bytes(b"".join(line.to_bytes(8, "little") for line in range(101, 141)))
    summary = {"corpus": config.model_dump(), "tokenizer": {}, "digests": {}}
    (tmp_path / "prepare.json").write_text(json.dumps(summary | {"tokenizer_digest": joint_tokenizer.digest}))
    return config, tmp_path


def texts(pairs: list[tuple[str, str]]) -> dict[str, TestSet]:
    sources, targets = map(list, zip(*pairs, strict=True))
    return {"news": TestSet(sources, [["Nichts."] * len(targets), targets])}


def test_pairs_and_sources_are_counted_and_named(prepared, joint_tokenizer):
    config, data_dir = prepared
    seen = seen_in_training([data_dir / "nowhere", data_dir], joint_tokenizer, config, texts(TEST))
    assert seen.found == {"news": AlsoInTraining(sources=3, pairs=2, source_lines=[4, 5, 6], pair_lines=[4, 6])}
    [said] = seen.messages
    assert said.startswith(
        "warning: news: 2 of 6 pairs and 3 of the sources also stand in the training text of the run"
    )
    assert "The pairs are on lines 4, 6 of the test set; line 4 is line 108 of the training text." in said


def test_sources_alone_are_a_note_and_nothing_is_said_of_nothing(prepared, joint_tokenizer):
    config, data_dir = prepared
    [said] = seen_in_training([data_dir], joint_tokenizer, config, texts(TEST[4:5])).messages
    assert said.startswith("note: news: 0 of 1 pair and 1 of the sources") and "The sources are on line 1 of" in said
    nothing = AlsoInTraining(sources=0, pairs=0, source_lines=[], pair_lines=[])
    seen = seen_in_training([data_dir], joint_tokenizer, config, texts(OTHERS))
    assert (seen.found, seen.messages) == ({"news": nothing}, [])


def test_training_text_of_another_tokenizer_or_nowhere_is_not_looked_at(prepared, separate_tokenizer, joint_tokenizer):
    config, data_dir = prepared
    assert seen_in_training([data_dir], separate_tokenizer, config, texts(TEST)) is NOT_KNOWN
    assert seen_in_training([data_dir / "nowhere"], joint_tokenizer, config, texts(TEST)) is NOT_KNOWN


def test_another_training_text_than_that_of_the_run_is_not_looked_at(prepared, joint_tokenizer):
    config, data_dir = prepared
    digest = data_digests(data_dir)["train"]
    assert seen_in_training([data_dir], joint_tokenizer, config, texts(TEST), digest).found["news"].pairs == 2
    seen = seen_in_training([data_dir], joint_tokenizer, config, texts(TEST), "of another text")
    assert seen.found == {} and "was prepared anew since the run was trained" in seen.messages[0]
