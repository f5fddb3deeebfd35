"""Lines in, lines out: the Python API of a trained model. Imports no PyTorch before a model is loaded."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.engine import Engine, Hypothesis, Sentence
from transformer_mt.decoding.opening import Dtype, EngineName, ModelDirs, Quantization, open_model
from transformer_mt.decoding.segments import segments
from transformer_mt.decoding.words import units_of, written_together
from transformer_mt.errors import TranslationError
from transformer_mt.languages import has_spaces, split_units
from transformer_mt.settings import DecodingConfig
from transformer_mt.vocabulary import EOS

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Translation:
    """A translation of a line."""

    text: str
    score: float
    """What translations of a line are ranked by: log_prob by the length penalty (settings.DecodingConfig)."""
    log_prob: float
    """In nats: the sum over its pieces and its end."""
    pieces: list[str] = field(default_factory=list)
    """The subword pieces that the model wrote, without its end."""
    alignment: list[tuple[int, int]] | None = None
    """If asked for: pairs of a source word, by number from 0, and of the target word that comes from it.

    Of a language without spaces they are characters, spaces not counted."""


BLANK = Translation("", score=0.0, log_prob=0.0, alignment=[])


@dataclass(frozen=True)
class _Segment:
    """A line, or a part of one that is too long."""

    line: int
    """From 0."""
    sentence: Sentence
    first_unit: int
    """The number in the line of the word that its first piece belongs to; or of the character, without spaces."""


class Translator:
    """A tokenizer, and an engine that translates its ids.

    >>> Translator.load("runs/demo_en_de/model").translate(["The child is sleeping."], beam_size=4)

    A line with more pieces than the model has positions is cut into segments of at most `longest_segment`
    pieces, if possible at the ends of sentences, with a warning to this module's logger. Their translations are
    joined by a space, their scores and log-probabilities added, n-best lists joined rank by rank.
    `languages` are the codes of source and target: they decide whether alignments are of words or of characters.
    It is for one thread at a time.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        longest_segment: int | None = None,
        languages: tuple[str, str] = ("", ""),
    ) -> None:
        self.engine, self.tokenizer, self.decoding = engine, tokenizer, decoding
        self.longest_segment = longest_segment or engine.max_positions - 1
        self._source_spaced, self._target_spaced = map(has_spaces, languages)

    @classmethod
    def load(
        cls,
        model_dirs: ModelDirs,
        device: str = "auto",
        *,
        engine: EngineName = "torch",
        dtype: Dtype = "fp32",
        quantize: Quantization = "none",
        workers: int = 0,
        compile: bool = False,
    ) -> Self:
        """A model directory that `average` wrote, or several of one vocabulary: an ensemble.

        Or for the engine ctranslate2 one that `export` wrote. `workers` are processes on a CPU; 0 leaves the
        choice to the engine. With `compile`, for a CPU in fp32 or int8, steps of the search are compiled before
        lines first come alone, or together, with so many hypotheses: for a minute, and kept for the next time.
        Raises a UserError that names the file that is missing or damaged.
        """
        model = open_model(model_dirs, device, engine, dtype, quantize, workers, compile=compile)
        # Longer sources than in training are translated badly: what has to be cut anyway is cut to these.
        longest = min(model.config.corpus.max_length, model.engine.max_positions) - 1
        languages = model.config.corpus.source_language, model.config.corpus.target_language
        return cls(model.engine, model.tokenizer, model.config.decoding, max(1, longest), languages)

    def translate(
        self,
        lines: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> list[str]:
        """The best translation of each line, in order; an empty or blank line gives an empty one.

        As `translations` otherwise.
        """
        found = self.translations(lines, decoding, beam_size=beam_size, length_penalty=length_penalty, scores=False)
        return [translations[0].text for translations in found]

    def translations(
        self,
        lines: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int | None = None,
        prefixes: Sequence[str] | None = None,
        alignment: bool = False,
        scores: bool = True,
        first_line: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Translation]]:
        """The translations of each line, best first: at least one, at most `n_best`; an empty one for a blank line.

        `decoding` is the model's own unless given; the next three go before either. `prefixes` are what the
        translations have to begin with, a text for each line. Without `scores` they may be not a number, where that
        is quicker. `first_line` is the number that a warning gives to lines[0]. `progress` is told of how many more
        segments are done. Raises TypeError if `lines` is one text, ValueError for a setting that is not allowed,
        TranslationError for a prefix that is too long.
        """
        if isinstance(lines, str):
            raise TypeError("lines is one text; give a list of texts")
        changes = {"beam_size": beam_size, "length_penalty": length_penalty, "n_best": n_best}
        decoding = _changed(decoding or self.decoding, changes)
        cut = self._segments(lines, prefixes, first_line)
        sentences = [segment.sentence for segment in cut]
        found: list[list[Translation]] = [[] for _ in cut]
        for numbers, hypotheses_of in self.engine.translate_unordered(
            sentences, decoding, alignment=alignment, scores=scores, progress=progress
        ):  # words are made of some while others are still searched for
            for number, hypotheses in zip(numbers, hypotheses_of, strict=True):
                found[number] = [self._translation(hypothesis, cut[number]) for hypothesis in hypotheses]
        parts: list[list[list[Translation]]] = [[] for _ in lines]  # of each line, each segment and each rank
        for segment, translations in zip(cut, found, strict=True):
            parts[segment.line].append(translations)
        # A segment may have fewer translations than another: as many ranks as all have.
        spaced = self._target_spaced
        return [[_joined(rank, spaced) for rank in zip(*line, strict=False)] if line else [BLANK] for line in parts]

    def _segments(self, lines: Sequence[str], prefixes: Sequence[str] | None, first_line: int) -> list[_Segment]:
        """Those of the lines that are not blank, in order; a prefix belongs to the first of its line."""
        cut = []
        sources = self.tokenizer.encode_source(lines)
        targets = self.tokenizer.encode_target(prefixes) if prefixes else [[EOS]] * len(lines)
        for line, (source, [*prefix, _]) in enumerate(zip(sources, targets, strict=True)):
            if source == [EOS]:
                continue
            number = first_line + line
            if len(prefix) >= self.engine.max_positions:
                raise TranslationError(
                    f"the prefix of line {number} has {len(prefix)} subword pieces, and a translation at most "
                    f"{self.engine.max_positions} (model.max_positions): shorten it"
                )
            if len(source) <= self.engine.max_positions:
                cut.append(_Segment(line, Sentence(source, prefix, number), first_unit=0))
            else:
                cut += self._parts(line, Sentence(source, prefix, number))
        return cut

    def _parts(self, line: int, sentence: Sentence) -> Iterator[_Segment]:
        """Those of a sentence that is too long, of which a warning tells."""
        *ids, end = sentence.source
        pieces = self.tokenizer.source_pieces(ids)
        units = units_of(pieces, self._source_spaced)
        found = list(segments(pieces, self.longest_segment))
        _log.warning(
            "warning: line %d has %s subword pieces, and the model takes at most %s (model.max_positions): it is "
            "translated in %d parts",
            sentence.number,
            f"{len(sentence.source):,}",
            f"{self.engine.max_positions:,}",
            len(found),
        )
        for start, stop in found:
            prefix = [] if start else sentence.prefix
            yield _Segment(line, Sentence([*ids[start:stop], end], prefix, sentence.number), units[start].start)

    def _translation(self, hypothesis: Hypothesis, segment: _Segment) -> Translation:
        words = hypothesis.tokens[:-1]
        return Translation(
            self.tokenizer.decode_target(words),
            hypothesis.score,
            hypothesis.log_prob,
            self.tokenizer.target_pieces(words),
            None if hypothesis.alignment is None else self._word_pairs(words, hypothesis.alignment, segment),
        )

    def _word_pairs(self, tokens: list[int], looked_at: list[int], segment: _Segment) -> list[tuple[int, int]]:
        """For each target word, the source word that most of its pieces looked at; of equals, the first.

        Without spaces: for each target character, the characters of the source piece that its own looked at.
        """
        source_units = units_of(self.tokenizer.source_pieces(segment.sentence.source[:-1]), self._source_spaced)
        pairs: list[tuple[int, int]] = []
        num_units = 0
        for group in written_together(self.tokenizer.target_pieces(tokens), self._target_spaced):
            [(most, _)] = Counter(source_units[looked_at[index]] for index in group).most_common(1)
            # Not always one: a model may write a space and nothing after it, or whitespace in bytes.
            text = self.tokenizer.decode_target([tokens[index] for index in group])
            units = range(num_units, num_units + len(split_units(text, self._target_spaced)))
            pairs += [(segment.first_unit + source, target) for target in units for source in most]
            num_units = units.stop
        return pairs


def _changed(decoding: DecodingConfig, changes: dict[str, float | None]) -> DecodingConfig:
    given = {key: value for key, value in changes.items() if value is not None}
    return DecodingConfig.model_validate(decoding.model_dump() | given)


def _joined(parts: Sequence[Translation], spaced: bool) -> Translation:
    """The translations of a line's segments as one; `spaced` where the language has spaces between words."""
    if len(parts) == 1:
        return parts[0]
    alignment: list[tuple[int, int]] | None = [] if parts[0].alignment is not None else None
    num_units = 0
    for part in parts:
        if alignment is not None and part.alignment is not None:
            alignment += [(source, num_units + target) for source, target in part.alignment]
        num_units += len(split_units(part.text, spaced))
    return Translation(
        " ".join(part.text for part in parts if part.text),
        sum(part.score for part in parts),
        sum(part.log_prob for part in parts),
        [piece for part in parts for piece in part.pieces],
        alignment,
    )
