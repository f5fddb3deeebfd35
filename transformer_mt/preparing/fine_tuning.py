"""Finds the text of an old model again, so that a model fine-tuned on new text does not forget it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer_mt.base.errors import ConfigError, CorpusError
from transformer_mt.corpora.opening import open_corpus
from transformer_mt.preparing.prepared import SUMMARY, files_of, read_prepared
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText
from transformer_mt.storage.files import read_json

NEW, OLD = "new", "old"
"""The names of the new text and of the old text in lists of corpora."""


@dataclass(frozen=True)
class OldText:
    """The text of which an old model was made, as far as it is still here."""

    training: tuple[PairedText, ...] = ()
    """Its training corpora, each with a name; empty if one of them is missing."""
    num_tokens: int = 0
    """The target tokens of its training corpora."""
    valid: dict[str, dict[str, str]] = field(default_factory=dict)
    """The files of its validation sets, by names that begin with old."""
    tests: dict[str, dict[str, str]] = field(default_factory=dict)
    """The files of its test sets, by such names."""
    missing: str = ""
    """What is missing of its training text, if something is."""


def old_text(corpus: CorpusConfig, data_dir: Path, tokenizer_digest: str) -> OldText:
    """Look for the text of an old model with these settings and this tokenizer. Raises ConfigError if it has tags."""
    if corpus.tags:
        raise ConfigError(
            f"the model was trained with tags ({', '.join(corpus.tags)}), which say how it translates, and only you "
            "know which of them the new text needs: write the configuration yourself, with tokenizer.from and "
            "training.initialise_from"
        )
    prepared = read_prepared(data_dir)
    if prepared is None or prepared.tokenizer_digest != tokenizer_digest:
        return OldText(missing=f"{data_dir}/{SUMMARY} cannot be read from here, or belongs to another model")
    valid, tests = dict[str, dict[str, str]](), dict[str, dict[str, str]]()
    for split in corpus.held_out:
        files = [str(data_dir / file) for file in files_of(split)[-2:]]
        if all(Path(file).is_file() for file in files):
            is_test, name = split.startswith("test/"), split.removeprefix("test/").removeprefix("valid/")
            named = OLD if split == "valid" else f"{OLD}_{name}"
            (tests if is_test else valid)[named] = dict(zip(("source", "target"), files, strict=True))
    several = isinstance(corpus.train, tuple)
    training = tuple(
        corpus.text_of(text).model_copy(update={"name": f"{OLD}_{text.name}" if several else OLD})
        for text in corpus.training_corpora
    )
    try:
        for text in training:
            open_corpus(text)
    except CorpusError as error:
        return OldText(valid=valid, tests=tests, missing=str(error))
    num_tokens = read_json(data_dir / SUMMARY)["counts"]["train"]["target_tokens"]
    return OldText(training, int(num_tokens), valid, tests)


def mixed_corpora(new: PairedText, new_tokens: int, old: OldText) -> list[dict[str, Any]]:
    """Return the corpora to train on: an epoch has each new pair once, and about as many tokens of old text.

    `new_tokens` are the target tokens of the new text. In our runs, such a mixture learnt nearly as much of the new
    text as the new text alone, and forgot next to nothing.
    """
    share = min(1.0, new_tokens / max(1, old.num_tokens))
    weights = [float(f"{share * (text.weight or 1.0):.2g}") for text in old.training]
    corpora = [text.model_dump() | {"weight": weight} for text, weight in zip(old.training, weights, strict=True)]
    return [*corpora, new.model_dump()]
