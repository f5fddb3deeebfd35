"""What may be concluded of two systems: sacreBLEU's own p-values, and sentences that do not say more than these.

Of runs that differ only by the seed: which are one system, and that chance in training is not taken for a difference.
"""

import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import sacrebleu
from helpers.messages import message
from helpers.tiny import ROOT

from transformer_mt.base.errors import EvaluationError
from transformer_mt.evaluation import comparing
from transformer_mt.evaluation.comparing import (
    Compared,
    ComparedTest,
    MetricTable,
    Translated,
    compare,
    compared_test,
    conclusion,
    conclusions,
    p_value_of,
    spread,
)
from transformer_mt.evaluation.evaluated_texts import TestSet
from transformer_mt.evaluation.scores_json import TestSetScores
from transformer_mt.settings.reading import load_config

WORDS = "der die das Hund Katze Haus sieht schläft kommt heute nicht groß klein und in auf".split()
RANDOM = random.Random(1)
REFERENCES = [" ".join(RANDOM.choices(WORDS, k=RANDOM.randint(5, 12))) + "." for _ in range(60)]


def damaged(share: float, seed: int) -> list[str]:
    """The references without this share of their words."""
    draw = random.Random(seed)
    return [" ".join(word for word in line.split() if draw.random() >= share) or "x" for line in REFERENCES]


SYSTEMS = [("good", damaged(0.1, 1)), ("bad", damaged(0.5, 2)), ("alike", damaged(0.1, 3))]


def compared(*systems: tuple[str, list[str]], references: Sequence[list[str]] = (REFERENCES,)) -> ComparedTest:
    return ComparedTest("test", references, [(name, [lines]) for name, lines in systems])


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


def seeds(*shares: float, begin: int) -> list[list[str]]:
    """Translations by several seeds of a setting, with these shares of words missing."""
    return [damaged(share, begin + number) for number, share in enumerate(shares)]


def of_seeds(first: list[list[str]], second: list[list[str]]) -> tuple[ComparedTest, list[MetricTable]]:
    test = ComparedTest("test", [REFERENCES], [("a", first), ("b", second)])
    return test, compare(test, ["bleu", "chrf"])


def test_a_setting_that_is_better_with_every_seed_is_called_better():
    first, second = seeds(0.1, 0.12, 0.14, begin=10), seeds(0.4, 0.42, 0.44, begin=20)
    test, tables = of_seeds(first, second)
    for table, said in zip(tables, conclusions(test, tables), strict=True):
        assert said.startswith("b is worse than a by ") and table.systems[1].p_value < 0.01
    bleu = [sacrebleu.corpus_bleu(lines, [REFERENCES]).score for lines in second]
    assert list(tables[0].systems[1].scores) == pytest.approx(bleu)
    assert tables[0].systems[1].value == pytest.approx(np.mean(bleu))
    assert spread(bleu) == f"3, standard deviation {np.std(bleu, ddof=1):.2f}"
    assert spread(bleu[:2]) == f"2, {min(bleu[:2]):.2f} to {max(bleu[:2]):.2f}" and spread([]) == "1"


def test_settings_that_differ_no_more_than_their_seeds_are_not_called_different():
    first, second = seeds(0.1, 0.2, 0.3, begin=10), seeds(0.16, 0.27, 0.34, begin=20)
    test, tables = of_seeds(first, second)
    for said in conclusions(test, tables):
        assert said.endswith("which may be chance: these sentences and seeds do not show that one is better.")
    [table] = compare(compared(("a", first[0]), ("b", second[0])), ["bleu"])
    assert table.systems[1].p_value < 0.05, "of single runs, the sentences say that one is better"


def test_a_single_run_is_compared_with_several_by_the_spread_of_these():
    several = seeds(0.1, 0.13, 0.16, begin=10)
    for shares, word in ((0.15, "may be chance"), (0.7, "b is worse than a by")):
        test, tables = of_seeds(several, seeds(shares, begin=30))
        assert all(word in said for said in conclusions(test, tables))
        assert not tables[0].systems[1].scores


