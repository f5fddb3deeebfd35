"""The files around the package: what they name is there, and their versions agree."""

import ast
import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from helpers.tiny import ROOT

from transformer_mt import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GITHUB = ROOT / ".github"
WORKFLOW, NIGHTLY, RELEASE = (
    yaml.safe_load((GITHUB / "workflows" / name).read_text(encoding="utf-8"))
    for name in ("ci.yml", "nightly.yml", "release.yml")
)
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile.*"))

ONLY_IN_A_CHECKOUT = r"\bdocs/|\bscripts/|\btests/|transformer-mt\["

each_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))


def targets_in(commands: str) -> set[str]:
    """What `make` is asked for, in lines of commands or in Markdown."""
    asked = re.findall(r"(?:^|[`(]|run: )make ((?:--?\w+ )*[a-z-]+(?: [a-z-]+)*)", commands, flags=re.MULTILINE)
    return {word for words in asked for word in words.split() if not word.startswith("-")}


def steps() -> list[dict[str, object]]:
    workflows = (WORKFLOW, NIGHTLY, RELEASE)
    return [step for workflow in workflows for job in workflow["jobs"].values() for step in job["steps"]]


def instructions(dockerfile: str) -> list[list[str]]:
    """The words of each instruction."""
    lines = re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [line.split() for line in lines if line.strip()]


def test_the_workflow_makes_targets_that_exist_and_among_them_all_checks():
    asked = targets_in("\n".join(str(step.get("run", "")) for step in steps()))
    assert {"setup", "lint", "types", "test-all", "test-slow"} <= asked
    assert asked <= make_targets()


def test_the_workflow_may_only_read_and_names_the_version_of_each_action():
    for workflow in (WORKFLOW, NIGHTLY, RELEASE):
        assert workflow["permissions"] == {"contents": "read"}
        more = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
        assert more == ({"publish": {"id-token": "write"}} if workflow is RELEASE else {})
    used = [str(step["uses"]) for step in steps() if "uses" in step]
    assert used
    publishes = "pypa/gh-action-pypi-publish@release/v1"
    assert [action for action in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", action)] == [publishes]


def release_step(words: str) -> str:
    """The commands of the step with these words in its name."""
    [step] = [step for step in RELEASE["jobs"]["build"]["steps"] if words in step.get("name", "")]
    return str(step["run"])


def run_release_step(words: str, directory: Path, tag: str) -> int:
    """Run a step of the release as bash does on GitHub; returns its exit status."""
    environment = {**os.environ, "ADDRESS": "https://example.org/us/it", "TAG": tag}
    command = ["bash", "-e", "-c", release_step(words)]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=False).returncode


