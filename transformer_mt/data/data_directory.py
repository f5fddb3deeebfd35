"""Makes and locks the directory that `prepare` fills, so that no file of the user is lost, and says if it is full."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.corpora.opening import corpus_files
from transformer_mt.errors import ConfigError, CorpusError
from transformer_mt.settings.corpus import PairedText
from transformer_mt.storage.files import cure
from transformer_mt.storage.own_directory import Owner, hold

OWNER = Owner("prepare", "prepares data here", "choose another data_dir")


@contextmanager
def hold_data_dir(directory: Path, texts: Iterable[PairedText]) -> Iterator[None]:
    """Make a data_dir, or take one that a killed process left, and lock it so that no other process writes it.

    Raises ConfigError if it cannot be made; CorpusError or DirectoryError if a file of the user could be lost, or if
    another process has it locked.
    """
    _check_outside(directory, texts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data_dir={directory}: cannot be made ({error.strerror}); choose another") from None
    with hold(directory, OWNER):
        _check_no_links(directory)
        yield


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise any OSError of writing a part of a data_dir, which messages call `path`, as a CorpusError."""
    try:
        yield
    except OSError as error:
        raise CorpusError(
            f"{path}: cannot be written ({error.strerror or error}); {cure(error)}, and give the same command again: "
            "it goes on with what is whole"
        ) from None


def _check_outside(directory: Path, texts: Iterable[PairedText]) -> None:
    """Raises CorpusError if a file of the corpus lies in the directory, because it could be overwritten there."""
    for path in [path for text in texts for path in corpus_files(text)]:
        if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
            raise CorpusError(
                f"{path}: this text of the corpus lies in data_dir={directory}, which `prepare` fills with files of "
                "its own; choose another data_dir"
            )


def _check_no_links(directory: Path) -> None:
    """Raises CorpusError if there is a link, because `prepare` makes none and would write to where it leads."""
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            raise CorpusError(
                f"{path}: is a link, and `prepare` did not make it; move it away, or choose another data_dir"
            )
