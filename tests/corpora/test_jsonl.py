"""Fields of JSON lines are found by their names, and each line that has none says which it has."""

from pathlib import Path

import pytest
from helpers.forms import opened, write
from helpers.messages import message, says

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.corpus import BadPair


def pairs_of(path: Path, text: str, **names: str) -> list[object]:
    corpus = opened({"path": write(path / "a.jsonl", text), **names})
    return [pair for block in corpus.blocks() for pair in block.pairs]


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ('{"en": "a", "de": "b"}', {}),
        ('{"translation": {"de": "b", "en": "a"}}', {}),
        ('{"translation": {"de": "b", "en": "a"}}', {"source": "translation.en", "target": "translation.de"}),
        ('{"x": {"y": {"s": "a"}}, "t": "b"}', {"source": "x.y.s", "target": "t"}),
        ('{"x.y": "a", "t": "b"}', {"source": "x.y", "target": "t"}),
        ('  {"en": "a", "de": "b", "id": [1, {"c": null}]}\r', {}),
    ],
)
def test_fields_may_be_nested(tmp_path: Path, row: str, names: dict[str, str]) -> None:
    assert pairs_of(tmp_path, row + "\n" + row, **names) == [("a", "b"), ("a", "b")]


def test_each_text_becomes_one_line_and_a_null_is_empty(tmp_path: Path) -> None:
    assert pairs_of(tmp_path, '{"en": "a\\nb\\r\\nc\\u2028d", "de": null}\n') == [("a b c\u2028d", "")]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('{"en": "a"}', ("no-such-field", "de", "en")),
        (
            '{"translation": {"en": "a", "fr": "b"}, "id": 1}',
            ("no-such-field", "de", "translation.en, translation.fr, id"),
        ),
        ("{}", ("no-such-field", "en", "none")),
        ('{"en": "a", "de": "b"', ("row-not-json", "Expecting ',' delimiter")),
        ("", ("row-not-json", "Expecting value: line 1 column 1 (char 0)", "nothing")),
        ("[1]", ("row-not-object", "[1]")),
        ('{"en": "a", "de": 5}', ("field-not-text", "de", "5")),
        ('{"en": {"x": 1}, "de": "b"}', ("field-not-text", "en", '{"x": 1}')),
        ('{"en": "a\\u0000", "de": "b"}', ("pair-with-nul", "source")),
        ('{"en": "a", "de": "\\ud800"}', ("pair-with-surrogate", "target")),
        ("[" * 100_000, ("row-not-json",)),
        ('{"en": ' + "9" * 5000 + ', "de": "b"}', ("row-not-json", "Exceeds the limit")),
    ],
)
def test_a_bad_line_says_what_is_wrong_and_the_others_are_read(
    tmp_path: Path, row: str, expected: tuple[str, ...]
) -> None:
    good = '{"en": "a", "de": "b"}\n'
    for text, index in ((f"{good}{row}\n{good}", 1), (f"{row}\n{good}{good}", 0)):
        found = pairs_of(tmp_path, text)
        bad = found.pop(index)
        assert found == [("a", "b")] * 2
        assert isinstance(bad, BadPair) and says(bad.fault, *expected)
        assert len(bad.fault) < 400
    with pytest.raises(CorpusError, match=message(*expected, "a.jsonl:1")):
        list(opened({"path": str(tmp_path / "a.jsonl")}).pairs())
