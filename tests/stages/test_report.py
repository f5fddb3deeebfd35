"""`report`: what stands in the page is what stands in the files, and nothing of it runs or is loaded."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.messages import says
from helpers.thorough import thorough_rows
from helpers.tiny import log_records, renew_sums, status_and_error
from helpers.web_page import WebPage

from transformer_mt import report
from transformer_mt.base.wording import duration
from transformer_mt.decoding.translator import Translator
from transformer_mt.evaluation.scores_json import lines_sha256
from transformer_mt.reporting.charts import CURVES
from transformer_mt.reporting.page import MARK, SECTIONS, open_run

pytest.importorskip("matplotlib")

HOSTILE = "<script>alert(1)</script> </script><img src=x onerror=alert(2)> <!-- &amp; {{ 7 * 7 }} ' \" \u2028"


@pytest.fixture(scope="module")
def page(evaluated, trained, tmp_path_factory):
    """The page of that run and of one that is not evaluated, and has no model."""
    return WebPage.read(written(tmp_path_factory.mktemp("page"), evaluated, trained))


def notes():
    return {section: [] for section in SECTIONS}


def written(directory, *runs):
    assert report.main([*map(str, runs), "--output", str(directory / "report.html")]) == 0
    return directory / "report.html"


def replace_translations(run, lines):
    """Write other translations of the test set, and their checksum."""
    (run / "evaluation" / "tiny.hypotheses.txt").write_text("".join(f"{line}\n" for line in lines))
    file = run / "evaluation" / "scores.json"
    scores = json.loads(file.read_text())
    scores["test_sets"]["tiny"]["checksums"]["hypotheses"] = lines_sha256(lines)
    file.write_text(json.dumps(scores))


@pytest.mark.thorough
def test_the_values_of_the_curves_are_those_of_the_log(page, evaluated, trained):
    curves = page.text.split("Learning curves")[2].split("Scores of the test sets")[0]
    for key in ("loss", "nll", "valid_nll", "valid_bleu", "learning_rate", "gradient_norm", "tokens_per_second"):
        _, chart = curves.split(f" {CURVES[key]} ", maxsplit=1)
        for run in (evaluated, trained):
            ends = [record for record in log_records(run) if key in record]
            (first, step), (last, last_step) = ((each[key], each["step"]) for each in (ends[0], ends[-1]))
            said = re.search(rf"{run} : (\S+) at update {step}, (\S+) at update {last_step} ", chart)
            values = [float(value.replace(",", "")) for value in said.groups()]
            assert values == pytest.approx([first, last], rel=1e-3)
    assert CURVES["skipped"] not in curves, "there was none"


@pytest.mark.thorough
def test_the_scores_are_those_of_scores_json(page, evaluated):
    scores = json.loads((evaluated / "evaluation" / "scores.json").read_text())["test_sets"]["tiny"]
    for metric, score in scores["scores"].items():
        assert f"{metric} {score['value']:.1f} ± {score['interval']:.1f} {score['signature']}" in page.text
    for worst in scores["analysis"]["worst"]:
        assert worst["hypothesis"], "a translation that is empty would show nothing"
        assert worst["source"] in page.text and worst["hypothesis"] in page.text
        assert f"chrF2 of {evaluated}: {worst['chrf']:.1f}" in page.text


def test_the_page_begins_with_scores_size_corpus_and_time(page, evaluated, trained):
    begin = page.text.split("Written by")[0]
    scores = json.loads((evaluated / "evaluation" / "scores.json").read_text())["test_sets"]["tiny"]["scores"]
    assert f"{scores['BLEU']['value']:.1f} BLEU on tiny" in begin
    (last,) = [record for record in log_records(evaluated) if "loss" in record][-1:]
    assert "parameters, en to de, trained on " in begin and f" in {duration(last['seconds'])}" in begin
    assert f"not evaluated yet {trained} :" in begin


def test_what_was_trained_is_said(page, evaluated):
    [start] = json.loads((evaluated / "run.json").read_text())
    run = open_run(evaluated, notes())
    assert f"parameters {run.num_parameters:,}" in re.sub(r" +", " ", page.text)
    for value in (start["command"], start["time"], f"torch {start['versions']['torch']}", start["processor"]):
        assert str(value) in page.text


def test_the_number_of_parameters_is_that_of_the_model(evaluated):
    with Translator.load(evaluated / "model", "cpu", workers=1) as translator:
        wanted = sum(parameter.numel() for parameter in translator.engine.model.parameters())
    assert open_run(evaluated, notes()).num_parameters == wanted


def test_what_is_missing_is_said(page, trained):
    assert f"{trained} is not evaluated yet: run python -m transformer_mt.average {trained} , then" in page.text


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs(page):
    assert page.loaded() == []
    assert page.programs() == []
    [policy] = [a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'") and "script" not in policy


def test_headings_go_down_step_by_step_and_pictures_have_names(page):
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    pictures = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(pictures) > 5
    assert all(picture.get("aria-label") or picture.get("aria-hidden") for picture in pictures)
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(names)) == len(names)


@pytest.mark.thorough
def test_the_same_input_is_the_same_bytes(evaluated, trained, tmp_path):
    again = written(tmp_path, evaluated, trained).read_bytes()
    assert written(tmp_path, evaluated, trained).read_bytes() == again


@pytest.mark.thorough
def test_two_runs_are_compared_and_their_differences_come_first(evaluated, tmp_path):
    better, same = (shutil.copytree(evaluated, tmp_path / name, symlinks=True) for name in ("better", "same"))
    data = Path(open_run(evaluated, notes()).config.data_dir)
    replace_translations(better, (data / "test" / "tiny.target.txt").read_text().splitlines())
    config = better / "config.yaml"
    config.write_text(config.read_text().replace("clip_norm: 0.0", "clip_norm: 2.0"))
    page = WebPage.read(written(tmp_path, evaluated, better, same))
    settings = page.text.split("The settings that differ")[1].split("The runs")[0]
    assert "training.clip_norm 0.0 2.0 0.0" in settings and "training.seed" not in settings
    [row] = re.findall(rf"{better} BLEU 100.0 ± 0.0 (\S+)", page.text)
    assert 0 < float(row) < 0.01
    assert f"{same} has the same translations as {evaluated}" in page.text
    assert re.search(rf"{same} BLEU \S+ ± \S+ same text", page.text)


def test_seeds_of_a_setting_are_one_system(evaluated, tmp_path):
    runs = [shutil.copytree(evaluated, tmp_path / name, symlinks=True) for name in ("a_1", "a_2", "a_3", "b_1", "b_2")]
    data = Path(open_run(evaluated, notes()).config.data_dir)
    for run in runs:
        config, seed = run / "config.yaml", run.name[-1]
        text = re.sub(r"(?m)^  seed: 1$", f"  seed: {seed}", config.read_text(), count=1)
        config.write_text(text.replace("clip_norm: 0.0", "clip_norm: 2.0") if run.name[0] == "b" else text)
    replace_translations(runs[1], (data / "test" / "tiny.target.txt").read_text().splitlines())
    text = WebPage.read(written(tmp_path, *runs)).text
    assert re.search(rf"{tmp_path}/a_\{{1,2,3\}} BLEU \S+ ± \S+ baseline 3, standard deviation \d", text)
    assert re.search(rf"{tmp_path}/b_\{{1,2\}} BLEU \S+ ± \S+ 0\.\d+ 2, (\S+) to \1 ", text)
    assert "these sentences and seeds do not show that one is better" in text


def test_hostile_text_is_text(evaluated, tmp_path):
    """In translations, logs, scores and names."""
    run = shutil.copytree(evaluated, tmp_path / "<b onclick=x>run", symlinks=True)
    num_lines = len((run / "evaluation" / "tiny.hypotheses.txt").read_text().splitlines())
    replace_translations(run, [HOSTILE] * num_lines)
    starts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps([starts[0] | {"command": HOSTILE, HOSTILE: "", "odd": [HOSTILE]}]))
    scores = json.loads((run / "evaluation" / "scores.json").read_text())
    tests = scores["test_sets"]
    tests["tiny"]["scores"]["BLEU"]["signature"] = HOSTILE
    trials = [{"settings": [HOSTILE], "score": 1.0}]
    tests[HOSTILE] = tests["tiny"] | {
        "tuning": {"metric": "bleu", "num_lines": 1, "trials": trials, "chosen": [HOSTILE]}
    }
    (run / "evaluation" / "scores.json").write_text(json.dumps(scores))
    page = WebPage.read(written(tmp_path, run))
    assert page.programs() == [] and page.loaded() == []
    assert not [attributes for tag, attributes in page.elements if tag == "img" or "onclick" in attributes]
    assert page.text.count("<script>alert(1)</script> </script><img src=x onerror=alert(2)>") > 10


def test_a_model_without_its_run_is_reported(evaluated, tmp_path):
    model = shutil.copytree(evaluated / "model", tmp_path / "model")
    config = model / "config.yaml"
    config.write_text(re.sub("(?m)^data_dir: .*", "data_dir: nowhere", config.read_text()))
    renew_sums(model)
    page = WebPage.read(written(tmp_path, model))
    for said in ("has no log: give the directory of its run", "is not evaluated yet"):
        assert said in page.text


def test_damaged_files_of_a_run_are_named_and_the_rest_is_reported(evaluated, tmp_path):
    run = shutil.copytree(evaluated, tmp_path / "run", symlinks=True)
    for name in ("run.json", "log.jsonl", "evaluation/scores.json", "model/model.safetensors"):
        (run / name).write_text("{broken")
    text = WebPage.read(written(tmp_path, run)).text
    for name in ("run.json", "log.jsonl", "evaluation/scores.json", "model/model.safetensors"):
        assert str(run / name) in text


@pytest.mark.thorough
def test_translations_that_are_not_those_of_the_scores_are_left_out_and_named(evaluated, tmp_path):
    run = shutil.copytree(evaluated, tmp_path / "run", symlinks=True)
    file = run / "evaluation" / "tiny.hypotheses.txt"
    _, *lines = file.read_text().splitlines(keepends=True)
    file.write_text("Zauberwort\n" + "".join(lines))
    text = WebPage.read(written(tmp_path, run)).text
    assert f"The translations of {run} are left out: {file}: these translations or the sentences of" in text
    assert "Zauberwort" not in text


def changed(scores, fields):
    return scores | {"test_sets": {"tiny": scores["test_sets"]["tiny"] | fields}}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("run.json", lambda content: [content[0] | {"from_update": "none"}]),
        *thorough_rows(
            ("evaluation/scores.json", lambda content: changed(content, {"analysis": {"unit": "word"}})),
            ("evaluation/scores.json", lambda content: changed(content, {"scores": {"BLEU": 3.0}})),
        ),
    ],
)
def test_a_file_of_another_form_is_named(file, change, evaluated, tmp_path):
    run = shutil.copytree(evaluated, tmp_path / "run", symlinks=True)
    (run / file).write_text(json.dumps(change(json.loads((run / file).read_text()))))
    text = WebPage.read(written(tmp_path, run)).text
    assert re.search(rf"{run / file} (exists, and )?is damaged,? or was not written by", text)


def test_mistakes_end_with_status_2_and_leave_all_files(evaluated, tmp_path, capsys):
    (tmp_path / "foreign.html").write_text("my page")
    (tmp_path / "empty").mkdir()
    for runs, output, *expected in [
        ([tmp_path / "none"], "r.html", "run-directory-missing", f"{tmp_path / 'none'}"),
        ([tmp_path / "empty"], "r.html", "not-run-or-model", f"{tmp_path / 'empty'}"),
        ([evaluated / "checkpoints"], "r.html", "not-run-or-model", "checkpoints"),
        ([evaluated], "foreign.html", "picture-place-taken", "foreign.html", ".html"),
        ([evaluated], "nowhere/r.html", "output-directory-missing", "nowhere/r.html"),
        ([evaluated], "empty", "picture-suffix-unknown", "empty", ".html"),
    ]:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        status, error = status_and_error(report.main, *runs, "--output", tmp_path / output, capsys=capsys)
        assert status == 2 and says(error, *expected) and error.count("\n") == 1
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_interrupted_report_leaves_the_earlier_one(evaluated, tmp_path, monkeypatch):
    output = tmp_path / "report.html"
    output.write_text(before := MARK)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "page_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path, evaluated)
    assert output.read_text() == before and list(tmp_path.iterdir()) == [output]
