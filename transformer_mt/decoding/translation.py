"""A translation of a line, and how the translations of its parts are joined."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from transformer_mt.base.doubts import doubts, numbers
from transformer_mt.base.languages import split_units


@dataclass(frozen=True)
class Translation:
    """A translation of a line."""

    text: str
    """The translation itself; empty for a blank line."""
    score: float
    """The translations of a line are ranked by it: log_prob divided by the length penalty (DecodingConfig).

    With mbr_candidates, it is the expected utility in percent. The score of a line that was split is the sum of its
    parts' scores or, with mbr_candidates, their mean, also in percent. What came back as it is has 0, or 100 percent.
    """
    log_prob: float
    """The sum of the log-probabilities of its pieces and of its end, in nats."""
    pieces: list[str] = field(default_factory=list)
    """The subword pieces that the model wrote, without the end of the sentence."""
    alignment: list[tuple[int, int]] | None = None
    """Pairs of a source word and the target word that comes from it, numbered from 0; None if not requested.

    For a language without spaces, these are characters instead of words; spaces are not counted.
    """
    num_parts: int = 1
    """The number of parts of the line that were translated separately; 0 if the line came back as it is."""
    is_short: bool = False
    """Whether it, or a part of it, is much shorter than training text for such a source: something may be missing."""
    at_limit: bool = False
    """Whether it or a part of it was cut off at its greatest length (max_extra_length, model.max_positions)."""


BLANK = Translation("", score=0.0, log_prob=0.0, alignment=[])


def doubtful(source: str, translation: Translation) -> tuple[list[str], dict[str, list[str]] | None]:
    """The kinds of DOUBTS about a translation, and with `numbers` among them those that are missing and invented.

    `source` is the text of the line, without a tag. There are no doubts about a blank line, and about one that came
    back as it is.
    """
    kinds = [] if translation == BLANK or not translation.num_parts else doubts(source, translation.text)
    if "numbers" not in kinds:
        return kinds, None
    before, after = numbers(source), numbers(translation.text)
    return kinds, {"missing": [*(before - after).elements()], "invented": [*(after - before).elements()]}


def joined(
    parts: Sequence[Translation], spaces: Sequence[str], spaced: bool, *, mean_score: bool = False
) -> Translation:
    """Join the translations of a line's parts into the translation of the line.

    `spaces` has the white space before each part. `spaced` says whether the target language has spaces between words.
    The score is the sum of the parts' scores or, with `mean_score`, their mean.
    """
    if len(parts) == 1:
        return parts[0]
    text, pairs = "", []
    for part, space in zip(parts, spaces, strict=True):
        num_units = len(split_units(text, spaced))
        pairs += [(source, num_units + target) for source, target in part.alignment or []]
        text += (space if text and part.text else "") + part.text
    whole = of_parts(parts, text, pairs)
    return replace(whole, score=whole.score / len(parts)) if mean_score else whole


def of_parts(parts: Sequence[Translation], text: str, pairs: list[tuple[int, int]]) -> Translation:
    """Return the translation of a line that was translated in parts; `text` and `pairs` are its text and alignment."""
    return Translation(
        text,
        sum(part.score for part in parts),
        sum(part.log_prob for part in parts),
        [piece for part in parts for piece in part.pieces],
        None if parts and parts[0].alignment is None else pairs,
        max(1, len(parts)),
        any(part.is_short for part in parts),
        any(part.at_limit for part in parts),
    )
