"""What the documentation names is there, its links lead somewhere, and its commands are commands."""

import ast
import doctest
import importlib
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import list_modules
import pytest
import yaml
from helpers.tiny import ROOT

from transformer_mt import plot
from transformer_mt.reporting import plot_attention
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.section import keys_of
from transformer_mt.settings.suggestions import MODELS, sections_of, suggestion

PACKAGE = ROOT / "transformer_mt"
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCS = [README, *PAGES]
SVG = "{http://www.w3.org/2000/svg}"
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1].split("\n\n")[0]
FAMILY = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")

each_document = pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


def commands(stage: str) -> list[list[str]]:
    """The arguments of each command of a stage in docs/attention.md."""
    lines = FAMILY.replace("\\\n", " ")
    found = re.findall(rf"^python -m transformer_mt\.{stage} (.*)$", lines, flags=re.MULTILINE)
    return [shlex.split(arguments) for arguments in found]


def defined_in(path: Path) -> set[str]:
    """Functions and classes."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@each_document
def test_every_file_that_is_named_exists(path):
    text = re.sub(r"^```diff\n.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    names = re.findall(r"(?<![\w./-])((?:\w+/)*\w+\.(?:py|yaml|sh))\b", text)
    places = [
        ROOT,
        ROOT / "configs",
        ROOT / "scripts",
        PACKAGE,
        *(place for place in PACKAGE.rglob("*") if place.is_dir()),
    ]
    missing = {name for name in names if not any((place / name).is_file() for place in places)}
    assert len(names) > {"README": 10, "attention": 20, "design": 40}.get(path.stem, -1)
    assert missing <= {
        "config.yaml",
        "model/config.yaml",
        "pairs.yaml",
        "captions.yaml",
        "both.yaml",
        "student.yaml",
    }, "which are in a run, or made by `new`"


def without_code(path: Path) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings on which GitHub and MkDocs agree; ValueError if two headings share one."""
    names = re.findall(r"^#+ (.*)$", without_code(path), flags=re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", name.lower()) for name in names]
    on_github = [name.replace(" ", "-") for name in kept]
    on_site = [re.sub(r"[-\s]+", "-", name.encode("ascii", "ignore").decode().strip()) for name in kept]
    if not len(set(on_github)) == len(names) == len(set(on_site)):
        raise ValueError(f"{path.name}: two headings have the same words")
    return set(on_github) & set(on_site)


@each_document
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(path):
    wrong = []
    for link in re.findall(r"\]\((?!http)([^)]+)\)", without_code(path)):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


@each_document
def test_every_heading_has_an_anchor_of_its_own(path):
    assert anchors(path)


@each_page
def test_every_page_says_first_what_it_is_for(path):
    title, blank, first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ") and not blank and first.startswith("This page ")


@each_document
def test_a_document_with_commands_says_which_python_they_mean(path):
    text = path.read_text(encoding="utf-8")
    if re.search(r"(?<![\w/.])python (?:-m|scripts/)", text):
        assert "`python` stands for" in " ".join(text.split())


@each_page
def test_every_page_is_in_the_navigation_of_the_site_once(path):
    assert re.findall(r"- (\w+\.md)$", NAVIGATION, flags=re.MULTILINE).count(path.name) == 1


def test_the_first_page_leads_to_each_part_of_the_site():
    """A door for each kind of reader; the reference has a paragraph."""
    first = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    named = {
        part: pages for each in yaml.safe_load(NAVIGATION) if isinstance(each, dict) for part, pages in each.items()
    }
    assert [part for part in named if f"## {part}\n" not in first] == ["Reference"]
    for pages in named.values():
        assert len([page for page in pages if f"]({page})" in first]) >= 3


@pytest.mark.thorough
def test_the_list_of_modules_is_as_it_is_made():
    page = list_modules.PAGE.read_text(encoding="utf-8")
    assert list_modules.page_with_modules(page) == page, "run python scripts/list_modules.py"


def test_the_design_names_every_script():
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert [path.name for path in (ROOT / "scripts").glob("*.??") if f" {path.name}" not in page] == []


def test_the_design_names_every_folder_of_the_package():
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert len(folders) > 15
    assert [name for name in folders if f"\n    {name}/  " not in page] == []


SECTIONS = {f"{name}.{key}" for kind in MODELS for name, one in sections_of(kind).items() for key in keys_of(one)}
# What an exercise adds, and what an example shows as wrong.
NO_SETTINGS = {"exercises.md": {"model.normalisation"}, "coming_from.md": {"training.max_tokens", "model.generate"}}


@each_document
def test_every_setting_that_is_named_exists(path):
    names = re.findall(
        r"(?<![\w./-])(?:filters|tokenizer|model|training|averaging|decoding)\.[a-z]\w*(?:\.\w+)?(?![\w(/])",
        path.read_text(encoding="utf-8"),
    )
    files = {name for name in names if name.endswith((".md", ".py", ".bin", ".model", ".npz", ".safetensors"))}
    assert set(names) - files - SECTIONS == NO_SETTINGS.get(path.name, set())


def rows_of_other_trainers() -> list[tuple[str, list[str]]]:
    """The cell about our settings of each row of docs/coming_from.md, and the other trainers' names beside it."""
    page = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", page.partition("## Settings")[2], flags=re.MULTILINE)
    found = []
    for table in tables:
        head, _, *rows = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines())
        ours = head.index("here")
        for row in rows:
            others = " ".join(cell for place, cell in enumerate(row) if place != ours)
            found.append((row[ours], [name.split()[0].lstrip("-") for name in re.findall("`(.*?)`", others)]))
    return found


