"""Translates a file into a file, part by part. Any number of processes may do it together. After a kill, it resumes.

Each process takes the next part that nobody has claimed. When all parts are complete, one process joins them in order.
"""

import gzip
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, BinaryIO
from uuid import uuid4

from transformer_mt.base import torchrun
from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import DirectoryError, TranslationError, UserError
from transformer_mt.base.remote import RemotePath
from transformer_mt.base.wording import LineProgress, counted
from transformer_mt.corpora.text_files import version_of
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.checksums import EXPORT_FILES, read_sums
from transformer_mt.storage.claims import POLL, Claims
from transformer_mt.storage.files import is_stream, replaceable, replacing, writing_to
from transformer_mt.terminal import translation_output
from transformer_mt.terminal.cli import engine_options, model_dirs
from transformer_mt.terminal.line_input import open_lines
from transformer_mt.terminal.output_parts import DONE, ONCE, RECORD, OutputParts, checksum
from transformer_mt.text.terms import Terms

_FORMAT = 8  # the format of parts.json and of the parts


@dataclass(frozen=True)
class _Job:
    """The lines of a translation. A part has the translations of a block of lines."""

    block_lines: int
    num_lines: int
    digests: list[str]
    """The hash of the lines and settings of each block."""

    @property
    def digest(self) -> str:
        """The hash of all lines and settings."""
        return checksum("".join(self.digests).encode())

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
    """Translate --input into --output, together with all other processes that do. Returns the exit status."""
    if not isinstance(arguments.output, RemotePath):
        with writing_to(arguments.output):
            replaceable(arguments.output)  # an error now is better than one after the last line
    return _FileTranslation(arguments).run()


