"""The stage train, as a command."""

import fcntl
import os
import re
import resource
import shutil

import pytest
import torch
import yaml
from helpers.messages import says
from helpers.thorough import thorough
from helpers.tiny import status_and_error, train_tiny, write_experiment
from safetensors.torch import load_file

from transformer_mt import prepare, train
from transformer_mt.settings.reading import load_config
from transformer_mt.training.run.checkpoint import Tensors, checkpoint_path, save_checkpoint, saved_steps


def test_a_run_is_complete_in_itself(trained, experiment):
    copied = {"tokenizer.model", "training_lines.json", "SHA256SUMS"}
    names = {path.name for path in trained.iterdir()}
    assert names == {"config.yaml", "log.jsonl", "run.json", "checkpoints", "lock"} | copied
    assert load_config(trained / "config.yaml").training == load_config(experiment).training
    assert "adam_beta2" in yaml.safe_load((trained / "config.yaml").read_text())["training"], "defaults written out"


def test_a_finished_run_is_left_as_it_is(run, experiment, capsys):
    before = {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")}
    assert train.main([str(experiment), f"run_dir={run}"]) == 0
    assert "already trained, 12 updates" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")} == before


def test_a_run_says_what_it_runs_on(experiment, tmp_path, capsys):
    torch.set_num_threads(2)
    train_tiny(experiment, tmp_path, "training.max_steps=1")
    said = capsys.readouterr().out
    for word in ("parameters", "300 pairs", "CPU, 1 thread", "fp32"):
        assert word in said
    assert torch.get_num_threads() == 1


def test_stages_are_told_and_a_run_resumes_in_each_of_them(tmp_path, capsys):
    path = write_experiment(tmp_path)
    content = yaml.safe_load(path.read_text())
    train_text = content["corpus"]["train"]
    content["corpus"]["train"] = [{"name": name, "path": train_text} for name in ("all", "half")]
    content["corpus"]["stages"] = [{"weights": {"all": 1}, "updates": 3}, {"weights": {"half": 0.5}}]
    path.write_text(yaml.safe_dump(content))
    assert prepare.main([str(path)]) == 0
    settings = ["training.schedule=constant", "training.warmup_steps=1"]
    unbroken = train_tiny(path, tmp_path / "unbroken", *settings, "training.max_steps=6")
    said = capsys.readouterr().out
    assert "600 pairs, " in said and "stage 2 of 2 begins after update 3\n" in said
    for last in (2, 3, 5, 6):
        resumed = train_tiny(path, tmp_path / "resumed", *settings, f"training.max_steps={last}")
        said, error = capsys.readouterr()
        assert ("before the last stage, in stage 1 of 2" in error) == (last == 2)
        if last > 2:
            assert f"resuming from update {last - 2 + (last == 3 or last == 6)}, in stage {1 + (last > 3)} of 2" in said
    weights = [load_file(checkpoint_path(run, 6) / "model.safetensors") for run in (unbroken, resumed)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    del content["corpus"]["stages"]
    path.write_text(yaml.safe_dump(content))
    status, error = status_and_error(train.main, path, f"run_dir={resumed}", *settings, capsys=capsys)
    assert status == 2 and "corpus.stages" in error, "other stages need no new preparation, but another run"


def test_a_warm_up_that_never_ends_is_told_once(experiment, tmp_path, capsys):
    settings = ["training.max_steps=1", "training.warmup_steps=50"]
    status, error = status_and_error(train.main, experiment, f"run_dir={tmp_path}", *settings, capsys=capsys)
    assert status == 0
    assert error.count("warning: training.warmup_steps=50 is not less than training.max_steps=1: ") == 1


def test_a_run_of_another_configuration_is_refused_key_by_key(run, experiment, capsys):
    status, error = status_and_error(
        train.main, experiment, f"run_dir={run}", "model.num_heads=4", "training.seed=9", capsys=capsys
    )
    assert status == 2
    assert "model.num_heads: 2, now 4" in error
    assert "training.seed: 1, now 9" in error
    assert "initialise_from" not in error, "the weights would mean something else"


def test_a_run_with_another_rate_is_told_how_its_weights_can_go_on(run, experiment, tmp_path, capsys):
    status, error = status_and_error(train.main, experiment, f"run_dir={run}", "training.peak_lr=1e-4", capsys=capsys)
    assert status == 2 and "training.peak_lr: 0.005, now 0.0001" in error and "corpus.stages" not in error
    way = re.search(r"another run_dir, where (training\.initialise_from=\S+) starts a new run", error)[1]
    train_tiny(experiment, tmp_path / "next", "training.peak_lr=1e-4", way)
    assert saved_steps(tmp_path / "next")[-1] == 12


def test_a_run_with_other_weights_of_corpora_is_told_of_stages(tmp_path, capsys):
    path = write_experiment(tmp_path)
    content = yaml.safe_load(path.read_text())
    content["corpus"]["train"] = [{"name": name, "path": content["corpus"]["train"]} for name in ("all", "half")]
    path.write_text(yaml.safe_dump(content))
    assert prepare.main([str(path)]) == 0
    arguments = [path, "training.max_steps=2", "training.warmup_steps=1"]
    assert train.main([str(argument) for argument in arguments]) == 0
    status, error = status_and_error(train.main, *arguments, "corpus.temperature=2", capsys=capsys)
    assert status == 2 and "corpus.temperature: None, now 2" in error and "begin it with corpus.stages" in error


@pytest.mark.parametrize("rate", [100, *thorough(10, 1)])
def test_training_that_diverges_is_told_and_what_to_change(experiment, tmp_path, capsys, rate):
    train_tiny(experiment, tmp_path / "run", f"training.peak_lr={rate}", "training.log_every=5")
    out, error = capsys.readouterr()
    warnings = [line for line in error.splitlines() if line.startswith("warning: training diverges")]
    assert len(warnings) == 1
    for word in (
        "twice",
        "500 target pieces, 6.2",
        "training.peak_lr",
        "training.warmup_steps",
        "training.clip_norm=1",
    ):
        assert word in warnings[0]
    validations = [line for line in error.splitlines() if ": validation " in line]
    first = validations[0]
    assert "perplexity over 1e+09, BLEU 0.00, the best so far, but training diverges (" in first
    assert "e+3" not in error
    assert ("but training diverged" in out) == ("but training diverges" in validations[-1])
    assert rate == 1 or "but training diverged" in out


@pytest.mark.parametrize("settings", [(), *thorough(("training.peak_lr=0.05",), ("training.label_smoothing=0",))])
@pytest.mark.parametrize("kind", ["transformer", *thorough("rnn", "convolutional")])
def test_usual_training_never_seems_to_diverge(experiment, tmp_path, capsys, kind, settings):
    model = (
        [] if kind == "transformer" else [f"model={{kind: {kind}, d_model: 16, encoder_layers: 2, decoder_layers: 2}}"]
    )
    train_tiny(experiment, tmp_path / "run", "training.log_every=1", "training.validate_every=1", *model, *settings)
    out, error = capsys.readouterr()
    assert "diverge" not in out + error and error.count(": validation ") == 12


def test_a_longer_run_of_the_same_configuration_goes_on(run, experiment):
    train_tiny(experiment, run, "training.max_steps=14")
    assert saved_steps(run)[-1] == 14


@pytest.mark.parametrize("schedule", ["linear", *thorough("cosine")])
def test_a_schedule_that_knows_its_end_may_not_end_elsewhere(experiment, tmp_path, capsys, schedule):
    choice = [f"training.schedule={schedule}", "training.warmup_steps=1"]
    arguments = [experiment, f"run_dir={tmp_path / 'run'}", *choice, "training.max_steps=4"]
    assert train.main([str(argument) for argument in arguments]) == 0
    status, error = status_and_error(train.main, *arguments[:-1], "training.max_steps=6", capsys=capsys)
    assert status == 2
    assert "training.max_steps: 4, now 6" in error
    assert "this schedule depends on training.max_steps" in error


@pytest.mark.thorough
def test_a_constant_rate_may_go_on(experiment, tmp_path):
    run = train_tiny(experiment, tmp_path / "run", "training.schedule=constant", "training.max_steps=4")
    train_tiny(experiment, run, "training.schedule=constant", "training.max_steps=6")
    assert saved_steps(run)[-1] == 6


def test_unprepared_data_are_named(tmp_path, capsys):
    config = write_experiment(tmp_path)
    status, error = status_and_error(train.main, config, capsys=capsys)
    assert status == 2
    assert says(error, "data-not-prepared", str(tmp_path / "data"), "python -m transformer_mt.prepare")


@pytest.mark.parametrize(("section", "other"), [("tokenizer", "vocab_size=400"), ("corpus", "max_length=100")])
def test_data_prepared_in_another_way_are_refused(experiment, tmp_path, capsys, section, other):
    status, error = status_and_error(train.main, experiment, f"run_dir={tmp_path}", f"{section}.{other}", capsys=capsys)
    assert status == 2
    assert says(error, "data-prepared-differently", section)


def test_a_checkpoint_of_another_tokenizer_is_refused(run, experiment, capsys):
    save_checkpoint(run, Tensors({}, {}), train.Progress(step=13), "0" * 64)
    status, error = status_and_error(train.main, experiment, f"run_dir={run}", "training.max_steps=14", capsys=capsys)
    assert status == 2
    assert says(error, "checkpoint-of-other-tokenizer", "00000000")


def test_a_run_whose_configuration_was_edited_does_not_resume_as_another_model(run, experiment, capsys):
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("num_heads: 2", "num_heads: 4"))
    arguments = (experiment, f"run_dir={run}", "training.max_steps=14", "model.num_heads=4")
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2 and says(error, "weights-of-other-model", "model.num_heads: 2, now 4")


def test_a_damaged_checkpoint_is_said_and_the_run_ends_the_same(run, trained, experiment, capsys):
    for step in (10, 12):
        (checkpoint_path(run, step) / "model.safetensors").write_bytes(b"damaged")
    train_tiny(experiment, run)
    error = capsys.readouterr().err
    assert "step-00000012 is damaged" in error
    assert "step-00000010 is damaged" in error
    found, expected = (load_file(checkpoint_path(path, 12) / "model.safetensors") for path in (run, trained))
    assert all(torch.equal(weight, expected[name]) for name, weight in found.items())


@pytest.mark.parametrize("device", ["tpu9", "cuda:99"])
def test_a_device_that_is_not_there_is_named(experiment, tmp_path, capsys, device):
    status, error = status_and_error(
        train.main, experiment, f"run_dir={tmp_path}", f"training.device={device}", capsys=capsys
    )
    assert status == 2
    assert says(error, "device-unusable", device)


def test_a_full_disk_ends_with_advice_and_no_traceback(experiment, tmp_path, capsys):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))  # bytes of any file; a checkpoint has more
    try:
        status, error = status_and_error(train.main, experiment, f"run_dir={tmp_path / 'run'}", capsys=capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 2
    assert says(error, "advice-make-room")
    assert "Traceback" not in error


def test_a_run_without_a_whole_checkpoint_is_not_begun_anew_in_silence(run, experiment, capsys):
    log = (run / "log.jsonl").read_text()
    for step in saved_steps(run):
        (checkpoint_path(run, step) / "model.safetensors").write_bytes(b"damaged")
    status, error = status_and_error(train.main, experiment, f"run_dir={run}", capsys=capsys)
    assert status == 2
    assert says(error, "no-whole-checkpoint")
    assert (run / "log.jsonl").read_text() == log


@pytest.mark.thorough
def test_a_start_that_failed_does_not_bind_the_next(experiment, tmp_path, capsys):
    arguments = [experiment, f"run_dir={tmp_path / 'run'}", "training.max_steps=2"]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))  # the first checkpoint cannot be saved
    try:
        assert status_and_error(train.main, *arguments, capsys=capsys)[0] == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert train.main([*map(str, arguments), "training.tokens_per_batch=300"]) == 0


