"""Translates a file into a file, part by part: alone, or on each rank of torchrun. If it is killed, it goes on.

The parts lie beside the output until all are there; then they are joined in order.
"""

import gzip
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from transformer_mt import torchrun
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import RankError, TrainingError, TranslationError
from transformer_mt.line_progress import LineProgress
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.files import is_stream, replacing
from transformer_mt.storage.output_parts import OutputParts, PartFile
from transformer_mt.terminal.input_parts import LineFile
from transformer_mt.terminal.kept_translation import Begun, begin, settings_of
from transformer_mt.terminal.model_arguments import EngineOptions, engine_options, model_dirs
from transformer_mt.terminal.translated_blocks import translated
from transformer_mt.terminal.translation_output import OutputForm
from transformer_mt.terminal.translation_summary import TranslationSummary
from transformer_mt.wording import counted
from transformer_mt.worker_pool import num_cores

if TYPE_CHECKING:
    from transformer_mt.training.distributed import Ranks

_MAY_WAIT = timedelta(days=365)  # for other ranks, as long as they run
_UNTIL_SEEN = 120.0  # seconds until a network file system shows what another machine has written


def is_file_to_file(arguments: Namespace) -> bool:
    """Whether the input can be read several times, and the output is a file that appears as a whole."""
    if arguments.input is None or not arguments.input.is_file():
        return False
    if arguments.prefix is not None and not arguments.prefix.is_file():
        return False
    try:
        return arguments.output is not None and not is_stream(arguments.output)
    except OSError:  # links that lead in a circle, which are named when the output is opened
        return False


def translate_file(arguments: Namespace) -> int:
    """Translate --input into --output, or under torchrun this rank's share of it; returns the exit status."""
    with _ranks() as ranks:
        is_first = ranks is None or ranks.is_first
        try:
            with ExitStack() as stack:
                summary = _FileTranslation(arguments, ranks, is_first).run(stack)
        except TrainingError as error:
            if is_first or isinstance(error, RankError):
                raise
            return 2  # the first rank has met with the same, and says it
    if is_first and not arguments.quiet:
        print(summary, file=sys.stderr)
    return 0


@contextmanager
def _ranks() -> "Iterator[Ranks | None]":
    """The ranks of torchrun; None for a single process, which may have no PyTorch."""
    if torchrun.place() is None:
        yield None
        return
    from transformer_mt.training.distributed import all_ranks

    with all_ranks(_MAY_WAIT) as ranks:
        yield ranks


