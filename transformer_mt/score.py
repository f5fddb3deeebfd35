"""The stage `score`: computes the log-probabilities of sentence pairs under a model."""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from transformer_mt.base.errors import CorpusError, UserError
from transformer_mt.decoding.scorer import PairScore, Scorer
from transformer_mt.storage.files import finite
from transformer_mt.terminal import cli, line_input
from transformer_mt.terminal.line_input import LineInput
from transformer_mt.terminal.n_best_lists import TAKEN, n_best_lists
from transformer_mt.text.tokenizer import tagged

_DESCRIPTION = """\
Reads a model and sentence pairs: either two files (line n of one belongs to line n of the other), or lines
of the form SOURCE<tab>TARGET from standard input.
Writes one line for each pair: the log-probability of the target given the source, in nats; a tab; and its
mean over the subword pieces of the target. The end of the sentence counts as a piece.
With --json, each line is an object: line, log_prob, average, and tokens (a list of piece and log_prob).

With --add NAME, the second file (or standard input) contains n-best lists from `translate --json n_best=N`, one
line for each line of SOURCE. `score` writes the lists with a further field NAME in each translation: its
log-probability under this model. --reverse is for a model of the reverse direction, and gives the log-probability
of the source given the translation. --pieces is for a model with the same tokenizer: it scores the pieces in the
lists instead of cutting the text again. `rerank` chooses translations by such fields."""


def main(argv: Sequence[str] | None = None) -> int:
    """Score sentence pairs line by line, or the translations of n-best lists."""
    arguments = _parser().parse_intermixed_args(argv)
    _check(arguments)
    lines, blocks = _blocks(arguments)
    scorer = Scorer.load(cli.model_dirs(arguments), **vars(cli.engine_options(arguments)))
    scorer.tags.check(arguments.tag)

    def written() -> Iterator[tuple[int, list[str]]]:
        first_line = 1
        for both in blocks:
            yield len(both[0]), (_with_scores if arguments.add else _scores)(arguments, scorer, *both, first_line)
            first_line += len(both[0])

    line_input.write_output(lines, written())
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raises UserError for arguments that exclude each other, or need others."""
    if arguments.source is not None and arguments.target is None and arguments.add is None:
        raise CorpusError(f"{arguments.source}: give the file of its translations, too: SOURCE TARGET")
    if arguments.pieces and arguments.reverse:
        raise UserError("--pieces cannot be combined with --reverse, which scores the texts of SOURCE: leave one out")
    if arguments.add is not None:
        if arguments.add in TAKEN or not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", arguments.add):
            raise UserError(
                f"--add {arguments.add}: choose another name, such as channel: letters, digits and _, and no field of "
                "`translate --json`"
            )
        if arguments.source is None:
            raise UserError(f"--add {arguments.add} needs the sources of the n-best lists: give SOURCE NBEST.jsonl")


def _blocks(arguments: argparse.Namespace) -> tuple[LineInput, Iterator[tuple[list[str], list[str]]]]:
    """Return the input, and blocks of pairs: sources and targets. With --add, the targets are n-best lists."""
    errors, buffer_lines = arguments.errors, arguments.buffer_lines
    if arguments.add is not None:  # smaller blocks, because a list has many translations
        lists = line_input.open_lines(arguments.target, errors, max(1, buffer_lines // 16))
        pairs = line_input.beside(lists, arguments.source, errors)
        return lists, ((sources, targets) for targets, sources in pairs)
    lines = line_input.open_lines(arguments.source, errors, buffer_lines)
    if arguments.source is None:
        return lines, _tab_separated(lines.blocks)
    return lines, line_input.beside(lines, arguments.target, errors)


def _scores(
    arguments: argparse.Namespace, scorer: Scorer, sources: list[str], targets: list[str], first_line: int
) -> list[str]:
    numbers = range(first_line, first_line + len(sources))
    texts = [target.split() for target in targets] if arguments.pieces else targets
    scores = _scored(arguments, scorer, sources, texts, numbers)
    return [
        _object(score, number) if arguments.json else f"{score.log_prob:.4f}\t{score.average:.4f}\n"
        for score, number in zip(scores, numbers, strict=True)
    ]


def _with_scores(
    arguments: argparse.Namespace, scorer: Scorer, sources: list[str], targets: list[str], first_line: int
) -> list[str]:
    """Return n-best lists with the log-probability of each translation in the field --add.

    Raises CorpusError as `n_best_lists` does, and if a translation has this field already.
    """
    file = "standard input" if arguments.target is None else str(arguments.target)
    lists = list(n_best_lists(targets, file, first_line))
    for each in lists:
        if any(arguments.add in translation for translation in each.translations):
            raise CorpusError(
                f"{each.place}: the translations already have a field {arguments.add}: give --add another name"
            )
    all_sources = [source for each, source in zip(lists, sources, strict=True) for _ in each.translations]
    numbers = [each.line for each in lists for _ in each.translations]
    translations = [translation for each in lists for translation in each.translations]
    texts = [translation["translation"] for translation in translations]
    if arguments.pieces:
        texts = [each.pieces(rank) for each in lists for rank in range(len(each.translations))]
    scores = _scored(arguments, scorer, all_sources, texts, numbers)
    for translation, score in zip(translations, scores, strict=True):
        translation[arguments.add] = finite(score.log_prob, 6)
    return [json.dumps(each.fields, ensure_ascii=False) + "\n" for each in lists]


def _scored(
    arguments: argparse.Namespace, scorer: Scorer, sources: list[str], targets: list[Any], numbers: Sequence[int]
) -> list[PairScore]:
    """Score the targets, or with --pieces their lists of pieces. With --reverse, tags of SOURCE are removed before."""
    if arguments.reverse:
        sources, targets = targets, [scorer.tags.parted(source)[1] for source in sources]
    sources = [tagged(arguments.tag, source) for source in sources]
    if arguments.pieces:
        return scorer.score_pieces(sources, targets, line_numbers=numbers)
    return scorer.score(sources, targets, line_numbers=numbers)


def _tab_separated(blocks: Iterator[list[str]]) -> Iterator[tuple[list[str], list[str]]]:
    numbers = count(1)
    for block in blocks:
        pairs = [line.split("\t") for line in block]
        for pair, number in zip(pairs, numbers, strict=False):
            if len(pair) != 2:
                raise CorpusError(
                    f"standard input:{number}: has {len(pair) - 1} tabs instead of one: write SOURCE<tab>TARGET, or "
                    "give two files"
                )
        yield [source for source, _ in pairs], [target for _, target in pairs]


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
    cli.add_model(parser)
    cli.add_engine_arguments(parser)
    about = "a file of sentences, one per line; may be compressed (.gz, .zst or .xz)"
    parser.add_argument("source", metavar="SOURCE", type=cli.place, nargs="?", help=about)
    about = "the file of their translations, or of n-best lists"
    parser.add_argument("target", metavar="TARGET", type=cli.place, nargs="?", help=about)
    parser.add_argument("--add", metavar="NAME", help="add this field to each translation of n-best lists")
    about = "score each source given its target, by a model of the reverse direction"
    parser.add_argument("--reverse", action="store_true", help=about)
    parser.add_argument("--tag", metavar="TAG", help="put this tag of the model before each text that it reads")
    about = "score given subword pieces: the targets, separated by spaces, or the pieces in n-best lists"
    parser.add_argument("--pieces", action="store_true", help=about)
    parser.add_argument("--json", action="store_true", help="write a JSON object for each pair")
    line_input.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(main))
