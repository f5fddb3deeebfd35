"""Opens a corpus of any form."""

from collections.abc import Callable
from pathlib import Path

from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.local_files import local_files
from transformer_mt.corpora.parallel import files_of, open_parallel, open_zip
from transformer_mt.corpora.rows import digest_of_hub, open_hub, open_jsonl, open_parquet
from transformer_mt.corpora.tables import open_csv, open_tsv
from transformer_mt.corpora.text_files import survey
from transformer_mt.corpora.tmx import open_tmx
from transformer_mt.settings.corpus_settings import Form, PairedText
from transformer_mt.settings.section import fingerprint

_OPEN: dict[Form | None, Callable[[PairedText], Corpus]] = {
    None: open_parallel,
    "prefix": open_parallel,
    "tsv": open_tsv,
    "csv": open_csv,
    "jsonl": open_jsonl,
    "parquet": open_parquet,
    "tmx": open_tmx,
    "zip": open_zip,
    "hub": open_hub,
}


def open_corpus(text: PairedText) -> Corpus:
    """Open a corpus that has values for source and target (see `CorpusConfig.text_of`).

    Reads local files once to their end, for the digest and the number of pairs. Raises CorpusError if files, split or
    columns are missing, if a file cannot be read, or if there are no pairs.
    """
    return _OPEN[text.form](text)


def corpus_files(text: PairedText) -> tuple[Path, ...]:
    """Return the local files of a corpus, without opening them. Raises CorpusError if one is missing."""
    if text.form == "hub":
        return ()
    if text.form in (None, "prefix"):
        return tuple(path for both in files_of(text) for path in both)
    return local_files(text.place)


def corpus_digest(text: PairedText) -> str:
    """Return the digest of a corpus, without checking the corpus."""
    if text.form == "hub":
        return digest_of_hub(text)
    if text.form == "zip":
        return open_zip(text).digest()
    return fingerprint(*(survey(path).digest for path in corpus_files(text)))
