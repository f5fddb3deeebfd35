"""Turns sentence pairs into log-probabilities."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_mt.decoding.scorer import PairScore, Scorer
from transformer_mt.errors import CorpusError
from transformer_mt.storage.json_text import finite
from transformer_mt.terminal import cli, line_input, model_arguments

_DESCRIPTION = """\
Reads a model and sentence pairs: either two files in which line n of one belongs to line n of the other, or
lines of the form SOURCE<tab>TARGET from standard input.
Writes one line for each pair: the log-probability of the target given the source, in nats, and after a tab its
mean over the subword pieces of the target. The end of the sentence counts as a piece.
With --json, each line is an object: line, log_prob, average, and tokens (a list of piece and log_prob).

A pair of two blank sentences has 0, as translating a blank line gives. If only one is blank, it is scored as a
sentence that has nothing but its end. The tokenizer cuts each text into pieces. The model may have written the
same text in other pieces, and `translate --json` reports the probability of those: score them with --pieces."""


def main(argv: Sequence[str] | None = None) -> int:
    """Score pairs line by line."""
    arguments = _parser().parse_intermixed_args(argv)
    pairs = _pairs(arguments)
    scorer = Scorer.load(
        model_arguments.model_dirs(arguments),
        arguments.device,
        engine=arguments.engine,
        dtype=arguments.dtype,
        quantize=arguments.quantize,
        workers=arguments.workers,
    )
    done = 0
    with cli.sigterm_raised(), cli.output() as output:
        for sources, targets in pairs:
            if arguments.pieces:
                scores = scorer.score_pieces(sources, [target.split() for target in targets], first_line=done + 1)
            else:
                scores = scorer.score(sources, targets, first_line=done + 1)
            for number, score in enumerate(scores, start=done + 1):
                output.write((_object(score, number) if arguments.json else _columns(score)).encode("utf-8"))
            output.flush()
            done += len(scores)
    return 0


def _pairs(arguments: argparse.Namespace) -> Iterator[tuple[list[str], list[str]]]:
    """Give blocks of pairs, each as a list of sources and a list of targets."""
    if arguments.source is None:
        return _parted(line_input.open_lines(None, arguments.errors, arguments.buffer_lines).blocks)
    if arguments.target is None:
        raise CorpusError(f"{arguments.source}: name the file of its translations, too: SOURCE TARGET")
    lines = line_input.open_lines(arguments.source, arguments.errors, arguments.buffer_lines)
    return line_input.beside(lines, arguments.target, arguments.errors)


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
        "  paste source.txt target.txt | python -m transformer_mt.score runs/demo_en_de/model --json",
    )
    model_arguments.add_arguments(parser)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        type=Path,
        nargs="?",
        help="a file of sentences, one per line; it may be a .gz, .zst or .xz",
    )
    parser.add_argument("target", metavar="TARGET", type=Path, nargs="?", help="a file of their translations")
    parser.add_argument("--pieces", action="store_true", help="the targets are subword pieces, separated by spaces")
    parser.add_argument("--json", action="store_true", help="write a JSON object for each pair")
    line_input.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(main))
