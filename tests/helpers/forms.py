"""Writes sentence pairs in every form in which a corpus can lie, packed or not."""

import csv
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.opening import open_corpus
from transformer_mt.preparing.fill_data_dir import open_texts
from transformer_mt.preparing.measured_text import TextMeasures, measure
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText
from transformer_mt.settings.text_settings import FiltersConfig

Pairs = Sequence[tuple[str, str]]
PACKINGS = ("", ".gz", ".zst", ".xz")
FORMS = ("files", "prefix", "shards", "tsv", "named_tsv", "csv", "jsonl", "nested_jsonl", "parquet", "tmx", "zip")


def opened(keys: dict[str, Any]) -> Corpus:
    """Open a corpus from en to de."""
    return open_corpus(filled(keys))


def filled(keys: dict[str, Any]) -> PairedText:
    corpus = CorpusConfig(source_language="en", target_language="de", train="none", valid="none", test={})
    return corpus.text_of(PairedText.model_validate(keys))


def only_training(train: object, source: str = "en", target: str = "de", valid: object = None) -> CorpusConfig:
    """A configuration of this training text, of which a share is the validation set, unless one is given."""
    languages = {"source_language": source, "target_language": target}
    return CorpusConfig.model_validate({**languages, "train": train, "valid": valid or {"share": 0.05}, "test": {}})


def measured(corpus: CorpusConfig, filters: FiltersConfig) -> TextMeasures:
    return measure(corpus, filters, open_texts(corpus))


def pack(content: bytes, packing: str) -> bytes:
    match packing:
        case ".gz":
            return gzip.compress(content, 1)
        case ".xz":
            return lzma.compress(content, preset=0)
        case ".zst":
            return bytes(pytest.importorskip("pyarrow").compress(content, codec="zstd", asbytes=True))
    return content


def write(path: Path, content: str | bytes, packing: str = "") -> str:
    """Write a file, and return its name."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    path = path.with_name(path.name + packing)
    path.write_bytes(pack(data, packing))
    return str(path)


def write_form(directory: Path, form: str, pairs: Pairs, packing: str = "") -> dict[str, Any]:
    """Write pairs in a form, and return the keys that name them in a configuration from en to de."""
    sources, targets = ("".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1))
    match form:
        case "files":
            english, german = write(directory / "a", sources, packing), write(directory / "b", targets, packing)
            return {"source": english, "target": german}
        case "prefix" | "shards":
            half = len(pairs) // 2 if form == "shards" else len(pairs)
            for number, part in enumerate((pairs[:half], pairs[half:]) if form == "shards" else (pairs,)):
                for side, language in enumerate(("en", "de")):
                    text = "".join(f"{pair[side]}\n" for pair in part)
                    write(directory / f"part-{number}.{language}", text, packing)
            return {"path": str(directory / ("part-*" if form == "shards" else "part-0"))}
        case "tsv":
            text = "".join(f"{number}\t{target}\t{source}\n" for number, (source, target) in enumerate(pairs))
            return {"path": write(directory / "a.tsv", text, packing), "source": 3, "target": 2}
        case "named_tsv":
            text = "de\tid\ten\n" + "".join(f"{target}\t\t{source}\n" for source, target in pairs)
            return {"path": write(directory / "a.tsv", text, packing), "source": "en", "target": "de"}
        case "csv":
            out = io.StringIO()
            csv.writer(out).writerows([("en", "de"), *pairs])
            return {"path": write(directory / "a.csv", out.getvalue(), packing)}
        case "jsonl":
            text = "".join(json.dumps({"en": source, "de": target}) + "\n" for source, target in pairs)
            return {"path": write(directory / "a.jsonl", text, packing)}
        case "nested_jsonl":
            rows = [{"id": 1, "translation": {"de": target, "en": source}} for source, target in pairs]
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            names = {"source": "translation.en", "target": "translation.de"}
            return {"path": write(directory / "a.jsonl", text, packing), **names}
        case "parquet":
            return {"path": write(directory / "a.parquet", parquet(pairs), packing)}
        case "tmx":
            return {"path": write(directory / "a.tmx", tmx(pairs), packing)}
        case "zip":
            name = directory / "a.zip"
            with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("README", "none")
                archive.writestr("x.de-en.en", sources)
                archive.writestr("x.de-en.de", targets)
            return {"path": str(name)}
    raise AssertionError(form)


def parquet(pairs: Pairs) -> bytes:
    """Return a Parquet file as the hub has them: one column of fields, in several groups of rows."""
    pyarrow, pyarrow_parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    table = pyarrow.table({"translation": [{"en": source, "de": target} for source, target in pairs]})
    out = io.BytesIO()
    pyarrow_parquet.write_table(table, out, row_group_size=1000)
    return out.getvalue()


def tmx(pairs: Pairs) -> str:
    units = "".join(
        f'<tu><tuv xml:lang="de-DE"><seg>{escape(target)}</seg></tuv><tuv xml:lang="en"><seg>{escape(source)}</seg>'
        "</tuv></tu>\n"
        for source, target in pairs
    )
    return f'<?xml version="1.0" encoding="utf-8"?>\n<tmx version="1.4"><header/><body>{units}</body></tmx>\n'
