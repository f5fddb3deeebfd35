"""Reads parallel text that is aligned by lines, from two files or from two files in a zip archive."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import zip_longest
from typing import IO, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.remote import Place
from transformer_mt.base.wording import counted
from transformer_mt.corpora import text_files
from transformer_mt.corpora.corpus import BadPair, Block, Corpus, blocks_of_file, local_files, parallel_files
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.section import fingerprint


class OneSide(NamedTuple):
    """The text of one language: a file, or a file in an archive."""

    name: str
    """The name in messages."""
    open: Callable[[], AbstractContextManager[text_files.ByteStream]]

    def lines(self, digest: str) -> Iterator[str | text_files.BadLine]:
        """Read the lines. At their end, raises CorpusError if the text does not have this digest."""
        with self.open() as file, text_files.same_text(file, digest, self.name) as hashed:
            yield from text_files.all_lines(hashed, self.name)


def open_parallel(text: PairedText) -> Corpus:
    """Open two files, or all pairs of files that match patterns. Raises the CorpusErrors of `open_sides`."""
    named = [[OneSide(str(path), partial(text_files.opened, path)) for path in both] for both in files_of(text)]
    return open_sides(text, named)


def open_sides(text: PairedText, sides: Sequence[Sequence[OneSide]]) -> Corpus:
    """Open pairs of texts. Raises CorpusError if one is unreadable, two differ in length, or all are empty."""
    surveys = []
    for source, target in sides:
        with source.open() as source_file, target.open() as target_file:
            surveys.append((text_files.survey_of(source_file), text_files.survey_of(target_file)))
        num_source, num_target = (of_side.num_lines for of_side in surveys[-1])
        if num_source != num_target:
            raise CorpusError(
                f"{source.name} has {counted(num_source, 'line')}, but {target.name} has {num_target:,}: line n of one "
                "must be the translation of line n of the other"
            )
    num_pairs = sum(of_source.num_lines for of_source, _ in surveys)
    if num_pairs == 0:
        raise CorpusError(f"{text.place}: contains no pairs; name files with sentences in them")
    digest = fingerprint(*(one.digest for both in surveys for one in both))

    def blocks() -> Iterator[Block]:
        for both, of_both in zip(sides, surveys, strict=True):
            sources, targets = (side.lines(of_side.digest) for side, of_side in zip(both, of_both, strict=True))
            yield from blocks_of_file(both[0].name, _pairs(sources, targets, both[1].name))

    return Corpus(blocks, lambda: digest, num_pairs)


def files_of(text: PairedText) -> list[tuple[Place, Place]]:
    """Return the pairs of files. Raises CorpusError if one is missing or not a regular file."""
    if text.path is not None:
        return parallel_files(text.path, str(text.source), str(text.target))
    sources, targets = local_files(str(text.source)), local_files(str(text.target))
    if len(sources) != len(targets):
        raise CorpusError(
            f"{text.source} matches {counted(len(sources), 'file')}, but {text.target} matches {len(targets):,}: file "
            "n of one, in alphabetical order, must be the translation of file n of the other"
        )
    return list(zip(sources, targets, strict=True))


def _pairs(
    sources: Iterator[str | text_files.BadLine], targets: Iterator[str | text_files.BadLine], file_of_targets: str
) -> Iterator[tuple[str, str] | BadPair]:
    """Yield the pairs of lines of two files."""
    for source, target in zip_longest(sources, targets):
        if source is None or target is None:
            continue  # a text has changed since its lines were counted, for which its reader raises an error at the end
        if isinstance(source, text_files.BadLine):
            yield BadPair(source.fault)
        elif isinstance(target, text_files.BadLine):
            yield BadPair(f"its translation, the same line of {file_of_targets}, {target.fault}")
        else:
            yield source, target


def open_zip(text: PairedText) -> Corpus:
    """Open archives. Raises CorpusError like `open_sides`, or if an archive has no file of a language, or several."""
    names = str(text.source), str(text.target)
    return open_sides(text, [[_member_side(path, name) for name in names] for path in local_files(text.place)])


def _member_side(path: Place, name: str) -> OneSide:
    if text_files.is_compressed(path):
        raise CorpusError(f"{path}: is a compressed archive, but must be a .zip; decompress it once")
    with _archive(path) as archive:
        member = _member(name, archive, path)
    return OneSide(f"{path}/{member.filename}", partial(_opened, path, member.filename))


@contextmanager
def _opened(path: Place, member: str) -> Iterator[IO[bytes]]:
    with _archive(path) as archive, archive.open(member) as file:
        yield file


@contextmanager
def _archive(path: Place) -> Iterator[ZipFile]:
    """Open an archive. Raises CorpusError if reading it fails."""
    try:
        with path.open("rb") as file, ZipFile(file) as archive:
            yield archive
    except (*text_files.Damage, BadZipFile, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path}: cannot be read ({reason}); name a complete .zip") from None


def _member(name: str, archive: ZipFile, path: Place) -> ZipInfo:
    """Return the member with this name, or the only one whose name ends in it. Raises CorpusError if there is none."""
    # macOS adds a file of its own for each file.
    files = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    found = [info for info in files if info.filename == name]
    found = found or [info for info in files if info.filename.endswith(f".{name}")]
    if len(found) != 1:
        problem = f"has {len(found)} files whose names end in .{name}" if found else f"has no file that ends in .{name}"
        there = ", ".join(info.filename for info in (found or files)[:20])
        raise CorpusError(
            f"{path}: {problem}: {there or 'it is empty'}. Give the complete names: source: NAME and target: NAME"
        )
    if found[0].flag_bits & 1:
        raise CorpusError(f"{path}: {found[0].filename} is encrypted; decompress the archive with its password")
    return found[0]