def test_two_trainings_of_one_run_are_refused(experiment, tmp_path, capsys):
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    status, error = status_and_error(train.main, experiment, f"run_dir={tmp_path}", capsys=capsys)
    os.close(descriptor)
    assert status == 2
    assert says(error, "directory-in-use")
    train_tiny(experiment, tmp_path, "training.max_steps=1")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"corpus": {}}'])
def test_a_damaged_summary_of_prepare_is_no_preparation(experiment, tmp_path, content, capsys):
    data = shutil.copytree(experiment.parent / "data", tmp_path / "data")
    (data / "prepare.json").write_text(content)
    arguments = [experiment, f"data_dir={data}", f"run_dir={tmp_path / 'run'}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, "data-not-prepared")


def test_validation_text_of_another_length_is_refused(experiment, tmp_path, capsys):
    data = shutil.copytree(experiment.parent / "data", tmp_path / "data")
    (data / "valid.target.txt").write_text("eins\n")
    arguments = [experiment, f"data_dir={data}", f"run_dir={tmp_path / 'run'}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, "file-differs-from-sum", "valid.target.txt")


def test_a_run_dir_that_is_a_file_is_named(experiment, capsys):
    status, error = status_and_error(train.main, experiment, f"run_dir={experiment}", capsys=capsys)
    assert status == 2
    assert str(experiment) in error


@pytest.mark.thorough
@pytest.mark.parametrize(
    "override",
    [
        "training.keep_best=2",
        "training.validate_every=5",
        "training.log_every=3",
        "decoding.beam_size=7",
    ],
)
def test_settings_that_change_nothing_done_so_far_may_change(run, experiment, override):
    train_tiny(experiment, run, "training.max_steps=13", override)
    assert saved_steps(run)[-1] == 13


@pytest.mark.parametrize(
    "override",
    ["training.average_decay=0.5", "training.metric=nll", "training.initialise_from=x", "training.clip_norm=1"],
)
def test_others_may_not(run, experiment, override, capsys):
    status, error = status_and_error(
        train.main, experiment, f"run_dir={run}", "training.max_steps=13", override, capsys=capsys
    )
    assert status == 2
    assert override.split("=")[0] in error
