"""Changed test sets: sources and references in step, the same text for everybody, scores of that text."""

import json
import shutil

import pytest
import sacrebleu
from helpers.messages import message

from transformer_mt import evaluate
from transformer_mt.base.errors import EvaluationError
from transformer_mt.evaluation.evaluated_texts import TestSet
from transformer_mt.evaluation.variations import check_perturbations, perturbed, perturbed_scores
from transformer_mt.text.modifiers import symbols_in
from transformer_mt.text.tokenizer import clean

TEXT = TestSet(
    ["<2de> the Dog runs.", "no end", "Is  it red?", "42."],
    ["der Hund läuft.", "kein Ende.", "ist es rot?", "42!"],
)


@pytest.fixture(scope="module")
def symbols(separate_tokenizer):
    return symbols_in(separate_tokenizer)


@pytest.mark.parametrize(
    ("name", "sources", "references"),
    [
        (
            "upper",
            ["<2DE> THE DOG RUNS.", "NO END", "IS IT RED?", "42."],
            ["DER HUND LÄUFT.", "KEIN ENDE.", "IST ES ROT?", "42!"],
        ),
        (
            "title",
            ["<2de> The Dog Runs.", "No End", "Is It Red?", "42."],
            ["Der Hund Läuft.", "Kein Ende.", "Ist Es Rot?", "42!"],
        ),
        (
            "punct",
            ["<2de> the Dog runs", "no end", "Is it red", "42"],
            # The second source had no end, so its reference keeps its own.
            ["der Hund läuft", "kein Ende.", "ist es rot", "42"],
        ),
    ],
)
def test_sources_and_references_change_in_step(symbols, name, sources, references):
    assert perturbed(TEXT, name, symbols) == TestSet(sources, references)


def test_a_typo_depends_on_the_line_and_its_number_alone(symbols):
    found = perturbed(TEXT, "typos", symbols)
    assert found.references == TEXT.references and found.sources[3] == "42."
    assert all(new != clean(old) for new, old in zip(found.sources[:3], TEXT.sources[:3], strict=True))
    others = TestSet(["another line", *TEXT.sources[1:]], TEXT.references)
    assert perturbed(others, "typos", symbols).sources[1:] == found.sources[1:]
    lines = perturbed(TestSet(["the same line again"] * 30, [""] * 30), "typos", symbols).sources
    assert len(set(lines)) > 10


def test_typos_need_spaces():
    check_perturbations(["upper", "typos"], ["de", "ko"])
    check_perturbations(["upper"], ["zh"])
    with pytest.raises(EvaluationError, match=message("perturb-typos-no-spaces", "zh_Hans")):
        check_perturbations(["upper", "typos"], ["de", "zh_Hans"])


def test_scores_are_those_of_the_changed_text(symbols):
    """A model that copies: with the references as sources, only what it cannot copy is wrong."""
    references = [line.lower() for line in TEXT.references]
    text = TestSet(TEXT.references, references)
    changed = {name: perturbed(text, name, symbols) for name in ("upper", "typos")}
    found = {name: perturbed_scores(each, each.sources, "de", plain=80.0) for name, each in changed.items()}
    assert found["upper"].chrf == pytest.approx(100) and found["upper"].share == pytest.approx(1.25)
    sources = changed["typos"].sources
    chrf = sacrebleu.CHRF().corpus_score(sources, [references]).score
    assert (found["typos"].chrf, found["typos"].share) == (pytest.approx(chrf), pytest.approx(chrf / 80))
    assert found["typos"].bleu == pytest.approx(sacrebleu.BLEU().corpus_score(sources, [references]).score)


@pytest.mark.thorough
def test_evaluate_prints_and_keeps_the_scores(evaluated, tmp_path, capsys):
    run = shutil.copytree(evaluated, tmp_path / "run", symlinks=True)
    assert evaluate.main([str(run), "--perturb", "upper", "typos"]) == 0
    found = json.loads((run / "evaluation/scores.json").read_text())["test_sets"]["tiny"]
    assert list(found["perturbed"]) == ["upper", "typos"]
    plain = found["scores"]["chrF2"]["value"]
    lines = [line for line in capsys.readouterr().out.splitlines() if "without the change" in line]
    assert len(lines) == 2
    for line, (name, scores) in zip(lines, found["perturbed"].items(), strict=True):
        assert scores["share"] == pytest.approx(scores["chrf"] / plain if plain else 0)
        assert line.split()[:2] == ["tiny", name] and f"chrF2 {scores['chrf']:.1f}: " in line
        assert scores["source"] != found["checksums"]["source"]