@pytest.mark.parametrize(("ours", "others"), rows_of_other_trainers(), ids=str)
def test_the_names_of_other_trainers_lead_to_our_settings(ours, others):
    """As the page says; the values that it gives for ours are allowed."""
    settings = re.findall(r"`(\w+)\.(\w+)(?:=(.*?))?`", ours)
    demo = ROOT / "configs" / "demo_en_de.yaml"
    load_config(demo, [f"{section}.{key}={value}" for section, key, value in settings if value])
    section, keys = settings[0][0], {key for _, key, _ in settings}
    assert others
    for name in others:
        plain = name.replace("-", "_")
        said = "" if plain in keys else suggestion((section, name), "transformer")
        assert plain in keys or keys & set(re.findall(r"\w+", said)), f"{section}.{name}: {said}"


def test_readme_stays_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_each_box_of_the_picture_in_readme_names_a_file():
    [picture] = re.findall(r'<img src="([^"]+)"', README.read_text(encoding="utf-8"))
    root = ElementTree.parse(ROOT / picture).getroot()
    boxes = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}rect") is not None]
    files = [[text.text for text in box.iter(f"{SVG}text") if "file" in text.get("class", "")] for box in boxes]
    assert len(files) > 15
    assert [names for names in files if len(names) != 1 or not (PACKAGE / str(names[0])).is_file()] == []


def test_the_speeds_in_readme_are_those_of_the_benchmarks():
    section = README.read_text(encoding="utf-8").split("## Speed")[1].split("\n## ")[0]
    cells = [
        cell.strip(" *") for row in re.findall(r"^\| (.*) \|$", section, flags=re.MULTILINE) for cell in row.split("|")
    ]
    speeds = [cell for cell in cells if re.fullmatch(r"[\d,]+", cell)]
    measured = re.findall(r"\| \**([\d,]+)\** (?=\|)", (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"))
    assert len(speeds) > 10
    assert set(speeds) <= set(measured)


@pytest.mark.parametrize(
    ("about", "most"), {"smoothing": 3, "schedule": 2, "score of a beam": 1, "padding": 3, "Ctrl-C": 2}.items()
)
def test_what_students_ask_first_is_answered_by_few_files(about, most):
    section = list_modules.PAGE.read_text(encoding="utf-8").split("## Where do I change")[1].split("\n## ")[0]
    [answer] = re.findall(rf"^\| [^|]*\*\*[^|]*{about}\*\*[^|]* \|(.*)\|$", section, flags=re.MULTILINE)
    assert 1 <= len(set(re.findall(r"`[\w/]+\.py`", answer))) <= most


def test_what_computes_a_member_of_the_attention_family_is_where_it_is_said_to_be():
    # As `this` in `models/x.py`, and `this`, `that` and `another` in it; or in a table, with the file above.
    named = re.findall(r"((?:`\w+`[,;]?\s+(?:and\s+)?)+)in\s+`([\w/]+\.py)`", FAMILY)
    for table in re.findall(r"(?:^\|.*\n)+", FAMILY, flags=re.MULTILINE):
        head, _, *rows = [line.strip("| \n").split(" | ") for line in table.splitlines()]
        for column, title in enumerate(head):
            if place := re.fullmatch(r"in `([\w/]+\.py)`", title):
                named += [(row[column], place[1]) for row in rows]
    pairs = [(name, file) for names, file in named for name in re.findall(r"`(\w+)`", names)]
    assert len(pairs) > 20
    assert [(name, file) for name, file in pairs if name not in defined_in(PACKAGE / file)] == []


def test_every_training_of_the_attention_family_is_a_configuration_of_a_run_of_its_own():
    trainings = commands("train")
    assert len(trainings) > 10
    runs = [load_config(ROOT / config, overrides).run_dir for config, *overrides in trainings]
    assert len(set(runs)) == len(runs)


def test_every_picture_of_the_attention_family_is_of_a_run_that_was_trained(monkeypatch):
    pictures = []

    def read(arguments):
        pictures.append(arguments)
        raise NotImplementedError("the model need not be there")

    monkeypatch.setattr(plot_attention, "_weights", read)
    for arguments in commands("plot"):
        with pytest.raises(NotImplementedError):
            plot.main(arguments)
    assert len(pictures) > 10
    trained = {f"{load_config(ROOT / config, overrides).run_dir}/model" for config, *overrides in commands("train")}
    assert {str(picture.model) for picture in pictures} <= trained
    assert len({picture.output for picture in pictures}) == len(pictures)


def test_what_a_student_reads_is_short():
    readme = README.read_text(encoding="utf-8")
    reading = readme.split("**To understand the Transformer")[1].split("\n## ")[0]
    files = re.findall(r"`((?:models|training|decoding)/\w+\.py)`", reading)
    assert len(set(files)) == len(files) > 8
    assert sum(len((PACKAGE / file).read_text(encoding="utf-8").splitlines()) for file in files) <= 900


@each_document
def test_what_python_examples_import_is_there(path):
    for code in re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name):
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def python_sessions(path: Path) -> str:
    """A document's, as one; on their own lines, so that a failure names these."""
    lines, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        inside = line == "```pycon" or (inside and line != "```")
        lines.append(line if inside and line != "```pycon" else "")
    return "\n".join(lines)


@each_document
def test_python_sessions_say_what_they_are_said_to_say(path):
    session = doctest.DocTestParser().get_doctest(python_sessions(path), {}, path.name, str(path), 0)
    prompts = re.findall(r"^>>> ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(session.examples) == len(prompts) > (40 if path.name == "attention.md" else -1)
    said: list[str] = []
    failed, _ = doctest.DocTestRunner().run(session, out=said.append)
    assert not failed, "".join(said)
