"""Reads parallel text in a zip archive, as OPUS gives it. Nothing is unpacked to disk."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

from transformer_mt.corpora.corpus import Block, Corpus
from transformer_mt.corpora.lines import line_blocks
from transformer_mt.corpora.local_files import local_files
from transformer_mt.corpora.packed import Damage, is_packed
from transformer_mt.corpora.parallel import check_lengths, parallel_blocks
from transformer_mt.corpora.text_files import Survey, same_text, survey_of
from transformer_mt.errors import CorpusError
from transformer_mt.settings.bounds import fingerprint
from transformer_mt.settings.corpus import PairedText


def open_zip(text: PairedText) -> Corpus:
    """Open archives.

    Raises CorpusError if one is damaged or encrypted, or has no file of a language, or several.
    """
    paths = local_files(text.place)
    surveys = [_surveys(text, path) for path in paths]
    num_pairs = sum(of_source.num_lines for of_source, _ in surveys)
    if num_pairs == 0:
        raise CorpusError(f"{text.place}: empty; name an archive with sentences in it")

    def blocks() -> Iterator[Block]:
        for path, before in zip(paths, surveys, strict=True):
            with _opened(path) as archive, ExitStack() as stack:
                members = _members(text, archive, path)
                names = [_shown(path, member) for member in members]
                files = [stack.enter_context(archive.open(member)) for member in members]
                both = [
                    stack.enter_context(same_text(file, of_file.digest, name))
                    for file, of_file, name in zip(files, before, names, strict=True)
                ]
                yield from parallel_blocks(
                    line_blocks(both[0], names[0]), names[0], line_blocks(both[1], names[1]), names[1]
                )

    digest = _digest(surveys)
    return Corpus(paths, blocks, lambda: digest, num_pairs)


def digest_of_zip(text: PairedText) -> str:
    """Return a hash of the two members' text, however they are packed."""
    return _digest([_surveys(text, path) for path in local_files(text.place)])


def _digest(surveys: list[tuple[Survey, Survey]]) -> str:
    return fingerprint(*(one.digest for both in surveys for one in both))


def _surveys(text: PairedText, path: Path) -> tuple[Survey, Survey]:
    with _opened(path) as archive:
        source, target = _members(text, archive, path)
        with archive.open(source) as sources, archive.open(target) as targets:
            both = survey_of(sources), survey_of(targets)
        check_lengths(_shown(path, source), both[0], _shown(path, target), both[1])
        return both


@contextmanager
def _opened(path: Path) -> Iterator[ZipFile]:
    """Open an archive. Any error while it is read is raised as a CorpusError."""
    if is_packed(path):
        raise CorpusError(f"{path}: an archive is packed already, and is read only as a .zip; unpack it once")
    try:
        with ZipFile(path) as archive:
            yield archive
    except (*Damage, BadZipFile, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path}: cannot be read ({reason}); name a complete .zip") from None


def _members(text: PairedText, archive: ZipFile, path: Path) -> tuple[ZipInfo, ZipInfo]:
    return _member(str(text.source), archive, path), _member(str(text.target), archive, path)


def _member(name: str, archive: ZipFile, path: Path) -> ZipInfo:
    """Return the member with this name, or the only one whose name ends in it. Raises CorpusError if there is none."""
    # macOS puts a file of its own beside each.
    files = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    found = [info for info in files if info.filename == name] or [
        info for info in files if info.filename.endswith(f".{name}")
    ]
    if len(found) > 1 and len({info.filename for info in found}) == 1:
        raise CorpusError(
            f"{path}: has {len(found)} files with the name {found[0].filename}; make it again with the right one alone"
        )
    if len(found) != 1:
        problem = f"has {len(found)} files whose names end in .{name}" if found else f"has no file that ends in .{name}"
        names = [info.filename for info in found or files]
        there = ", ".join(names[:20]) + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")
        raise CorpusError(
            f"{path}: {problem}: {there or 'it is empty'}. Give the whole names: source: NAME and target: NAME"
        )
    if found[0].flag_bits & 1:
        raise CorpusError(f"{path}: {found[0].filename} is encrypted; unpack the archive with its password")
    return found[0]


def _shown(path: Path, member: ZipInfo) -> str:
    return f"{path}/{member.filename}"
