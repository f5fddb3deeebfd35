"""Translates blocks of lines, writes the translations as text or JSON, and lists lines that the user should look at."""

import json
import logging
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_mt.base.doubts import DOUBTS
from transformer_mt.base.remote import Place
from transformer_mt.base.system import peak_memory
from transformer_mt.base.wording import LineProgress, counted, cut
from transformer_mt.corpora.text_files import InvalidText
from transformer_mt.decoding.translation import BLANK, Translation, doubtful
from transformer_mt.decoding.translator import Translator
from transformer_mt.documents.paragraphs import looks_wrapped
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.storage.files import finite
from transformer_mt.terminal.line_input import LineInput, beside
from transformer_mt.text.terms import Terms
from transformer_mt.text.tokenizer import tagged

_log = logging.getLogger(__name__)
_MOST_SHOWN = 5  # line numbers of each kind
_WARNINGS = {  # of doubtful translations; each follows `the translation of 3 lines`
    "short": "is much shorter than usual for a source of its length, so something may be missing",
    "at_limit": "was cut off at the greatest allowed length (max_extra_length, model.max_positions)",
    **DOUBTS,
}


@dataclass
class TranslationSummary:
    """Counts lines while they are translated. Lines are numbered from 1."""

    num_lines: int = 0
    num_blank: int = 0
    num_split: int = 0
    num_parts: int = 0
    """The number of parts into which lines were split, over all split lines."""
    doubtful: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in _WARNINGS})
    """The lines whose translation the user should look at, for each kind."""
    seconds: float = 0.0
    """The time for translating, without loading the model and waiting for input."""

    def add(self, line: int, best: Translation, source: str | None = None) -> None:
        """Count a line, given its best translation and, to look for the kinds in DOUBTS, its source without a tag."""
        self.num_lines += 1
        self.num_blank += best == BLANK
        if best.num_parts > 1:
            self.num_split += 1
            self.num_parts += best.num_parts
        kinds = [] if source is None else doubtful(source, best)[0]
        kinds += ["short"] * best.is_short + ["at_limit"] * best.at_limit
        for kind in kinds:
            self.doubtful[kind].append(line)

    def add_counts(self, counts: Mapping[str, Any]) -> None:
        """Add the summary of the next lines, given as its fields by name."""
        for name, count in counts.items():
            if name == "doubtful":
                self.doubtful = {kind: lines + count[kind] for kind, lines in self.doubtful.items()}
            else:
                vars(self)[name] += count

    def text(self, num_before: int = 0, texts: Sequence[str] | None = None) -> str:
        """Return a line of numbers, and warnings. The time is without that for `num_before` lines of earlier starts.

        What was translated are the `texts` of a document, if they are given, and otherwise lines.
        """
        now = self.num_lines - num_before
        rate = f"in {self.seconds:.1f} s, {now / max(self.seconds, 1e-9):,.1f} a second"
        lines = f"{counted(self.num_lines, 'line' if texts is None else 'text')} {rate}"
        if num_before:
            lines = f"{counted(self.num_lines, 'line')}, {num_before:,} of them by earlier starts"
            lines += f"; the others {rate}" if now else ""
        counts = (
            f"{lines}; {self.num_blank:,} blank; {self.num_split:,} split into {counted(self.num_parts, 'part')}; "
            f"peak memory {peak_memory() / 1e6:,.0f} MB"
        )
        return "\n".join([counts, *(f"warning: {warning}" for warning in self.warnings(texts))])

    def warnings(self, texts: Sequence[str] | None = None) -> Iterator[str]:
        """Yield a sentence with the reason for each kind of translation that the user should look at."""
        noun = "line" if texts is None else "text"
        for kind, lines in self.doubtful.items():
            if lines:
                shown = [str(n) if texts is None else f'{n} "{cut(texts[n - 1], 30)}"' for n in lines[:_MOST_SHOWN]]
                look = f"look at {noun}{'s' * (len(lines) > 1)} {', '.join(shown)}" + ", …" * (len(lines) > _MOST_SHOWN)
                yield f"the translation of {counted(len(lines), noun)} {_WARNINGS[kind]}: {look}"


