"""Translates a file into a file, part by part, in one process or on all ranks of torchrun. After a kill, it resumes.

It keeps the parts in a directory beside the output until it has all of them. Then it joins them in order. Each part is
a file that appears when it is complete: the checksum of all that follows, a line of JSON with notes, and then the
content. The file parts.json describes the output to which the parts belong.
"""

import gzip
import hashlib
import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from transformer_mt.base import torchrun
from transformer_mt.base.errors import DirectoryError, RankError, TrainingError, TranslationError
from transformer_mt.base.remote import Place, RemotePath
from transformer_mt.base.wording import LineProgress, counted
from transformer_mt.base.worker_pool import num_cores
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.checksums import EXPORT_FILES, read_sums
from transformer_mt.storage.files import OWN_SUFFIX, is_stream, parse_json, read_json, replacing, target_of, write_json
from transformer_mt.storage.own_directory import LOCK, Owner, hold
from transformer_mt.terminal.cli import engine_options, model_dirs, replaced
from transformer_mt.terminal.line_input import open_lines
from transformer_mt.terminal.translation_output import (
    Block,
    OutputForm,
    TranslationSummary,
    translate_block,
    with_prefixes,
)
from transformer_mt.text.terms import Terms

if TYPE_CHECKING:
    from transformer_mt.training.distributed import Ranks

_FORMAT = 6  # the format of parts.json and of the parts
_MAX_WAIT = timedelta(days=365)  # for other ranks, as long as they run
_MAX_DELAY = 120.0  # seconds until a network file system shows a file that another machine has written


RECORD = "parts.json"
OWNER = Owner("translate", "writes the parts of the output there", "name another --output")


class OutputParts:
    """The directory of the parts of an output until the output is complete. Parts are numbered from 0."""

    def __init__(self, output: Place) -> None:
        """Raises OSError if the links at `output` form a circle."""
        if isinstance(output, RemotePath):
            output = Path(output.name)  # parts stay here, in the working directory
        target = target_of(output) if output.is_symlink() else output  # messages show the path that was typed
        self.directory = target.with_name(f"{target.name}.parts")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make or reuse the directory, and lock it, as `hold` does. At the end, delete it if it has no parts."""
        with hold(self.directory, OWNER):
            try:
                yield
            finally:
                if not self.numbers():
                    with suppress(OSError):  # the directory may contain files that are not from this program
                        for path in self.directory.glob(f".*{OWN_SUFFIX}"):  # the remains of a killed process
                            path.unlink()
                        (self.directory / RECORD).unlink(missing_ok=True)
                        (self.directory / LOCK).unlink()
                        self.directory.rmdir()

    def begin(self, record: Mapping[str, Any]) -> None:
        """Write the description of the output, before its first part. Raises UserError."""
        write_json(self.directory / RECORD, record)

    def record(self) -> dict[str, Any]:
        """Return the description that `begin` wrote. Raises DirectoryError if it is damaged."""
        try:
            found: dict[str, Any] = {**read_json(self.directory / RECORD)}
        except (OSError, ValueError, TypeError) as error:
            raise DirectoryError(f"{self.directory / RECORD}: cannot be read ({error}); {self.begin_anew()}") from None
        return found

    def begin_anew(self) -> str:
        """Return advice for a user who does not want to resume from these parts."""
        return f"to begin again, delete the directory {self.directory}; or name another --output"

    def path(self, number: int) -> Path:
        """Return the file of a part."""
        return self.directory / f"{number:06d}"

    def numbers(self) -> list[int]:
        """Return the numbers of the existing parts, in rising order."""
        return sorted(int(path.name) for path in self.directory.glob("[0-9]*") if path.name.isdecimal())

    def write(self, number: int, notes: Mapping[str, Any], content: bytes) -> None:
        """Write a part in one step that survives a power failure. Raises UserError if writing fails."""
        checked = json.dumps(notes).encode() + b"\n" + content
        with replacing(self.path(number), durable=True) as file:
            file.write(_checksum(checked) + b"\n" + checked)

    def read(self, number: int, output: BinaryIO | None = None) -> dict[str, Any]:
        """Return the notes of a part, and append its content to the output. Raises DirectoryError if it is damaged."""
        try:
            checksum, _, checked = self.path(number).read_bytes().partition(b"\n")
            if checksum != _checksum(checked):
                raise ValueError("its checksum has changed")
            written, _, content = checked.partition(b"\n")
            notes: dict[str, Any] = {**parse_json(written.decode())}
        except (FileNotFoundError, ValueError, TypeError) as error:
            raise DirectoryError(
                f"{self.path(number)}: is damaged ({error}): delete it, and the same command makes this part again"
            ) from None
        if output is not None:
            output.write(content)
        return notes

    def delete_all(self) -> None:
        """Delete all parts, after the output is complete."""
        for number in self.numbers():
            self.path(number).unlink()


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


@dataclass(frozen=True)
class _Job:
    """The parts of a translation, and which are still missing. A part has the translations of a block of lines."""

    block_lines: int
    num_lines: int
    digests: list[str]
    """The hash of the lines of each block."""
    missing: list[int]
    """The numbers of the missing parts, from 0."""

    def num_done(self, num_parts: int) -> int:
        """Return the number of lines in this number of parts."""
        return min(num_parts * self.block_lines, self.num_lines)


def is_file_to_file(arguments: Namespace) -> bool:
    """Whether the input can be read several times, and the output is a file that can be replaced by a complete one."""
    if arguments.input is None or not arguments.input.is_file():
        return False
    if arguments.prefix is not None and not arguments.prefix.is_file():
        return False
    output = arguments.output
    return isinstance(output, RemotePath) or (output is not None and not is_stream(output))


def translate_file(arguments: Namespace) -> int:
    """Translate --input into --output, under torchrun only this rank's share. Returns the exit status."""
    with _ranks() as ranks:
        is_first = ranks is None or ranks.is_first
        try:
            with ExitStack() as stack:
                summary = _FileTranslation(arguments, ranks, is_first).run(stack)
        except TrainingError as error:
            if is_first or isinstance(error, RankError):
                raise
            return 2  # the first rank has the same error, and prints it
    if is_first and not arguments.quiet:
        print(summary, file=sys.stderr)
    return 0


