"""Text on another machine is read as the same text here, whatever happens to the connection; or an error says why."""

import gzip
import hashlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
import yaml
from helpers.elsewhere import BUCKET, Store, store, web
from helpers.forms import FORMS, PACKINGS, opened, write_form
from helpers.messages import message

from transformer_mt.base import remote
from transformer_mt.base.errors import ConfigError, CorpusError, UserError
from transformer_mt.base.remote import RemotePath, place
from transformer_mt.corpora.text_files import survey
from transformer_mt.settings.reading import load_config

CORPUS = {"source_language": "en", "target_language": "de", "train": "-", "valid": "-", "test": {}}
CONFIG = {"data_dir": "data", "run_dir": "run", "corpus": CORPUS}
PAIRS = [(f"This is line {number}, with words.", f"Das ist Zeile {number}.") for number in range(50)]
TEXT = b"".join(b"%d %d\n" % (number, random.Random(number).getrandbits(200)) for number in range(40_000))


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(remote, "_WAITS", (0.01,) * 20)
    with store(monkeypatch) as found:
        yield found


def copied(keys: dict[str, object], directory: Path, s3: Store) -> dict[str, object]:
    """Copy a directory into the bucket, and return the keys that name its files there."""
    for path in directory.iterdir():
        s3.put(f"{directory.name}/{path.name}", path.read_bytes())
    there = f"s3://{BUCKET}/{directory.name}"
    return {key: of.replace(str(directory), there) if isinstance(of, str) else of for key, of in keys.items()}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("form", "packing"), [*((form, "") for form in FORMS), *(("prefix", packing) for packing in PACKINGS[1:])]
)
def test_every_form_is_read_from_s3_as_from_the_disk(tmp_path: Path, s3: Store, form: str, packing: str) -> None:
    keys = write_form(tmp_path, form, PAIRS, packing)
    here, there = opened(keys), opened(copied(keys, tmp_path, s3))
    assert list(there.pairs()) == list(here.pairs()) == PAIRS
    assert (there.digest(), there.num_pairs) == (here.digest(), here.num_pairs)


@pytest.mark.thorough
@pytest.mark.parametrize("packing", ["", ".gz"])
def test_cut_connections_change_no_byte_from_s3(s3: Store, packing: str) -> None:
    url = s3.put(f"a.en{packing}", gzip.compress(TEXT) if packing else TEXT)
    s3.cutter.cuts = 8
    assert survey(place(url)) == (hashlib.sha256(TEXT).hexdigest(), 40_000)
    assert s3.cutter.num_cut == 8


@pytest.mark.thorough
@pytest.mark.parametrize("has_ranges", [True, False])
def test_cut_connections_change_no_byte_from_a_web_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ranges: bool
) -> None:
    monkeypatch.setattr(remote, "_WAITS", (0.01,) * 20)
    (tmp_path / "a.en").write_bytes(TEXT)
    with web(tmp_path, has_ranges, most_bytes=300_000 if has_ranges else len(TEXT)) as (base, cutter):
        cutter.cuts = 6
        assert survey(place(f"{base}/a.en")) == (hashlib.sha256(TEXT).hexdigest(), 40_000)
        assert cutter.num_cut == 6


@pytest.mark.thorough
def test_a_name_may_be_a_pattern(s3: Store) -> None:
    for name in ("b.tsv", "a.tsv", "c.csv"):
        s3.put(f"some/{name}", name[:1].encode() + b"\tx\n")
    assert list(opened({"path": f"s3://{BUCKET}/some/*.tsv"}).pairs()) == [("a", "x"), ("b", "x")]
    with pytest.raises(CorpusError, match=message("no-file-of-pattern")):
        opened({"path": f"s3://{BUCKET}/other/*.tsv"})


@pytest.mark.thorough
def test_a_file_that_changes_while_it_is_read_is_an_error(s3: Store) -> None:
    for change in (TEXT[::-1], TEXT[:-1], TEXT + b"more\n"):
        url = s3.put("a.en", TEXT)
        with pytest.raises(CorpusError, match="has changed"), place(url).open() as file:
            assert file.read(10) == TEXT[:10]
            s3.put("a.en", change)
            file.read()


@pytest.mark.thorough
def test_a_text_that_changes_between_two_readings_is_an_error(s3: Store) -> None:
    s3.put("a.tsv", b"a\tb\n")
    corpus = opened({"path": f"s3://{BUCKET}/a.tsv"})
    s3.put("a.tsv", b"a\tc\n")
    with pytest.raises(CorpusError, match="has changed"):
        list(corpus.pairs())


@pytest.mark.thorough
def test_a_file_that_the_server_cuts_short_is_never_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_WAITS", (0.0, 0.0))
    monkeypatch.setattr(remote, "_LEAST_BLOCK", 1 << 21)  # more than what comes before the connection is cut
    (tmp_path / "a.en").write_bytes(TEXT)
    for has_ranges in (True, False):
        with web(tmp_path, has_ranges, most_bytes=200_000) as (base, cutter):
            cutter.cuts = 1000
            with pytest.raises(CorpusError, match="cannot be read from byte"):
                survey(place(f"{base}/a.en"))
    with (
        web(tmp_path, has_ranges=True, num_bytes=1_000_000) as (base, _),
        pytest.raises(CorpusError, match="the connection ended at byte 1,000,000 of"),
    ):
        survey(place(f"{base}/a.en"))


