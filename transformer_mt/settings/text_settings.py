"""The settings of how text is cut into pieces, and of which training pairs to leave out."""

from typing import Literal, Self

from pydantic import Field, model_validator

from transformer_mt.settings.section import Count, PositiveCount, Section, Symbol, Text


class TokenizerConfig(Section):
    """How the tokenizer cuts text into subword pieces, which sentencepiece learns from the training text. A character
    that is not a piece is written as its bytes, so no character is unknown."""

    from_: Text | None = Field(default=None, alias="from")
    """An existing tokenizer to use instead of training one: a model directory, a run, a prepared data_dir, or a .model
    file of sentencepiece, which is then used for both languages. vocab_size, algorithm, character_coverage,
    split_digits and sample_sentences then have no effect. user_symbols and the tags of the corpora must be among its
    pieces."""
    extend_from: Text | None = None
    """An existing tokenizer, named as for `from`, which keeps its pieces and gets more: the tags and user_symbols that
    it lacks, and pieces learnt from the training text, at most vocab_size in all. With training.initialise_from, a new
    piece starts with the mean of the embeddings of the old pieces that it consists of."""
    algorithm: Literal["bpe", "unigram", "character"] = "bpe"
    """bpe: byte-pair encoding (Sennrich et al. 2016); unigram: a unigram language model of pieces (Kudo 2018);
    character: each character is a piece."""
    vocab_size: int = Field(default=32000, gt=260, le=1_000_000)
    """The number of pieces in a vocabulary, including the 4 special pieces, the 256 bytes, user_symbols and tags. With
    algorithm=character it is the largest number: if there are more characters, the rarest are written as bytes."""
    user_symbols: tuple[Symbol, ...] = Field(default=(), max_length=10_000, strict=False)
    """Texts that the tokenizer always keeps as one piece, such as <name>, so that they are translated as a whole. Do
    not list the tags of the corpora: they are always such pieces."""
    joint: bool = True
    """true: both languages share one vocabulary; false: each language has its own."""
    character_coverage: float = Field(default=0.9999, gt=0.9, le=1.0)
    """The share of the text's characters that become pieces. The rarest characters are written as bytes instead."""
    split_digits: bool = False
    """Whether each digit is a piece of its own, so that the model learns to copy numbers of any length."""
    sample_sentences: PositiveCount = 2_000_000
    """The most lines of each language from which to train the tokenizer. They are spread evenly over a corpus. If there
    are several corpora, large ones contribute about equal numbers of lines, and small ones all their lines. The lines
    have at most 100 MB (30 MB with unigram), for which 1.3 GB of memory are enough."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.from_ is not None and self.extend_from is not None:
            raise ValueError(
                "from uses a tokenizer unchanged, and extend_from adds pieces to one: leave one of them out"
            )
        return self


class FiltersConfig(Section):
    """Which training pairs `prepare` leaves out, besides blank pairs and those above corpus.max_length or
    corpus.max_ratio. It counts them by reason and by corpus. `prepare CONFIG --look` shows what the filters find, and
    writes nothing."""

    held_out: bool = True
    """Whether to leave out a pair if its source or its target is also in the validation set or in a test set, on either
    side. Differences in spaces and Unicode forms (NFC) do not count; differences between upper and lower case do."""
    duplicates: bool = False
    """Whether to leave out a pair that the same corpus or an earlier one already contains, with the same tag."""
    identical: bool = False
    """Whether to leave out a pair if source and target are the same text."""
    number_mismatch: bool = False
    """Whether to leave out a pair if source and target have different numbers. 2,200.50 and 2.200,50 have the same
    numbers. Numbers of one digit do not count, because many languages write them as words."""
    min_characters: Count = 0
    """The fewest characters that each side may have. 0: off."""
    max_characters: Count = 0
    """The most characters that each side may have. 0: off."""
    control_characters: bool = False
    """Whether to leave out a pair that contains control characters, U+FFFD (which replaces bytes that are not text),
    U+FEFF or private-use characters. Tabs and other white space do not count, because they become spaces first."""
    min_script_share: float = Field(default=0.0, ge=0.0, le=1.0)
    """The smallest share of a side's letters that must belong to the script of its language, for example 0.5. A side
    without letters passes. The language code can name the script, as in sr-Latn. 0: off."""
    max_digit_share: float = Field(default=1.0, ge=0.0, le=1.0)
    """The largest share of digits among a side's characters, spaces not counted, for example 0.5. 1: off."""
    max_punctuation_share: float = Field(default=1.0, ge=0.0, le=1.0)
    """The largest share of punctuation marks and symbols among a side's characters, spaces not counted, for example
    0.5. 1: off."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What `prepare` does at a line, row or unit of a training corpus that contains no readable pair. stop: end with an
    error that names it; skip: leave it out and count it. In validation and test sets it always stops."""

    @property
    def look_at_text(self) -> bool:
        """Whether a filter that needs only the text of a single pair is switched on."""
        return bool(self.model_dump(exclude={"held_out", "duplicates", "on_bad_line"}, exclude_defaults=True))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 0 < self.max_characters < self.min_characters:
            raise ValueError(
                f"min_characters={self.min_characters} is more than max_characters={self.max_characters}, so no pair "
                "would be left: lower the first, or raise the second"
            )
        return self
