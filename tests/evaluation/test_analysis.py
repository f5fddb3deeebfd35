"""Weak places are found where they were put, and nowhere else."""

import pytest

from transformer_mt.evaluation.analysis import analyse, groups_of, text_of_analysis
from transformer_mt.evaluation.metrics import corpus_score

SOURCES = [" ".join(["word"] * length) for length in (1, 2, 2, 3, 5, 8, 9, 9)]
REFERENCES = [" ".join(["wort"] * length) + " hier" for length in (1, 2, 2, 3, 5, 8, 9, 9)]
HYPOTHESES = [*REFERENCES[:6], "etwas anderes", "ganz falsch"]


def test_groups_have_about_the_same_size_and_their_own_scores():
    groups = groups_of([1, 2, 3, 4, 5, 6, 7, 8], HYPOTHESES, REFERENCES)
    assert [(group.least, group.most, group.num_lines) for group in groups] == [
        (1, 2, 2),
        (3, 4, 2),
        (5, 6, 2),
        (7, 8, 2),
    ]
    assert groups[3].bleu == corpus_score("bleu", HYPOTHESES[6:], REFERENCES[6:])
    assert groups[2].chrf == corpus_score("chrf", HYPOTHESES[4:6], REFERENCES[4:6])


def test_equal_values_are_never_divided():
    groups = groups_of([5, 5, 5, 5, 5, 5, 5, 9], HYPOTHESES, REFERENCES)
    assert [(group.least, group.most, group.num_lines) for group in groups] == [(5, 5, 7), (9, 9, 1)]
    assert sum(group.num_lines for group in groups_of([3] * 8, HYPOTHESES, REFERENCES)) == 8


@pytest.mark.parametrize(
    ("source", "hypothesis", "reference", "kind"),
    [
        ("A dog.", " ", "Ein Hund.", "empty"),
        ("A dog runs.", "a dog runs.", "Ein Hund läuft.", "copied"),
        ("The old dog runs home", "Der old dog runs heim", "Der alte Hund läuft heim", "untranslated"),
        ("A dog.", "ein Hund ein Hund ein Hund", "Ein Hund.", "repeated"),
        ("A dog.", "Ein Hundundundundund.", "Ein Hund.", "repeated"),
        ("It was 1987.", "Es war 1978.", "Es war 1987.", "numbers"),
    ],
)
def test_odd_translations_are_named(source, hypothesis, reference, kind):
    fine = ("It is late.", "Es ist spät.", "Es ist spät.")
    sources, hypotheses, references = zip(fine, (source, hypothesis, reference), fine, strict=True)
    found = analyse(sources, hypotheses, references).suspicious
    assert {name: lines for name, lines in found.items() if lines} == {kind: [2]}


@pytest.mark.parametrize(
    ("source", "hypothesis", "reference"),
    [
        ("", "", ""),
        ("New York", "New York", "New York"),
        ("no no no no", "nein nein nein nein", "nein nein nein nein"),
        ("Wait ........", "Warte ........", "Warte ........"),
        ("Berlin is big", "Berlin ist groß", "Berlin ist groß"),
        ("At 2:30 pm", "Um 14.30 Uhr", "Um 14.30 Uhr"),
    ],
)
def test_good_translations_are_not_odd(source, hypothesis, reference):
    assert not any(analyse([source], [hypothesis], [reference]).suspicious.values())


def test_the_lines_with_numbers_whose_numbers_came_back_are_counted():
    sources = ["In 1999", "In 1999", "At 2:30 pm", "In 2001 of 300", "Never", "In 1999", "3 dogs"]
    hypotheses = ["1999", "1998", "Um 14:30", "300, dann 2001", "Nie 17", "", "Drei"]
    references = ["1999", "1999", "Um 14.30", "300, dann 2001", "Nie", "1999", "Drei"]
    found = analyse(sources, hypotheses, references)
    assert (found.with_numbers, found.same_numbers) == (5, 3)
    assert found.suspicious["numbers"] == [2, 5, 6]
    assert "numbers: 60.0 % of 5 lines with numbers have the same numbers" in text_of_analysis(found).split("\n")
    assert "numbers:" not in text_of_analysis(analyse(["a"], ["b"], ["b"]))


def test_the_worst_lines_come_first_and_the_text_shows_all():
    found = analyse(SOURCES, HYPOTHESES, REFERENCES)
    assert {worst.line for worst in found.worst[:2]} == {7, 8}
    assert found.worst[0].chrf <= found.worst[1].chrf <= found.worst[2].chrf == pytest.approx(100)
    words = [sum(len(line.split()) for line in lines) for lines in (HYPOTHESES, REFERENCES)]
    assert found.length_ratio == words[0] / words[1]
    text = text_of_analysis(found)
    for said in (
        "words of the source",
        f"{found.by_length[-1].least} to {found.by_length[-1].most}\n",
        "etwas anderes",
        "line 7",
    ):
        assert said in text
