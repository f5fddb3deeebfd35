"""Every form of a corpus, packed in every way, gives the same pairs, and says where each stands."""

import os
import re
from pathlib import Path

import pytest
from helpers.forms import FORMS, PACKINGS, filled, opened, write, write_form
from helpers.messages import message
from helpers.thorough import each

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.corpus import BLOCK, BadPair
from transformer_mt.corpora.opening import corpus_digest

DATA = Path(os.environ.get("PARALLEL_TEXT", "parallel text"))  # real text, which the project does not contain
PAIRS = [
    ("A man in a blue shirt is standing on a ladder.", "Ein Mann in einem blauen Hemd steht auf einer Leiter."),
    ('She says: "Hello, <you> & me!"', "Sie sagt: „Hallo, <du> & ich!“ 🙂"),
    ("5' tall, it's {not} [so]; a,b", "5' groß; é\u2028ü a,b"),
    *((f"Two dogs, {number} cats.", f"Zwei Hunde, {number} Katzen.") for number in range(2 * BLOCK)),
]
# An archive is packed already.
WHOLE = ("zip", "parquet")  # which compress their own content
ROWS = [{"form": form, "packing": packing} for form in FORMS for packing in (PACKINGS if form not in WHOLE else ("",))]


@pytest.mark.thorough
@each("row", ROWS, name=lambda row: f"{row['form']}{row['packing']}", together=1)
def test_every_form_gives_the_same_pairs(tmp_path: Path, row: dict[str, str]) -> None:
    form, packing = row["form"], row["packing"]
    keys = write_form(tmp_path, form, PAIRS, packing)
    corpus = opened(keys)
    assert list(corpus.pairs()) == list(corpus.pairs()) == PAIRS
    assert sum(len(block.pairs) for block in corpus.blocks()) == len(PAIRS)
    assert corpus.num_pairs == (None if form in ("csv", "tmx") else len(PAIRS))
    blocks = list(corpus.blocks())
    sizes = [BLOCK + 1, BLOCK + 2] if form == "shards" else [len(PAIRS)]
    assert [len(block.pairs) for block in blocks] == [
        min(BLOCK, size - at) for size in sizes for at in range(0, size, BLOCK)
    ]
    # A place can be found again: the file and the line, the row or the unit.
    unit = {"csv": "row", "parquet": "row", "tmx": "unit"}.get(form)
    number = blocks[-1].first + len(blocks[-1].pairs) - 1
    last = blocks[-1].place(len(blocks[-1].pairs) - 1)
    assert last == (f"{blocks[-1].file} ({unit} {number:,})" if unit else f"{blocks[-1].file}:{number}")
    assert number == sizes[-1] + (form in ("named_tsv", "csv"))
    assert corpus.digest() == corpus_digest(filled(keys))


@pytest.mark.parametrize("form", FORMS)
def test_a_digest_is_of_the_text_and_not_of_its_packing(tmp_path: Path, form: str) -> None:
    pairs, digests = PAIRS[:9], []
    for number, packing in enumerate(PACKINGS if form not in WHOLE else ("",)):
        (tmp_path / str(number)).mkdir()
        digests.append(opened(write_form(tmp_path / str(number), form, pairs, packing)).digest())
    assert len(set(digests)) == 1
    (tmp_path / "other").mkdir()
    assert opened(write_form(tmp_path / "other", form, [*pairs[:-1], ("other", "text")])).digest() != digests[0]


@each("row", ROWS, name=lambda row: f"{row['form']}{row['packing']}", together=1)
def test_a_file_that_is_exchanged_after_its_digest_was_taken_is_an_error(tmp_path: Path, row: dict[str, str]) -> None:
    pairs = PAIRS[: BLOCK + 9]
    corpus = opened(write_form(tmp_path, row["form"], pairs, row["packing"]))
    before = corpus.digest()
    write_form(tmp_path, row["form"], [*pairs[:-2], pairs[-1], pairs[-2]], row["packing"])  # of the same size
    with pytest.raises(CorpusError, match=message("text-changed-while-read")):
        list(corpus.blocks())
    write_form(tmp_path, row["form"], pairs, row["packing"])
    assert list(corpus.pairs()) == pairs and corpus.digest() == before


@pytest.mark.thorough
@pytest.mark.skipif(not DATA.is_dir(), reason="PARALLEL_TEXT names no directory of real text")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["multi30k/val", "multi30k/train", "tatoeba-en-de/train"])
def test_real_text_comes_out_of_every_form_as_it_went_in(tmp_path: Path, form: str, name: str) -> None:
    expected = list(opened({"path": str(DATA / name)}).pairs())
    lines = [(DATA / f"{name}.{language}").read_text(encoding="utf-8").split("\n")[:-1] for language in ("en", "de")]
    assert expected == list(zip(*lines, strict=True))
    assert len(expected) > 1000
    if "tsv" in form:  # one sentence of Multi30k has a tab, which a TSV cannot hold
        expected = [(source.replace("\t", " "), target.replace("\t", " ")) for source, target in expected]
    for packing in PACKINGS if form not in WHOLE else ("",):
        directory = tmp_path / f"packed{packing}"
        directory.mkdir()
        read = list(opened(write_form(directory, form, expected, packing)).pairs())
        if form == "tmx":  # blanks around a sentence, and several within one, are of the XML
            expected = [(one_blank(source), one_blank(target)) for source, target in expected]
        assert read == expected


def one_blank(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text).strip(" ")


BAD = {
    "not UTF-8": (b"M\xfcll", ("corpus-line-not-utf-8", "0xfc")),
    "NUL": (b"a\0b", ("corpus-line-with-nul",)),
    "a line of 10 MB": (b"x" * 10_000_000, ("corpus-line-too-long", "1,000,000")),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("form", ["files", "tsv", "csv", "jsonl"])
@pytest.mark.parametrize("packing", ["", ".zst"])
def test_a_bad_line_is_one_bad_pair_and_the_others_are_read(tmp_path: Path, form: str, name: str, packing: str) -> None:
    content, expected = BAD[name]
    keys = write_form(tmp_path, form, [("good", "gut"), ("MARK", "schlecht"), ("also good", "auch gut")])
    path = Path(str(keys["source" if form == "files" else "path"]))
    bad = path.read_bytes().replace(b"MARK", content)
    if packing:
        name_packed = write(path, bad, packing)
        keys = {key: name_packed if value == str(path) else value for key, value in keys.items()}
        path = Path(name_packed)
    else:
        path.write_bytes(bad)
    corpus = opened(keys)
    [block] = corpus.blocks()
    first, second, third = block.pairs
    assert (first, third) == (("good", "gut"), ("also good", "auch gut"))
    assert isinstance(second, BadPair) and second.reason == "bad_line"
    assert len(second.fault) < 500
    place = f"{path} (row 3)" if form == "csv" else f"{path}:2"
    with pytest.raises(ValueError, match=message(*expected, place)):
        list(corpus.pairs())
