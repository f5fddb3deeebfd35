"""The stage `rerank`: chooses the best translations of n-best lists by the scores of several models.

With the log-probability under a model of the other direction, this is noisy channel reranking (Yee et al. 2019).
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.base.errors import ConfigError, CorpusError
from transformer_mt.base.wording import counted, cut
from transformer_mt.evaluation.metrics import corpus_score
from transformer_mt.evaluation.tuning import choices_of, tune
from transformer_mt.terminal import cli, line_input
from transformer_mt.terminal.line_input import LineInput
from transformer_mt.terminal.n_best_lists import TAKEN, NBestList, is_number, n_best_lists

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


@dataclass(frozen=True)
class Candidate:
    """A translation of a line, with what it is chosen by."""

    text: str
    length: float
    """Its pieces, with the end of the sentence."""
    log_probs: Mapping[str, float]
    """Log-probabilities, or other scores, by their names."""


@dataclass(frozen=True)
class Weights:
    """What a log-probability of each name counts, and the exponent of the length."""

    of: Mapping[str, float]
    length_penalty: float = 1.0

    @classmethod
    def read(cls, settings: Sequence[str]) -> "Weights":
        """Read settings such as channel=0.5 and length_penalty=1; log_prob=1 unless given.

        Raises ConfigError for one of another form.
        """
        found = {"log_prob": 1.0, "length_penalty": 1.0}
        for setting in settings:
            name, _, written = setting.partition("=")
            try:
                found[name] = float(written)
            except ValueError:
                raise ConfigError(f"{cut(setting)}: is not of the form NAME=NUMBER, as in channel=0.5") from None
        length_penalty = found.pop("length_penalty")
        return cls(found, length_penalty)

    def score(self, candidate: Candidate) -> float:
        """Return sum of weight * log-probability, divided by length ** length_penalty; NaN if no float can hold it."""
        total = sum(weight * candidate.log_probs[name] for name, weight in self.of.items())
        try:
            score = total / math.pow(candidate.length, self.length_penalty)
        except (OverflowError, ZeroDivisionError, ValueError):
            return math.nan
        return score if math.isfinite(score) else math.nan

    def best(self, lists: NBestList, candidates: Sequence[Candidate]) -> str:
        """Return the text of the candidate with the highest score; of equal ones the first.

        Raises ConfigError, which names the place of the list, if a score is not finite.
        """
        scores = [self.score(candidate) for candidate in candidates]
        if any(map(math.isnan, scores)):
            given = {**self.of, "length_penalty": self.length_penalty}
            raise ConfigError(
                f"{lists.place}: with {' '.join(f'{name}={value:g}' for name, value in given.items())}, a translation "
                "has a score that is not finite: give weights and a length penalty that are nearer to 1"
            )
        return candidates[scores.index(max(scores))].text


def main(argv: Sequence[str] | None = None) -> int:
    """Choose the best translation of each line; or find the best weights."""
    arguments = _parser().parse_intermixed_args(argv)
    cli.check_settings(arguments.weights, "channel=0.5", "To choose weights by a file of references, write --tune {}")
    lines = line_input.open_lines(arguments.lists, arguments.errors, arguments.buffer_lines)
    if arguments.tune is not None:
        return _tune(arguments, lines)
    if not arguments.weights:
        raise ConfigError(
            "give a weight to what `score --add` has added, as in channel=0.5: with --tune REFERENCE you find the best "
            "for a validation set"
        )
    weights, done = Weights.read(arguments.weights), 0
    shown = lines.progress(is_wanted=not sys.stdout.isatty())
    with cli.sigterm_raised(), cli.output() as output, shown as progress:
        for block in lines.blocks:
            lists = n_best_lists(block, str(arguments.lists), done + 1)
            output.write("".join(f"{weights.best(each, _candidates(each, weights))}\n" for each in lists).encode())
            output.flush()
            done += len(block)
            if progress is not None:
                progress.reached(done)
    return 0


def _tune(arguments: argparse.Namespace, lines: LineInput) -> int:
    """Print BLEU for each combination of weights; then the best, and the best without the other models."""
    lists: list[NBestList] = []
    references: list[str] = []
    for block, beside in line_input.beside(lines, arguments.tune, arguments.errors):
        lists += n_best_lists(block, str(arguments.lists), len(lists) + 1)
        references += beside
    if not lists:
        raise CorpusError(f"{arguments.lists}: has no n-best lists")
    choices = [(keys, Weights.read(keys)) for keys in choices_of(_grid(arguments.weights, lists[0]))]
    candidates = [_candidates(each, choices[0][1]) for each in lists]

    def chosen(weights: Weights) -> list[str]:
        return [weights.best(*pair) for pair in zip(lists, candidates, strict=True)]

    first = corpus_score("bleu", [each[0].text for each in candidates], references, arguments.language)
    print(f"validation set  bleu {first:5.2f}  the first of each list, without reranking", flush=True)
    tuned = tune(choices, chosen, references, "bleu", arguments.language)
    print(f"best on the {counted(tuned.num_lines, 'line')} of the validation set: {' '.join(tuned.chosen)}")
    alone = [
        trial
        for trial, (_, weights) in zip(tuned.trials, choices, strict=True)
        if not any(weight for name, weight in weights.of.items() if name != "log_prob")
    ]
    if alone and tuned.trials[tuned.best] not in alone:
        without = max(alone, key=lambda trial: trial.score)
        print(f"without the other models, the best is bleu {without.score:.2f}: {' '.join(without.settings)}")
    return 0


def _candidates(lists: NBestList, weights: Weights) -> list[Candidate]:
    """Return the translations of a line with the numbers that have a weight.

    Another program may have written a translation of several lines. Here it becomes one line, with spaces in place of
    everything that any program takes for a line end: so line n of the output belongs to line n of the source.
    Raises CorpusError if one of them does not have such a number.
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