def test_equal_settings_are_called_different_in_five_of_a_hundred_experiments_at_most():
    """Whatever the number of seeds, and also if a seed is good or bad for all sentences."""
    draw = np.random.default_rng(1)
    for num_seeds, of_seed in ((2, 0.0), (2, 0.2), (3, 0.2), (5, 0.2)):
        found = []
        for _ in range(100):
            scores_SN = draw.normal(size=(2, num_seeds, 100)) + of_seed * draw.normal(size=(2, num_seeds, 1))
            share_RN = draw.multinomial(100, [0.01] * 100, size=300) / 100
            share_RN = np.concatenate([np.full((1, 100), 0.01), share_RN])
            found.append(p_value_of(*(scores_SN @ share_RN.T)))
        assert np.mean(np.array(found) < 0.05) <= 0.07, (num_seeds, of_seed)


def translated(run: str, *overrides: str, decoding: str = "", **scored: object) -> Translated:
    """The translations of a run that has these settings, and was decoded with this one."""
    config = load_config(ROOT / "configs" / "demo_en_de.yaml", [f"run_dir={run}", "data_dir=nowhere", *overrides])
    checksums = {"references": [], "hypotheses": ""}
    fields = {"num_lines": 60, "scores": {}, "checksums": checksums, "decoding": config.decoding} | scored
    if decoding:
        key, value = decoding.split("=")
        fields["decoding"] = config.decoding.model_copy(update={key: float(value)})
    text = TestSet([], REFERENCES)
    return Translated(run, config, text, TestSetScores.model_validate(fields), damaged(0.1, len(run)))


def names(*runs: Translated) -> list[str]:
    return [name for name, _ in compared_test("demo", runs).systems]


def test_runs_that_differ_only_by_the_seed_are_one_system():
    old = [translated(f"runs/a_{seed}", f"training.seed={seed}") for seed in (1, 2, 13)]
    new = [translated(f"runs/b_{seed}", f"training.seed={seed}", "averaging.choose=last") for seed in (1, 2, 13)]
    test = compared_test("demo", [old[0], new[2], old[1], new[0], new[1], old[2]])
    assert [name for name, _ in test.systems] == ["runs/a_{1,2,13}", "runs/b_{13,1,2}"]
    assert test.systems[1][1] == [new[at].lines for at in (2, 0, 1)] and test.notes == []
    assert names(*old[:1], *new) == ["runs/a_1", "runs/b_{1,2,13}"]
    assert names(replace(old[0], run="x"), replace(old[1], run="runs/x/model")) == ["{x,runs/x/model}"]


def test_runs_with_the_same_seed_are_compared_and_left_out_beside_other_seeds():
    first, again, other = translated("a"), translated("again"), translated("b", "training.seed=2")
    assert names(first, again) == ["a", "again"]
    test = compared_test("demo", [first, again, other])
    assert [name for name, _ in test.systems] == ["{a,b}"]
    assert test.notes == ["note: again has the same settings and seed as a: it is left out"]


def test_what_evaluate_was_told_belongs_to_the_setting():
    first = translated("a")
    for other in (
        translated("b", "training.seed=2", decoding="length_penalty=1.0"),
        translated("b", "training.seed=2", quantize="int8"),
        translated("b", "training.seed=2", ensemble=["a"]),
        translated("b", "training.seed=2", "data_dir=elsewhere"),
        replace(translated("b", "training.seed=2", "decoding.length_penalty=1.0"), scored=None),
    ):
        assert names(first, other) == ["a", "b"]
    for same in (
        translated("b", "training.seed=2", "decoding.length_penalty=1.0", decoding="length_penalty=0.6"),
        translated("b", "training.seed=2", "decoding.seed=2"),
    ):
        assert names(first, same) == ["{a,b}"]
    trials = [{"settings": [f"length_penalty={value}"], "score": value} for value in (0.6, 1.0)]
    tuned = [
        translated(
            f"b{seed}",
            f"training.seed={seed}",
            decoding=trials[seed - 1]["settings"][0],
            tuning={"metric": "bleu", "num_lines": 9, "trials": trials, "chosen": trials[seed - 1]["settings"]},
        )
        for seed in (1, 2)
    ]
    assert names(first, *tuned) == ["a", "{b1,b2}"], "each seed may have chosen another value of those that were tried"


def test_equal_data_may_lie_in_several_places(monkeypatch):
    monkeypatch.setattr(comparing, "data_digests", lambda path: {"train": path.name[:4]})
    first = translated("a", "data_dir=data1")
    assert names(first, translated("b", "training.seed=2", "data_dir=data2")) == ["{a,b}"]
    assert names(first, translated("b", "training.seed=2", "data_dir=others")) == ["a", "b"]