@dataclass(frozen=True)
class OutputForm:
    """What the output contains for each line of the input."""

    n_best: bool = False
    """Whether it contains all translations that were found, each on its own line, after the number of the input line
    and the score of the translation."""
    scores: bool = False
    """Whether it contains the score, before the translation."""
    alignment: bool = False
    """Whether it contains the alignment, after the translation."""
    json: bool = False
    """Whether it is a JSON object for each input line instead of columns."""

    @classmethod
    def of(cls, arguments: Namespace, decoding: DecodingConfig) -> "OutputForm":
        return cls(decoding.n_best > 1, arguments.scores, arguments.alignment, arguments.json)


def output_lines(translations: Sequence[Translation], line: int, seconds: float, form: OutputForm, source: str) -> str:
    """Return the output for line number `line`, from 1, which took `seconds`; `source` is its text without a tag."""
    if form.json:
        fields = [_fields(translation, form, source) for translation in translations]
        all_of_them = {"n_best": fields} if form.n_best else {}
        found = {"line": line, **fields[0], **all_of_them, "seconds": round(seconds, 6)}
        return json.dumps(found, ensure_ascii=False) + "\n"
    chosen = translations if form.n_best else translations[:1]
    return "".join("\t".join(_columns(translation, line, form)) + "\n" for translation in chosen)


def _columns(translation: Translation, line: int, form: OutputForm) -> list[str]:
    columns = [str(line)] if form.n_best else []
    if form.n_best or form.scores:
        columns.append(f"{translation.score:.4f}")
    columns.append(translation.text)
    if form.alignment:
        columns.append(_pharaoh(translation))
    if len(columns) > 1:  # tabs separate columns, so none is in one
        columns = [column.replace("\t", " ") for column in columns]
    return columns


def _fields(translation: Translation, form: OutputForm, source: str) -> dict[str, object]:
    fields: dict[str, object] = {
        "translation": translation.text,
        "score": finite(translation.score, 6),
        "log_prob": finite(translation.log_prob, 6),
        "pieces": translation.pieces,
    }
    if form.alignment:
        fields["alignment"] = _pharaoh(translation)
    if translation.num_parts > 1:
        fields["parts"] = translation.num_parts
    if translation.is_short:
        fields["short"] = True
    if translation.at_limit:
        fields["at_limit"] = True
    kinds, numbers = doubtful(source, translation)
    if kinds:
        fields["doubts"] = kinds
    if numbers is not None:
        fields["numbers"] = numbers
    return fields


def _pharaoh(translation: Translation) -> str:
    return " ".join(f"{source}-{target}" for source, target in translation.alignment or [])


@dataclass(frozen=True)
class Block:
    first_line: int
    """The number of its first line in the input, from 1."""
    lines: list[str]
    prefixes: list[str] | None = None
    """The text with which each translation has to begin; None if there is no such text."""


def with_prefixes(lines: LineInput, path: Place | None, errors: InvalidText, tag: str | None = None) -> Iterator[Block]:
    """Yield blocks of tagged lines, with prefixes from the file `path`. Raises CorpusError if its length differs."""
    pairs = ((block, None) for block in lines.blocks) if path is None else beside(lines, path, errors)
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
    terms: Terms | None = None,
) -> str:
    """Translate a block of lines, add the lines to `summary`, and return the output for the block."""
    begun = time.perf_counter()
    found = translator.translations(
        block.lines,
        decoding,
        prefixes=block.prefixes,
        alignment=form.alignment,
        scores=form.scores or form.json or form.n_best,
        first_line=block.first_line,
        progress=progress.more if progress else None,
        terms=terms,
    )
    seconds = time.perf_counter() - begun
    if block.first_line == 1 and looks_wrapped([translator.tags.parted(line)[1] for line in block.lines[:500]]):
        _log.warning(
            "warning: the text looks as if its sentences were broken into several lines, but each line is translated "
            "alone: --format paragraphs translates complete paragraphs"
        )
    summary.seconds += seconds
    written = []
    for number, (line, translations) in enumerate(zip(block.lines, found, strict=True), start=block.first_line):
        source = translator.tags.parted(line)[1]
        written.append(output_lines(translations, number, seconds / len(block.lines), form, source))
        summary.add(number, translations[0], source)
    return "".join(written)
