"""Data sets of the hub are read by name, at once or row by row, and what is missing is said."""

import json
import sys
from pathlib import Path

import pytest
from helpers.messages import message, says
from helpers.splits import digest, opened, read

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.corpus import BadPair
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that load_dataset reads as it reads the hub, without network, with its cache beside."""
    datasets = pytest.importorskip("datasets")
    huggingface_hub = pytest.importorskip("huggingface_hub")

    # What HF_HOME and HF_HUB_OFFLINE say is read when these are imported, which may be long ago.
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "hub").mkdir()
    return tmp_path / "hub"


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def english(target: str = "de") -> CorpusConfig:
    return CorpusConfig(source_language="en", target_language=target, train="train", valid="test", test={})


def hub_text(hub: object, split: str = "train") -> PairedText:
    return PairedText(hub=str(hub), split=split)


SENTENCES = [("a\nb", "A"), ("c\r\nd", "C\u2028D"), ("e", ""), *((f"s{i}", f"t{i}") for i in range(2500))]
EXPECTED = [("a b", "A"), ("c d", "C\u2028D"), ("e", ""), *SENTENCES[3:]]


@pytest.mark.thorough
@pytest.mark.parametrize("nested", [True, False])
def test_hub_rows_have_either_shape(hub: Path, nested: bool) -> None:
    rows: list[dict[str, object]] = [{"en": source, "de": target or None} for source, target in SENTENCES]
    write_rows(hub / "train.jsonl", [{"translation": row} for row in rows] if nested else rows)
    pairs = opened(english(), hub_text(hub))
    assert pairs.num_pairs == len(EXPECTED)
    assert list(pairs.pairs()) == list(pairs.pairs()) == EXPECTED
    assert read(english(), hub_text(hub, "train[:2]")) == EXPECTED[:2]
    with pytest.raises(CorpusError, match=message("no-such-hub-column", "fr", "en", "target")):
        opened(english("fr"), hub_text(hub))


def test_unknown_hub_splits_are_named(hub: Path) -> None:
    write_rows(hub / "train.jsonl", [{"en": "a", "de": "A"}])
    write_rows(hub / "test.jsonl", [{"en": "b", "de": "B"}])
    with pytest.raises(CorpusError, match=message("hub-cannot-be-loaded", "train", "test")):
        opened(english(), hub_text(hub, "dev"))


def test_without_network_the_way_to_local_files_is_shown(hub: Path) -> None:
    with pytest.raises(CorpusError, match=message("hub-cannot-be-loaded", "corpus.train=PREFIX")):
        opened(english(), hub_text("nobody/nothing"))


def test_without_the_package_that_reads_the_hub_the_command_that_installs_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    cure = f"{sys.executable} -m pip install datasets"
    expected = message("reader-package-missing", "{hub: nobody/nothing}", cure, "corpus.train=PREFIX")
    with pytest.raises(CorpusError, match=expected):
        opened(english(), hub_text("nobody/nothing"))


def test_the_digest_of_a_hub_split_is_of_its_names() -> None:
    text = hub_text("nobody/nothing")
    others = [text.model_copy(update={key: "x"}) for key in ("hub", "subset", "revision", "split")]
    digests = [digest(english(), one) for one in [text, *others]]
    assert len(set(digests)) == 5
    assert digest(english(), text) == digests[0]


def test_rows_can_be_streamed(hub: Path) -> None:
    write_rows(hub / "train.jsonl", [{"id": 1, "translation": {"en": a, "de": b or None}} for a, b in SENTENCES])
    keys = {"hub": str(hub), "split": "train", "streaming": True}
    corpus = english()
    pairs = opened(corpus, PairedText(**keys))
    assert pairs.num_pairs is None
    assert list(pairs.pairs()) == list(pairs.pairs()) == EXPECTED
    assert sum(len(block.pairs) for block in pairs.blocks()) == len(EXPECTED)
    assert not list(hub.parent.rglob("*.arrow"))  # into which a data set is downloaded
    assert [block.place(0) for block in pairs.blocks()] == [f"{hub} (train) (row {number:,})" for number in (1, 2001)]
    # Streamed or not, the text is the same.
    assert pairs.digest() == digest(corpus, PairedText(**{**keys, "streaming": False}))
    named = PairedText(**keys, source="translation.en", target="translation.de")
    assert read(corpus, named) == EXPECTED
    with pytest.raises(
        CorpusError, match=message("no-such-hub-column", "fr", "id, translation.en, translation.de", "source")
    ):
        opened(corpus, PairedText(**keys, source="fr"))


def test_a_row_without_text_is_one_bad_pair(hub: Path) -> None:
    write_rows(hub / "train.jsonl", [{"en": "a", "de": 1}, {"en": "b\u0000", "de": 2}])
    [block] = opened(english(), hub_text(hub)).blocks()
    first, second = block.pairs
    assert isinstance(first, BadPair) and says(first.fault, "hub-column-not-text", "1")
    assert isinstance(second, BadPair) and says(second.fault, "hub-column-not-text", "2")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_set_name_that_cannot_be_found_says_so_and_that_the_hub_is_switched_off(hub: Path, streaming: bool) -> None:
    keys = PairedText(hub="nobody/nothing", split="train", streaming=streaming)
    with pytest.raises(CorpusError, match=message("hub-cannot-be-loaded", "HF_HUB_OFFLINE is set")) as raised:
        opened(english(), keys)
    assert len(str(raised.value)) < 1200
