"""The stage `translate`: translates lines of text."""

import argparse
import gzip
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, get_args

from transformer_mt.base import torchrun
from transformer_mt.base.errors import TranslationError
from transformer_mt.base.remote import RemotePath
from transformer_mt.base.wording import LineProgress
from transformer_mt.corpora.text_files import is_compressed
from transformer_mt.decoding.translation import Translation
from transformer_mt.decoding.translator import Translator
from transformer_mt.documents.document import ENDINGS, DocumentForm
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.files import replacing
from transformer_mt.terminal import cli, line_input
from transformer_mt.terminal.file_to_file import is_file_to_file, translate_file
from transformer_mt.terminal.translation_output import OutputForm, TranslationSummary, translate_block, with_prefixes
from transformer_mt.text.terms import Terms

_DESCRIPTION = """\
Reads lines of text and writes one translation for each, in order. It translates lines from a pipe as they
arrive; on a terminal, each line as soon as you have typed it (Ctrl-D ends). Write settings of decoding as
beam_size=5, n_best=3 or sampling=true; `python -m transformer_mt settings decoding` shows all of them.

A line of output has columns separated by tabs:
  TRANSLATION                      empty for a blank line
  SCORE  TRANSLATION               with --scores: log-probability divided by length penalty; 0 for a blank line;
                                   with mbr_candidates: the expected utility in percent
  LINE  SCORE  TRANSLATION         with n_best=2 or more: up to n_best lines for each line of input; LINE is the
                                   number of that line, from 1. Only one for a blank line
  ...  ALIGNMENT                   with --alignment, in the last column: SOURCE_WORD-TARGET_WORD, numbered from 0
                                   (Pharaoh format), for each word of the translation. If a language has no
                                   spaces, the numbers count characters without spaces instead of words. A tag
                                   counts as a word.
With --json, there is one object for each line: line, translation, score, log_prob (in nats, including the end of
the sentence), pieces (the subwords that the model produced) and seconds (the time of the line's block divided by
the number of its lines); with n_best=2 or more also n_best (a list of such translations), with --alignment also
alignment. Some lines have further fields: parts (the number of parts that were translated separately), short (true:
much shorter than in training for such a source), at_limit (true: cut off at the maximum length) and doubts (a list
of: empty, copied, untranslated, repeated, numbers, placeholders; numbers means other numbers than in the source, and
the field numbers then lists which are missing and which are invented).

Long lines are split at ends of sentences. At the end, a summary on standard error gives the number of lines, and
which translations you should check. With --input FILE --output FILE you can stop or kill the command at any time: the
same command resumes. With --format html, xml, markdown, paragraphs, srt, vtt or po, or if --input has such an ending,
`translate` reads a complete document, translates its text, and writes the document with all its tags, code, times and
comments.

The exit status is 0 for success, 2 after an error message, 130 after Ctrl-C and 143 after SIGTERM. After either
signal, standard output ends with a complete line, and the file of --output is unchanged."""


def main(argv: Sequence[str] | None = None) -> int:
    """Translate standard input or a file, line by line."""
    arguments = _parser().parse_intermixed_args(argv)
    cli.check_settings(arguments.overrides, "beam_size=5", "To translate a file, write --input {}")
    arguments.format = arguments.format or _form_by_ending(arguments)
    _check_output(arguments)
    if arguments.format == "text" and is_file_to_file(arguments):
        with cli.sigterm_raised():
            return translate_file(arguments)
    if torchrun.num_processes() > 1:
        raise TranslationError(
            "torchrun has started several processes, which can only share the lines of a file: give --input FILE and "
            "--output FILE"
        )
    if arguments.format != "text":
        with cli.sigterm_raised():
            return _translate_document(arguments)
    # Opened first, so that lines can arrive while the model is loaded.
    lines = line_input.open_lines(arguments.input, arguments.errors, arguments.buffer_lines)
    blocks = with_prefixes(lines, arguments.prefix, arguments.errors, arguments.tag)
    with cli.sigterm_raised(), ExitStack() as stack:
        options, terms = cli.engine_options(arguments), arguments.terms and Terms.load(arguments.terms)
        translator = Translator.load(cli.model_dirs(arguments), **vars(options))
        translator.tags.check(arguments.tag)
        decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
        form = OutputForm.of(arguments, decoding)
        output = stack.enter_context(_opened(arguments.output))
        is_wanted = lines.is_file and not arguments.quiet and (arguments.output is not None or not sys.stdout.isatty())
        progress = stack.enter_context(LineProgress(lines.num_lines, is_wanted=is_wanted))
        summary = TranslationSummary()
        for block in blocks:
            output.write(translate_block(translator, block, decoding, form, summary, progress, terms).encode())
            output.flush()
            progress.reached(summary.num_lines)  # the exact number: `translate_block` does not count blank lines
    if not arguments.quiet:
        print(summary.text(), file=sys.stderr)
    return 0


def _form_by_ending(arguments: argparse.Namespace) -> str:
    """The form of the input by the ending of its name, which this function says; text if no ending means another."""
    name = Path(arguments.input.name if arguments.input else "")
    form = ENDINGS.get(Path(name.stem if is_compressed(name) else name).suffix.lower())
    if form and not arguments.quiet:
        note = f"{arguments.input}: its ending means --format {form}; to translate its lines, give --format text"
        print(note, file=sys.stderr)
    return form or "text"


