"""Lines become translations."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from transformer_mt import cli
from transformer_mt.config import DecodingConfig, load_config
from transformer_mt.data.corpus import decode_lines, read_lines
from transformer_mt.decoding.translator import Translator
from transformer_mt.files import replacing

BUFFER_LINES = 2048  # translated together: sorted by length, they make batches with little padding


def main(argv: Sequence[str] | None = None) -> int:
    """Translate standard input or a file, line by line."""
    parser = cli.parser(
        "translate",
        "Reads lines of text and a model; writes one translation a line, in order: as many lines as\n"
        "there were, an empty one for an empty one. Some thousand lines are read before the first is written.",
        'echo "The dog sleeps." | python -m transformer_mt.translate runs/demo_en_de/model beam_size=5',
    )
    parser.add_argument("model", metavar="MODEL_DIR", type=Path, help="as runs/<name>/model")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="of decoding, as beam_size=5")
    parser.add_argument("--input", metavar="FILE", type=Path, help="instead of standard input; may be a .gz")
    parser.add_argument("--output", metavar="FILE", type=Path, help="instead of standard output")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    arguments = parser.parse_intermixed_args(argv)
    translator = Translator.load(arguments.model, arguments.device)
    decoding = load_config(arguments.model / "config.yaml", arguments.overrides, "decoding").decoding
    if arguments.input:
        lines = read_lines(arguments.input)
    else:
        lines = decode_lines(sys.stdin.buffer, "standard input")
    with ExitStack() as stack:
        output = stack.enter_context(replacing(arguments.output)) if arguments.output else sys.stdout.buffer
        for translation in translate_lines(translator, lines, decoding):
            output.write(translation.encode("utf-8") + b"\n")
            output.flush()
    return 0


def translate_lines(translator: Translator, lines: Iterable[str], decoding: DecodingConfig) -> Iterator[str]:
    """One translation a line, in order, some thousand lines at a time."""
    lines, done = iter(lines), 0
    with tqdm(unit=" lines", disable=None) as bar:
        while block := list(islice(lines, BUFFER_LINES)):
            yield from translator.translate(block, decoding, first_line=done + 1)
            done += len(block)
            bar.update(len(block))


if __name__ == "__main__":
    sys.exit(cli.run(main))
