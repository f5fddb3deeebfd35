"""The settings of the text: where sentence pairs are, how they are cut into pieces, and which are left out."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from transformer_mt.settings.section import Count, Language, Positions, PositiveCount, Section, Symbol, Text
from transformer_mt.settings.section import Tag as TagText

Form = Literal["prefix", "tsv", "csv", "jsonl", "parquet", "tmx", "zip", "hub"]
SINGLE_FILES: tuple[Form, ...] = ("tsv", "csv", "jsonl", "parquet", "tmx", "zip")
"""The forms in which a file holds both sides. The names of such files end so."""
_HUB_KEYS = ("subset", "split", "revision", "streaming")

Name = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
"""A name that becomes a file name."""


def _kind_of_part(part: Any) -> str:
    return "(number)" if isinstance(part, int) and not isinstance(part, bool) else "(text)"


Part = Annotated[
    Annotated[Text, Tag("(text)")] | Annotated[int, Tag("(number)"), Field(ge=1, le=100_000)],
    Discriminator(_kind_of_part),
]
"""The name of a part of a pair, such as a column, or the number of a column, from 1."""


class PairedText(Section):
    """Sentence pairs: in the files of path, in a data set of the hub, or, without these two keys, in two files of
    parallel text, source and target. Files are decompressed if their names end in .gz, .zst or .xz. A name with *, ? or
    [ ] stands for all files that it matches, in alphabetical order."""

    path: Text | None = None
    """A file whose name ends in its form, such as my/train.tsv or my/train.tsv.gz; or else the beginning of the names
    of two files of parallel text: my/train for my/train.<source_language> and my/train.<target_language>."""
    form: Form | None = None
    """The form of path, if its name does not end so. tsv: lines with columns between tabs, where source and target are
    the numbers of columns, from 1, or names, if the first line has these names; csv: comma-separated values whose first
    line names the columns; jsonl: a JSON object on each line; parquet: Parquet; in these, source and target are names
    of columns or fields, such as translation.en; tmx: a translation memory (TMX 1.4) with source and target as
    languages, where the code en also finds en-GB; zip: an archive of two files, as OPUS gives them, with source and
    target as their names in the archive, or the ends of these; prefix: the beginning of two names."""
    hub: Text | None = None
    """A data set on the Hugging Face hub; source and target are the names of columns or of fields in them."""
    subset: Text | None = None
    """Only with hub: the configuration of the data set, if it has several."""
    split: Text | None = None
    """Only with hub: the split of the data set, such as train."""
    revision: Text | None = None
    """Only with hub: the commit or tag of the data set; null: the newest."""
    streaming: bool | None = None
    """Only with hub: true reads rows from the network as they are needed; false downloads the data set first."""
    source: Part | None = None
    """Which part is the source; null: the part with the name corpus.source_language (in a TSV of two
    columns, the first)."""
    target: Part | None = None
    """Which part is the target; null: the part with the name corpus.target_language (in a TSV of two
    columns, the second)."""
    source_language: Language | None = None
    """The code of the language of the sources, if it is not corpus.source_language, as in several corpora of several
    languages."""
    target_language: Language | None = None
    """The code of the language of the targets. In a test set it chooses the tokenisation of BLEU. null: as `source` and
    `target` say, if they end in corpus.source_language or corpus.target_language; otherwise those of corpus."""
    tag: TagText | None = None
    """A token before each source, such as <2de> or <bt>, or several, such as <bt> <2de>: the model learns to translate
    differently after it."""
    name: Name | None = None
    """Only in a list of corpora, and needed there: what messages and tables call this corpus."""
    weight: float | None = Field(default=None, gt=0.0, le=1e6)
    """Only in a list of corpora: how many times an epoch has each pair of this corpus; null: 1. With 0.5 it has half of
    the pairs, and the next epoch the other half."""

    @property
    def place(self) -> str:
        """The files or the data set, as the configuration names them."""
        return self.path or self.hub or f"{self.source} and {self.target}"

    @property
    def reading(self) -> str:
        """What decides, besides the text itself, which pairs are read: the form and its parts, not the place."""
        parts: tuple[Any, ...] = () if self.form in (None, "prefix") else (self.source, self.target)
        if self.form == "tsv" and self.source is None:
            parts = (1, 2)
        return " ".join(map(str, (self.form, *parts)))

    def __str__(self) -> str:
        return self.place

    @model_validator(mode="before")
    @classmethod
    def _form_by_name(cls, values: Any) -> Any:
        """Fill in the form of what is named, if it was not given."""
        if isinstance(values, dict) and values.get("form") is None:
            form = "hub" if isinstance(values.get("hub"), str) else None
            if isinstance(path := values.get("path"), str):
                name = re.sub(r"\.(gz|zst|xz)$", "", path)
                form = next((form for form in SINGLE_FILES if name.endswith(f".{form}")), "prefix")
            return {**values, "form": form}
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path and self.hub:
            raise ValueError("path and hub are given, but pairs can come from one place only: keep one of these keys")
        if not self.path and not self.hub and (self.source is None or self.target is None):
            raise ValueError("give path, or hub, or both files: source and target")
        if self.form and (self.path if self.form == "hub" else not self.path):
            raise ValueError(f"form={self.form}: the form is that of path; name a data set of the hub by the key hub")
        if self.form != "hub" and (keys := [key for key in _HUB_KEYS if getattr(self, key) is not None]):
            raise ValueError(f"{' and '.join(keys)}: only for a data set of the hub; name that by the key hub")
        if self.form == "hub" and self.split is None:
            raise ValueError("hub needs a split, such as split: train")
        return self

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        parts = {key: part for key in ("source", "target") if (part := getattr(self, key)) is not None}
        for key, part in parts.items():
            if self.form != "tsv" and isinstance(part, int):
                what = "a name" if self.form else "a file"
                raise ValueError(
                    f"{key} is the number {part}, but here it must be {what}; put it in quotes if it is one"
                )
        if self.form == "tsv" and (len(parts) == 1 or len({_kind_of_part(part) for part in parts.values()}) == 2):
            raise ValueError("tsv: give source and target both as numbers of columns, both as names, or neither")
        if self.form and len(parts) == 2 and self.source == self.target:
            raise ValueError(f"source and target are both {self.source}; name two different parts")
        return self

    @model_serializer(mode="wrap")
    def _only_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys that were not given: most belong to other forms."""
        return {key: value for key, value in handler(self).items() if value is not None}