def _translate_document(arguments: argparse.Namespace) -> int:
    """Translate a complete document. Raises TranslationError for options that are about lines."""
    decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
    given = [name for name in ("json", "scores", "alignment", "prefix", "terms") if getattr(arguments, name)]
    if given or decoding.n_best > 1:
        option = f"--{given[0]}" if given else f"n_best={decoding.n_best}"
        raise TranslationError(
            f"{option}: is about lines, but --format {arguments.format} writes a document: leave it out, or "
            "translate the lines of the file with --format text"
        )
    text = line_input.read_document(arguments.input, arguments.errors, arguments.format)
    translator = Translator.load(cli.model_dirs(arguments), **vars(cli.engine_options(arguments)))
    translator.tags.check(arguments.tag)
    pairs, begun = list[tuple[str, Translation]](), time.perf_counter()
    with LineProgress(None, unit="texts", is_wanted=not arguments.quiet) as progress:
        translated = translator.translate_document(
            text, arguments.format, decoding, tag=arguments.tag, progress=progress.more, done=pairs.extend
        )
    summary = TranslationSummary(seconds=time.perf_counter() - begun)
    with _opened(arguments.output) as output:
        output.write(translated.encode())
    for number, (source, best) in enumerate(pairs, start=1):
        summary.add(number, best, source)
    if not arguments.quiet:
        print(summary.text(texts=[source for source, _ in pairs]), file=sys.stderr)
    return 0


def _check_output(arguments: argparse.Namespace) -> None:
    """Raises TranslationError if --output would replace an input, or cannot have what would be written there."""
    path = arguments.output
    if path is None:
        return
    if is_compressed(path) and path.suffix != ".gz":
        raise TranslationError(
            f"--output {path}: `translate` writes plain text or .gz, not {path.suffix}: write "
            f"--output {str(path).removesuffix(path.suffix)}.gz, or leave the ending out"
        )
    inputs = arguments.input, arguments.prefix, arguments.terms
    if isinstance(path, RemotePath):
        path.check_writable()
        if arguments.format != "text" or not is_file_to_file(arguments):
            raise TranslationError(
                f"--output {path}: only the lines of --input FILE, which is no pipe, can be written there: an error "
                "would lose other translations. Name a file on a disk"
            )
        would_replace = path in inputs
    else:
        read = [file for file in inputs if isinstance(file, Path) and file.is_file()]
        would_replace = path.is_file() and any(file.samefile(path) for file in read)
        directories = [model.resolve() for model in cli.model_dirs(arguments)]
        would_replace = would_replace or Path(os.path.realpath(path)).parent in directories
    if would_replace:
        raise TranslationError(
            f"--output {path}: this command reads the file, or it is in the directory of the model, and the "
            "translations would replace it: give another file"
        )


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Standard output, or a file that replaces `path` when it is complete; it is compressed if `path` ends in .gz."""
    with cli.output() if path is None else replacing(path) as file:
        if path is not None and path.suffix == ".gz":
            with gzip.GzipFile(path.stem, "wb", fileobj=file, mtime=0) as compressed:
                yield compressed
        else:
            yield file


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(
        "translate",
        _DESCRIPTION,
        'echo "The child is sleeping." | python -m transformer_mt.translate runs/demo_en_de/model beam_size=5\n'
        "  python -m transformer_mt.translate runs/demo_en_de/model --input lines.txt --json n_best=3 > found.jsonl",
    )
    cli.add_model(parser)
    cli.add_engine_arguments(parser)
    cli.add_settings(parser, "a setting, such as beam_size=5")
    about = "read this file, not standard input; may be a .gz, .zst or .xz, and a URL such as s3://BUCKET/FILE"
    parser.add_argument("--input", metavar="FILE", type=cli.place, help=about)
    about = "write this file instead (.gz: compressed), or to s3:// or gs://"
    parser.add_argument("--output", metavar="FILE", type=cli.place, help=about)
    about = (
        "text: lines; paragraphs: text with broken lines; html, xml, markdown: a page or a part of one; srt, vtt: "
        "subtitles; po: gettext (default: by the ending of --input, else text)"
    )
    parser.add_argument("--format", choices=["text", *get_args(DocumentForm)], help=about)
    parser.add_argument("--tag", metavar="TAG", help="put this tag of the model, such as '<2de>', before every line")
    about = "translation n begins with line n of this file"
    parser.add_argument("--prefix", metavar="FILE", type=cli.place, help=about)
    about = "how to translate terms: a line is SOURCE, a tab, TARGET|TARGET|…"
    parser.add_argument("--terms", metavar="FILE", type=Path, help=about)
    parser.add_argument("--scores", action="store_true", help="write SCORE before each translation")
    parser.add_argument("--alignment", action="store_true", help="write which source word each target word comes from")
    parser.add_argument("--json", action="store_true", help="write one JSON object for each line")
    about = (
        "keep a note in FILE.parts when --output FILE is complete, so that a process that starts later, such as "
        "the last one of a Slurm array, does not translate it again"
    )
    parser.add_argument("--once", action="store_true", help=about)
    parser.add_argument("--quiet", action="store_true", help="show no progress and no summary on standard error")
    line_input.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(main))
