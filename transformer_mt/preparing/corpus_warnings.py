"""Warnings about probable mistakes in the corpora of a configuration that are not errors."""

from collections.abc import Iterable, Mapping

from transformer_mt.base.languages import name_columns
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.preparing.fill_data_dir import splits_of
from transformer_mt.preparing.prepared import is_training
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText


def corpus_warnings(corpus: CorpusConfig, opened: Mapping[str, Corpus]) -> list[str]:
    """Return all warnings of this file. `opened` has the text of each split by its name."""
    splits = splits_of(corpus)
    digests = {name: opened[name].digest() for name in filter(is_training, opened)}
    headers = header_warnings(corpus, [(splits[name], pairs) for name, pairs in opened.items()])
    return [*tag_warnings(corpus), *twice_warnings({name: splits[name] for name in digests}, digests), *headers]


def tag_warnings(corpus: CorpusConfig) -> list[str]:
    """Return a warning for each validation or test set with another tag than every training corpus."""
    trained = list(dict.fromkeys(text.tag for text in corpus.training_corpora))
    named = ", ".join(tag for tag in trained if tag)
    found = []
    for key, split in {"valid": corpus.valid, **{f"test.{name}": test for name, test in corpus.test.items()}}.items():
        tag = corpus.text_of(split).tag
        if tag is None and None not in trained:
            found.append(
                f"corpus.{key} has no tag, but every training corpus has one ({named}). Unless its sources already "
                f"begin with a tag, set one: {{path: …, tag: {trained[0]}}}"
            )
        if tag is not None and tag not in trained:
            has = f"whose tags are {named}" if named else "which have no tags"
            found.append(f"corpus.{key} has the tag {tag}, which is not a tag of the training corpora, {has}")
    return found


def header_warnings(corpus: CorpusConfig, opened_texts: Iterable[tuple[PairedText, Corpus]]) -> list[str]:
    """Return a warning for each TSV without names of columns in the settings whose first line seems to have names."""
    found = []
    for text, pairs in opened_texts:
        block = next(pairs.blocks(), None) if text.form == "tsv" and not isinstance(text.source, str) else None
        first = block.pairs[0] if block else None
        if block and isinstance(first, tuple) and name_columns(first, corpus.languages_of(text)):
            found.append(
                f"{block.place(0)}: is read as a pair, but seems to name the columns ({first[0]}, {first[1]}). If it "
                f"does, set the names of the two columns: {{path: {text.place}, source: NAME, target: NAME}}"
            )
    return found


def twice_warnings(corpora: Mapping[str, PairedText], digests: Mapping[str, str]) -> list[str]:
    """Return a warning for each training corpus with the same text, and the same tag, as an earlier one."""
    first: dict[tuple[str, str, str | None], str] = {}
    found = []
    for name, text in corpora.items():
        # The digest of two texts tells which one is the source; that of a file with both sides does not.
        reading = "" if text.form in (None, "prefix", "zip") else text.reading
        before = first.setdefault((digests[name], reading, text.tag), name)
        if before != name:
            found.append(
                f"{before} and {name} are the same text, so an epoch contains its pairs twice: leave one of them out, "
                "or give a weight to one of them instead"
            )
    return found