def _form(split: Any) -> str:
    """Name the form in which a split is given. No test set can have such a name, so errors can leave it out."""
    return "(text)" if isinstance(split, str | int | float | None) else "(where)"


def _form_of_training(split: Any) -> str:
    return "(several)" if isinstance(split, list | tuple) else _form(split)


Split = Annotated[Annotated[Text, Tag("(text)")] | Annotated[PairedText, Tag("(where)")], Discriminator(_form)]
TrainingSplit = Annotated[
    Annotated[Text, Tag("(text)")]
    | Annotated[PairedText, Tag("(where)")]
    | Annotated[tuple[PairedText, ...], Tag("(several)"), Field(max_length=10_000, strict=False)],
    Discriminator(_form_of_training),
]


class CorpusConfig(Section):
    """Which sentence pairs there are, and which of them are left out of training."""

    source_language: Language
    """The code of the source language, such as en. Files of text have it as their suffix, and a hub data set has it as
    the name of a column."""
    target_language: Language
    """The code of the target language. It is used as source_language is, and it chooses the tokenisation of BLEU."""
    train: TrainingSplit
    """The training set: a path, such as my/train.tsv, or the beginning my/train of the names my/train.<source_language>
    and my/train.<target_language>, compressed (.gz, .zst or .xz) or not; or keys that say where the pairs are, such as
    {source: FILE, target: FILE} or {hub: NAME, split: train}; or a list of several corpora, each with such keys and a
    name. `python -m transformer_mt settings corpus.train` lists the keys."""
    valid: Split
    """The validation set, on which the model is scored during training. It is given as a single corpus.train is."""
    test: dict[Name, Split]
    """The test sets: a name for each, and its text, given as a single corpus.train is. The name becomes a file name, so
    it has only letters, digits, '.', '_' and '-'."""
    temperature: float | None = Field(default=None, ge=1.0, le=1e6)
    """With several corpora, instead of their weights: a corpus of n pairs is drawn in proportion to n^(1/temperature),
    so 1 draws by size, and a higher one draws small corpora more often. The largest is seen once in an epoch."""
    max_length: Positions = 256
    """The most subword pieces on either side of a training pair, the end of the sentence included. Longer pairs are
    left out and counted."""
    max_ratio: float = Field(default=4.0, gt=0.0, le=1e6)
    """The largest ratio of subword pieces between the longer and the shorter side of a training pair. Pairs above it
    are left out and counted, unless both sides are short (at most 10 pieces)."""

    @property
    def training_corpora(self) -> tuple[PairedText, ...]:
        """The corpora of train, each with a name; a single one is called train."""
        if isinstance(self.train, tuple):
            return self.train
        return (self.text_of(self.train).model_copy(update={"name": "train"}),)

    def languages_of(self, split: Split) -> tuple[str, str]:
        """Return the codes of the source and target languages of a split."""
        if isinstance(split, str):
            return self.source_language, self.target_language
        source = split.source_language or self._language_in(split.source) or self.source_language
        return source, split.target_language or self._language_in(split.target) or self.target_language

    def _language_in(self, part: str | int | None) -> str | None:
        """The one of the two languages that the name of a file, field or column ends in."""
        name = re.sub(r"\.(gz|zst|xz)$", "", str(part)).split(".")[-1]
        return name if name in (self.source_language, self.target_language) else None

    @property
    def without_weights(self) -> "CorpusConfig":
        """The same corpora without weights and temperature: on these, prepared data do not depend."""
        train = self.train
        if isinstance(train, tuple):
            train = tuple(corpus.model_copy(update={"weight": None}) for corpus in train)
        return self.model_copy(update={"train": train, "temperature": None})

    @property
    def tags(self) -> tuple[str, ...]:
        """Every token that stands before sources of some corpus, validation or test set, once, in order."""
        texts = [*self.training_corpora, *(self.text_of(split) for split in (self.valid, *self.test.values()))]
        return tuple(dict.fromkeys(token for text in texts if text.tag for token in text.tag.split(" ")))

    def text_of(self, split: Split) -> PairedText:
        """Return a split as keys, with source and target filled in where the languages tell them (not in a TSV)."""
        languages = dict(zip(("source", "target"), self.languages_of(split), strict=True))
        text = PairedText(path=split) if isinstance(split, str) else split
        if text.form == "tsv":
            return text
        return text.model_copy(update={key: value for key, value in languages.items() if getattr(text, key) is None})

    @model_validator(mode="after")
    def _check(self) -> Self:
        several = isinstance(self.train, tuple)
        corpora = self.train if isinstance(self.train, tuple) else ()
        if several and not corpora:
            raise ValueError("train is an empty list; give at least one corpus, as in {name: europarl, path: FILE}")
        names = [corpus.name for corpus in corpora]
        if None in names:
            nameless = f"train[{names.index(None) + 1}]"
            raise ValueError(f"{nameless} has no name; in a list each corpus needs one: {{name: europarl, path: FILE}}")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two corpora of train have the name {twice}; give each its own")
        if self.temperature is not None and (not several or any(corpus.weight is not None for corpus in corpora)):
            raise ValueError("temperature is for a list of several corpora without weights of their own")
        for key, split in {"train": self.train, "valid": self.valid, **self.test}.items():
            if isinstance(split, PairedText) and (split.name is not None or split.weight is not None):
                raise ValueError(f"{key}: name and weight are only for a list of several corpora in train")
        return self


