"""The settings of translation, and the check that a model, its vocabulary and its positions allow them."""

import re
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.wording import cut
from transformer_mt.settings.section import Hypotheses, MorePositions, Section, Seed, Text, Tokens

if TYPE_CHECKING:
    from transformer_mt.settings.model_settings import ModelConfig

SplitSentences = Literal["auto", "always", "never"]


class DecodingConfig(Section):
    """How the program finds translations: by beam search (greedy with beam_size=1), or by sampling."""

    beam_size: Hypotheses = 4
    """How many hypotheses of a sentence beam search keeps at each step. It has no effect with sampling."""
    patience: float = Field(default=1.0, ge=0.0, le=100.0)
    """Beam search ends a sentence when patience * beam_size hypotheses are finished (Kasai et al. 2022), or earlier if
    no unfinished hypothesis can become one of the n_best. Most systems use 1. 0: end only when no unfinished hypothesis
    can become one of the n_best, which is about a tenth more work."""
    n_best: Hypotheses = 1
    """How many translations of each sentence the search returns, best first. Beam search may find fewer. Sampling draws
    each independently of the others."""
    length_penalty: float = Field(default=0.6, ge=0.0, le=10.0)
    """alpha, the exponent in the length penalty. The score of a hypothesis is its log-probability divided by that
    penalty (Wu et al. 2016, eq. 14)."""
    length_penalty_form: Literal["gnmt", "average", "none"] = "gnmt"
    """The formula of the length penalty. length counts the subword pieces and the end of the sentence. gnmt:
    ((5 + length) / 6) ** alpha (Wu et al. 2016); average: length ** alpha, so that with alpha=1 the score is the mean
    log-probability of a piece; none: always 1."""
    coverage_penalty: float = Field(default=0.0, ge=0.0, le=100.0)
    """beta, the weight of the coverage penalty (Wu et al. 2016, eq. 14), which lowers the score of a finished
    hypothesis if its attention left out parts of the source. The paper uses 0.2. 0: off."""
    max_extra_length: MorePositions = 50
    """A translation has at most this many subword pieces more than its source."""
    min_length: MorePositions = 0
    """A translation has at least this many subword pieces, not counting the end of the sentence. If it contradicts
    max_extra_length, max_extra_length wins."""
    no_repeat_ngram: MorePositions = 0
    """A translation contains no sequence of this many subword pieces twice, except inside a character that is written
    as several byte pieces. 0: off."""
    sampling: bool = False
    """Draw each piece at random from the model's distribution, instead of searching for the most probable
    translation."""
    temperature: float = Field(default=1.0, ge=1e-6, le=1e6)
    """Sampling divides the logits by this number. Below 1, it makes probable pieces even more probable; above 1, it
    makes the probabilities more equal."""
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    """Sampling draws only from the top_k most probable pieces; with 1 it always takes the most probable piece. 0: draw
    from the whole vocabulary."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Sampling draws only from the fewest most probable pieces that together have this probability, after temperature
    and top_k (nucleus sampling; Holtzman et al. 2020). 1: off."""
    seed: Seed = 1
    """The seed of sampling: the same input with the same seed gives the same samples."""
    mbr_candidates: int = Field(default=0, ge=0, le=1000)
    """The number of candidates of minimum Bayes risk decoding, which returns the candidate that is most similar to all
    of them (Kumar and Byrne 2004). With sampling, the candidates are samples of equal weight (Eikema and Aziz 2020);
    without it, the best hypotheses of a beam search of at least this width, weighted by their probabilities. The score
    of a translation is then its expected chrF2 with the candidates, in percent (for a line that was split, the mean
    over its parts). 0: off."""
    alignment_layer: int = Field(default=0, ge=0, le=1000)
    """The decoder layer whose cross-attention gives the alignment of target to source pieces; 1 is the lowest. 0: the
    second highest (Garg et al. 2019), or the only layer if there is one."""
    split_sentences: SplitSentences = "auto"
    """Whether to translate the sentences of a line separately and to join their translations. auto: only if the line
    has more sentences, or more subword pieces, than 90 % of the training lines; it is then split into groups of the
    usual size."""
    recase: bool = True
    """Whether a line in capitals, or with a capital on each word, is translated as usual text, and its translation then
    written as the line was."""
    keep_wordless: bool = True
    """Whether a line, or a sentence of a line, that has nothing to translate comes back as it is: one without letters,
    such as 42 or --, and one whose only letters are in texts that `protect` means, such as a URL (not with
    protect=never). To or from Chinese and Japanese, the model may still choose the punctuation of a text that is only
    punctuation."""
    protect: Literal["auto", "always", "never"] = "auto"
    """Whether URLs, e-mail addresses, placeholders such as {name} and %s, words with digits such as v1.2, and what
    protect_pattern finds come back unchanged. auto: in documents, if the model was trained with
    training.modifiers.protect, or if there is a protect_pattern. If a model that was not loses such a text, it
    translates what stands between them separately."""
    protect_pattern: Text | None = None
    """A regular expression of Python that finds further texts to protect."""
    tokens_per_batch: Tokens | Literal["auto"] = "auto"
    """The largest size of a batch: its source positions, padding included, times the hypotheses of each sentence
    (beam_size, or n_best with sampling). Larger batches need more memory. auto: 4096 on a CPU and 32768 on a GPU. On a
    GPU a sentence counts as at least 16 positions. training.tokens_per_batch counts in another way."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.sampling:
            given = {"temperature": self.temperature != 1.0, "top_k": self.top_k != 0, "top_p": self.top_p != 1.0}
            if useless := [key for key, is_given in given.items() if is_given]:
                raise ValueError(
                    f"{', '.join(useless)}: no effect without sampling; set sampling=true, or leave it out"
                )
            if self.n_best > self.beam_size and not self.mbr_candidates:
                raise ValueError(
                    f"n_best={self.n_best} is more than beam_size={self.beam_size}: "
                    f"set beam_size={self.n_best}, or sampling=true"
                )
        if self.mbr_candidates and self.n_best > self.mbr_candidates:
            raise ValueError(
                f"n_best={self.n_best} is more than mbr_candidates={self.mbr_candidates}: raise mbr_candidates"
            )
        try:
            re.compile(f"x|(?:{self.protect_pattern or ''})")  # as it is used: no flags for all of it
        except re.error as error:
            raise ValueError(f"protect_pattern={self.protect_pattern} is no regular expression: {error}") from None
        if self.protect_pattern and self.protect == "never":
            raise ValueError("protect_pattern has no effect with protect=never: leave one of them out")
        if self.mbr_candidates == 1:
            raise ValueError("mbr_candidates=1 leaves nothing to choose from: set 2 or more, such as 32, or 0")
        if self.sampling and self.coverage_penalty:
            raise ValueError(
                f"coverage_penalty={self.coverage_penalty} has no effect with sampling: "
                "set sampling=false, or leave it out"
            )
        return self

    @property
    def of_candidates(self) -> "DecodingConfig":
        """The settings of the search itself. With minimum Bayes risk decoding, it has to find all candidates."""
        if not self.mbr_candidates:
            return self
        widths = {"n_best": self.mbr_candidates, "beam_size": max(self.beam_size, self.mbr_candidates)}
        return self.model_copy(update=widths)


def changed(decoding: DecodingConfig, changes: dict[str, float | None]) -> DecodingConfig:
    """Return a copy with these values; None keeps the value of a setting. Raises ConfigError for a wrong value."""
    given = {key: value for key, value in changes.items() if value is not None}
    try:
        return DecodingConfig.model_validate(decoding.model_dump() | given)
    except ValidationError as error:
        raise ConfigError("\n".join(map(_mistake, error.errors()))) from None


def _mistake(error: ErrorDetails) -> str:
    """Return the message about a wrong setting that Python code gave."""
    key = ".".join(["decoding", *map(str, error["loc"])])
    if error["type"] == "value_error":  # a check of several settings
        return f"{key}: {error['ctx']['error']}"
    return f"{key} is {cut(repr(error['input']))}; {error['msg'][0].lower()}{error['msg'][1:]}"


def check_for_model(decoding: DecodingConfig, model: "ModelConfig", vocab_size: int | None) -> None:
    """Raises ConfigError if this model does not allow these settings; `vocab_size` is that of the target, if known."""
    attentions = model.attentions_to_source
    if decoding.alignment_layer > attentions:
        raise ConfigError(
            f"decoding.alignment_layer={decoding.alignment_layer} is more than {attentions}, the number of the "
            "model's layers with attention to the source: lower it"
        )
    if decoding.coverage_penalty and not attentions:
        raise ConfigError(
            f"decoding.coverage_penalty={decoding.coverage_penalty} needs attention, but model.attention=none: set "
            "decoding.coverage_penalty=0"
        )
    if decoding.min_length >= model.max_positions:
        raise ConfigError(
            f"decoding.min_length={decoding.min_length} is too large for model.max_positions={model.max_positions}, "
            f"one of which is for the end of the sentence: set at most {model.max_positions - 1}"
        )
    if vocab_size is not None and decoding.top_k > vocab_size:
        raise ConfigError(
            f"decoding.top_k={decoding.top_k} is more than the {vocab_size} pieces of the vocabulary: lower it, or set "
            "decoding.top_k=0 for all pieces"
        )