@contextmanager
def _ranks() -> "Iterator[Ranks | None]":
    """Connect to the ranks of torchrun. Yields None for a single process, which may have no PyTorch."""
    if torchrun.place() is None:
        yield None
        return
    from transformer_mt.training.distributed import all_ranks

    with all_ranks(_MAX_WAIT) as ranks:
        yield ranks


class _FileTranslation:
    """One start of the command on one rank; `ranks` is None for a single process."""

    def __init__(self, arguments: Namespace, ranks: "Ranks | None", is_first: bool) -> None:
        self.arguments, self.ranks, self.is_first = arguments, ranks, is_first
        self.shows = is_first and not arguments.quiet
        self.parts = OutputParts(arguments.output)

    def run(self, stack: ExitStack) -> str:
        """Translate the missing parts. The first rank joins all parts, and returns the text of the summary.

        Closing `stack` puts the output in place and deletes the parts. Raises UserError.
        """
        job, output = None, None
        # An error on any rank stops all ranks.
        with nullcontext() if self.ranks is None else self.ranks.together():
            translator = _loaded(self.arguments, self.ranks)
            translator.tags.check(self.arguments.tag)
            terms = self.arguments.terms and Terms.load(self.arguments.terms)
            overrides = self.arguments.overrides
            decoding = load_config(self.arguments.model / "config.yaml", overrides, "decoding").decoding
            if self.is_first:
                stack.enter_context(self.parts.held())
                job = self._job(_settings(self.arguments, decoding, terms))
                output = stack.enter_context(self._output())
        if self.ranks is not None:
            job = self.ranks.broadcast(job)
        assert job is not None
        since, num_before = time.perf_counter(), job.num_done(len(job.digests) - len(job.missing))
        progress = None
        if self.shows:
            progress = stack.enter_context(LineProgress(job.num_lines, done_before=num_before))
        self._translate(job, translator, decoding, progress, terms)
        if self.ranks is not None:
            self.ranks.wait(partial(self._show, job, progress))
        if output is None:
            return ""
        summary = self._joined(job, output)
        summary.seconds = time.perf_counter() - since
        return summary.text(num_before)

    @contextmanager
    def _output(self) -> Iterator[BinaryIO]:
        """Open the output, which replaces the file at the end. Then delete the parts, but keep them after an error."""
        try:
            with replaced(self.arguments.output, durable=True) as file:
                yield file
        except BaseException:
            if num_parts := len(self.parts.numbers()):
                kept = f"{self.parts.directory} keeps {counted(num_parts, 'part')} of the translation"
                self._print(f"{kept}: the same command resumes from there")
            raise
        self.parts.delete_all()

    def _job(self, settings: dict[str, Any]) -> _Job:
        """Read the input once, and find the missing parts. Raises DirectoryError for parts of another translation."""
        block_lines, existing = self.arguments.buffer_lines, self.parts.numbers()
        if existing:
            block_lines = _checked_block_lines(self.parts, settings)
        digests, num_lines = [], 0
        with LineProgress(None, doing="reading: ") if self.shows else nullcontext() as progress:
            for block in self._blocks(block_lines):
                digests.append(_digest(block))
                num_lines += len(block.lines)
                if progress is not None:
                    progress.reached(num_lines)
        for number in existing:
            if digests[number : number + 1] != [self.parts.read(number).get("made_from")]:
                first = number * block_lines + 1
                raise DirectoryError(
                    f"{self.arguments.input}, or the file of --prefix, has changed since an earlier start translated "
                    f"parts of it. The first changed lines are among lines {first} to {first + block_lines - 1}. To "
                    "resume, restore the old text; to translate these lines again, delete "
                    f"{self.parts.path(number)}; {self.parts.begin_anew()}"
                )
        job = _Job(block_lines, num_lines, digests, sorted({*range(len(digests))} - {*existing}))
        if existing:
            num_done = f"{job.num_done(len(existing)):,} of {counted(num_lines, 'line')}"
            self._print(f"resuming: {num_done} are translated already, in {self.parts.directory}")
        else:
            self.parts.begin({"form": _FORMAT, "block_lines": block_lines, "settings": settings})
        return job

    def _blocks(self, block_lines: int) -> Iterator[Block]:
        """Yield the lines in blocks; each becomes a part. An empty file gives one block without lines."""
        arguments = self.arguments
        lines = open_lines(arguments.input, arguments.errors, block_lines)
        block = None
        for block in with_prefixes(lines, arguments.prefix, arguments.errors, arguments.tag):
            yield block
        if block is None:
            yield Block(1, [])

    def _translate(
        self,
        job: _Job,
        translator: Translator,
        decoding: DecodingConfig,
        progress: LineProgress | None,
        terms: Terms | None,
    ) -> None:
        """Translate this rank's share of the missing parts."""
        share = set(job.missing if self.ranks is None else self.ranks.share(job.missing))
        form = OutputForm.of(self.arguments, decoding)
        for number, block in enumerate(self._blocks(job.block_lines)):
            if number not in share:
                continue
            summary = TranslationSummary()
            content = translate_block(translator, block, decoding, form, summary, progress, terms).encode()
            if self.arguments.output.suffix == ".gz":  # each part is a member of the .gz file, without time and name
                content = gzip.compress(content, mtime=0)
            self.parts.write(number, {"made_from": _digest(block), **vars(summary)}, content)
            self._show(job, progress)

    def _show(self, job: _Job, progress: LineProgress | None) -> None:
        """Show how many lines all ranks together have translated."""
        if progress is not None:
            progress.reached(job.num_done(len(self.parts.numbers())))

    def _joined(self, job: _Job, output: BinaryIO) -> TranslationSummary:
        """Write all parts to the output. Returns the summary of all of them."""
        summary, until = TranslationSummary(), time.monotonic() + _MAX_DELAY
        for number in range(len(job.digests)):
            while not self.parts.path(number).exists() and time.monotonic() < until:
                time.sleep(1)
            counts = self.parts.read(number, output)
            del counts["made_from"]
            summary.add_counts(counts)
        return summary

    def _print(self, text: str) -> None:
        if self.shows:
            print(text, file=sys.stderr)


