"""Local text needs no package that reads the hub, and no stage one for pictures or exports: some machines lack them."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import check_requirements
import pytest
from helpers.processes import python_path
from helpers.tiny import ROOT, write_experiment

WITHOUT = """
import importlib.metadata, sys
class Nowhere:  # as if it were not installed
    def find_spec(self, name, path=None, target=None):
        if name == "datasets":
            raise ModuleNotFoundError(name)
    def find_distributions(self, context):
        return iter(())
sys.meta_path.insert(0, Nowhere())
known = importlib.metadata.version
def version(name):
    if name == "datasets":
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)
importlib.metadata.version = version
from transformer_mt import prepare
sys.exit(prepare.main(sys.argv[1:]))
"""


@pytest.mark.thorough
def test_local_text_is_prepared_without_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(write_experiment(tmp_path))],
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    versions = json.loads((tmp_path / "data" / "prepare.json").read_text())["versions"]
    assert versions.keys() == {"transformer_mt", "python", "sentencepiece", "numpy"}


ABSENT = ["datasets", "pyarrow", "matplotlib", "tensorboard", "ctranslate2", "transformers", "pandas"]
LACKING = f"""
import sys
sys.modules |= dict.fromkeys({ABSENT})  # as if they were not installed
"""
LACKING += """
from transformer_mt import average, evaluate, prepare, score, train, translate
config, directory = sys.argv[1:]
own = ["--device=cpu", "--workers=1"]
quick = [*own, "beam_size=1", "max_extra_length=2"]
assert prepare.main([config]) == 0
assert train.main([config, "training.max_steps=2", "training.validate_every=2"]) == 0
assert average.main([f"{directory}/run"]) == 0
model, lines = f"{directory}/run/model", f"{directory}/test.en"
assert translate.main([model, "--input", lines, "--output", f"{directory}/found.de", *quick]) == 0
assert score.main([model, lines, f"{directory}/test.de", *own]) == 0
assert evaluate.main([f"{directory}/run", *quick]) == 0
"""


@pytest.mark.thorough
def test_every_stage_from_text_to_scores_works_without_packages_that_it_does_not_need(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LACKING, str(write_experiment(tmp_path)), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "evaluation").is_dir()


def test_tests_are_found_without_these_packages() -> None:
    """Else no test runs on a machine that lacks one of them."""
    imported = {
        (path.name, name.partition(".")[0])
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert ("test_without_datasets.py", "helpers") in imported
    assert [(file, name) for file, name in sorted(imported) if name in ABSENT] == []


@pytest.mark.parametrize(("missing", "status"), [("datasets", 0), ("lxml", 0), ("pyarrow", 0), ("sacrebleu", 2)])
def test_an_installation_by_hand_may_lack_only_what_some_corpora_need(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str, status: int
) -> None:
    def version(name: str) -> str:
        if name == missing:
            raise check_requirements.PackageNotFoundError(name)
        return "9999"

    monkeypatch.setattr(check_requirements, "version", version)
    assert check_requirements.main() == status
    error = capsys.readouterr().err
    assert f"lacks {missing}>=" in error
    assert error.startswith("note: " if status == 0 else "error: ")
    assert ("Only corpora from the Hugging Face hub need it" in error) == (missing == "datasets")


SCRIPTS = ["evaluate_bleu.py", "count_parameters.py", "make_demo_corpus.py", "benchmark.py", "compare_table.py"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_run_by_a_python_without_the_package_says_in_a_line_what_to_do(script: str) -> None:
    command = [sys.executable, "-E", "-S", ROOT / "scripts" / script, "a", "b"]  # -S: without installed packages
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: .* lacks the package \w+; run `make setup` in .*; or install this project: .*\n", done.stderr
    )
