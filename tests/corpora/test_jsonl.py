"""Fields of JSON lines are found by their names, and each line that has none says which it has."""

from pathlib import Path

import pytest
from helpers.forms import opened, write

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
    ("row", "fault"),
    [
        ('{"en": "a"}', "has no field de, but: en"),
        (
            '{"translation": {"en": "a", "fr": "b"}, "id": 1}',
            "has no field de, but: translation.en, translation.fr, id",
        ),
        ("{}", "has no field en, but: none"),
        ('{"en": "a", "de": "b"', "is not JSON (Expecting ',' delimiter"),
        ("", "is not JSON (Expecting value: line 1 column 1 (char 0)); found: nothing"),
        ("[1]", "is JSON, but no object with fields; found: [1]"),
        ('{"en": "a", "de": 5}', "de is no text, but: 5"),
        ('{"en": {"x": 1}, "de": "b"}', 'en is no text, but: {"x": 1}'),
        ('{"en": "a\\u0000", "de": "b"}', "source contains the character NUL"),
        ('{"en": "a", "de": "\\ud800"}', "target contains half a character"),
        ("[" * 100_000, "is not JSON"),
        ('{"en": ' + "9" * 5000 + ', "de": "b"}', "is not JSON (Exceeds the limit"),
    ],
)
def test_a_bad_line_says_what_is_wrong_and_the_others_are_read(tmp_path: Path, row: str, fault: str) -> None:
    good = '{"en": "a", "de": "b"}\n'
    for text, index in ((f"{good}{row}\n{good}", 1), (f"{row}\n{good}{good}", 0)):
        found = pairs_of(tmp_path, text)
        bad = found.pop(index)
        assert found == [("a", "b")] * 2
        assert isinstance(bad, BadPair) and bad.fault.startswith(fault)
        assert len(bad.fault) < 400
    with pytest.raises(CorpusError, match=r"a\.jsonl:1: "):
        list(opened({"path": str(tmp_path / "a.jsonl")}).pairs())
