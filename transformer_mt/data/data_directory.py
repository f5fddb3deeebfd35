"""The directory that `prepare` fills: nobody else's, and of one process at a time."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.data.corpus import corpus_files
from transformer_mt.errors import ConfigError, CorpusError
from transformer_mt.settings.experiment import CorpusConfig, Split
from transformer_mt.storage.own_directory import Owner, hold

OWNER = Owner("prepare", "prepares data here", "choose another data_dir")


@contextmanager
def hold_data_dir(directory: Path, corpus: CorpusConfig, splits: Iterable[Split]) -> Iterator[None]:
    """Make a data_dir, or take one that a killed process has left, and be the only one that writes it.

    Raises ConfigError if it cannot be made, CorpusError or DirectoryError if something in it could be lost, or if
    another process holds it.
    """
    _check_outside(directory, corpus, splits)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data_dir={directory}: cannot be made ({error.strerror}); choose another") from None
    with hold(directory, OWNER):
        _check_no_links(directory)
        yield


def _check_outside(directory: Path, corpus: CorpusConfig, splits: Iterable[Split]) -> None:
    """Raises CorpusError if a file of the corpus lies in the directory, where it might be written over."""
    for path in [path for split in splits for path in corpus_files(corpus, split)]:
        if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
            raise CorpusError(
                f"{path}: this text of the corpus lies in data_dir={directory}, which `prepare` fills with files of "
                "its own; choose another data_dir"
            )


def _check_no_links(directory: Path) -> None:
    """Raises CorpusError if there is a link, which `prepare` would write through: it made none."""
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            raise CorpusError(
                f"{path}: is a link, and `prepare` did not make it; move it away, or choose another data_dir"
            )
