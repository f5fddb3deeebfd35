"""Modified text: what each change does, and that symbols, digits and the rest of the text stay."""

import re
from random import Random

import pytest
from helpers.text import ENGLISH, GERMAN, settings
from helpers.thorough import thorough

from transformer_mt.base.languages import KEEP
from transformer_mt.text.modifiers import (
    modified,
    symbols_in,
    title_case,
    upper_case,
    with_kept_words,
    with_typos,
    without_end_punct,
)
from transformer_mt.text.tokenizer import Tokenizer

SYMBOLS = re.compile("(<2de>|<name>|<n>)")
TAGGED = "<2de> <name> met 3 friends of <name>, aged 17b and 20."


@pytest.mark.parametrize(
    ("change", "text", "expected"),
    [
        (upper_case, "<2de> Die Straße, <n>mal!", "<2de> DIE STRASSE, <n>MAL!"),
        (title_case, "<2de> the „red“ dog's 3rd x-ray (ünder) <n>.", "<2de> The „Red“ Dog's 3rd X-ray (Ünder) <n>."),
        (title_case, "iPhone ǆ 日本", "IPhone ǅ 日本"),
        (without_end_punct, "Is it? Yes.", "Is it? Yes"),
        (without_end_punct, "Quoi ?!", "Quoi"),
        (without_end_punct, "什么？", "什么"),  # noqa: RUF001
        (without_end_punct, "Call <name>.", "Call <name>"),
        (without_end_punct, "He said “no.”", "He said “no.”"),
        *((without_end_punct, text, text) for text in ("no end", "...", "<2de> .", "", "see <n>")),
    ],
)
def test_each_change(change, text, expected):
    assert change(text, SYMBOLS) == expected


def test_symbols_that_end_like_a_sentence_stay():
    assert without_end_punct("wait <!.", re.compile(r"(<!\.)")) == "wait <!."


def distance(one: str, other: str) -> int:
    """The edits from one text to the other: a letter more, fewer or another, or two neighbours swapped."""
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, start=1):
        rows.append([i])
        for j, b in enumerate(other, start=1):
            best = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 and j > 1 and (a, one[i - 2]) == (other[j - 2], b):
                best = min(best, rows[i - 2][j - 2] + 1)
            rows[i].append(best)
    return rows[-1][-1]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *thorough(*range(1, 9))])
def test_a_share_of_zero_makes_exactly_one_typo(seed):
    random = Random(seed)
    for line in [*ENGLISH, *GERMAN]:
        assert distance(line, with_typos(line, SYMBOLS, random, 0.0)) == 1


def test_every_kind_of_typo_occurs():
    random = Random(1)
    found = {with_typos("ab cd 1", SYMBOLS, random, 0.0) for _ in range(1000)}
    swapped, missing, space = {"ba cd 1", "ab dc 1"}, {"a cd 1", "b cd 1", "ab c 1", "ab d 1"}, {"abcd 1"}
    doubled = {"aab cd 1", "abb cd 1", "ab ccd 1", "ab cdd 1"}
    replaced = {f"{x}b cd 1" for x in "bcd"} | {f"a{x} cd 1" for x in "acd"}
    replaced |= {f"ab {x}d 1" for x in "abd"} | {f"ab c{x} 1" for x in "abc"}
    assert found == swapped | missing | space | doubled | replaced
    assert {with_typos("I", SYMBOLS, random, 0.0) for _ in range(50)} == {"II"}, "no word is lost"


def test_typos_are_in_a_tenth_of_the_words():
    random, line = Random(1), " ".join(["word"] * 40)
    typos = [with_typos(line, SYMBOLS, random, 0.1).split(" ").count("word") for _ in range(500)]
    # Without the missing spaces, in which two words take part: 0.1 * (1 + 0.2) of the words, or nearly.
    assert sum(typos) / (500 * 40) == pytest.approx(1 - 0.12, abs=0.01)


def test_words_with_digits_or_symbols_have_no_typos():
    random = Random(2)
    for _ in range(300):
        changed = with_typos(TAGGED, SYMBOLS, random, 0.9).split(" ")
        assert [changed[0], changed[1], changed[-1]] == ["<2de>", "<name>", "20."]
        assert "3" in changed and "17b" in changed and "<name>," in changed
    for text in ("", "17 + 4", "<2de> ...", "42."):
        assert with_typos(text, SYMBOLS, random, 0.9) == text


def test_symbols_are_never_changed():
    random, names = Random(4), ("typos", "remove_end_punct")
    for _ in range(100):
        source, target = modified(names, TAGGED, "Er traf <n> Freunde.", SYMBOLS, random, spaced=True)
        assert source.startswith("<2de> <name>")
        assert SYMBOLS.findall(source) == SYMBOLS.findall(TAGGED) and SYMBOLS.findall(target) == ["<n>"]


def test_both_sides_stay_in_step():
    def pair(name, source, target, spaced=True):
        return modified({name}, source, target, SYMBOLS, Random(5), spaced=spaced)

    assert pair("remove_end_punct", "a b.", "c d!") == ("a b", "c d")
    assert pair("remove_end_punct", "a b.", "c d") == ("a b.", "c d")
    assert pair("remove_end_punct", "a b", "c d.") == ("a b", "c d.")
    source, target = pair("typos", "a b.", "c d.")
    assert source != "a b." and target == "c d."
    assert pair("typos", "a b.", "c d.", spaced=False) == ("a b.", "c d.")


@pytest.mark.parametrize("joint", [True, False])
def test_the_symbols_of_a_tokenizer_are_found_the_longest_first(joint):
    tokenizer = Tokenizer.train(ENGLISH, GERMAN, settings(joint=joint), ["<a>", "<a><b>", "[.]"])
    assert symbols_in(tokenizer).findall("x<a><b> [.] <a>y [x]") == ["<a><b>", "[.]", "<a>"]
    plain = Tokenizer.train(ENGLISH, GERMAN, settings())
    assert upper_case("<a> b", symbols_in(plain)) == "<A> B"


def test_words_that_are_equal_on_both_sides_become_the_same_pieces():
    source, target = "<2de> Tom saw Mary-Ann in 2018, in (Berlin).", "Tom sah Mary-Ann 2018 in Berlin, in Bern."
    symbols = re.compile("(<2de>|" + "|".join(KEEP) + ")")
    seen = set()
    for seed in range(60):
        found = with_kept_words(source, target, symbols, Random(seed))
        pieces = symbols.findall(found[0])[1:]
        assert 1 <= len(pieces) <= 3 and sorted(pieces) == sorted(symbols.findall(found[1]))
        for text, original in zip(found, (source, target), strict=True):
            assert re.fullmatch(symbols.sub(".+?", re.escape(text)), original), found
        seen |= {word for word in ("Tom", "Mary-Ann", "2018", "Berlin", "in", "saw") if word not in found[0]}
    assert seen == {"Tom", "Mary-Ann", "2018", "Berlin"}, "not `in`, which stands twice on one side"
    assert with_kept_words("A dog", "Ein Hund", symbols, Random(1)) == ("A dog", "Ein Hund")
