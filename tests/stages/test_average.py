"""The stage average, as a command."""

import errno
import json
import math
import os
import re
import resource
import shutil

import pytest
import torch
from helpers.killed import killed_before_change
from helpers.messages import message, says
from helpers.pretended_gpus import two_gpus
from helpers.thorough import thorough
from helpers.tiny import assert_same_weights, log_records, renew_sums, status_and_error, train_tiny, weights_at
from safetensors.torch import load, load_file

from transformer_mt import average, export, prepare
from transformer_mt.base.errors import CheckpointError, ConfigError
from transformer_mt.decoding.loading import check_files
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.training_settings import VALIDATION_METRICS, TrainingConfig
from transformer_mt.storage.checksums import SUMS, check_model, checkpoint_path, fault
from transformer_mt.storage.weights import read_metadata, save_weights
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.progress import Progress
from transformer_mt.training.run import candidates
from transformer_mt.training.run.candidates import Candidate, best_of, find_candidates
from transformer_mt.training.run.checkpoint import MODEL, STATE, Tensors, load_progress, save_checkpoint
from transformer_mt.training.run.validation import ValidationScores

MODEL_FILES = {"model.safetensors", "config.yaml", "tokenizer.model", "training_lines.json"}


@pytest.fixture(scope="module")
def trained(experiment, tmp_path_factory):
    """Trained by the likelihood: the BLEU of so short a run is always 0."""
    return train_tiny(experiment, tmp_path_factory.mktemp("trained"), "training.metric=nll")


def replace_weights(run, step, weights):
    """Let a checkpoint hold these, as if training had made them."""
    path = checkpoint_path(run, step)
    save_weights(weights, path / MODEL)
    renew_sums(path)


@pytest.fixture
def opposed(run):
    """A run whose last two checkpoints are far from a good model, on opposite sides: their mean is the best."""
    good, generator = weights_at(run, 12), torch.Generator().manual_seed(1)
    noise = {name: torch.randn(weight.shape, generator=generator) for name, weight in good.items()}
    for step, sign in ((10, 1), (12, -1)):
        replace_weights(run, step, {name: weight + sign * noise[name] for name, weight in good.items()})
    return run


def model_of(run):
    return load_file(run / "model" / "model.safetensors")


def validation_of(run):
    """What the model says of all that it was compared with: the scores by what they are of."""
    records = json.loads(read_metadata(run / "model" / "model.safetensors")["validation"])
    return {record.pop("made_of"): record for record in records}


MEAN, ALONE = "the mean of 2 checkpoints, updates 10, 12", "the checkpoint of update 12"


def test_a_checkpoint_that_is_better_than_the_mean_is_taken_alone(run, capsys):
    # So early in training the newest is much better than those before it.
    assert average.main([str(run)]) == 0
    assert_same_weights(model_of(run), weights_at(run, 12))
    said = capsys.readouterr()
    assert f"{run}/model: {ALONE}, the best of these by perplexity\n" in said.out and said.err == ""
    found = validation_of(run)
    assert found.keys() == {MEAN, ALONE} and found[ALONE]["nll"] < found[MEAN]["nll"]


@pytest.mark.thorough
def test_a_mean_that_is_better_than_the_best_checkpoint_is_taken(opposed, capsys):
    assert average.main([str(opposed)]) == 0
    assert f"model: {MEAN}, the best of these by perplexity\n" in capsys.readouterr().out
    for name, weight in model_of(opposed).items():
        torch.testing.assert_close(weight, (weights_at(opposed, 10)[name] + weights_at(opposed, 12)[name]) / 2)


def test_a_checkpoint_is_validated_as_training_validated_it_and_all_scores_are_printed(run, capsys):
    average.main([str(run), "choose=last"])
    [trained] = [record for record in log_records(run) if record["step"] == 12 and "valid_nll" in record]
    scores = validation_of(run)[ALONE]
    assert scores == {"nll": trained["valid_nll"], "bleu": trained["valid_bleu"], "chrf": trained["valid_chrf"]}
    _, heading, *rows, _ = ["", *capsys.readouterr().out.splitlines()]
    assert heading.split()[-2:] == ["perplexity", "BLEU"]
    for row, (name, found) in zip(rows, validation_of(run).items(), strict=True):
        assert row.startswith(name)
        assert row.split()[-2:] == [f"{math.exp(found['nll']):.2f}", f"{found['bleu']:.1f}"]


