"""Fine-tuning: several validation sets side by side, and mixtures with the weights from which training started."""

import shutil

import pytest
import torch
from helpers.tiny import log_records, train_tiny, weights_at
from safetensors.torch import load_file

from transformer_mt import average, prepare
from transformer_mt.base.errors import CheckpointError, CorpusError
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.storage.weights import read_metadata
from transformer_mt.training.run.candidates import INITIAL_SHARES


@pytest.fixture(scope="module")
def tuned(experiment, evaluated, tmp_path_factory):
    """The run of a model fine-tuned on the same text, validated on its own validation set and on its test set."""
    directory, old = tmp_path_factory.mktemp("tuned"), evaluated / "model"
    sets = ", ".join(f"{{name: {name}, path: {experiment.parent}/{name}}}" for name in ("valid", "test"))
    settings = [f"corpus.valid=[{sets}]", f"data_dir={directory}/data", f"tokenizer.from={old}"]
    assert prepare.main([str(experiment), *settings]) == 0
    from_old = ("training.max_steps=8", f"training.initialise_from={old}")
    run = train_tiny(experiment, directory / "run", *settings, *from_old)
    return run


@pytest.mark.thorough
def test_further_validation_sets_are_like_a_first_one(tuned, experiment):
    data, name = tuned.parent / "data", "test"
    alone = tuned.parent / "alone"
    settings = [f"corpus.valid={experiment.parent}/{name}", f"data_dir={alone}"]
    assert prepare.main([str(experiment), *settings, f"tokenizer.from={data}"]) == 0
    ours, theirs = EncodedCorpus.load(data / "valid" / name), EncodedCorpus.load(alone / "valid")
    assert len(ours) == len(theirs) == 20 and ours.target.ids.tolist() == theirs.target.ids.tolist()
    for side in ("source", "target"):
        assert (data / f"valid/{name}.{side}.txt").read_text() == (alone / f"valid.{side}.txt").read_text()


@pytest.mark.thorough
def test_each_validation_logs_the_scores_on_all_sets(tuned):
    logged = [record for record in log_records(tuned) if "valid_nll" in record]
    assert [record["step"] for record in logged] == [4, 8]
    assert all(record["valid_nll_test"] not in (0, record["valid_nll"]) for record in logged)
    assert all({"valid_bleu_test", "valid_chrf_test"} <= record.keys() for record in logged)


def test_mixtures_with_the_initial_weights_are_candidates_and_the_end_says_what_was_gained(tuned, evaluated, capsys):
    assert average.main([str(tuned), "checkpoints=1"]) == 0
    said = capsys.readouterr().out
    assert "test BLEU" in said and said.count("% of the initial weights") >= len(INITIAL_SHARES) - 1
    assert "\nfine-tuning changed BLEU from " in said and "on the validation set, and from" in said
    made_of = read_metadata(tuned / "model" / "model.safetensors")["made_of"]
    assert made_of in said
    initial, trained = load_file(evaluated / "model" / "model.safetensors"), weights_at(tuned, 8)
    mixed = load_file(tuned / "model" / "model.safetensors")
    share = next((share for share in INITIAL_SHARES if f"{100 * share:.0f} %" in made_of), 0.0)
    share = 1.0 if made_of.startswith("the model from which") else share
    for name, weight in mixed.items():
        torch.testing.assert_close(weight, share * initial[name] + (1 - share) * trained[name])


def test_a_damaged_further_validation_set_is_found(tuned):
    file = tuned.parent / "data" / "valid" / "test.target.txt"
    text = file.read_text()
    file.write_text(text.replace("e", "a", 1))
    try:
        with pytest.raises(CorpusError, match=r"test\.target\.txt"):
            average.main([str(tuned), "checkpoints=2"])
    finally:
        file.write_text(text)


@pytest.mark.thorough
def test_without_the_initial_model_a_finished_model_stays_and_a_new_one_is_warned_of(
    tuned, evaluated, capsys, tmp_path
):
    run = shutil.copytree(tuned, tmp_path / "run", symlinks=True)
    config = load_config(run / "config.yaml")
    initial = shutil.copytree(evaluated / "model", tmp_path / "initial")
    moved = config.training.model_copy(update={"initialise_from": str(initial)})
    (run / "config.yaml").write_text(dump_config(config.model_copy(update={"training": moved})))
    assert average.main([str(run)]) == 0
    before = (run / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(initial)
    capsys.readouterr()
    assert average.main([str(run)]) == 0
    assert "already averaged" in capsys.readouterr().out
    assert (run / "model" / "model.safetensors").read_bytes() == before
    shutil.rmtree(run / "model")
    assert average.main([str(run)]) == 0
    assert "is not there any more" in capsys.readouterr().err


def test_another_model_in_the_place_of_the_initial_one_is_refused(tuned, evaluated, tmp_path):
    run = shutil.copytree(tuned, tmp_path / "run", symlinks=True)
    shutil.rmtree(run / "model", ignore_errors=True)
    other = shutil.copytree(evaluated / "model", tmp_path / "other")
    change = load_config(other / "config.yaml", ["model.num_heads=4"])
    (other / "config.yaml").write_text(dump_config(change))
    config = load_config(run / "config.yaml")
    moved = config.training.model_copy(update={"initialise_from": str(other)})
    (run / "config.yaml").write_text(dump_config(config.model_copy(update={"training": moved})))
    with pytest.raises(CheckpointError, match="num_heads"):
        average.main([str(run)])
