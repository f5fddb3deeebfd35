"""Local text needs no package that reads the hub, and no stage one for pictures or exports: some machines lack them."""

import ast
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import check_requirements
import pytest
from helpers.optional import PACKAGES
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


# What a machine with a GPU usually has, each with all that it needs itself.
BARE = "torch triton numpy pydantic sentencepiece sacrebleu safetensors pyarrow lxml pyyaml tqdm jinja2 regex pytest"
COLLECT = """
import json, sys
sys.modules |= dict.fromkeys(json.loads(sys.argv[1]))  # as if they were not installed
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-m", "cuda", "-p", "no:cacheprovider"]))
"""


def absent_modules() -> set[str]:
    """The modules that are installed here, and not on a machine with only `BARE`."""
    present, missing = set[str](), BARE.split()
    while missing:
        name = missing.pop()
        if name not in present:
            present.add(name)
            with suppress(PackageNotFoundError):  # it is for another system
                found = [re.match(r"[\w.-]+", one)[0] for one in requires(name) or () if "extra ==" not in one]
                missing += [re.sub(r"[-_.]+", "-", one).lower() for one in found]
    of_module = packages_distributions().items()
    named = {module: {re.sub(r"[-_.]+", "-", one).lower() for one in packages} for module, packages in of_module}
    return {module for module, packages in named.items() if not packages & present} - {"transformer_mt"}


@pytest.mark.thorough
def test_tests_for_gpus_are_found_on_a_machine_with_few_packages() -> None:
    """One test file that cannot be imported would end `make test-gpu` before its first test."""
    absent = absent_modules()
    assert {"polib", "datasets", "matplotlib", "requests", "transformers"} <= absent
    assert not {"torch", "yaml", "sacrebleu"} & absent
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, json.dumps(sorted(absent))],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "test_validation_on_cuda.py::" in done.stdout


def imports(path: Path) -> list[tuple[str, int]]:
    """The modules that a file imports whenever it is imported, with the line of each; also inside of `try`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    nodes = [inner for node in body for inner in (node.body if isinstance(node, ast.Try) else [node])]
    found = [(alias.name, node.lineno) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found += [(name, node.lineno) for name in (node.module, *(f"{node.module}.{a.name}" for a in node.names))]
    return found


def skips(path: Path) -> list[tuple[str, int]]:
    """The packages without which a file of tests is skipped, with the line that says so."""
    found = []
    for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        found += [(name, at) for name in re.findall(r"^(?:\w+ = )?pytest\.importorskip\(\"(\w+)", line)]
        stages = re.findall(r"^skip_without_package_of\(\"(\w+)", line)
        found += [(package, at) for stage in stages for package in PACKAGES[stage]]
    return found


def test_a_file_of_tests_that_needs_such_a_package_asks_for_it_first() -> None:
    """Whichever of them is missing: by itself, or through what it imports of the package, the scripts and helpers."""
    absent = absent_modules() | {*ABSENT}
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for root, folders in ((ROOT, "transformer_mt"), (ROOT / "tests", "helpers"), (ROOT / "scripts", "."))
        for path in (root / folders).rglob("*.py")
    }

    @cache
    def needed(path: Path) -> frozenset[str]:
        direct = {name for name, _ in imports(path)}
        found = {name.partition(".")[0] for name in direct} & absent
        return frozenset(found.union(*(needed(files[name]) for name in direct & files.keys() if files[name] != path)))

    wrong, seen = [], set[str]()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        asked = skips(path)
        for name, line in imports(path):
            packages = needed(files[name]) if name in files else {name.partition(".")[0]} & absent
            seen |= packages
            missed = packages - {package for package, at in asked if at < line}
            wrong += [f"{path.name}:{line}: {name} needs {package}" for package in sorted(missed)]
    assert wrong == []
    assert {"polib", "markdown_it", "starlette"} <= seen


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