class _FileTranslation:
    """One start of the command in one process."""

    def __init__(self, arguments: Namespace) -> None:
        """Load the model. Raises UserError."""
        self.arguments, self.parts = arguments, OutputParts(arguments.output)
        self.translator = _loaded(arguments)
        self.translator.tags.check(arguments.tag)
        self.terms = arguments.terms and Terms.load(arguments.terms)
        self.decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
        self.settings = _settings(arguments, self.decoding, self.terms)
        place = torchrun.place()
        self.shows = not arguments.quiet and (place is None or place.rank == 0)  # they would write into one terminal

    def run(self) -> int:
        """Translate parts until the output is complete. Returns the exit status. Raises UserError."""
        with ExitStack() as stack:
            with self.parts.locked():
                self.claims = Claims(self.parts.directory, checksum(repr(self.settings).encode()))
                stack.callback(self._tidy)
                stack.enter_context(self.claims)
                self.output_before = self._output()
                with self.claims.alone(self.parts.directory / "begin"):
                    self.record = self._begun()
            job = self._job()
            while DONE in self.record:
                if self.record[DONE] == job.digest and self.output_before is not None:
                    again = f"to translate it again, delete the directory {self.parts.directory}"
                    self._print(f"{self.arguments.output} is already complete; {again}")
                    return 0
                with self.parts.locked():
                    self.record = self._begun(outdated=self.record)
                job = self._job()
            try:
                summary = self._worked(job)
            except BaseException as error:
                if not isinstance(error, UserError) or self._is_current():
                    if num_parts := len(self.parts.numbers()):
                        kept = f"{self.parts.directory} keeps {counted(num_parts, 'part')} of the translation"
                        self._print(f"{kept}: the same command resumes from there")
                    raise
                summary = ""
            self._print(summary or self._finished_by_another())
        return 0

    def _tidy(self) -> None:
        with suppress(DirectoryError):  # another process has had the lock for long: it tidies up, too
            if self.parts.directory.exists():
                with self.parts.locked(patience=10.0):
                    self.parts.tidy(bool(self.claims.others()))

    def _output(self) -> Any:
        """Return what changes when a process replaces the output; None if there is none."""
        output = self.arguments.output
        if isinstance(output, RemotePath):
            return output.tried(output.version) if output.exists() else None
        return version_of(output)

    def _begun(self, outdated: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the record of the parts, or write a new one if nobody needs that of the directory.

        A record of a complete output, such as `outdated`, may be replaced. Raises DirectoryError for parts of another
        translation.
        """
        old, has_parts = dict[str, Any](), bool(self.parts.numbers())
        with nullcontext() if has_parts else suppress(DirectoryError):
            old = self.parts.record()
        is_ours = old.get("form") == _FORMAT and old["settings"] == self.settings
        if is_ours and old != outdated:
            return old
        if DONE in old:
            self.parts.delete_all()
        elif has_parts or (old and self.claims.rivals()):
            _check(old, self.settings, self.parts)
        start = {"form": _FORMAT, "block_lines": self.arguments.buffer_lines, "start": uuid4().hex}
        self.parts.write_record(start | {"settings": self.settings})
        return start | {"settings": self.settings}

    def _is_current(self) -> bool:
        """Whether the output to which the parts belong is not complete yet."""
        with suppress(DirectoryError):
            return self.parts.record() == self.record
        return False

    def _job(self) -> _Job:
        """Read the input once. Raises DirectoryError if lines have changed whose translations are there."""
        block_lines, existing = self.record["block_lines"], self.parts.numbers()
        digests, num_lines = [], 0
        with LineProgress(None, doing="reading: ", is_wanted=self.shows) as progress:
            for block in self._blocks(block_lines):
                digests.append(self._digest(block))
                num_lines += len(block.lines)
                progress.reached(num_lines)
        job = _Job(block_lines, num_lines, digests)
        if existing and DONE not in self.record:
            for number in existing:
                self._counts(job, number)
            num_done = f"{job.num_done(len(existing)):,} of {counted(num_lines, 'line')}"
            self._print(f"resuming: {num_done} are translated already, in {self.parts.directory}")
        return job

    def _counts(self, job: _Job, number: int, output: BinaryIO | None = None) -> dict[str, Any]:
        """Return the counts of a part, and append it to the output. Raises DirectoryError if it is of other lines."""
        counts = self.parts.read(number, output)
        if job.digests[number : number + 1] != [counts.pop("made_from", None)]:
            raise self._changed(job, number, f"to translate these lines again, delete {self.parts.path(number)}; ")
        return counts

    def _changed(self, job: _Job, number: int, advice: str = "") -> DirectoryError:
        first = number * job.block_lines + 1
        return DirectoryError(
            f"{self.arguments.input}, or the file of --prefix, has changed since this translation began. The first "
            f"changed lines are among lines {first} to {first + job.block_lines - 1}. To resume, restore the old text; "
            f"{advice}{self.parts.begin_anew()}"
        )

    def _digest(self, block: translation_output.Block) -> str:
        """Return a hash of lines, their prefixes, and the settings. Line ends and compression do not matter."""
        return checksum(repr((block.lines, block.prefixes, self.settings)).encode())

    def _blocks(self, block_lines: int) -> Iterator[translation_output.Block]:
        """Yield the lines in blocks; each becomes a part. An empty file gives one block without lines."""
        arguments = self.arguments
        lines = open_lines(arguments.input, arguments.errors, block_lines)
        block = None
        for block in translation_output.with_prefixes(lines, arguments.prefix, arguments.errors, arguments.tag):
            yield block
        if block is None:
            yield translation_output.Block(1, [])

    def _worked(self, job: _Job) -> str:
        """Translate parts until all are complete, and join them. Returns the text of the summary.

        Returns an empty text if another process has completed the output.
        """
        since, num_before = time.perf_counter(), job.num_done(len(self.parts.numbers()))
        with LineProgress(job.num_lines, done_before=num_before, is_wanted=self.shows) as progress:
            while self._is_current():
                missing = {*range(len(job.digests))} - {*self.parts.numbers()}
                if any(self.claims.take(self.parts.path(number)) for number in sorted(missing)):
                    self._translate(job, progress)
                elif not missing and self.claims.take(self.parts.directory / "output"):
                    with self.parts.locked():
                        if self._is_current():
                            summary = self._joined(job)
                            summary.seconds = time.perf_counter() - since
                            return summary.text(num_before)
                else:
                    progress.reached(job.num_done(len(self.parts.numbers())))
                    time.sleep(POLL)
        return ""

    def _translate(self, job: _Job, progress: LineProgress) -> None:
        """Read the input once more, and translate each block that is missing and that no other process has claimed.

        Raises DirectoryError or CorpusError as soon as a block is read that is not the one of the first reading.
        """
        form = translation_output.OutputForm.of(self.arguments, self.decoding)
        for number, (planned, block) in enumerate(zip_longest(job.digests, self._blocks(job.block_lines))):
            if block is None or self._digest(block) != planned:
                raise self._changed(job, number)
            part = self.parts.path(number)
            if part.exists() or not self.claims.take(part):
                continue
            if not part.exists():  # between the two looks, another process may have completed it
                summary = translation_output.TranslationSummary()
                content = translation_output.translate_block(
                    self.translator, block, self.decoding, form, summary, progress, self.terms
                ).encode()
                if self.arguments.output.suffix == ".gz":  # each part is a member of the .gz, without time and name
                    content = gzip.compress(content, mtime=0)
                if not self._is_current():  # this process hung, and meanwhile others have completed the output
                    return
                self.parts.write(number, {"made_from": planned, **vars(summary)}, content)
            self.claims.give_back(part)
            progress.reached(job.num_done(len(self.parts.numbers())))  # those of all processes together

    def _joined(self, job: _Job) -> translation_output.TranslationSummary:
        """Write all parts to the output, and record that it is complete. Returns the summary of all parts."""
        summary = translation_output.TranslationSummary()
        path = self.arguments.output
        with path.replaced() if isinstance(path, RemotePath) else replacing(path, durable=True) as output:
            for number in range(len(job.digests)):
                summary.add_counts(self._counts(job, number, output))
        self.parts.write_record(self.record | {DONE: job.digest, ONCE: self.arguments.once})
        return summary

    def _finished_by_another(self) -> str:
        """Return what to print. Raises DirectoryError if the parts are gone, but the output is not new."""
        if self._output() in (None, self.output_before):
            raise DirectoryError(
                f"{self.parts.directory}: another program has deleted or changed {RECORD}; give the same command again"
            )
        return f"another process has completed {self.arguments.output}"

    def _print(self, text: str) -> None:
        if not self.arguments.quiet:
            print(text, file=sys.stderr)


def _check(record: dict[str, Any], settings: dict[str, Any], parts: OutputParts) -> None:
    """Raises DirectoryError unless the existing parts have the same settings."""
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


def _settings(arguments: Namespace, decoding: DecodingConfig, terms: Terms | None) -> dict[str, Any]:
    """Return everything except the input that the output depends on, by the names that a user knows.

    Settings of speed and memory are left out, so that a user who has run out of memory can resume with smaller batches.
    """
    flags = ("engine", "quantize", "tag", "scores", "alignment", "json")
    sums = [read_sums(directory) for directory in model_dirs(arguments)]
    return {
        "the model": [{name: digest for name, digest in of.items() if name in EXPORT_FILES} for of in sums],
        **{f"--{flag}": getattr(arguments, flag) for flag in flags},
        "--dtype": engine_options(arguments).dtype,
        "--prefix": arguments.prefix is not None,
        "the terms": terms and checksum(repr(terms.targets).encode()),
        "--output as .gz": arguments.output.suffix == ".gz",  # of the name on the command line, which may be a link
        **decoding.model_dump(mode="json", exclude={"tokens_per_batch"}),
    }


def _loaded(arguments: Namespace) -> Translator:
    """Load the translator. Under torchrun, it is on this process's GPU, or on its share of the machine's cores."""
    options, place = engine_options(arguments), torchrun.place()
    if place is not None and place.size > 1:
        from transformer_mt.training.distributed import Ranks  # here, because PyTorch may not be installed

        ranks = Ranks(*place)
        if options.device.startswith("cuda:"):
            raise TranslationError(
                f"--device {options.device} is one GPU, but torchrun has started {ranks.size} processes: write "
                "--device cuda, which gives each process its own GPU"
            )
        device = ranks.own_gpu(options.device)
        workers = options.workers or (0 if device.startswith("cuda") else max(1, num_cores() // ranks.local_size))
        options = replace(options, device=device, workers=workers)
    return Translator.load(model_dirs(arguments), **vars(options))
