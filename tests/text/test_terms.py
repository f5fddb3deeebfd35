"""Terms: which words of a line they match, and what a file of them may contain."""

import pytest
from helpers.messages import message

from transformer_mt.base.errors import TranslationError
from transformer_mt.text.terms import Terms

TERMS = Terms({"dog": ["Hund"], "hot dog": ["Würstchen", "Wurst"], "may": ["darf"], "AI": ["KI"], "猫": ["cat"]})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("A dog and a dog.", ["Hund", "Hund"]),
        ("A hot dog, dog-like", ["Würstchen", "Hund"]),
        ("A hot  dog", ["Würstchen"]),
        ("Dog! Dog? (Dog) A Dog: Dog", ["Hund"] * 4),
        ("“Dog” … “Dog”, hot Dog", ["Hund", "Hund"]),
        ("A DOG, a HOT DOG, a dOG", ["Hund", "Würstchen"]),
        ("dogs hotdog dog_ Bulldog 2dog dog\u0301", []),
        ("He may come in May, but May is here. May he? MAY", ["darf", "darf", "darf"]),
        ("AI, ai, Ai. Ai", ["KI"]),
        ("我的猫在这里", ["cat"]),
    ],
)
def test_whole_words_as_written_in_capitals_or_at_the_beginning_of_a_sentence(line, found):
    assert [targets[0] for targets in TERMS.required(line)] == found


def test_a_form_that_is_itself_a_term_is_that_term():
    terms = Terms({"may": ["darf"], "May": ["Mai"]})
    assert [targets[0] for targets in terms.required("May it be in May? It may.")] == ["Mai", "Mai", "darf"]


def test_a_target_without_capitals_may_begin_a_sentence_and_another_may_not():
    terms = Terms({"at home": ["zu Hause"], "phone": ["iPhone"], "dog": ["Hund"]})
    assert terms.required("phone dog at home") == [["iPhone"], ["Hund"], ["zu Hause", "Zu Hause"]]


def test_the_pattern_finds_the_first_target_of_a_text():
    assert TERMS.target("HOT  DOG") == "Würstchen"
    assert TERMS.target("cat") is None


def test_no_terms_match_nothing():
    assert Terms({}).required("A dog.") == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_file_has_comments_alternatives_and_terms_that_come_twice(tmp_path, encoding):
    path = tmp_path / "terms.tsv"
    path.write_text("\ufeff# English\tGerman\n\ndog\tHund|Köter\r\nhot dog\tWurst\ndog\tRüde", encoding=encoding)
    assert Terms.load(path).targets == {"dog": ["Hund", "Köter", "Rüde"], "hot dog": ["Wurst"]}


@pytest.mark.parametrize("line", ["dog", "dog\t", "\tHund", "dog\tHund\tRüde", "dog\tHund||Rüde", "dog\t | "])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "terms.tsv"
    path.write_text(f"# x\ncat\tKatze\n{line}\n", encoding="utf-8")
    with pytest.raises(TranslationError, match=message("no-term-with-translation", f"{path}:3", line.split("\t")[0])):
        Terms.load(path)


def test_terms_from_python_are_checked_too():
    for targets in ({"dog": []}, {"dog": "Hund"}, {" ": ["Hund"]}):
        with pytest.raises(TranslationError, match=message("no-term-with-translation", "terms:")):
            Terms(targets)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "latin").write_bytes(b"dog\tK\xf6ter\n")
    for name in ("latin", "missing"):
        with pytest.raises(TranslationError, match=message("terms-unreadable", str(tmp_path / name))):
            Terms.load(tmp_path / name)