def _checked_block_lines(parts: OutputParts, settings: dict[str, Any]) -> int:
    """Return the lines of each existing part. Raises DirectoryError unless the parts have the same settings."""
    record = parts.record()
    if record.get("form") != _FORMAT:
        raise DirectoryError(f"{parts.directory}: another version of this program made it; {parts.begin_anew()}")
    old = record["settings"]
    if changed := [key for key in {**old, **settings} if old.get(key) != settings.get(key)]:
        different = ", ".join(
            key if key in ("the model", "the terms") else f"{key}: {old.get(key)} there, {settings.get(key)} now"
            for key in changed
        )
        raise DirectoryError(
            f"{parts.directory} contains the beginning of another translation ({different}). To resume it, give the "
            f"command that began it; {parts.begin_anew()}"
        )
    return int(record["block_lines"])


def _settings(arguments: Namespace, decoding: DecodingConfig, terms: Terms | None) -> dict[str, Any]:
    """Return everything except the input that the output depends on, by the names that a user knows.

    Settings of speed and memory are left out, so that a user who has run out of memory can resume with smaller batches.
    """
    flags = ("engine", "dtype", "quantize", "tag", "scores", "alignment", "json")
    sums = [read_sums(directory) for directory in model_dirs(arguments)]
    return {
        "the model": [{name: digest for name, digest in of.items() if name in EXPORT_FILES} for of in sums],
        **{f"--{flag}": getattr(arguments, flag) for flag in flags},
        "--prefix": arguments.prefix is not None,
        "the terms": terms and hashlib.sha256(repr(terms.targets).encode()).hexdigest(),
        "--output as .gz": arguments.output.suffix == ".gz",  # of the name on the command line, which may be a link
        **decoding.model_dump(mode="json", exclude={"tokens_per_batch"}),
    }


def _digest(block: Block) -> str:
    """Return the SHA-256 of lines and their prefixes. Line ends and compression do not matter."""
    return hashlib.sha256(repr((block.lines, block.prefixes)).encode()).hexdigest()


def _loaded(arguments: Namespace, ranks: "Ranks | None") -> Translator:
    """Load the translator of this rank: on its own GPU, or on its share of the machine's cores."""
    options = engine_options(arguments)
    if ranks is not None and ranks.size > 1:
        if options.device.startswith("cuda:"):
            raise TranslationError(
                f"--device {options.device} is one GPU, but torchrun has started {ranks.size} processes: write "
                "--device cuda, which gives each process its own GPU"
            )
        device = ranks.own_gpu(options.device)
        workers = options.workers or (0 if device.startswith("cuda") else max(1, num_cores() // ranks.local_size))
        options = replace(options, device=device, workers=workers)
    return Translator.load(model_dirs(arguments), **vars(options))