@pytest.fixture
def validated(monkeypatch):
    """What was validated since, once for each time."""
    found, validate = [], candidates.validate_model

    def noted(*arguments):
        found.append(arguments)
        return validate(*arguments)

    monkeypatch.setattr(candidates, "validate_model", noted)
    return found


def test_a_single_candidate_is_not_validated_again(run, validated, capsys):
    average.main([str(run)])
    _, _, row, _ = capsys.readouterr().out.splitlines()
    scores = validation_of(run)[ALONE]
    assert len(validated) == 2
    average.main([str(run), "checkpoints=1"])
    heading, *rows, last = capsys.readouterr().out.splitlines()
    assert len(validated) == 2, "of which this is none"
    assert heading.startswith("on the validation set") and "perplexity" in heading
    assert [each.split() for each in rows] == [row.split()]
    assert validation_of(run) == {ALONE: scores}
    assert f"{ALONE}, the best of these by perplexity" in last


@pytest.mark.parametrize(
    "edit", ["max_extra_length: 3", *thorough("valid_sentences: 5", "target_language: fr", "average_decay: 0.5")]
)
def test_a_single_candidate_is_validated_again_if_it_would_be_in_another_way(run, validated, edit):
    config, (key, _) = run / "config.yaml", edit.split(": ")
    config.write_text(re.sub(rf"(?m)\b{key}: .*$", edit, config.read_text()))
    average.main([str(run), "checkpoints=1", "choose=last"])
    assert len(validated) == (1 if key != "average_decay" else 0), "training had no average, whatever the file says now"


def test_a_single_checkpoint_is_validated_if_training_validated_other_weights(run, validated):
    path = checkpoint_path(run, 12)
    state = json.loads((path / STATE).read_text("utf-8"))
    state["progress"]["validated"]["step"] = 8
    (path / STATE).write_text(json.dumps(state), encoding="utf-8")
    renew_sums(path)
    average.main([str(run), "checkpoints=1"])
    assert len(validated) == 1


@pytest.mark.thorough
def test_with_a_moving_average_a_checkpoint_alone_is_validated_because_training_validated_the_average(
    experiment, tmp_path, validated
):
    run = train_tiny(experiment, tmp_path / "run", "training.average_decay=0.9", "training.metric=nll")
    average.main([str(run), "checkpoints=1", "choose=last"])
    assert len(validated) == len(validation_of(run)) == 1


def test_each_score_is_printed_before_the_next_candidate_is_validated(run, capsys, monkeypatch):
    said, validate = [], candidates.validate_model

    def validated(*arguments):
        said.append(capsys.readouterr().out.splitlines())
        return validate(*arguments)

    monkeypatch.setattr(candidates, "validate_model", validated)
    average.main([str(run)])
    assert len(said) == len(validation_of(run)) > 1
    assert "on the validation set" in said[0][-1]
    for before, name in zip(said[1:], validation_of(run), strict=False):
        assert [line.startswith(name) for line in before] == [True]


@pytest.mark.thorough
def test_candidates_are_compared_by_the_metric_of_training(run, capsys):
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("metric: nll", "metric: chrf"))
    average.main([str(run), "checkpoints=3"])
    heading, *rows, last = capsys.readouterr().out.splitlines()
    scores = validation_of(run)
    best = max(scores, key=lambda name: (scores[name]["chrf"], -scores[name]["nll"]))
    assert last.endswith(f"model: {best}, the best of these by chrF")
    assert heading.endswith("   chrF") and rows[0].endswith(f"  {scores[rows[0].split('  ')[0]]['chrf']:5.1f}")


