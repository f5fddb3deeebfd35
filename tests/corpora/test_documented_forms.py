"""Every example of a corpus in the documentation can be opened as it stands there."""

import json
import re
from contextlib import chdir
from pathlib import Path

import pytest
import yaml
from helpers.forms import parquet, tmx, write, write_form

from transformer_mt.corpora.opening import open_corpus
from transformer_mt.settings.corpus_settings import SINGLE_FILES, CorpusConfig

PAGE = Path(__file__).parent.parent.parent / "docs/data.md"
EXAMPLES = [yaml.safe_load(block)["train"] for block in re.findall(r"```yaml\n(train: .*?)```", PAGE.read_text(), re.S)]
PAIRS = [("A dog.", "Ein Hund."), ("A cat.", "Eine Katze."), ("Two birds.", "Zwei Vögel.")]


@pytest.fixture
def my(tmp_path: Path) -> Path:
    """A directory with the files that the examples name, in a directory of its own."""
    my = tmp_path / "my"
    my.mkdir()
    for side, (language, name, packing) in enumerate([("en", "english.txt", ".zst"), ("de", "german.txt", ".xz")]):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS)
        write(my / f"train.{language}", text)
        write(my / name, text, packing)
        for number, pair in enumerate(PAIRS):
            write(my / f"part-{number}.{language}", pair[side] + "\n", ".gz")
    write(my / "crawl.tsv", "".join(f"http://x\t0.9\t{source}\t{target}\n" for source, target in PAIRS), ".gz")
    write(my / "table.csv", "English,German\n" + "".join(f"{source},{target}\n" for source, target in PAIRS))
    rows = [{"translation": {"en": source, "de": target}} for source, target in PAIRS]
    write(my / "pairs.jsonl", "".join(json.dumps(row) + "\n" for row in rows), ".gz")
    write(my / "pairs.parquet", parquet(PAIRS))
    write(my / "memory.tmx", tmx(PAIRS))
    Path(write_form(my, "zip", PAIRS)["path"]).rename(my / "de-en.txt.zip")
    return my


@pytest.mark.parametrize("train", EXAMPLES, ids=str)
def test_an_example_is_read(my: Path, train: object) -> None:
    corpus = CorpusConfig(source_language="en", target_language="de", train=train, valid="none", test={})  # type: ignore[arg-type]
    [text] = corpus.training_corpora
    if text.form == "hub" or "://" in text.place:
        return  # it needs the network
    with chdir(my.parent):
        assert list(open_corpus(text).pairs()) == PAIRS


def test_there_is_an_example_of_every_form() -> None:
    corpora = (
        CorpusConfig(source_language="en", target_language="de", train=train, valid="none", test={})  # type: ignore[arg-type]
        for train in EXAMPLES
    )
    forms = {corpus.training_corpora[0].form for corpus in corpora}
    assert forms == {None, "prefix", "hub", *SINGLE_FILES}
