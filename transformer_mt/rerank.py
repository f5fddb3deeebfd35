"""The stage `rerank`: chooses the best translations of n-best lists by the scores of several models."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_mt.errors import ConfigError, CorpusError
from transformer_mt.evaluation.metrics import bleu
from transformer_mt.evaluation.reranking import Candidate, Weights
from transformer_mt.evaluation.tuning import Tuning, choices_of, tune
from transformer_mt.terminal import cli, line_input
from transformer_mt.terminal.line_input import LineInput
from transformer_mt.terminal.n_best_lists import TAKEN, NBestList, is_number, n_best_lists
from transformer_mt.wording import counted

_WEIGHTS, _LENGTH_PENALTIES = "0,0.1,0.2,0.3,0.5,0.7,1,1.5,2", "0,0.5,0.8,1,1.2,1.5"  # what --tune tries if not told
_DESCRIPTION = """\
Reads n-best lists, as `translate --json n_best=N` writes them and `score --add NAME` adds the log-probabilities of
other models to them. Writes the best translation of each line: that with the highest

  (log_prob + WEIGHT * NAME + …) / length ** length_penalty

log_prob is that of the model that translated; log_prob=WEIGHT gives it another weight than 1. length counts the
pieces and the end of the sentence. length_penalty is 1 unless given.

With --tune REFERENCE, the lists are those of a validation set. All combinations of weights are tried, and the best by
BLEU is named. Values to try are given as channel=0,0.5,1 length_penalty=1; those that are not given have a grid.
If NAME is the log-probability under a model of the other direction, this is the noisy channel reranking of
Yee et al. 2019."""


def main(argv: Sequence[str] | None = None) -> int:
    """Choose the best translation of each line; or find the best weights."""
    arguments = _parser().parse_intermixed_args(argv)
    cli.check_settings(arguments.weights, "channel=0.5", "To choose weights by a file of references, write --tune {}")
    lines = line_input.open_lines(arguments.lists, arguments.errors, arguments.buffer_lines)
    if arguments.tune is not None:
        return _tune(arguments, lines)
    if arguments.language:
        raise ConfigError("--language is for the BLEU of --tune: leave it out")
    if not arguments.weights:
        raise ConfigError(
            "give a weight to what `score --add` has added, as in channel=0.5: with --tune REFERENCE you find the best "
            "for a validation set"
        )
    weights = Weights.read(arguments.weights)
    shown = lines.progress(is_wanted=not sys.stdout.isatty())
    with cli.sigterm_raised(), cli.output() as output, shown as progress:
        for lists in _lists(lines.blocks, arguments.lists):
            best = [weights.best(_candidates(each, weights), each.place) for each in lists]
            output.write("".join(f"{each.text}\n" for each in best).encode())
            output.flush()
            if progress is not None:
                progress.more(len(lists))
    return 0


def _tune(arguments: argparse.Namespace, lines: LineInput) -> int:
    """Print BLEU for each combination of weights; then the best, and the command that takes it."""
    references: list[str] = []
    blocks = _without(line_input.beside(lines, arguments.tune, arguments.errors), references)
    lists = [each for block in _lists(blocks, arguments.lists) for each in block]
    if not lists:
        raise CorpusError(f"{arguments.lists}: has no n-best lists")
    choices = [(keys, Weights.read(keys)) for keys in choices_of(_grid(arguments.weights, lists[0]))]
    candidates = [_candidates(each, choices[0][1]) for each in lists]
    first = bleu([each[0].text for each in candidates], references, arguments.language)
    print(f"validation set  bleu {first:5.2f}  the first of each list, without reranking", flush=True)
    tuned = tune(
        choices,
        lambda weights: [weights.best(each, of.place).text for each, of in zip(candidates, lists, strict=True)],
        references,
        "bleu",
        arguments.language,
    )
    _say_best(tuned, [weights for _, weights in choices])
    return 0


def _say_best(tuned: Tuning, choices: Sequence[Weights]) -> None:
    best = choices[tuned.best]
    print(f"best on the {counted(tuned.num_lines, 'line')} of the validation set: {' '.join(tuned.chosen)}")
    alone = [
        trial
        for trial, weights in zip(tuned.trials, choices, strict=True)
        if not any(weight for name, weight in weights.of.items() if name != "log_prob")
    ]
    if alone and any(weight for name, weight in best.of.items() if name != "log_prob"):
        without = max(alone, key=lambda trial: trial.score)
        print(f"without the other models, the best is bleu {without.score:.2f}: {' '.join(without.settings)}")
    for name, weight in {**best.of, "length_penalty": best.length_penalty}.items():
        values = {weights.of.get(name, weights.length_penalty) for weights in choices}
        if len(values) > 1 and weight == max(values):
            print(f"note: {name}={weight:g} is the largest value that was tried: try larger ones, too")


def _lists(blocks: Iterator[list[str]], path: Path) -> Iterator[list[NBestList]]:
    done = 0
    for block in blocks:
        yield list(n_best_lists(block, str(path), first_line=done + 1))
        done += len(block)


def _without(pairs: Iterator[tuple[list[str], list[str]]], references: list[str]) -> Iterator[list[str]]:
    """Give the first of each pair, and add the second to `references`."""
    for block, beside in pairs:
        references += beside
        yield block


def _candidates(lists: NBestList, weights: Weights) -> list[Candidate]:
    """Return the translations of a line with the numbers that have a weight.

    Another program may have written a translation of several lines. Here it becomes one line, with spaces in place of
    everything that any program takes for a line end: so line n of the output belongs to line n of the source. Models
    read such a translation in the same way. Raises CorpusError if one of them does not have such a number.
    """
    return [
        Candidate(
            " ".join(translation["translation"].splitlines()),
            lists.length(rank),
            {name: lists.number(rank, name) for name in weights.of},
        )
        for rank, translation in enumerate(lists.translations)
    ]


def _grid(given: Sequence[str], lists: NBestList) -> list[str]:
    """Return the values to try, as `choices_of` takes them: those given, and a grid for other added fields."""
    names = {key.partition("=")[0] for key in given}
    added = [name for name, value in lists.translations[0].items() if name not in TAKEN and is_number(value)]
    if not added and not names:
        raise CorpusError(
            f"{lists.place}: has only what `translate` wrote: add the log-probabilities of another model by "
            "`python -m transformer_mt.score MODEL_DIR SOURCE NBEST --add NAME`"
        )
    grid = [f"{name}={_WEIGHTS}" for name in added if name not in names]
    return [*given, *grid, *([] if "length_penalty" in names else [f"length_penalty={_LENGTH_PENALTIES}"])]


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(
        "rerank",
        _DESCRIPTION,
        "python -m transformer_mt.rerank valid.jsonl --tune valid.de\n"
        "  python -m transformer_mt.rerank test.jsonl channel=0.5 length_penalty=1 > test.de",
    )
    parser.add_argument("lists", metavar="NBEST", type=Path, help="a file of n-best lists; may be a .gz, .zst or .xz")
    parser.add_argument(
        "weights", metavar="NAME=WEIGHT", nargs="*", default=[], help="what counts how much, such as channel=0.5"
    )
    parser.add_argument(
        "--tune", metavar="REFERENCE", type=Path, help="find the weights that give the highest BLEU with this file"
    )
    parser.add_argument("--language", metavar="CODE", default="", help="of REFERENCE: chooses the tokenisation of BLEU")
    line_input.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(main))