@pytest.mark.parametrize(
    ("metric", "scores", "best"),
    [
        ("bleu", [(2.0, 5.0, 1.0), (3.0, 6.0, 0.0), (1.0, 4.0, 9.0)], 1),
        ("chrf", [(2.0, 5.0, 1.0), (3.0, 6.0, 0.0), (1.0, 4.0, 9.0)], 2),
        ("nll", [(2.0, 5.0, 1.0), (3.0, 6.0, 0.0), (1.0, 4.0, 9.0)], 2),
        ("bleu", [(2.0, 0.0, 1.0), (1.5, 0.0, 1.0), (1.5, 0.0, 1.0)], 1),
        ("bleu", [(1.5, 5.04, 0.0), (1.501, 4.96, 0.0), (1.5, 5.05, 0.0)], 0),
        ("bleu", [(1.5, 5.04, 0.0), (1.501, 4.96, 0.0), (1.6, 5.06, 0.0)], 2),
        ("nll", [(math.nan, 5.0, 1.0), (9.0, 0.0, 0.0)], 1),
        ("bleu", [(3.0, 0.9, 9.0), (2.0, 0.4, 9.0), (2.5, 0.8, 9.0)], 1),
        ("bleu", [(3.0, 0.9, 0.0), (2.0, 0.4, 0.0), (9.0, 1.0, 0.0)], 2),
        ("bleu", [(3.0, 0.9, 9.0), (math.nan, 0.0, 9.0)], 0),
    ],
)
def test_the_best_is_that_of_the_metric_then_of_perplexity_then_the_first_as_they_are_printed(metric, scores, best):
    """A BLEU below 1 says nothing; then perplexity decides."""
    found = [ValidationScores(dict(zip(VALIDATION_METRICS, each, strict=True)), seconds=1.0) for each in scores]
    assert best_of(found, metric) == best


@pytest.mark.parametrize(
    ("old_bleu", "best"), [((20.0, 20.0, 20.0), 1), ((19.1, 18.9, 20.0), 0), ((18.0, 18.9, 20.0), 2), ((1, 2, 3), 1)]
)
def test_after_fine_tuning_the_best_loses_little_on_the_old_text(old_bleu, best):
    def scores(nll, bleu, others):
        return ValidationScores({"nll": nll, "bleu": bleu, "chrf": bleu}, seconds=1.0, others=others)

    found = [scores(2.0, bleu, {"old": scores(2.0, old, {})}) for bleu, old in zip((11, 12, 10), old_bleu, strict=True)]
    initial = scores(3.0, 5.0, {"old": scores(2.0, 20.0, {})})
    assert best_of(found, "bleu", initial) == best
    assert best_of(found, "bleu") == 1


def test_means_of_fewer_and_fewer_checkpoints_are_candidates_and_none_twice(run):
    config = load_config(run / "config.yaml", ["averaging.checkpoints=3"])
    found = find_candidates(run, config.averaging, config.training)
    assert [candidate.steps for candidate in found] == [(8, 10, 12), (10, 12), (12,)]
    assert load_progress(checkpoint_path(run, 12)).best_steps == [12], "which is the last of these"


@pytest.mark.parametrize("choose", ["last", *thorough("best")])
def test_what_is_no_worse_than_the_best_checkpoint_is_not_warned_of(opposed, choose, capsys):
    average.main([str(opposed), f"choose={choose}"])
    said = capsys.readouterr()
    assert f"chosen by averaging.choose={choose}" in said.out and said.err == ""


def test_a_mean_that_is_worse_than_the_best_checkpoint_is_warned_of(run, capsys):
    average.main([str(run), "choose=last"])
    assert read_metadata(run / "model" / "model.safetensors")["made_of"] == MEAN
    shown = {name: f"{math.exp(scores['nll']):.2f}" for name, scores in validation_of(run).items()}
    assert capsys.readouterr().err == (
        f"warning: {ALONE} is better on the validation set: perplexity {shown[ALONE]} instead of {shown[MEAN]}. "
        "Average again with choose=auto to take the best\n"
    )


@pytest.mark.parametrize("choose", ["auto", *thorough("last")])
def test_without_the_data_the_mean_is_taken_with_a_warning_and_compared_when_they_are_back(
    run, choose, tmp_path, capsys
):
    data_dir, arguments = tmp_path / "nowhere", [str(run), f"choose={choose}", f"data_dir={tmp_path / 'nowhere'}"]
    average.main(arguments)
    said = capsys.readouterr()
    assert f"model: {MEAN}" in said.out and "perplexity" not in said.out
    assert f"warning: {run}/model was not validated, because {data_dir} has no validation set" in said.err
    data_dir.symlink_to(load_config(run / "config.yaml").data_dir)
    average.main(arguments)
    assert len(validation_of(run)) == 2


