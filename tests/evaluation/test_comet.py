"""COMET: what is refused and with which words, and how the package is asked. The package here is a stand-in: a module
with the two calls that this program makes, which scores a line by its length.
"""

import hashlib
import sys
from types import ModuleType

import pytest
from helpers.messages import message

from transformer_mt import evaluate
from transformer_mt.base.errors import EvaluationError
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.metrics import Comet
from transformer_mt.terminal import cli

SOURCES, HYPOTHESES, REFERENCES = ["a b", "c"], ["A B", "CCCC"], ["A B", "C"]


class StandIn:
    """In the place of a model of COMET."""

    def predict(self, samples, *, batch_size, gpus, devices, progress_bar, num_workers):
        assert (samples[1], progress_bar) == ({"src": "c", "mt": "CCCC", "ref": "C"}, False)
        assert gpus == len(devices or [])
        self.devices = devices
        assert list(samples[0]) == ["src", "mt", "ref"]
        scores = [len(sample["mt"]) / 10 for sample in samples]
        return {"scores": scores, "system_score": sum(scores) / len(scores)}


@pytest.fixture
def model(tmp_path):
    """The directory of a model, whose checkpoint nobody could load."""
    directory = tmp_path / "wmt-made-up"
    (directory / "checkpoints").mkdir(parents=True)
    (directory / "checkpoints" / "model.ckpt").write_bytes(b"weights")
    (directory / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    return directory


@pytest.fixture
def package(monkeypatch):
    """The stand-in, where the package would be; a list of the checkpoints that it loads."""
    loaded = []

    def load_from_checkpoint(path, local_files_only):
        loaded.append((path, local_files_only))
        return StandIn()

    module = ModuleType("comet")
    module.load_from_checkpoint = load_from_checkpoint
    monkeypatch.setitem(sys.modules, "comet", module)
    monkeypatch.setattr(metrics, "find_spec", lambda _: True)
    return loaded


@pytest.mark.parametrize("named", ["directory", "checkpoint"])
def test_the_score_is_the_packages_in_percent_and_its_signature_names_the_model(model, package, capsys, named):
    checkpoint = model / "checkpoints" / "model.ckpt"
    metric = Comet(model if named == "directory" else checkpoint, "cpu")
    assert package == [] and capsys.readouterr().err == ""
    for _ in range(2):
        score = metric.score(SOURCES, HYPOTHESES, REFERENCES)
    assert score.value == pytest.approx(35)
    digest = hashlib.sha256(b"weights").hexdigest()[:16]
    assert score.signature.startswith(f"nrefs:1|model:wmt-made-up|sha256:{digest}|dtype:fp32|scale:100|version:")
    assert package == [(str(checkpoint), True)], "it is loaded once, and nothing is downloaded"
    assert "loading it runs any code in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "has_gpu", "devices"),
    [("cpu", True, None), ("auto", False, None), ("auto", True, [0]), ("cuda", True, [0]), ("cuda:1", True, [1])],
)
def test_it_runs_on_the_gpu_that_is_named(model, package, monkeypatch, device, has_gpu, devices):
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    metric = Comet(model, device)
    metric.score(SOURCES, HYPOTHESES, REFERENCES)
    assert metric._model.devices == devices


def test_evaluate_prints_it_beside_the_others(model, package, tmp_path, capsys):
    for name, lines in {"source": SOURCES, "hypothesis": HYPOTHESES, "reference": REFERENCES}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files = [f"--{name}={tmp_path / name}" for name in ("source", "hypothesis", "reference")]
    arguments = [*files, "--device", "auto", "--metrics", "chrf", f"comet={model}", "--json", str(tmp_path / "s.json")]
    assert cli.run(evaluate.main, arguments) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and "  COMET  35.0  nrefs:1|model:wmt-made-up|" in said[1]
    assert '"COMET": {' in (tmp_path / "s.json").read_text()


def test_what_is_missing_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "find_spec", lambda _: None)
    with pytest.raises(EvaluationError, match=message("comet-not-installed", "`pip install --no-deps")):
        Comet(model)
    with pytest.raises(EvaluationError, match=message("comet-model-missing", "nowhere")):
        Comet(tmp_path / "nowhere")
    (model / "hparams.yaml").unlink()
    with pytest.raises(EvaluationError, match=message("comet-model-missing", "hparams.yaml")):
        Comet(model)


def test_a_package_that_fails_ends_in_an_error_that_names_the_model(model, package, monkeypatch):
    def refuses(*_, **__):
        raise OSError("no encoder")

    monkeypatch.setattr(sys.modules["comet"], "load_from_checkpoint", refuses)
    with pytest.raises(EvaluationError, match=message("comet-failed", f"comet={model}", "OSError: no encoder")):
        Comet(model).score(SOURCES, HYPOTHESES, REFERENCES)
    monkeypatch.setattr(StandIn, "predict", refuses)
    metric = Comet(model)
    metric.__dict__["_model"] = StandIn()
    with pytest.raises(EvaluationError, match=message("comet-failed", f"comet={model}", "OSError: no encoder")):
        metric.score(SOURCES, HYPOTHESES, REFERENCES)
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(EvaluationError, match=message("comet-failed", "ModuleNotFoundError", "`pip install")):
        Comet(model).score(SOURCES, HYPOTHESES, REFERENCES)
