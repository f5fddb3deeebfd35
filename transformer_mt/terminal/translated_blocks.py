"""Translates blocks of lines, and counts what is to be said of them."""

import time
from collections.abc import Iterator
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
    first_line = 1
    for block, prefixes in pairs:
        yield Block(first_line, [tagged(tag, line) for line in block], prefixes)
        first_line += len(block)


def translate_block(
    translator: Translator,
    block: Block,
    decoding: DecodingConfig,
    form: OutputForm,
    summary: TranslationSummary,
    progress: LineProgress | None = None,
) -> str:
    """Translate a block of lines, and return the output for it. `summary` counts the lines."""
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
    summary.seconds += seconds
    written = []
    for number, translations in enumerate(found, start=block.first_line):
        written.append(output_lines(translations, number, seconds / len(block.lines), form))
        summary.add(number, translations[0])
    return "".join(written)