class TokenizerConfig(Section):
    """How text is cut into subword pieces. sentencepiece learns them from the training text. A character that is not a
    piece is spelled in bytes, so no character is unknown."""

    from_: Text | None = Field(default=None, alias="from")
    """An existing tokenizer to use instead of training one: a model directory, a run, a prepared data_dir, or a .model
    file of sentencepiece, which then serves both languages. vocab_size, algorithm, character_coverage and
    sample_sentences then have no effect. It must have user_symbols and the tags of the corpora among its pieces."""
    algorithm: Literal["bpe", "unigram", "character"] = "bpe"
    """bpe: byte-pair encoding (Sennrich et al. 2016); unigram: a unigram language model of pieces (Kudo 2018);
    character: each character is a piece."""
    vocab_size: int = Field(default=32000, gt=260, le=1_000_000)
    """The number of pieces in a vocabulary, including the 4 special pieces, the 256 bytes, user_symbols and tags. With
    algorithm=character it is the most pieces: the rarest characters beyond it are spelled in bytes."""
    user_symbols: tuple[Symbol, ...] = Field(default=(), max_length=10_000, strict=False)
    """Texts that are one piece wherever they stand, such as <name>, and that are translated as a whole. The tags of the
    corpora are such pieces without being named here."""
    joint: bool = True
    """true: both languages share one vocabulary; false: each language has its own."""
    character_coverage: float = Field(default=0.9999, gt=0.9, le=1.0)
    """The share of the text's characters that become pieces. The rarest characters are spelled in bytes instead."""
    sample_sentences: PositiveCount = 2_000_000
    """The most lines of each language from which the tokenizer is trained. They are spread evenly over a corpus. Of
    several corpora, large ones give equal numbers of lines, and small ones all that they have. There are at most 100 MB
    of lines (30 MB with unigram), for which 1.3 GB of memory are enough."""

    @property
    def most_sample_bytes(self) -> int:
        """The most bytes of each language in these lines. bpe needs 5 times, unigram 21 times the bytes of both."""
        return 30_000_000 if self.algorithm == "unigram" else 100_000_000


