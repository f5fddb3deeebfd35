"""What is left of an old model's text, and how much of it is mixed with new text."""

import shutil
from pathlib import Path

import pytest
from helpers.messages import message

from transformer_mt import prepare
from transformer_mt.base.errors import ConfigError
from transformer_mt.new import OldText, mixed_corpora, old_text
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.reading import load_config
from transformer_mt.text.tokenizer import Tokenizer


def found_for(config, digest=None):
    return old_text(config.corpus, Path(config.data_dir), digest or Tokenizer.load(Path(config.data_dir)).digest)


def test_the_old_text_is_found_with_its_sets(experiment):
    found = found_for(load_config(experiment))
    (text,) = found.training
    assert (text.name, text.path, text.source, text.target) == ("old", str(experiment.parent / "train"), "en", "de")
    assert found.num_tokens > 1000
    data = experiment.parent / "data"
    assert found.valid == {"old": {side: f"{data}/valid.{side}.txt" for side in ("source", "target")}}
    assert found.tests == {"old_tiny": {side: f"{data}/test/tiny.{side}.txt" for side in ("source", "target")}}
    assert found.missing == ""


def test_without_its_training_text_the_sets_are_left_and_without_its_data_nothing(experiment, tmp_path):
    config = load_config(experiment, ["corpus.train=nowhere/train"])
    found = found_for(config)
    assert found.training == () and [*found.valid, *found.tests] == ["old", "old_tiny"] and "nowhere" in found.missing
    shutil.copytree(experiment.parent / "data", tmp_path / "data")
    (tmp_path / "data" / "prepare.json").unlink()
    config = load_config(experiment, [f"data_dir={tmp_path}/data"])
    assert (
        found_for(config) == OldText(missing=found_for(config).missing) and "prepare.json" in found_for(config).missing
    )
    assert found_for(load_config(experiment), digest="of another model").training == ()


def test_the_other_direction_which_a_model_learnt_first_is_not_mixed_with_new_text(experiment, tmp_path):
    once, (source, target) = (
        found_for(load_config(experiment)),
        (experiment.parent / "train.en", experiment.parent / "train.de"),
    )
    other = f"{{name: b, source: {tmp_path}/less.de, target: {tmp_path}/less.en}}"
    for side in (source, target):
        lines = side.read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / f"less{side.suffix}").write_text("".join(lines[: len(lines) // 2]), encoding="utf-8")
    valid = f"[{{name: a, path: {experiment.parent}/valid}}, {other}]"
    settings = [f"data_dir={tmp_path}/data", f"corpus.train=[{{name: a, source: {source}, target: {target}}}, {other}]"]
    assert prepare.main([str(experiment), *settings, f"corpus.valid={valid}", "filters.held_out=false"]) == 0
    found = found_for(load_config(experiment, [*settings, f"corpus.valid={valid}"]))
    assert [text.source for text in found.training] == [str(source)] and [*found.valid] == ["old"]
    assert found.num_tokens == pytest.approx(once.num_tokens, rel=0.2)


def test_a_text_from_a_language_to_the_same_one_has_no_other_direction(experiment):
    found = found_for(load_config(experiment, ["corpus.source_language=de"]))
    assert len(found.training) == 1 and [*found.valid] == ["old"]


def test_tags_need_a_person(experiment):
    config = load_config(experiment, ["corpus.train=[{name: a, path: x, tag: <a>}]"])
    with pytest.raises(ConfigError, match=message("old-model-with-tags", "<a>")):
        found_for(config)


@pytest.mark.parametrize(("new_tokens", "weights"), [(50, (0.05, 0.1)), (5000, (1.0, 2.0))])
def test_an_epoch_has_as_many_tokens_of_old_text_as_of_new_text_and_each_old_pair_at_most_once(new_tokens, weights):
    old = (PairedText(name="a", path="a"), PairedText(name="b", path="b", weight=2.0))
    *found, new = mixed_corpora(PairedText(name="new", path="c"), new_tokens, OldText(old, 1000))
    assert tuple(corpus["weight"] for corpus in found) == weights
    assert new == {"name": "new", "path": "c", "form": "prefix"}