def test_data_of_another_tokenizer_are_refused(run, experiment, tmp_path, capsys):
    other = tmp_path / "other"
    prepare.main([str(experiment), f"data_dir={other}", "tokenizer.vocab_size=450"])
    status, error = status_and_error(average.main, run, f"data_dir={other}", capsys=capsys)
    assert status == 2
    assert re.search(
        rf"{other} was prepared with another tokenizer \(digest \w{{8}}\) than this run \(\w{{8}}\)", error
    )


def test_other_validation_data_are_refused(run, experiment, tmp_path, capsys):
    for name in ("valid.en", "valid.de"):
        (tmp_path / name).write_text((experiment.parent / name).read_text().split("\n", 1)[1])
    text, config = tmp_path / "valid", run / "config.yaml"
    other = [f"data_dir={tmp_path / 'other'}", f"tokenizer.from={run}", f"corpus.valid={text}"]
    assert prepare.main([str(config), *other]) == 0
    status, error = status_and_error(average.main, run, other[0], capsys=capsys)
    assert status == 2 and says(error, "data-changed-during-run", "12", "validation data", f"{tmp_path}/other")
    assert not (run / "model").exists()


@pytest.mark.parametrize("edit", ["encoder_layers: 3", "ffn_dim: 64", "num_heads: 4", "activation: gelu"])
@pytest.mark.parametrize("data", ["", *thorough("nowhere")])
def test_a_model_that_was_edited_since_the_training_is_refused(run, edit, data, capsys):
    config, (key, value) = run / "config.yaml", edit.split(": ")
    config.write_text(re.sub(rf"(?m)\b{key}: .*$", edit, config.read_text()))
    arguments = [f"data_dir={data}"] if data else []
    status, error = status_and_error(average.main, run, *arguments, capsys=capsys)
    assert status == 2 and says(error, "weights-of-other-model", f"model.{key}: ", f", now {value}")
    assert not (run / "model").exists()


def test_weights_of_other_names_are_refused(run, capsys):
    replace_weights(run, 10, {f"other.{name}": weight.clone() for name, weight in weights_at(run, 10).items()})
    status, error = status_and_error(average.main, run, "choose=auto", "checkpoints=3", capsys=capsys)
    assert status == 2 and says(error, "weight-shapes-differ", "none")


def test_a_run_that_has_left_its_gpu_is_validated_on_another_device(run, capsys):
    path = run / "config.yaml"
    path.write_text(path.read_text().replace("device: cpu", "device: cuda:77"))
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2 and says(error, "device-unusable", "cuda:77")
    assert average.main([str(run), "--device=cpu"]) == 0
    assert len(validation_of(run)) == 2


def test_on_a_gpu_the_loss_is_compiled_into_the_users_own_directory_and_not_without_a_c_compiler(monkeypatch, tmp_path):
    caches = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS")
    for name in caches:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with monkeypatch.context() as patch, two_gpus():
        patch.setattr(average, "check_c_compiler", lambda: None)
        assert average._device("cuda:1", TrainingConfig()).torch_device == torch.device("cuda:1")
    assert all(os.environ[name].startswith(f"{tmp_path}/transformer_mt/") for name in caches[:2])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with two_gpus(), pytest.raises(ConfigError, match=message("compiler-missing", "no C compiler")):
        average._device("cuda:1", TrainingConfig())


def test_average_is_the_mean_of_the_newest_on_schedule(run):
    assert average.main([str(run), "choose=last"]) == 0
    mean = load_file(run / "model" / "model.safetensors")
    parts = [load_file(checkpoint_path(run, step) / "model.safetensors") for step in (10, 12)]
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (parts[0][name] + parts[1][name]) / 2)
    assert {path.name for path in (run / "model").iterdir()} == MODEL_FILES | {SUMS}


