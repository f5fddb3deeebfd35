"""A recurrent model goes through the stages of a Transformer, which know nothing of it."""

import json

import pytest
import yaml
from helpers.messages import says
from helpers.thorough import thorough
from helpers.tiny import assert_same_weights, log_records, status_and_error, train_tiny, weights_at

from transformer_mt import average, export, score, translate

MODELS = {
    "attention": {"kind": "rnn", "d_model": 16, "output_bias": True},
    "without": {"kind": "rnn", "d_model": 16, "attention": "none", "cell": "lstm", "decoder": "bahdanau"},
}

RARELY = "training.validate_every=12"


@pytest.fixture(scope="module")
def configs(experiment):
    """The configuration of a run of each model, by name."""
    values = yaml.safe_load(experiment.read_text(encoding="utf-8"))
    paths = {name: experiment.with_name(f"{name}.yaml") for name in MODELS}
    for name, path in paths.items():
        path.write_text(yaml.safe_dump(values | {"model": MODELS[name]}), encoding="utf-8")
    return paths


@pytest.fixture(scope="module")
def runs(configs, tmp_path_factory):
    """The directory of a run of each model, trained without a break, and averaged."""
    directories = {name: tmp_path_factory.mktemp(name) for name in MODELS}
    for name, directory in directories.items():
        train_tiny(configs[name], directory, RARELY)
        assert average.main([str(directory)]) == 0
    return directories


@pytest.fixture(scope="module")
def sources_file(experiment):
    return experiment.with_name("test.en")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["attention", *thorough("without")])
def test_a_broken_run_ends_as_an_unbroken_one(name, configs, runs, tmp_path):
    train_tiny(configs[name], tmp_path / "run", RARELY, "training.max_steps=6")
    train_tiny(configs[name], tmp_path / "run", RARELY)
    assert_same_weights(weights_at(tmp_path / "run", 12), weights_at(runs[name], 12))


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODELS)
def test_the_loss_falls(name, runs):
    losses = [record["loss"] for record in log_records(runs[name]) if "loss" in record]
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("name", [*thorough("attention"), "without"])
def test_scores_are_those_of_the_translations(name, runs, sources_file, tmp_path, capsys):
    output, pieces = tmp_path / "found.jsonl", tmp_path / "pieces.txt"
    model = str(runs[name] / "model")
    translate.main(
        [model, "--input", str(sources_file), "--output", str(output), "--json", "beam_size=3", "--device=cpu"]
    )
    found = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    pieces.write_text("".join(" ".join(line["pieces"]) + "\n" for line in found), encoding="utf-8")
    capsys.readouterr()
    score.main([model, str(sources_file), str(pieces), "--pieces", "--device=cpu"])
    scores = [float(line.split("\t")[0]) for line in capsys.readouterr().out.splitlines()]
    assert scores == pytest.approx([line["log_prob"] for line in found], abs=1e-3)


@pytest.mark.thorough
def test_an_ensemble_with_a_transformer_translates(runs, trained, sources_file, tmp_path):
    average.main([str(trained)])
    output = tmp_path / "found.txt"
    models = [str(trained / "model"), "--ensemble", str(runs["attention"] / "model")]
    assert translate.main([*models, "--input", str(sources_file), "--output", str(output), "--alignment"]) == 0
    assert len(output.read_text(encoding="utf-8").splitlines()) == 20


def test_an_alignment_needs_attention_in_every_model(runs, trained, sources_file, tmp_path, capsys):
    average.main([str(trained)])
    without, output = runs["without"] / "model", tmp_path / "found.txt"
    for models in ([without], [trained / "model", "--ensemble", without]):
        arguments = [*models, "--input", sources_file, "--output", output, "--alignment", "--device=cpu"]
        status, error = status_and_error(translate.main, *arguments, capsys=capsys)
        assert status == 2
        assert says(error, "alignment-needs-attention")
        assert not output.exists()


@pytest.mark.parametrize("precision", ["--dtype=bf16", "--quantize=int8"])
def test_precisions_that_a_model_has_no_form_for_are_refused(precision, runs, sources_file, tmp_path, capsys):
    model, output = runs["attention"] / "model", tmp_path / "found.txt"
    for main, files in (
        (translate.main, ["--input", sources_file, "--output", output]),
        (score.main, [sources_file] * 2),
    ):
        status, error = status_and_error(main, model, *files, precision, "--device=cpu", capsys=capsys)
        assert status == 2
        assert says(error, "precision-needs-scaled-dot")
        assert not output.exists()


@pytest.mark.parametrize("form", ["ctranslate2", "huggingface"])
def test_export_is_refused_with_the_reason(form, runs, tmp_path, capsys):
    if form == "ctranslate2":
        pytest.importorskip("ctranslate2")
    model = runs["attention"] / "model"
    status, error = status_and_error(export.main, model, tmp_path / "export", "--format", form, capsys=capsys)
    assert status == 2
    assert "model.kind=rnn" in error
    assert not (tmp_path / "export").exists()
