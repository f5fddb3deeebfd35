"""Adds the log-probability that a model gives to each translation of n-best lists."""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from transformer_mt.data.tags import tagged
from transformer_mt.decoding.scorer import PairScore, Scorer
from transformer_mt.errors import CorpusError, TranslationError, UserError
from transformer_mt.storage.json_text import finite
from transformer_mt.terminal.n_best_lists import TAKEN, NBestList, n_best_lists
from transformer_mt.terminal.translation_summary import Noticed, shown_numbers
from transformer_mt.wording import counted

_log = logging.getLogger(__name__)
_LOOKED_AT = 50  # lists by whose best translations the direction of a model is judged
# Nats a piece. For a small model of Multi30k, the wrong direction was less probable by 7.7.
_CLEARLY = 0.5

Pair = tuple[str, str]


@dataclass(frozen=True)
class Direction:
    """How a source and its translation become a pair that a model scores."""

    reverse: bool = False
    """Whether the model translates the other way: then it scores the source, given the translation."""
    tag: str | None = None
    """The tag of the model that stands before what it reads."""
    pieces: bool = False
    """Whether translations of n-best lists are scored in the pieces that stand there, not in those of their text."""

    def pairs(self, scorer: Scorer, sources: Sequence[str], targets: Sequence[str]) -> list[Pair]:
        """Return what the model reads, and what it scores. A tag is nothing that a model should have to write."""
        if self.reverse:
            sources, targets = targets, [scorer.tags.parted(source)[1] for source in sources]
        return [(tagged(self.tag, source), target) for source, target in zip(sources, targets, strict=True)]


def check_name(name: str) -> None:
    """Raises UserError if a field of this name cannot be added to translations."""
    if name in TAKEN or not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name):
        raise UserError(
            f"--add {name}: choose another name, of letters, digits and _, that `translate --json` does not write "
            "itself, such as channel"
        )


def with_scores(
    scorer: Scorer, blocks: Iterable[tuple[list[str], list[str]]], file: str, name: str, direction: Direction
) -> Iterator[list[NBestList]]:
    """Yield the n-best lists of each block; each translation has the log-probability in the field `name`.

    A block has the lines of n-best lists, and the sources. `file` is the name of the lists, for errors. Warns if the
    model seems to translate in the other direction; at the end of lines that were translated in parts.
    Raises CorpusError as `n_best_lists` does, and for a field that is there already; otherwise as Scorer.score does.
    """
    split, done = Noticed(), 0
    for texts, sources in blocks:
        lists = list(n_best_lists(texts, file, first_line=done + 1))
        _check_free(lists, name)
        if done == 0:
            _warn_of_direction(scorer, lists, sources, direction)
        scores = iter(_scores(scorer, lists, sources, direction))
        for each in lists:
            for translation in each.translations:
                translation[name] = finite(next(scores).log_prob, 6)
            if any("parts" in translation for translation in each.translations):
                split.add(1, [each.line])
        yield lists
        done += len(lists)
    if split.number:
        _log.warning(
            f"warning: {counted(split.number, 'line')} had been translated in parts, and were scored as a whole: a "
            "model that was trained on single sentences scores such lines poorly. Better: one sentence in a line. "
            f"Look at {shown_numbers(split.first)}"
        )


def _scores(
    scorer: Scorer, lists: Sequence[NBestList], sources: Sequence[str], direction: Direction
) -> list[PairScore]:
    """Return the score of each translation of each list."""
    all_sources = [source for each, source in zip(lists, sources, strict=True) for _ in each.translations]
    numbers = [each.line for each in lists for _ in each.translations]
    texts = [translation["translation"] for each in lists for translation in each.translations]
    reading, writing = sides(direction.pairs(scorer, all_sources, texts))
    if direction.pieces:
        pieces = [each.pieces(rank) for each in lists for rank in range(len(each.translations))]
        return scorer.score_pieces(reading, pieces, line_numbers=numbers)
    return scorer.score(reading, writing, line_numbers=numbers)


def _check_free(lists: Sequence[NBestList], name: str) -> None:
    for each in lists:
        if any(name in translation for translation in each.translations):
            raise CorpusError(f"{each.place}: the translations have a field {name} already: choose another for --add")


def _warn_of_direction(
    scorer: Scorer, lists: Sequence[NBestList], sources: Sequence[str], direction: Direction
) -> None:
    """Warn if the first pairs are more probable when what the model reads and what it writes are exchanged.

    A model with tags is not asked: it needs another tag for the other direction.
    """
    if scorer.tags.tokens:
        return
    best = [each.translations[0]["translation"] for each in lists]
    pairs = [pair for pair in direction.pairs(scorer, sources, best) if all(side.strip() for side in pair)]
    reading, writing = sides(pairs[:_LOOKED_AT])
    try:
        this, other = (_average(scorer.score(*sides)) for sides in ((reading, writing), (writing, reading)))
    except TranslationError:  # such as a text that is too long; if it matters, scoring raises it again
        return
    if other > this + _CLEARLY:
        advice = "leave --reverse out" if direction.reverse else "give --reverse"
        _log.warning(
            f"warning: this model seems to translate in the other direction: it gives the first pairs {this:.2f} nats "
            f"a piece, and {other:.2f} if source and translation are exchanged. If so, {advice}"
        )


def sides(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Return what the model reads, and what it scores, as two lists."""
    return [source for source, _ in pairs], [target for _, target in pairs]


def _average(scores: Sequence[PairScore]) -> float:
    """Return the mean log-probability of a piece."""
    return sum(score.log_prob for score in scores) / max(1, sum(len(score.pieces) for score in scores))