class _FileTranslation:
    """One start of the command on one rank; `ranks` is None for a single process."""

    def __init__(self, arguments: Namespace, ranks: "Ranks | None", is_first: bool) -> None:
        self.arguments, self.ranks, self.is_first = arguments, ranks, is_first
        self.shows, self.has_begun = is_first and not arguments.quiet, False
        self.parts = OutputParts(arguments.output)
        self.lines = LineFile(arguments.input, arguments.prefix, arguments.errors, arguments.tag)

    def run(self, stack: ExitStack) -> str:
        """Make the parts that are missing; the first rank joins them all, and returns what is to be said at the end.

        The output appears when `stack` is closed. Raises UserError.
        """
        with self._together():
            output = self._opened(stack) if self.is_first else None
            translator = _loaded(self.arguments, self.ranks)
            translator.cutter.tags.check(self.arguments.tag)
            overrides = self.arguments.overrides
            decoding = load_config(self.arguments.model / "config.yaml", overrides, "decoding").decoding
            begun = self._begun(decoding, stack) if self.is_first else None
        if self.ranks is not None:
            begun = self.ranks.broadcast(begun)
        assert begun is not None
        since = time.perf_counter()
        progress = None
        if self.shows:
            progress = stack.enter_context(LineProgress(begun.division.num_lines, done_before=begun.num_before))
        self._translate(begun, translator, decoding, progress)
        if self.ranks is not None:
            self.ranks.wait(partial(self._show, begun, progress))
        if output is None:
            return ""
        return replace(self._joined(begun, output), seconds=time.perf_counter() - since).text(begun.num_before)

    def _together(self) -> AbstractContextManager[None]:
        """Work that each rank does; if it fails on any, no rank goes on."""
        return nullcontext() if self.ranks is None else self.ranks.together()

    def _opened(self, stack: ExitStack) -> BinaryIO:
        """The output, which appears at the end; the parts are deleted after that, but kept if anything is raised."""
        stack.enter_context(self._kept())
        return stack.enter_context(replacing(self.arguments.output, durable=True))

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            num_parts = self.parts.count() if self.has_begun else 0
            if num_parts:
                self._say(
                    f"{self.parts.directory} keeps {counted(num_parts, 'part')} of the translation: the same command "
                    "goes on from there"
                )
            elif self.has_begun:
                self.parts.delete()
            raise
        self.parts.delete()

    def _begun(self, decoding: DecodingConfig, stack: ExitStack) -> Begun:
        settings = settings_of(self.arguments, decoding)
        begun = begin(self.parts, settings, self.lines, self.arguments.buffer_lines, stack, self.shows)
        self.has_begun = True
        if begun.num_before:
            self._say(
                f"going on: {begun.num_before:,} of {counted(begun.division.num_lines, 'line')} are translated "
                f"already, in {self.parts.directory}"
            )
        return begun

    def _translate(
        self, begun: Begun, translator: Translator, decoding: DecodingConfig, progress: LineProgress | None
    ) -> None:
        """Make this rank's share of the missing parts."""
        share = begun.missing if self.ranks is None else self.ranks.share(begun.missing)
        form = OutputForm.of(self.arguments, decoding)
        for number, blocks in self.lines.parts(begun.division, share, self.arguments.buffer_lines):
            summary, done = TranslationSummary(), self._show(begun, progress)
            digest = begun.division.digests[number]
            with (
                self.parts.writing(number, digest, summary.counts) as part,
                _packed(part, self.arguments.output) as file,
            ):
                for text in translated(translator, blocks, decoding, form, summary, progress, done):
                    file.write(text.encode("utf-8"))
        self._show(begun, progress)

    def _show(self, begun: Begun, progress: LineProgress | None) -> int:
        """Count and show the lines of all parts that are there, whichever rank has made them; 0 without `progress`."""
        if progress is None:
            return 0
        num_done = min(self.parts.count() * begun.division.part_lines, begun.division.num_lines)
        progress.reached(num_done)
        return num_done

    def _joined(self, begun: Begun, output: BinaryIO) -> TranslationSummary:
        """Write all parts to the output; returns the summary of all."""
        summary, until = TranslationSummary(), time.monotonic() + _UNTIL_SEEN
        for number in range(len(begun.division.digests)):
            while self.ranks is not None and self.parts.end_of(number) is None and time.monotonic() < until:
                time.sleep(1)
            summary.add_counts(self.parts.copy(number, output).notes)
        return summary

    def _say(self, text: str) -> None:
        if self.shows:
            print(text, file=sys.stderr)


def _loaded(arguments: Namespace, ranks: "Ranks | None") -> Translator:
    """The translator of this rank: on a GPU of its own, or on its share of the machine's cores."""
    options = engine_options(arguments)
    if ranks is not None and ranks.size > 1:
        options = _own(options, ranks)
    return Translator.load(
        model_dirs(arguments),
        options.device,
        engine=options.engine,
        dtype=options.dtype,
        quantize=options.quantize,
        workers=options.workers,
        plain=options.plain,
    )


def _own(options: EngineOptions, ranks: "Ranks") -> EngineOptions:
    if options.device.startswith("cuda:"):
        raise TranslationError(
            f"--device {options.device} is one GPU, and torchrun has started {ranks.size} processes: say cuda, and "
            "each gets its own"
        )
    device = ranks.own_gpu(options.device)
    workers = options.workers or (0 if device.startswith("cuda") else max(1, num_cores() // ranks.local_size))
    return replace(options, device=device, workers=workers)


@contextmanager
def _packed(part: PartFile, output: Path) -> "Iterator[PartFile | gzip.GzipFile]":
    """The part, or a member of a .gz in it, in which no time and no name stand."""
    if output.suffix != ".gz":
        yield part
        return
    with gzip.GzipFile("", "wb", fileobj=part, mtime=0) as packed:  # type: ignore[call-overload]
        yield packed
