"""What may be concluded of two systems: sacreBLEU's own p-values, and sentences that do not say more than these."""

import random
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest
import sacrebleu
from helpers.messages import message

from transformer_mt.base.errors import EvaluationError
from transformer_mt.evaluation.comparing import (
    Compared,
    ComparedTest,
    MetricTable,
    compare,
    conclusion,
    conclusions,
)

WORDS = "der die das Hund Katze Haus sieht schläft kommt heute nicht groß klein und in auf".split()
RANDOM = random.Random(1)
REFERENCES = [" ".join(RANDOM.choices(WORDS, k=RANDOM.randint(5, 12))) + "." for _ in range(60)]


def damaged(share: float, seed: int) -> list[str]:
    """The references without this share of their words."""
    draw = random.Random(seed)
    return [" ".join(word for word in line.split() if draw.random() >= share) or "x" for line in REFERENCES]


SYSTEMS = [("good", damaged(0.1, 1)), ("bad", damaged(0.5, 2)), ("alike", damaged(0.1, 3))]


def compared(*systems: tuple[str, list[str]], references: Sequence[list[str]] = (REFERENCES,)) -> ComparedTest:
    return ComparedTest("test", references, systems)


@pytest.fixture(scope="module")
def tables() -> list[MetricTable]:
    return compare(compared(*SYSTEMS), ["bleu", "ter"])


def in_the_table(shown: str) -> list[dict[str, dict[str, float | None]]]:
    """The scores, intervals and p-values of each system in the table of `sacrebleu --paired-bs`."""
    lines = [line.split("│")[2:-1] for line in shown.splitlines() if line.startswith("│")]
    [metrics, *lines] = [[cell.strip() for cell in line] for line in lines]
    systems: list[dict[str, dict[str, float | None]]] = []
    for line in lines:
        for metric, cell in zip(metrics, line, strict=True):
            name = metric.split()[0]
            if found := re.fullmatch(r"([\d.]+) \([\d.]+ ± ([\d.]+)\)", cell):
                systems += [{}] if metric is metrics[0] else []
                systems[-1][name] = {"score": float(found[1]), "ci": float(found[2]), "p_value": None}
            elif found := re.match(r"\(p = ([\d.]+)\)", cell):
                systems[-1][name]["p_value"] = float(found[1])
    return systems


def test_scores_p_values_and_intervals_are_those_of_sacrebleus_command(tmp_path, tables):
    files = {"references": REFERENCES} | dict(SYSTEMS)
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    names = [name for name, _ in SYSTEMS]
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", *names, "-m", "bleu", "ter"]
    # The JSON of the bootstrap cannot be written with NumPy 2; its text can.
    form = ["--paired-bs", "-f", "text", "-w", "7"]
    shown = subprocess.run([*command, *form], cwd=tmp_path, capture_output=True, text=True, check=True)
    for table in tables:
        for system, row in zip(table.systems, in_the_table(shown.stdout), strict=True):
            assert system.value == pytest.approx(row[table.metric]["score"], abs=1e-6)
            assert system.p_value == pytest.approx(row[table.metric]["p_value"], abs=1e-4)
            assert system.interval == pytest.approx(row[table.metric]["ci"], abs=1e-6)
    assert [table.metric for table in tables] == ["BLEU", "TER"]
    assert "|bs:1000|seed:12345|" in tables[0].signature


def test_a_worse_system_is_called_worse_and_an_equal_one_is_not(tables):
    for table in tables:
        assert conclusion(table.metric, *table.systems[:2]).startswith("bad is worse than good by ")
        assert "do not show that one is better" in conclusion(table.metric, *table.systems[::2])


def test_the_baseline_may_be_the_worse_one():
    for table in compare(compared(SYSTEMS[1], SYSTEMS[0]), ["ter"]):
        assert conclusion(table.metric, *table.systems[:2]).startswith("good is better than bad by ")


def test_the_same_text_is_never_called_different():
    """sacreBLEU gives it the least p-value there is, because no sample differs by more than the difference, 0."""
    test = compared(SYSTEMS[0], ("again", SYSTEMS[0][1]))
    [table] = tables = compare(test, ["bleu"])
    assert table.systems[1].p_value is None
    [said] = conclusions(test, tables)
    assert said == "again has the same translations as good: there is nothing to compare."
    assert "this shows no difference" in conclusion(table.metric, *table.systems[:2])  # other text, the same score


def test_a_difference_counts_below_five_in_a_hundred():
    baseline = Compared("a", 30.0, 1.0, None)
    assert "may be chance" in conclusion("BLEU", baseline, Compared("b", 31.0, 1.0, 0.05))
    assert conclusion("BLEU", baseline, Compared("b", 31.0, 1.0, 0.04)).startswith("b is better than a by 1.0 BLEU: ")


def test_chrf_plus_plus_and_several_references():
    references = [REFERENCES, damaged(0.2, 4)]
    [table] = compare(compared(*SYSTEMS[:2], references=references), ["chrf++"])
    expected = sacrebleu.CHRF(word_order=2).corpus_score(SYSTEMS[0][1], references)
    assert (table.metric, table.systems[0].value) == ("chrF2++", expected.score)


def test_texts_of_other_lengths_and_pieces_are_refused():
    with pytest.raises(EvaluationError, match=message("evaluated-lines-differ", "good", "59")):
        compare(compared(SYSTEMS[0], ("short", REFERENCES[:-1])))
    with pytest.raises(EvaluationError, match=message("subword-pieces-in-text", "pieces", "3")):
        compare(compared(SYSTEMS[0], ("pieces", [*REFERENCES[:2], "\u2581ein", *REFERENCES[3:]])))


def test_many_comparisons_are_warned_of():
    same = ("same", SYSTEMS[0][1])
    assert len(conclusions(compared(*[same] * 2), [])) == 1
    *_, note = conclusions(compared(*[same] * 3), [])
    assert "10 of 100" in note and "p < 0.025" in note
