"""Finds the text of an old model again, so that a model fine-tuned on new text does not forget it."""

from collections.abc import Sequence
from dataclasses import dataclass
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
    sets: dict[str, dict[str, str]] | None = None
    """The files of its validation set, under the name old, and of its test sets; None if they are missing."""


def old_text(corpus: CorpusConfig, data_dir: Path) -> OldText:
    """Look for the text of an old model, which has these settings. Raises ConfigError if its sources have tags."""
    if corpus.tags:
        raise ConfigError(
            f"the model was trained with tags ({', '.join(corpus.tags)}), which say how it translates, and only you "
            "know which of them the new text needs: write the configuration yourself, with tokenizer.from and "
            "training.initialise_from"
        )
    prepared = read_prepared(data_dir)
    if prepared is None:
        return OldText()
    splits = {OLD: "valid", **{name: f"test/{name}" for name in corpus.test}}
    texts = {name: files_of(split)[-2:] for name, split in splits.items()}
    sets = {
        name: {side: str(data_dir / file) for side, file in zip(("source", "target"), files, strict=True)}
        for name, files in texts.items()
        if all((data_dir / file).is_file() for file in files)
    }
    several = isinstance(corpus.train, tuple)
    training = tuple(
        corpus.text_of(text).model_copy(update={"name": f"{OLD}_{text.name}" if several else OLD})
        for text in corpus.training_corpora
    )
    try:
        for text in training:
            open_corpus(text)
    except CorpusError:
        return OldText(sets=sets)
    num_tokens = read_json(data_dir / SUMMARY)["counts"]["train"]["target_tokens"]
    return OldText(training, int(num_tokens), sets)


def mixed_corpora(new: Sequence[PairedText], new_tokens: int, old: OldText) -> list[dict[str, Any]]:
    """Return the corpora to train on: an epoch has each new pair once, and as many tokens of old text as of new text.

    `new_tokens` are the target tokens of the new text. In our runs, such a mixture learnt nearly as much of the new
    text as the new text alone, and forgot next to nothing.
    """
    share = min(1.0, new_tokens / max(1, old.num_tokens))
    weights = [float(f"{share * (text.weight or 1.0):.2g}") for text in old.training]
    corpora = [text.model_dump() | {"weight": weight} for text, weight in zip(old.training, weights, strict=True)]
    return [*corpora, *(text.model_dump() for text in new)]