@pytest.mark.thorough
def test_what_cannot_be_read_is_named_with_its_reason(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CorpusError, match=r"s3://text/no\.tsv: cannot be read \(there is no such file\)"):
        opened({"path": f"s3://{BUCKET}/no.tsv"})
    with pytest.raises(CorpusError, match=r"s3://none/a\.tsv: .*The specified bucket does not exist"):
        opened({"path": "s3://none/a.tsv"})
    with pytest.raises(CorpusError, match=message("no-file-of-prefix")):
        opened({"path": f"s3://{BUCKET}/train"})
    with pytest.raises(CorpusError, match=r"Cannot connect to host 127\.0\.0\.1:1 "):
        opened({"path": "http://127.0.0.1:1/a.tsv"})
    with pytest.raises(UserError, match="Protocol not known: abc"):
        opened({"path": "abc://text/a.tsv"})
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(UserError, match=r"gs:// is missing .* -m pip install gcsfs"):
        opened({"path": "gs://text/a.tsv"})


@pytest.mark.thorough
def test_a_server_that_fails_for_a_moment_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_WAITS", (0.01,) * 3)
    (tmp_path / "a.en").write_bytes(TEXT)
    with web(tmp_path, has_ranges=True, answers=[503, 503]) as (base, _):
        assert place(f"{base}/a.en").exists()
    with web(tmp_path, has_ranges=True, answers=[200, 503, 503]) as (base, _):
        assert survey(place(f"{base}/a.en")).num_lines == 40_000
    with web(tmp_path, has_ranges=True, answers=[403] * 9) as (base, _), pytest.raises(CorpusError, match="403"):
        place(f"{base}/a.en").exists()
    with web(tmp_path, has_ranges=True) as (base, _):
        assert not place(f"{base}/b.en").exists()


def test_a_url_of_this_machine_is_a_path() -> None:
    assert place("file:///tmp/a.en") == Path("/tmp/a.en")
    assert place("C://data/a.en") == Path("C://data/a.en")


@pytest.mark.thorough
def test_a_wrong_key_is_said_and_not_tried_again(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_WAITS", (1000.0,) * 2)
    url = s3.put("a.en", TEXT)
    with (
        s3.keys_checked(),
        pytest.raises(CorpusError, match=r"s3://text/a\.en: cannot be read \(.*Forbidden") as caught,
    ):
        survey(place(url))
    assert "testing-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:secret@host/a.tsv",
        "s3://id:sec/secret@text/a.tsv",
        "https://secret@host/a.tsv",
        "https://host/a.tsv?signature=secret",
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(CONFIG | {"corpus": CORPUS | {"train": url}}))
    for arguments in (["a.yaml"], ["b.yaml", f"corpus.train={url}"], ["b.yaml", f"corpus.valid={{path: '{url}'}}"]):
        (tmp_path / "b.yaml").write_text(yaml.safe_dump(CONFIG))
        with pytest.raises(ConfigError, match="password, or a query") as caught:
            load_config(tmp_path / arguments[0], arguments[1:])
        assert "secret@" not in str(caught.value) and "=secret" not in str(caught.value)


@pytest.mark.thorough
def test_a_file_that_is_sent_in_part_does_not_appear(s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(file: BinaryIO, there: BinaryIO, size: int) -> None:
        there.write(file.read(10))
        raise OSError("lost")

    url = s3.put("a", b"old")
    monkeypatch.setattr(remote.shutil, "copyfileobj", failing)
    with (
        pytest.raises(CorpusError, match=r"s3://text/a: cannot be written \(lost\)"),
        RemotePath(url).replaced() as file,
    ):
        file.write(b"new" * 100)
    assert s3.get("a") == b"old"
    assert s3.num_unfinished() == 0


@pytest.mark.thorough
@pytest.mark.parametrize("size", [0, 10, 60_000_000])  # bytes; the last are sent in two parts
def test_a_file_appears_whole_or_not_at_all(s3: Store, size: int) -> None:
    url, old = s3.put("a", b"old"), b"old"
    with pytest.raises(ZeroDivisionError), RemotePath(url).replaced() as file:
        file.write(b"new" * size)
        raise ZeroDivisionError
    assert s3.get("a") == old
    with RemotePath(url).replaced() as file:
        file.write(b"x" * size)
        file.flush()
        assert s3.get("a") == old
    assert s3.get("a") == b"x" * size
    assert s3.num_unfinished() == 0
    s3.cutter.cuts = 3
    with RemotePath(url).replaced() as file:
        file.write(b"y" * size)
    assert s3.get("a") == b"y" * size
