"""Turns sentence pairs into log-probabilities."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from transformer_mt.decoding.scorer import PairScore, Scorer
from transformer_mt.errors import CorpusError, UserError
from transformer_mt.storage.json_text import finite
from transformer_mt.terminal import cli, line_input, model_arguments
from transformer_mt.terminal.line_input import LineInput
from transformer_mt.terminal.line_progress import LineProgress
from transformer_mt.terminal.n_best_scores import Direction, check_name, sides, with_scores

_DESCRIPTION = """\
Reads a model and sentence pairs: either two files in which line n of one belongs to line n of the other, or
lines of the form SOURCE<tab>TARGET from standard input.
Writes one line for each pair: the log-probability of the target given the source, in nats, and after a tab its
mean over the subword pieces of the target. The end of the sentence counts as a piece.
With --json, each line is an object: line, log_prob, average, and tokens (a list of piece and log_prob).

A pair of two blank sentences has 0, as translating a blank line gives. If only one is blank, it is scored as a
sentence that has nothing but its end. The tokenizer cuts each text into pieces. The model may have written the
same text in other pieces, and `translate --json` reports the probability of those: score them with --pieces.

With --add NAME, the second file has n-best lists as `translate --json n_best=N` writes them, one line for each
line of SOURCE; without a second file they come from standard input. The lists are written again, and each
translation has a further field NAME: its log-probability under this model. --reverse is for a model of the other
direction: it gives the log-probability of the source given the translation. --pieces is for a model with the same
tokenizer: it scores the pieces in the lists, and not those into which the text is cut. `rerank` chooses by such
fields."""


def main(argv: Sequence[str] | None = None) -> int:
    """Score pairs line by line, or the translations of n-best lists."""
    arguments = _parser().parse_intermixed_args(argv)
    _check(arguments)
    direction = Direction(arguments.reverse, arguments.tag, arguments.pieces)
    lines, blocks = _blocks(arguments)
    scorer = Scorer.load(
        model_arguments.model_dirs(arguments),
        arguments.device,
        engine=arguments.engine,
        dtype=arguments.dtype,
        quantize=arguments.quantize,
        workers=arguments.workers,
    )
    scorer.tags.check(arguments.tag)
    with cli.sigterm_raised(), ExitStack() as stack:
        output = stack.enter_context(cli.output())
        progress = None
        if lines.is_file and not sys.stdout.isatty():
            progress = stack.enter_context(LineProgress(lines.num_lines))
        for written in _written(arguments, scorer, blocks, direction):
            for text in written:
                output.write(text.encode("utf-8"))
            output.flush()
            if progress is not None:
                progress.more(len(written))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raises UserError for arguments that do not belong together."""
    if arguments.source is not None and arguments.target is None and arguments.add is None:
        raise CorpusError(f"{arguments.source}: name the file of its translations, too: SOURCE TARGET")
    if arguments.pieces and arguments.reverse:
        raise UserError("--pieces cannot be combined with --reverse, which scores the texts of SOURCE: leave it out")
    if arguments.add is not None:
        check_name(arguments.add)
        if arguments.source is None:
            raise UserError(f"--add {arguments.add} needs the sources of the n-best lists: SOURCE NBEST.jsonl")


def _blocks(arguments: argparse.Namespace) -> tuple[LineInput, Iterator[tuple[list[str], list[str]]]]:
    """Give the input, and blocks of pairs: sources and targets. With --add, lines of n-best lists and sources."""
    errors, buffer_lines = arguments.errors, arguments.buffer_lines
    if arguments.add is not None:  # a list has many translations
        lists = line_input.open_lines(arguments.target, errors, max(1, buffer_lines // 16))
        return lists, line_input.beside(lists, arguments.source, errors)
    lines = line_input.open_lines(arguments.source, errors, buffer_lines)
    if arguments.source is None:
        return lines, _parted(lines.blocks)
    return lines, line_input.beside(lines, arguments.target, errors)


def _written(
    arguments: argparse.Namespace,
    scorer: Scorer,
    blocks: Iterator[tuple[list[str], list[str]]],
    direction: Direction,
) -> Iterator[list[str]]:
    """Give the lines of the output for each block."""
    if arguments.add is not None:
        file = "standard input" if arguments.target is None else str(arguments.target)
        for lists in with_scores(scorer, blocks, file, arguments.add, direction):
            yield [each.text() for each in lists]
        return
    done = 0
    for sources, targets in blocks:
        reading, writing = sides(direction.pairs(scorer, sources, targets))
        if arguments.pieces:
            scores = scorer.score_pieces(reading, [target.split() for target in writing], first_line=done + 1)
        else:
            scores = scorer.score(reading, writing, first_line=done + 1)
        numbered = enumerate(scores, start=done + 1)
        yield [_object(score, number) if arguments.json else _columns(score) for number, score in numbered]
        done += len(scores)


def _parted(blocks: Iterator[list[str]]) -> Iterator[tuple[list[str], list[str]]]:
    done = 0
    for block in blocks:
        pairs = [line.split("\t") for line in block]
        for number, pair in enumerate(pairs, start=done + 1):
            if len(pair) != 2:
                raise CorpusError(
                    f"standard input:{number}: has {len(pair) - 1} tabs instead of one: write SOURCE<tab>TARGET, or "
                    "name two files"
                )
        yield [source for source, _ in pairs], [target for _, target in pairs]
        done += len(block)


def _columns(score: PairScore) -> str:
    return f"{score.log_prob:.4f}\t{score.average:.4f}\n"


def _object(score: PairScore, line: int) -> str:
    tokens = [
        {"piece": piece, "log_prob": finite(log_prob, 6)}
        for piece, log_prob in zip(score.pieces, score.log_probs, strict=True)
    ]
    sums = {"line": line, "log_prob": finite(score.log_prob, 6), "average": finite(score.average, 6)}
    return json.dumps(sums | {"tokens": tokens}, ensure_ascii=False) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(
        "score",
        _DESCRIPTION,
        "python -m transformer_mt.score runs/demo_en_de/model source.txt target.txt\n"
        "  paste source.txt target.txt | python -m transformer_mt.score runs/demo_en_de/model --json\n"
        "  python -m transformer_mt.score runs/de_en/model source.txt nbest.jsonl --add channel --reverse > out.jsonl",
    )
    model_arguments.add_arguments(parser)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        type=Path,
        nargs="?",
        help="a file of sentences, one per line; it may be a .gz, .zst or .xz",
    )
    parser.add_argument(
        "target", metavar="TARGET", type=Path, nargs="?", help="a file of their translations, or of n-best lists"
    )
    parser.add_argument("--add", metavar="NAME", help="add this field to each translation of n-best lists")
    parser.add_argument(
        "--reverse", action="store_true", help="the model translates the other way: score each source, given its target"
    )
    parser.add_argument("--tag", metavar="TAG", help="put this tag of the model before each text that it reads")
    parser.add_argument(
        "--pieces",
        action="store_true",
        help="score given subword pieces: the targets, parted by spaces, or the pieces in n-best lists",
    )
    parser.add_argument("--json", action="store_true", help="write a JSON object for each pair")
    line_input.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(main))
