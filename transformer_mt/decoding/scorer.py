"""The Python API for scoring given translations: computes their probability by forced decoding."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from transformer_mt.base.errors import NotFiniteError, TokenizerError, TranslationError
from transformer_mt.base.languages import EOS
from transformer_mt.decoding.line_parts import Tags
from transformer_mt.decoding.loading import LoadedModel, ModelOfText
from transformer_mt.decoding.translator import check_texts


@dataclass(frozen=True)
class PairScore:
    """The log-probability of a target, given its source, in nats."""

    pieces: list[str]
    """The pieces of the target, ending with EOS; none if source and target are blank."""
    log_probs: list[float]
    """The log-probability of each piece, given the source and the pieces before it."""

    @property
    def log_prob(self) -> float:
        """The log-probability of the complete target."""
        return sum(self.log_probs, start=0.0)

    @property
    def average(self) -> float:
        """The mean over its pieces; 0 if there are none."""
        return self.log_prob / max(1, len(self.log_probs))


class Scorer(ModelOfText):
    """Scores pairs of texts, by a tokenizer and an engine that scores its ids.

    Examples:
        >>> Scorer.load("runs/demo_en_de/model").score(["The child is sleeping."], ["Das Kind schläft."])[0].log_prob

    `score` uses the pieces that the tokenizer makes of a text. A search may have written the same text in other pieces,
    with another probability: to get this probability, pass `Translation.pieces` to `score_pieces`.
    """

    @classmethod
    def of(cls, model: LoadedModel) -> Self:
        return cls(model.engine, model.tokenizer, Tags.of(model.config.corpus))

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, line_numbers: Sequence[int] | None = None
    ) -> list[PairScore]:
        """The score of each pair, in order.

        A blank source or target is scored as a sentence that is only EOS. A pair of two blanks scores 0, as a
        translated blank line does. Errors and warnings use the numbers in `line_numbers`, or else count from 1.
        Raises TypeError unless both arguments are lists of texts; ValueError if their lengths differ; TranslationError
        if a text has more pieces than the model has positions; NotFiniteError for the first score that is not finite.
        """
        check_texts("targets", targets)
        numbers = line_numbers or range(1, len(targets) + 1)
        return self._score(sources, self.tokenizer.encode_target(targets), numbers)

    def score_pieces(
        self, sources: Sequence[str], targets: Sequence[Sequence[str]], *, line_numbers: Sequence[int] | None = None
    ) -> list[PairScore]:
        """The same for targets in pieces, such as `Translation.pieces`, without an end of sentence.

        Raises TokenizerError, which names the line, for a piece that the tokenizer does not have.
        """
        numbers, targets_in_ids = line_numbers or range(1, len(targets) + 1), list[list[int]]()
        for index, (number, pieces) in enumerate(zip(numbers, targets, strict=False)):
            check_texts(f"targets[{index}]", pieces)
            try:
                targets_in_ids.append([*self.tokenizer.target_ids(pieces), EOS])
            except TokenizerError as error:
                raise TokenizerError(f"the target of line {number}: {error}") from None
        return self._score(sources, targets_in_ids, numbers)

    def _score(
        self, sources: Sequence[str], targets: Sequence[list[int]], line_numbers: Sequence[int]
    ) -> list[PairScore]:
        check_texts("sources", sources)
        self._warn_of_tags(sources, line_numbers)
        sources = [self.tags.like_training(source) for source in sources]
        pairs = list(zip(self.tokenizer.encode_source(sources), targets, strict=True))
        for number, pair in zip(line_numbers, pairs, strict=False):
            for side, ids in zip(("source", "target"), pair, strict=True):
                if len(ids) > self.engine.max_positions:
                    raise TranslationError(
                        f"the {side} of line {number} has {len(ids):,} subword pieces, but the model takes at most "
                        f"{self.engine.max_positions:,} (model.max_positions): split the pair into sentences"
                    )
        scores = [PairScore([], []) for _ in pairs]
        written = [row for row, pair in enumerate(pairs) if max(map(len, pair)) > 1]  # a blank text is only EOS
        with self.engine.turn():
            found = self.engine.score([pairs[row] for row in written])
        for row, log_probs in zip(written, found, strict=True):
            if not all(map(math.isfinite, log_probs)):
                raise NotFiniteError.of_line(line_numbers[row])
            scores[row] = PairScore(self.tokenizer.target_pieces(pairs[row][1]), log_probs)
        return scores
