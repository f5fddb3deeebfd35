"""Translates blocks of lines, and writes down what is to be said of them."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.data.tags import tagged
from transformer_mt.decoding.translator import Translator
from transformer_mt.line_progress import LineProgress
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.terminal.line_input import LineInput, beside
from transformer_mt.terminal.translation_output import OutputForm, output_lines
from transformer_mt.terminal.translation_summary import TranslationSummary


@dataclass(frozen=True)
class Block:
    """Lines that are translated together."""

    first_line: int
    """The number of its first line in the input, from 1."""
    lines: list[str]
    prefixes: list[str] | None = None
    """What each translation has to begin with."""


def with_prefixes(lines: LineInput, path: Path | None, tag: str | None = None) -> Iterator[Block]:
    """Yield the blocks of the input, each line with the tag before it, and the prefixes if there is a file of them.

    Raises CorpusError as `beside` does.
    """
    pairs = ((block, None) for block in lines.blocks) if path is None else beside(lines, path)
    return _numbered(([tagged(tag, line) for line in block], prefixes) for block, prefixes in pairs)


def _numbered(pairs: Iterable[tuple[list[str], list[str] | None]]) -> Iterator[Block]:
    first_line = 1
    for lines, prefixes in pairs:
        yield Block(first_line, lines, prefixes)
        first_line += len(lines)


def translated(
    translator: Translator,
    blocks: Iterable[Block],
    decoding: DecodingConfig,
    form: OutputForm,
    summary: TranslationSummary,
    progress: LineProgress | None = None,
    done_before: int = 0,
) -> Iterator[str]:
    """Translate blocks of lines; yields the output for each block. `summary` counts the lines.

    `done_before` is how many lines of the whole were done before those that `summary` counts.
    """
    for block in blocks:
        begun = time.perf_counter()
        found = translator.translations(
            block.lines,
            decoding,
            prefixes=block.prefixes,
            alignment=form.alignment,
            scores=form.scores or form.json or form.n_best,
            first_line=block.first_line,
            progress=progress.more if progress else None,
        )
        seconds = time.perf_counter() - begun
        written = ""
        tags = translator.cutter.tags
        for number, (line, translations) in enumerate(zip(block.lines, found, strict=True), start=block.first_line):
            written += output_lines(translations, number, seconds / len(block.lines), form)
            summary.add(number, translations[0], has_odd_tag=tags.fault(line) is not None)
        summary.seconds += seconds
        yield written
        if progress is not None:
            progress.reached(done_before + summary.num_lines)  # counts exactly; before, blank lines were left out