def test_the_page_of_a_release_has_only_links_that_lead_somewhere(tmp_path):
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    assert run_release_step("address of the repository", tmp_path, "v1.2.3") == 0
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", page) + re.findall(r'src="([^"]+)"', page)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    assert "https://example.org/us/it/blob/v1.2.3/docs/data.md" in links
    changed = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert changed.pop("urls")["Repository"] == "https://example.org/us/it"
    assert changed == PROJECT


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tag", "heading", "is_accepted"),
    [
        (f"v{__version__}", f"## [{__version__}] - 2030-01-31", True),
        ("v9.9.9", f"## [{__version__}] - 2030-01-31", False),
        (f"v{__version__}", f"## [{__version__}] - unreleased", False),
    ],
)
def test_a_release_needs_the_tag_of_the_version_and_a_date_in_the_changelog(tmp_path, tag, heading, is_accepted):
    (tmp_path / "transformer_mt").mkdir()
    shutil.copy(ROOT / "transformer_mt" / "version.py", tmp_path / "transformer_mt")
    (tmp_path / "CHANGELOG.md").write_text(heading + "\n", encoding="utf-8")
    assert (run_release_step("Compare the tag", tmp_path, tag) == 0) == is_accepted


def test_what_github_shows_to_those_who_report_is_complete():
    forms = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 2
    for form in (yaml.safe_load(path.read_text(encoding="utf-8")) for path in forms):
        assert {"name", "description", "body"} <= form.keys(), "which the format requires"
        assert all(part["type"] == "markdown" or part["attributes"]["label"] for part in form["body"])
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert all((ROOT / update["directory"].strip("/")).is_dir() for update in updates)


@pytest.mark.parametrize("path", sorted(GITHUB.glob("*.md")), ids=lambda path: path.name)
def test_links_of_pages_for_github_lead_to_files(path):
    links = re.findall(r"\]\((?!http)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).is_file()] == []


@pytest.mark.slow
def test_programs_that_import_the_package_get_its_types(tmp_path):
    program = "from transformer_mt import Scorer, Translator\n"
    program += 'translated: int = Translator.load("model").translate(["a"])\n'
    program += 'score: float = Scorer.load("model").score(["a"], ["b"])[0].log_prob\n'
    (tmp_path / "use.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "use.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    [error, _] = done.stdout.splitlines()
    assert error.startswith("use.py:2: error: Incompatible types in assignment") and "list[str]" in error


def test_the_workflow_begins_with_the_oldest_python_that_the_package_runs_on():
    versions = WORKFLOW["jobs"]["tests"]["strategy"]["matrix"]["python-version"]
    assert versions == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_the_hooks_need_nothing_but_the_environment():
    hooks = [hook for repository in HOOKS["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in HOOKS["repos"]} == {"local"}
    assert {hook["id"] for hook in hooks} == {"ruff", "ruff-format", "mypy", "schema"}
    tools = {requirement.split(">")[0] for requirement in PROJECT["optional-dependencies"]["dev"]}
    for hook in hooks:
        program, *words = shlex.split(hook["entry"])
        assert hook["language"] == "system"
        if program == "make":
            assert words[-1] in make_targets()
        else:
            assert (program, words[0]) == (".venv/bin/python", "-m")
            assert words[1] in tools


@each_dockerfile
def test_a_dockerfile_copies_what_is_there_and_reaches_the_builder(path):
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    admitted = [rule.strip("!/") for rule in rules if rule.startswith("!")]
    copied = [
        source
        for words in instructions(path.read_text(encoding="utf-8"))
        if words[0] == "COPY" and not words[1].startswith("--from")
        for source in words[1:-1]
    ]
    assert {"pyproject.toml", "transformer_mt", "configs"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, rule) for rule in admitted), source
    assert PROJECT["readme"] in copied, "which the build reads"


@each_dockerfile
def test_an_image_runs_the_command_as_a_user_without_rights(path):
    found = instructions(path.read_text(encoding="utf-8"))
    last_stage = found[max(i for i, words in enumerate(found) if words[0] == "FROM") :]
    names = [words[0] for words in last_stage]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert last_stage[names.index("USER")][1] not in ("root", "0")
    [command] = PROJECT["scripts"]
    assert last_stage[names.index("ENTRYPOINT")] == ["ENTRYPOINT", f'["{command}"]']
    assert f'org.opencontainers.image.licenses="{PROJECT["license"]}"' in last_stage[names.index("LABEL")]
    compilers = {"gcc", "libc6-dev", "g++", "build-essential"} & {word for words in last_stage for word in words}
    assert compilers == ({"gcc", "libc6-dev"} if path.name == "Dockerfile.cuda" else set()), "Triton calls gcc"


def test_the_user_of_the_image_for_gpus_has_a_place_for_compiled_code_without_a_home_directory():
    [variables] = [
        words[1:]
        for words in instructions((ROOT / "docker" / "Dockerfile.cuda").read_text(encoding="utf-8"))
        if words[0] == "ENV"
    ]
    assert "XDG_CACHE_HOME=/tmp" in variables


def test_the_citation_is_complete_and_its_version_is_that_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "which the format requires"
    assert citation["cff-version"] == "1.2.0"
    assert str(citation["version"]) == __version__
    assert citation["license"] == PROJECT["license"]
    for reference in [citation, *citation["references"]]:
        assert reference["authors"]
        assert all("name" in author or "family-names" in author for author in reference["authors"])


def test_the_changelog_begins_with_the_version_of_the_package():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\] - (?:\d{4}-\d\d-\d\d|unreleased)$", changelog, flags=re.MULTILINE)
    assert versions[0] == __version__
    assert len(re.findall("^## ", changelog, flags=re.MULTILINE)) == len(versions)


def test_contributing_names_targets_that_exist():
    assert targets_in(CONTRIBUTING) >= {"setup", "test", "test-all", "lint", "types", "schema", "check"}
    assert targets_in(CONTRIBUTING) <= make_targets()


def test_contributing_names_files_that_exist():
    paths = set(re.findall(r"(?<![\w./])((?:[\w.]+/)+(?:\w+\.\w+)?)", CONTRIBUTING))
    paths = {path for path in paths if not path.startswith(".venv")}
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []
    links = re.findall(r"\]\((?!http)([^)#]+)\)", CONTRIBUTING)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_example_of_a_planted_mistake_can_be_planted():
    _, before, after = CONTRIBUTING.split("```python\n", maxsplit=2)
    right, wrong = (part.partition("```")[0] for part in (before, after))
    source = (ROOT / "transformer_mt" / "training" / "optimization.py").read_text(encoding="utf-8")
    assert source.count(right) == 1
    assert wrong not in source
    tests = (ROOT / "tests" / "training" / "test_optimization.py").read_text(encoding="utf-8")
    named = set(re.findall(r"^FAILED .*::(\w+)", CONTRIBUTING, flags=re.MULTILINE))
    assert len(named) == 2
    assert all(f"def {name}(" in tests for name in named)


@pytest.mark.thorough
def test_messages_name_nothing_that_a_wheel_lacks():
    """Its user has no checkout, and the package is in no index of packages."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "transformer_mt").rglob("*.py")}
    texts = {path: [*strings(ast.parse(text))] for path, text in texts.items()}
    assert any("`pip install" in text for path in texts for text in texts[path])
    found = {path.name: text for path in texts for text in texts[path] if re.search(ONLY_IN_A_CHECKOUT, text)}
    assert found == {}


def strings(tree: ast.Module) -> Iterator[str]:
    """The texts of a module, without docstrings."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def test_a_wheel_has_every_file_of_the_package():
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    found = [
        path for path in (ROOT / "transformer_mt").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    for path in found:
        names = {folder: ".".join(folder.relative_to(ROOT).parts) for folder in path.parents if ROOT in folder.parents}
        folder, package = next((each, name) for each, name in names.items() if name in setup["packages"])
        patterns = ["*.py", *setup["package-data"].get(package, [])]
        assert any(fnmatch.fnmatch(path.relative_to(folder).as_posix(), pattern) for pattern in patterns), path
        assert path.suffix != ".py" or folder == path.parent, path
    assert any(path.suffix == ".html" for path in found)


def test_no_file_hides_a_module_of_the_standard_library():
    """The folder of a script that runs, and those that pytest adds, come before the standard library."""
    files = [path.relative_to(ROOT) for top in ("tests", "scripts") for path in (ROOT / top).rglob("*.py")]
    assert len(files) > 100
    assert [path for path in files if path.stem in sys.stdlib_module_names] == []
