"""What the Python API of translation takes and returns. Imports no PyTorch."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field

from transformer_mt.languages import split_units


@dataclass(frozen=True)
class Translation:
    """A translation of a line."""

    text: str
    score: float
    """What the translations of a line are ranked by: log_prob divided by the length penalty (DecodingConfig).

    With mbr_candidates, it is the expected utility in percent. The score of a line that was split is the sum of its
    parts' scores, or with mbr_candidates their mean, which is in percent, too.
    """
    log_prob: float
    """The sum of the log-probabilities of its pieces and of its end, in nats."""
    pieces: list[str] = field(default_factory=list)
    """The subword pieces that the model wrote, without the end of the sentence."""
    alignment: list[tuple[int, int]] | None = None
    """Pairs of a source word and the target word that comes from it, numbered from 0; None if not asked for.

    For a language without spaces, characters take the place of words; spaces are not counted.
    """
    num_parts: int = 1
    """The number of parts of the line that were translated separately."""
    is_short: bool = False
    """Whether it or a part of it is much shorter than in training for such a source: something may be missing."""
    at_limit: bool = False
    """Whether it or a part of it was cut off at its greatest length (max_extra_length, model.max_positions)."""


BLANK = Translation("", score=0.0, log_prob=0.0, alignment=[])


def joined(
    parts: Sequence[Translation], spaces: Sequence[str], spaced: bool, *, mean_score: bool = False
) -> Translation:
    """The translation of a line from those of its parts.

    `spaces` stand before each of them. `spaced` says whether the target language has spaces between words.
    The score is the sum of theirs, or with `mean_score` the mean.
    """
    if len(parts) == 1:
        return parts[0]
    text, pairs = "", []
    for part, space in zip(parts, spaces, strict=True):
        num_units = len(split_units(text, spaced))
        pairs += [(source, num_units + target) for source, target in part.alignment or []]
        text += (space if text and part.text else "") + part.text
    return Translation(
        text,
        sum(part.score for part in parts) / (len(parts) if mean_score else 1),
        sum(part.log_prob for part in parts),
        [piece for part in parts for piece in part.pieces],
        None if parts[0].alignment is None else pairs,
        len(parts),
        any(part.is_short for part in parts),
        any(part.at_limit for part in parts),
    )


def check_texts(name: str, texts: Sequence[object]) -> None:
    """Raises TypeError unless an argument is a list of texts: one text is none, since its characters are not meant.

    An iterator is none either, because the texts are read more than once.
    """
    is_list = isinstance(texts, Sized) and not isinstance(texts, str | bytes)
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name}: give a list of texts, each a str")