class FiltersConfig(Section):
    """Which training pairs are left out, besides blank ones and those that corpus.max_length and corpus.max_ratio
    leave out. They are counted by reason and by corpus. `prepare CONFIG --look` shows what the filters find, without
    writing anything."""

    held_out: bool = True
    """Whether pairs are left out if one of their sentences is also in the validation set or in a test set, on either
    side. Differences of spaces and of Unicode forms (NFC) do not count; those of upper and lower case do."""
    duplicates: bool = False
    """Whether pairs are left out that were there before, in the same corpus or in an earlier one, with the same
    tag."""
    identical: bool = False
    """Whether pairs are left out whose source and target are the same text."""
    min_characters: Count = 0
    """The fewest characters on either side. 0: off."""
    max_characters: Count = 0
    """The most characters on either side. 0: off."""
    control_characters: bool = False
    """Whether pairs are left out that hold control characters, U+FFFD (which stands for bytes that were no text),
    U+FEFF or characters for private use. Tabs and other white space become spaces before, and do not count."""
    min_script_share: float = Field(default=0.0, ge=0.0, le=1.0)
    """The least share of the letters of a side that are of the script of its language, for example 0.5. A side without
    letters is not judged. The code of a language can name the script, as in sr-Latn. 0: off."""
    max_digit_share: float = Field(default=1.0, ge=0.0, le=1.0)
    """The largest share of digits among the characters of a side that are no spaces, for example 0.5. 1: off."""
    max_punctuation_share: float = Field(default=1.0, ge=0.0, le=1.0)
    """The largest share of punctuation marks and symbols among the characters of a side that are no spaces, for example
    0.5. 1: off."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What happens at a line, row or unit of a training corpus from which no pair can be read. stop: `prepare` stops
    and names it; skip: it is left out and counted. In validation and test sets such a line always stops `prepare`."""

    @property
    def look_at_text(self) -> bool:
        """Whether a filter is switched on that looks at the text of one pair alone."""
        shares = self.min_script_share, self.max_digit_share, self.max_punctuation_share
        lengths = self.min_characters > 0 or self.max_characters > 0
        return self.identical or self.control_characters or lengths or shares != (0.0, 1.0, 1.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 0 < self.max_characters < self.min_characters:
            raise ValueError(
                f"min_characters={self.min_characters} is more than max_characters={self.max_characters}, so no pair "
                "would be left: lower the first, or raise the second"
            )
        return self
