"""Text in capitals is read as usual text, and its translation is written as it was."""

import pytest
from helpers.hostile import time_limit
from helpers.text import settings

from transformer_mt.text.modifiers import Casing, title_case, upper_case
from transformer_mt.text.tokenizer import Tokenizer

LINES = [
    *["<2de> Tom saw Mary in Berlin and I saw the dog of my mother in the garden there."] * 9,
    *["The man is riding a bicycle, but Tom is not riding. Don't you see him?"] * 9,
    *["Guten Morgen Herr Doktor, der Hund ist da."] * 9,
]


@pytest.fixture(scope="module")
def casing():
    return Casing(Tokenizer.train(LINES, LINES, settings(vocab_size=400), ["<2de>", "<keep1>"]))


@pytest.mark.parametrize(
    ("text", "usual", "write"),
    [
        ("TOM SAW MARY IN BERLIN.", "Tom saw Mary in Berlin.", upper_case),
        ("<2de> I SAW <keep1>. THE DOG IS THERE", "<2de> I saw <keep1>. The dog is there", upper_case),
        ("(DON'T RIDING!)", "(Don't riding!)", upper_case),
        ("The Man Is Riding A Bicycle.", "The man is riding a bicycle.", title_case),
        ("Tom Saw My Mother, <keep1>", "Tom saw my mother, <keep1>", title_case),
        *((text, text, None) for text in ("USA", "Tom", "I", "", "12:30 !", "<2de> <keep1>", "Tom Saw")),
        *((text, text, None) for text in ("Guten Morgen Herr Doktor", "Tom saw MARY", "TOM saw Mary in Berlin", "tom")),
    ],
)
def test_capitals_become_usual_text(casing, text, usual, write):
    assert casing.usual(text) == (usual, write)


def test_a_translation_is_written_as_the_line_was_but_for_symbols(casing):
    assert casing.written("der Hund <keep1> schläft.", upper_case) == "DER HUND <keep1> SCHLÄFT."
    assert casing.written("der Hund <keep1> schläft.", title_case) == "Der Hund <keep1> Schläft."


def test_a_long_line_takes_no_longer_than_others(casing):
    sentence = "THE DOG OF MY MOTHER SLEEPS. "
    with time_limit(20):
        usual, _ = casing.usual(20_000 * sentence)
    assert usual == 20_000 * casing.usual(sentence)[0]
