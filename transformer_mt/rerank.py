"""The stage `rerank`: chooses the best translations of n-best lists by the scores of several models.

With log-probabilities under a model of the reverse direction, this is noisy channel reranking (Yee et al. 2019).
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence

from transformer_mt.base.errors import ConfigError, CorpusError, UserError
from transformer_mt.base.wording import counted, cut
from transformer_mt.evaluation.metrics import closest, corpus_score
from transformer_mt.evaluation.variations import choices_of, tune
from transformer_mt.terminal import cli, line_input
from transformer_mt.terminal.line_input import LineInput
from transformer_mt.terminal.n_best_lists import TAKEN, NBestList, is_number, n_best_lists

_WEIGHTS, _LENGTH_PENALTIES = "0,0.1,0.2,0.3,0.5,0.7,1,1.5,2", "0,0.5,0.8,1,1.2,1.5"  # what --tune tries by default
_DESCRIPTION = """\
Reads n-best lists: `translate --json n_best=N` writes them, and `score --add NAME` adds the log-probabilities of
other models. Writes for each line the translation with the highest

  (log_prob + WEIGHT * NAME + …) / length ** length_penalty

log_prob is the log-probability under the model that translated; its weight is 1 unless you give log_prob=WEIGHT.
length counts the pieces and the end of the sentence. length_penalty is 1 unless given.

With --tune REFERENCE, give the lists of a validation set: `rerank` tries all combinations of weights, and prints the
best by BLEU. To choose the values to try, write for example channel=0,0.5,1 length_penalty=1.

With --closest REFERENCE instead of weights, `rerank` writes for each line the translation with the highest BLEU of this
sentence against the same line of REFERENCE. This is for distilling: a small model learns from such translations of its
training text (the interpolation of Kim and Rush 2016, section 3.3)."""


def read_weights(settings: Sequence[str]) -> dict[str, float]:
    """Read settings such as channel=0.5. The default of log_prob and length_penalty is 1. Raises ConfigError."""
    given: dict[str, float] = {}
    for setting in settings:
        name, _, written = setting.partition("=")
        if not name or name in given:
            raise ConfigError(f"{cut(setting)}: give a name, and each name only once, as in channel=0.5")
        try:
            given[name] = float(written)
        except ValueError:
            raise ConfigError(f"{cut(setting)}: write NAME=NUMBER, as in channel=0.5") from None
    return {"log_prob": 1.0, "length_penalty": 1.0, **given}


def best(lists: NBestList, weights: Mapping[str, float]) -> str:
    """Return the first translation with the highest score. Raises CorpusError if one lacks one of the numbers."""
    of = {name: weight for name, weight in weights.items() if name != "length_penalty"}

    def score(rank: int) -> float:
        total = sum(weight * lists.number(rank, name) for name, weight in of.items())
        try:
            return total / math.pow(lists.length(rank), weights["length_penalty"])
        except (ArithmeticError, ValueError):  # with a length penalty far from 1
            return -math.inf

    return lists.texts[max(range(len(lists.texts)), key=score)]


def main(argv: Sequence[str] | None = None) -> int:
    """Choose the best translation of each line; or find the best weights."""
    arguments = _parser().parse_intermixed_args(argv)
    cli.check_settings(arguments.weights, "channel=0.5", "To find weights with a file of references, write --tune {}")
    lines = line_input.open_lines(arguments.lists, arguments.errors, arguments.buffer_lines)
    if arguments.closest is not None and (arguments.weights or arguments.tune is not None):
        raise UserError("--closest chooses without weights: leave out the weights and --tune, or leave out --closest")
    if arguments.tune is not None:
        return _tune(arguments, lines)
    if not arguments.weights and arguments.closest is None:
        raise ConfigError(
            "give a weight for each field added by `score --add`, such as channel=0.5: --tune REFERENCE finds the best "
            "weights on a validation set"
        )
    line_input.write_output(lines, _chosen(arguments, lines))
    return 0


def _chosen(arguments: argparse.Namespace, lines: LineInput) -> Iterator[tuple[int, list[str]]]:
    """The number of lines of each block, and the translations with the best scores or closest to the references."""
    weights, path, first_line = read_weights(arguments.weights), arguments.closest, 1
    pairs = line_input.beside(lines, path, arguments.errors) if path else ((block, None) for block in lines.blocks)
    for block, references in pairs:
        lists = n_best_lists(block, str(arguments.lists), first_line)
        if references is None:
            texts = [best(each, weights) for each in lists]
        else:
            texts = closest([each.texts for each in lists], references, arguments.language)
        yield len(block), [f"{text}\n" for text in texts]
        first_line += len(block)


def _tune(arguments: argparse.Namespace, lines: LineInput) -> int:
    """Print BLEU for each combination of weights; then the best combination, and the best without other models."""
    lists: list[NBestList] = []
    references: list[str] = []
    for block, beside in line_input.beside(lines, arguments.tune, arguments.errors):
        lists += n_best_lists(block, str(arguments.lists), len(lists) + 1)
        references += beside
    if not lists:
        raise CorpusError(f"{arguments.lists} contains no n-best lists; give a file by `translate --json n_best=N`")
    choices = [(keys, read_weights(keys)) for keys in choices_of(_grid(arguments.weights, lists[0]))]

    def chosen(weights: Mapping[str, float]) -> list[str]:
        return [best(each, weights) for each in lists]

    first = corpus_score("bleu", [each.texts[0] for each in lists], references, arguments.language)
    print(f"validation set  bleu {first:5.2f}  the first of each list, without reranking", flush=True)
    tuned = tune(choices, chosen, references, "bleu", arguments.language)
    print(f"best on the {counted(tuned.num_lines, 'line')} of the validation set: {' '.join(tuned.chosen)}")
    alone = [
        trial
        for trial, (_, weights) in zip(tuned.trials, choices, strict=True)
        if not any(weight for name, weight in weights.items() if name not in ("log_prob", "length_penalty"))
    ]
    if alone and tuned.trials[tuned.best] not in alone:
        without = max(alone, key=lambda trial: trial.score)
        print(f"without the other models, the best is bleu {without.score:.2f}: {' '.join(without.settings)}")
    return 0


def _grid(given: Sequence[str], lists: NBestList) -> list[str]:
    """Return the values to try in the form of `choices_of`: those given, and the default grid for all other fields."""
    names = {key.partition("=")[0] for key in given}
    added = [name for name, value in lists.translations[0].items() if name not in TAKEN and is_number(value)]
    if not added and not names:
        raise CorpusError(
            f"{lists.place}: has only the fields of `translate`: add the log-probabilities of another model with "
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
    about = "a file of n-best lists; may be a .gz, .zst or .xz"
    parser.add_argument("lists", metavar="NBEST", type=cli.place, help=about)
    about = "the weight of a field, such as channel=0.5"
    parser.add_argument("weights", metavar="NAME=WEIGHT", nargs="*", default=[], help=about)
    about = "find the weights that give the highest BLEU with this file"
    parser.add_argument("--tune", metavar="REFERENCE", type=cli.place, help=about)
    about = "choose the translation that is most similar to the same line of this file"
    parser.add_argument("--closest", metavar="REFERENCE", type=cli.place, help=about)
    about = "the language of REFERENCE, which decides the tokenisation of BLEU"
    parser.add_argument("--language", metavar="CODE", default="", help=about)
    line_input.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(main))