@pytest.mark.thorough
def test_average_does_nothing_twice_and_anew_after_more_training(run, experiment, capsys):
    average.main([str(run)])
    before = (run / "model" / "model.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    average.main([str(run)])
    assert capsys.readouterr().out == f"{run}/model: already averaged, {ALONE}\n", "and not validated either"
    assert (run / "model" / "model.safetensors").stat().st_mtime_ns == before
    train_tiny(experiment, run, "training.metric=nll", "training.max_steps=14")
    average.main([str(run)])
    assert "the mean of 2 checkpoints, updates 12, 14" in capsys.readouterr().out


def test_average_killed_before_the_model_is_complete_begins_again(run, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(average.Tokenizer, "save", killed)
        average.main([str(run)])
    average.main([str(run)])
    assert {path.name for path in (run / "model").iterdir()} == MODEL_FILES | {SUMS}


def test_average_leaves_out_a_checkpoint_that_only_an_interruption_made(run, capsys):
    checkpoint_path(run, 12).rename(checkpoint_path(run, 11))
    average.main([str(run)])
    assert "updates 8, 10" in capsys.readouterr().out


@pytest.mark.thorough
def test_average_takes_in_the_last_update_of_all(experiment, tmp_path, capsys):
    run = train_tiny(experiment, tmp_path / "run", "training.max_steps=7")
    average.main([str(run)])
    assert "updates 6, 7" in capsys.readouterr().out


def test_average_of_the_best_is_the_best(run):
    average.main([str(run), "choose=best"])
    best = load_file(run / "checkpoints" / "best" / "model.safetensors")
    assert all(torch.equal(weight, best[name]) for name, weight in load_file(run / "model/model.safetensors").items())


def test_average_of_no_run_or_of_no_checkpoint_is_an_error(tmp_path, experiment, capsys):
    status, error = status_and_error(average.main, tmp_path, capsys=capsys)
    assert status == 2
    assert says(error, "run-without-config", str(tmp_path))
    shutil.copy(experiment, tmp_path / "config.yaml")
    status, error = status_and_error(average.main, tmp_path, capsys=capsys)
    assert status == 2
    assert says(error, "run-without-checkpoint", str(tmp_path))


def test_average_on_a_full_disk_leaves_the_model_that_was_there(run, capsys):
    average.main([str(run)])
    before = {path.name: path.read_bytes() for path in (run / "model").iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may be larger: writing fails as on a full disk
    try:
        status, error = status_and_error(average.main, run, "checkpoints=1", capsys=capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 2
    assert says(error, "model-cannot-be-written", str(run / "model"), "room")
    assert {name: (run / "model" / name).read_bytes() for name in before} == before


def test_average_where_no_model_can_be_written_says_so(run, capsys):
    (run / "model").write_text("")
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2
    assert says(error, "model-place-not-directory", str(run / "model"))


def test_a_model_that_is_a_link_to_another_disk_is_written_there(run, tmp_path, monkeypatch):
    disk, rename = tmp_path / "disk", os.replace
    (disk / "model").mkdir(parents=True)
    (run / "model").symlink_to(disk / "model")

    def of_one_disk(before, after):
        if len({os.path.realpath(path).startswith(f"{disk}/") for path in (before, after)}) > 1:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(before, after)

    monkeypatch.setattr(os, "replace", of_one_disk)
    assert average.main([str(run)]) == 0
    assert (run / "model").is_symlink()
    assert {path.name for path in (disk / "model").iterdir()} == MODEL_FILES | {SUMS}
    check_model(disk / "model")
    assert os.listdir(disk) == ["model"]


def test_average_refuses_a_damaged_checkpoint(run, capsys):
    (checkpoint_path(run, 12) / "model.safetensors").write_bytes(b"damaged")
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2
    assert "step-00000012 is damaged" in error


def test_average_without_a_best_checkpoint_says_so(run, capsys):
    for step in (8, 12):  # the best when 10 was saved, and of all
        shutil.rmtree(checkpoint_path(run, step))
    status, error = status_and_error(average.main, run, "choose=best", capsys=capsys)
    assert status == 2
    assert says(error, "no-best-checkpoint")


@pytest.mark.thorough
def test_average_counts_the_last_update_also_off_the_schedule(experiment, tmp_path, capsys):
    run = train_tiny(experiment, tmp_path / "run", "training.max_steps=11", "training.save_every=4")
    average.main([str(run)])
    assert "updates 8, 11" in capsys.readouterr().out


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["config.yaml", *thorough("tokenizer.model", "model.safetensors")])
def test_average_mends_a_model_that_lacks_a_file(run, name, capsys):
    average.main([str(run)])
    (run / "model" / name).unlink()
    average.main([str(run)])
    assert "already" not in capsys.readouterr().out.splitlines()[-1]
    assert (run / "model" / name).is_file()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["model.safetensors", *thorough(*sorted(MODEL_FILES - {"model.safetensors"}))])
def test_average_mends_a_model_with_a_damaged_file(run, name, capsys):
    average.main([str(run)])
    before = content_of(run / "model")
    (run / "model" / name).write_bytes(before[name][:-1] + bytes([before[name][-1] ^ 1]))
    capsys.readouterr()
    average.main([str(run)])
    assert "already" not in capsys.readouterr().out
    assert fault(run / "model", MODEL_FILES) is None
    assert_same_weights(model_of(run), load(before["model.safetensors"]))


def test_average_refuses_a_tokenizer_that_is_not_the_checkpoints(run, experiment, tmp_path, capsys):
    other = tmp_path / "other"
    prepare.main([str(experiment), f"data_dir={other}", "tokenizer.vocab_size=450"])
    shutil.copy(other / "tokenizer.model", run / "tokenizer.model")
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2
    assert says(error, "run-data-damaged", f"{run}/tokenizer.model")
    renew_sums(run)
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2
    assert says(error, "checkpoint-of-other-tokenizer", str(checkpoint_path(run, 10)))
    assert f"into {run}" in error


def test_average_refuses_one_checkpoint_of_another_tokenizer_among_others(run, capsys):
    save_checkpoint(run, Tensors({}, {}), Progress(step=10), "0" * 64)
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2
    assert says(error, "checkpoint-of-other-tokenizer", str(checkpoint_path(run, 10)), "00000000")


def content_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.thorough
@pytest.mark.parametrize("before", ["nothing", "a model"])
def test_killed_at_any_instant_the_model_is_whole_or_refused_and_made_anew_by_the_next_run(run, tmp_path, before):
    model, old = run / "model", {}
    if before != "nothing":
        average.main([str(run), "choose=last"])
        old = content_of(shutil.copytree(model, tmp_path / "old"))
    config, tokenizer = load_config(run / "config.yaml", ["averaging.choose=best"]), Tokenizer.load(run)
    candidate, metadata = Candidate(run, (12,)), {"tokenizer": tokenizer.digest}
    refused, number, killed = 0, 0, True
    while killed:
        number += 1
        shutil.rmtree(model, ignore_errors=True)
        if old:
            shutil.copytree(tmp_path / "old", model)
        killed = killed_before_change(
            number,
            lambda: average._write(model, candidate, metadata, config, tokenizer),
            {"mkdir", "replace", "unlink"},
        )
        try:
            check_files(model, "torch")
            check_model(model)
        except CheckpointError as error:
            assert f"python -m transformer_mt.average {run}" in str(error)
            assert killed
            refused += 1
        else:
            assert content_of(model) == old or fault(model, MODEL_FILES) is None
            assert killed or b"choose: best" in content_of(model)["config.yaml"]
    assert number > 6 and refused > 1
    assert content_of(model).keys() == MODEL_FILES | {SUMS} and fault(model, MODEL_FILES) is None


@pytest.mark.thorough
def test_a_model_without_checksums_is_refused_and_made_again(run, capsys):
    average.main([str(run)])
    (run / "model" / SUMS).unlink()
    cure = f"python -m transformer_mt.average {run}"
    with pytest.raises(CheckpointError, match=message("summed-file-unreadable", SUMS, cure)):
        Translator.load(run / "model", "cpu", workers=1)
    capsys.readouterr()
    average.main([str(run)])
    assert "already averaged" not in capsys.readouterr().out
    assert fault(run / "model", MODEL_FILES) is None


@pytest.mark.thorough
def test_everybody_may_read_what_everybody_may_read(run, tmp_path):
    average.main([str(run)])
    for format in ("ctranslate2", "huggingface"):
        export.main([str(run / "model"), str(tmp_path / format), "--format", format])
    (tmp_path / "ordinary").touch()
    usual = (tmp_path / "ordinary").stat().st_mode
    places = [run / "model", tmp_path / "ctranslate2", tmp_path / "huggingface", checkpoint_path(run, 12)]
    assert {path.stat().st_mode for place in places for path in place.iterdir()} == {usual}
