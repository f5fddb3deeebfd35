"""Evaluating with an engine, a precision or several models gives what translating with them gives."""

import json
from pathlib import Path

import pytest
import torch
from helpers.thorough import thorough_rows
from helpers.tiny import status_and_error

from transformer_mt import evaluate, export, translate
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.decoding.translator import Translator
from transformer_mt.inference.fast import build_model
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.storage.checksums import write_sums
from transformer_mt.storage.weights import model_weights, save_weights
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.training_lines import TrainingLines

MADE_OF = "the mean of 2 checkpoints, updates 10, 12"


def write_run(run_dir, experiment, seed):
    """A run whose model has not been trained, but has opinions: its translations are long, and none is like another."""
    config = load_config(experiment)
    tokenizer = Tokenizer.load(Path(config.data_dir))
    torch.manual_seed(seed)
    model = build_model(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0).add_(0.1 * torch.randn_like(parameter))
    (run_dir / "model").mkdir(parents=True)
    tokenizer.save(run_dir / "model")
    TrainingLines.load(Path(config.data_dir)).save(run_dir / "model")
    for directory in (run_dir, run_dir / "model"):
        (directory / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    metadata = {"tokenizer": tokenizer.digest, "made_of": MADE_OF}
    save_weights(model_weights(model), run_dir / "model" / "model.safetensors", metadata)
    write_sums(run_dir / "model", [path.name for path in (run_dir / "model").iterdir()])


@pytest.fixture(scope="module")
def models(experiment, tmp_path_factory):
    """Two runs of the same vocabulary, and an export of the first."""
    pytest.importorskip("ctranslate2")
    directory = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("run", "other"), start=1):
        write_run(directory / name, experiment, seed)
    export.main([str(directory / "run" / "model"), str(directory / "exported"), "--format=ctranslate2"])
    return directory


@pytest.fixture(scope="module")
def plain(models, experiment):
    """What the first model makes of the test set by itself."""
    sources = list(read_lines(experiment.with_name("test.en")))
    found = Translator.load(models / "run" / "model", "cpu", workers=1).translate(sources)
    return "".join(f"{line}\n" for line in found)


@pytest.fixture
def both(models, experiment, tmp_path):
    """A function that evaluates and translates with the same arguments: the record of scores.json, both texts."""

    def run(model, *arguments):
        output, scores = tmp_path / "translations.txt", tmp_path / "scores.json"
        lines = ["--input", str(experiment.with_name("test.en")), "--output", str(output)]
        arguments = ["--device=cpu", "--workers=1", *arguments]
        assert translate.main([str(model), *lines, *arguments]) == 0
        assert evaluate.main([str(model), "--json", str(scores), *arguments]) == 0
        place = model if model == models / "exported" else models / "run"
        return (
            json.loads(scores.read_text())["test_sets"]["tiny"],
            output.read_text(),
            place / "evaluation" / "tiny.hypotheses.txt",
        )

    return run


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dtype=bf16", "beam_size=3"], {"dtype": "bf16"}),
        *thorough_rows(
            (["--quantize=int8", "--dtype=auto"], {"quantize": "int8"}),
            (["--ensemble={other}"], {"ensemble": ["{other}"]}),
        ),
    ],
)
def test_the_engine_does_as_it_is_told(both, models, plain, arguments, said):
    other = str(models / "other" / "model")
    record, translations, hypotheses = both(
        models / "run" / "model", *[argument.format(other=other) for argument in arguments]
    )
    assert hypotheses.read_text() == translations
    others = {"engine": "torch", "dtype": "fp32", "quantize": "none", "ensemble": []}
    said = {key: [other] if key == "ensemble" else value for key, value in said.items()}
    assert {key: record[key] for key in others} == others | said
    assert record["made_of"] == MADE_OF
    assert translations != plain, "the test would hold of an engine that is not told anything, too"


@pytest.mark.thorough
def test_an_export_is_evaluated_in_its_own_place(both, models, capsys):
    record, translations, hypotheses = both(models / "exported", "--engine=ctranslate2")
    assert hypotheses.read_text() == translations
    assert (record["engine"], record["model"]) == ("ctranslate2", str(models / "exported"))
    assert "exported --engine ctranslate2 --input SOURCE_FILE" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_models_of_an_ensemble_may_be_runs(models, capsys):
    evaluate.main([str(models / "run"), f"--ensemble={models / 'other'}", "--device=cpu", "--workers=1"])
    record = json.loads((models / "run" / "evaluation" / "scores.json").read_text())["test_sets"]["tiny"]
    assert record["ensemble"] == [str(models / "other" / "model")]
    said = capsys.readouterr().out
    assert f"Model         {models / 'run' / 'model'}, {MADE_OF}\n" in said


def test_a_model_and_an_engine_that_do_not_go_together_are_refused(models, capsys):
    status, error = status_and_error(evaluate.main, models / "run", "--engine=ctranslate2", capsys=capsys)
    assert status == 2
    assert f"export {models / 'run' / 'model'} OUTPUT_DIR --format ctranslate2" in error
    status, error = status_and_error(evaluate.main, models / "exported", capsys=capsys)
    assert status == 2
    assert "--engine ctranslate2" in error
