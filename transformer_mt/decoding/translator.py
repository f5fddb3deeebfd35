"""Lines in, lines out: the Python API of a trained model. Imports no PyTorch before a model is loaded."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.data.training_lines import TrainingLines
from transformer_mt.decoding.engine import Engine, Hypothesis, Sentence
from transformer_mt.decoding.line_parts import LineCutter, Part
from transformer_mt.decoding.loading import Dtype, EngineName, ModelDirs, Quantization, open_model
from transformer_mt.decoding.words import units_of, written_together
from transformer_mt.errors import ConfigError, NotFiniteError
from transformer_mt.languages import has_spaces, split_units
from transformer_mt.settings.decoding import DecodingConfig, check_for_model
from transformer_mt.settings.model import ModelConfig
from transformer_mt.settings.needed_memory import check_search_memory
from transformer_mt.wording import cut

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
    num_parts: int = 1
    """Parts of the line that were translated separately."""
    is_short: bool = False
    """Whether it, or a part of it, is much shorter than training has for such a source: something may be left out."""
    at_limit: bool = False
    """Whether it, or a part of it, was cut off at its greatest length (max_extra_length, model.max_positions)."""


BLANK = Translation("", score=0.0, log_prob=0.0, alignment=[])


class Translator:
    """A tokenizer, and an engine that translates its ids.

    >>> Translator.load("runs/demo_en_de/model").translate(["The child is sleeping."], beam_size=4)

    A line with more sentences, or more pieces, than was usual in training is cut at ends of sentences
    (DecodingConfig.split_sentences). A sentence with more pieces than the model has positions is cut into parts of at
    most `longest_part` pieces, with a warning to the logger of `line_parts`. The translations of a line's parts are
    joined by the line's own white space, their scores and log-probabilities added, n-best lists joined rank by rank.
    `languages` are the codes of source and target: they tell where sentences end, and whether alignments are of words
    or of characters.
    Several threads may share a Translator: one translates at a time, and the others wait. As a context manager, or by
    `close`, it ends the processes and threads that it has started; after that it raises TranslationError.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        longest_part: int | None = None,
        languages: tuple[str, str] = ("", ""),
        trained: TrainingLines | None = None,
        model: ModelConfig | None = None,
    ) -> None:
        """`trained` are the lines of the training text; None where they are not known.

        `model` are the settings of the engine's model, by which those of decoding are checked; None checks less.
        """
        self.model = model
        self.engine, self.tokenizer, self.decoding, self.trained = engine, tokenizer, decoding, trained
        longest = longest_part or engine.max_positions - 1
        self.cutter = LineCutter(tokenizer, engine.max_positions, longest, languages, trained)
        self._source_spaced, self._target_spaced = map(has_spaces, languages)
        self._warned = False

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
        corpus, trained = model.config.corpus, model.training_lines
        # Longer sources than in training are translated badly: what has to be cut anyway is cut to these.
        longest = min(corpus.max_length, model.engine.max_positions) - 1
        if trained is not None:
            longest = min(longest, trained.most_pieces)
        languages = corpus.source_language, corpus.target_language
        settings = model.config.decoding, max(1, longest), languages, trained, model.config.model
        return cls(model.engine, model.tokenizer, *settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and threads that this Translator has started."""
        self.engine.close()

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
        progress: Callable[[float], None] | None = None,
    ) -> list[list[Translation]]:
        """The translations of each line, best first: at least one, at most `n_best`; an empty one for a blank line.

        `decoding` is the model's own unless given; the next three go before either. `prefixes` are what the
        translations have to begin with, a text for each line. Without `scores` they may be not a number, where that
        is quicker. `first_line` is the number that a warning gives to lines[0]. `progress` is told how many more lines
        are done: a fraction where lines are translated in parts, each of which counts the same. Raises TypeError if
        `lines` is one text, ConfigError for a setting that is not allowed, NotFiniteError for the first line that the
        model computes no finite numbers for, and TranslationError for a prefix that is too long, for a Translator that
        is closed, and in a process that was forked after the engine began its own processes or threads: load the model
        there instead.
        """
        if isinstance(lines, str):
            raise TypeError("lines is one text; give a list of texts")
        changes = {"beam_size": beam_size, "length_penalty": length_penalty, "n_best": n_best}
        decoding = _changed(decoding or self.decoding, changes)
        self._warn_if_unknown(lines, decoding)
        cut = self.cutter.parts(lines, prefixes, decoding.split_sentences, first_line)
        sentences = [part.sentence for part in cut]
        self._check(decoding, sentences)
        found: list[list[Translation]] = [[] for _ in cut]
        told = None if progress is None else _by_lines(progress, len(cut), len({part.line for part in cut}))
        with self.engine.turn():
            for numbers, hypotheses_of in self.engine.translate_unordered(
                sentences, decoding, alignment=alignment, scores=scores, progress=told
            ):  # words are made of some while others are still searched for
                for number, hypotheses in zip(numbers, hypotheses_of, strict=True):
                    found[number] = [self._translation(h, cut[number], decoding) for h in hypotheses]
        if lost := [part.line for part, translations in zip(cut, found, strict=True) if not translations]:
            raise NotFiniteError.of_line(first_line + lost[0])
        parts: list[list[list[Translation]]] = [[] for _ in lines]  # of each line, each part and each rank
        spaces: list[list[str]] = [[] for _ in lines]
        for part, translations in zip(cut, found, strict=True):
            parts[part.line].append(translations)
            spaces[part.line].append(part.space)
        # A part may have fewer translations than another: as many ranks as all have.
        return [
            [_joined(rank, before, self._target_spaced) for rank in zip(*line, strict=False)] if line else [BLANK]
            for line, before in zip(parts, spaces, strict=True)
        ]

    def _check(self, decoding: DecodingConfig, sentences: Sequence[Sentence]) -> None:
        """Raises ConfigError for settings with which the model cannot translate these."""
        if self.model is None or not sentences:
            return
        vocab_size, max_positions = self.tokenizer.target_vocab_size, self.engine.max_positions
        check_for_model(decoding, self.model, vocab_size)
        longest = max(sentence.max_length(decoding.max_extra_length, max_positions) for sentence in sentences)
        check_search_memory(decoding, self.model, vocab_size, longest, keeps_all_pasts=self.engine.keeps_all_pasts)

    def _warn_if_unknown(self, lines: Sequence[str], decoding: DecodingConfig) -> None:
        """Log once that lines of several sentences are not split, because nothing is known of those in training."""
        if self._warned or self.trained is not None or decoding.split_sentences != "auto":
            return
        self._warned = any(self.cutter.has_several_sentences(line) for line in lines)
        if self._warned:
            _log.warning(
                "warning: lines of several sentences are not split: the model has no training_lines.json, which would "
                "say how many sentences a line had in training. split_sentences=always splits them all. For a model "
                "of an older version, `python -m transformer_mt.prepare` writes the file into its data_dir: copy it "
                "into the model directory"
            )

    def _translation(self, hypothesis: Hypothesis, part: Part, decoding: DecodingConfig) -> Translation:
        words, sentence = hypothesis.tokens[:-1], part.sentence
        limit = sentence.max_length(decoding.max_extra_length, self.engine.max_positions)
        return Translation(
            self.tokenizer.decode_target(words),
            hypothesis.score,
            hypothesis.log_prob,
            self.tokenizer.target_pieces(words),
            None if hypothesis.alignment is None else self._word_pairs(words, hypothesis.alignment, part),
            is_short=self.trained is not None and self.trained.is_short(len(sentence.source) - 1, len(words)),
            at_limit=len(hypothesis.tokens) >= limit,
        )

    def _word_pairs(self, tokens: list[int], looked_at: list[int], part: Part) -> list[tuple[int, int]]:
        """For each target word, the source word that most of its pieces looked at; of equals, the first.

        Without spaces: for each target character, the characters of the source piece that its own looked at.
        """
        source_units = units_of(self.tokenizer.source_pieces(part.sentence.source[:-1]), self._source_spaced)
        pairs: list[tuple[int, int]] = []
        num_units = 0
        for group in written_together(self.tokenizer.target_pieces(tokens), self._target_spaced):
            [(most, _)] = Counter(source_units[looked_at[index]] for index in group).most_common(1)
            # Not always one: a model may write a space and nothing after it, or whitespace in bytes.
            text = self.tokenizer.decode_target([tokens[index] for index in group])
            units = range(num_units, num_units + len(split_units(text, self._target_spaced)))
            pairs += [(part.first_unit + source, target) for target in units for source in most]
            num_units = units.stop
        return pairs


def _by_lines(progress: Callable[[float], None], num_parts: int, num_lines: int) -> Callable[[int], None]:
    """What is told of parts, and tells of as large a share of the lines."""
    return lambda count: progress(count * num_lines / num_parts)


def _changed(decoding: DecodingConfig, changes: dict[str, float | None]) -> DecodingConfig:
    given = {key: value for key, value in changes.items() if value is not None}
    try:
        return DecodingConfig.model_validate(decoding.model_dump() | given)
    except ValidationError as error:
        raise ConfigError("\n".join(map(_mistake, error.errors()))) from None


def _mistake(error: ErrorDetails) -> str:
    """What is wrong with a setting that was given to a function."""
    key = ".".join(["decoding", *map(str, error["loc"])])
    if error["type"] == "value_error":  # of several settings
        return f"{key}: {error['ctx']['error']}"
    return f"{key} is {cut(repr(error['input']))}; {error['msg'][0].lower()}{error['msg'][1:]}"


def _joined(parts: Sequence[Translation], spaces: Sequence[str], spaced: bool) -> Translation:
    """The translations of a line's parts as one: `spaces` stand before each, `spaced` is whether words have some."""
    if len(parts) == 1:
        return parts[0]
    text, pairs = "", []
    for part, space in zip(parts, spaces, strict=True):
        num_units = len(split_units(text, spaced))
        pairs += [(source, num_units + target) for source, target in part.alignment or []]
        text += (space if text and part.text else "") + part.text
    return Translation(
        text,
        sum(part.score for part in parts),
        sum(part.log_prob for part in parts),
        [piece for part in parts for piece in part.pieces],
        None if parts[0].alignment is None else pairs,
        len(parts),
        any(part.is_short for part in parts),
        any(part.at_limit for part in parts),
    )
