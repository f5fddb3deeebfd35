"""The settings of the text: where the sentence pairs are, and how often training reads each of them."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeGuard

from pydantic import AfterValidator, Discriminator, Field, Tag, model_serializer, model_validator

from transformer_mt.base.wording import without_secret
from transformer_mt.settings.section import Language, Positions, PositiveCount, Section, Text
from transformer_mt.settings.section import Tag as TagText

Form = Literal["prefix", "tsv", "csv", "jsonl", "parquet", "tmx", "zip", "hub"]
SINGLE_FILES: tuple[Form, ...] = ("tsv", "csv", "jsonl", "parquet", "tmx", "zip")
"""The forms of files that contain both sides. A file name ends in the name of its form."""
_HUB_KEYS = ("subset", "split", "revision", "streaming")

Name = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
"""A name that becomes a file name."""


_Where = Annotated[Text, AfterValidator(without_secret)]
"""A path or a URL."""


def _kind_of_part(part: Any) -> str:
    return "(number)" if isinstance(part, int) and not isinstance(part, bool) else "(text)"


Part = Annotated[
    Annotated[_Where, Tag("(text)")] | Annotated[int, Tag("(number)"), Field(ge=1, le=100_000)],
    Discriminator(_kind_of_part),
]
"""What names one side of the pairs: the name of a column, field or file, or the number of a column, from 1."""


class PairedText(Section):
    """Where sentence pairs are: in the files of path; in a data set of the hub; or, without these two keys, in the two
    parallel files source and target. Files whose names end in .gz, .zst or .xz are decompressed. A name with *, ? or
    [ ] means all files that match it, in alphabetical order."""

    path: _Where | None = None
    """A file whose name ends in its form, such as my/train.tsv or s3://BUCKET/train.tsv.gz. Or the beginning of the
    names of two parallel files: my/train means my/train.<source_language> and my/train.<target_language>."""
    form: Form | None = None
    """The form of path, if its name does not end in it. tsv: columns between tabs; source and target are the numbers of
    columns, from 1, or their names, if the first line has these names. csv: comma-separated values, with the names of
    the columns in the first line; jsonl: a JSON object on each line; parquet: a Parquet file; for these three, source
    and target are names of columns or fields, such as translation.en. tmx: a translation memory (TMX 1.4); source and
    target are languages, and the code en also finds en-GB. zip: an archive of two files, as on OPUS; source and target
    are their names in the archive, or the ends of these names. prefix: the beginning of two names."""
    hub: Text | None = None
    """A data set on the Hugging Face hub; source and target are the names of columns, or of fields in columns."""
    subset: Text | None = None
    """Only with hub: the configuration of the data set, if it has several."""
    split: Text | None = None
    """Only with hub: the split of the data set, such as train."""
    revision: Text | None = None
    """Only with hub: the commit or tag of the data set; null: the newest."""
    streaming: bool | None = None
    """Only with hub. true: load rows from the network while reading them; false: download the data set first."""
    source: Part | None = None
    """The column, field, language or file of the source; null: the one with the name corpus.source_language (in a TSV
    of two columns, or of three with score, the first column)."""
    target: Part | None = None
    """The column, field, language or file of the target; null: the one with the name corpus.target_language (in a TSV
    of two columns, or of three with score, the second column)."""
    score: Part | None = None
    """Only for tsv and csv: the column with a number for each pair, for example of how good it is."""
    min_score: float | None = None
    """Only with score: leave out the pairs with a lower number. `prepare` counts them."""
    source_language: Language | None = None
    """The code of the source language, if it is not corpus.source_language: corpora may have different languages."""
    target_language: Language | None = None
    """The code of the target language. In a test set it chooses the tokenisation of BLEU. null: the code in which
    `target` ends (`source` for source_language), if it is one of the two codes of corpus; otherwise that of corpus."""
    share: float | None = Field(default=None, gt=0.0, le=0.5)
    """Only for a validation or test set, in place of all the other keys except name: this share of corpus.train, or of
    each of its corpora, which is then left out of training. A hash of each source chooses the pairs, so that equal
    sources stay together, and the same pairs are chosen when the corpus grows."""
    tag: TagText | None = None
    """A token that is put before each source, such as <2de> or <bt>, or several, such as <bt> <2de>. From it the model
    learns how to translate."""
    name: Name | None = None
    """The name of this corpus in messages and tables. Only for a list, where each corpus needs one. With share: the
    corpus in the list of corpus.train that the pairs are from."""
    weight: float | None = Field(default=None, gt=0.0, le=1e6)
    """Only for a list of corpora: how many times an epoch contains each pair of this corpus; null: 1. With 0.5, an
    epoch contains half of the pairs, and the next epoch the other half."""

    @property
    def place(self) -> str:
        """The files or the data set, as the configuration names them."""
        if self.share is not None:
            return f"a share of {self.name or 'corpus.train'} ({self.share:g})"
        return self.path or self.hub or f"{self.source} and {self.target}"

    @property
    def reading(self) -> str:
        """The form and its parts, but not the place. Together with the text itself, they decide what the pairs are."""
        parts: tuple[Any, ...] = () if self.form in (None, "prefix") else (self.source, self.target)
        if self.form == "tsv" and self.source is None:
            parts = (1, 2)
        scored = () if self.score is None else (self.score, self.min_score)
        return " ".join(map(str, (self.form, *parts, *scored)))

    @model_validator(mode="before")
    @classmethod
    def _form_by_name(cls, values: Any) -> Any:
        """Set `form`, if it was not given, by the ending of the name in `path`."""
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
            raise ValueError("path and hub are both given, but pairs come from one place: keep one of these keys")
        if self.share is not None and (keys := [key for key in self.model_dump() if key not in ("share", "name")]):
            raise ValueError(f"share takes its pairs from corpus.train, so leave out {' and '.join(keys)}")
        if not self.path and not self.hub and self.share is None and (self.source is None or self.target is None):
            raise ValueError("no text is named: give path, or hub, or the two files source and target")
        if self.form and (self.path if self.form == "hub" else not self.path):
            raise ValueError(f"form={self.form}: form is only for path; give a data set of the hub with the key hub")
        if self.form != "hub" and (keys := [key for key in _HUB_KEYS if getattr(self, key) is not None]):
            raise ValueError(f"{' and '.join(keys)}: only for a data set of the hub; give its name with the key hub")
        if self.form == "hub" and self.split is None:
            raise ValueError("hub needs a split, such as split: train")
        parts = {key: part for key in ("source", "target") if (part := getattr(self, key)) is not None}
        for key, part in parts.items():
            if self.form != "tsv" and isinstance(part, int):
                what = "a name" if self.form else "a file"
                raise ValueError(f"{key} is the number {part}, but must be {what}; put it in quotes if it is {what}")
        if self.form == "tsv" and (len(parts) == 1 or len({_kind_of_part(part) for part in parts.values()}) == 2):
            raise ValueError("tsv: give source and target both as numbers of columns, or both as names, or neither")
        if (self.score is None) != (self.min_score is None) or (self.score and self.form not in ("tsv", "csv")):
            raise ValueError("score and min_score: give both, or none; and only for a path with the form tsv or csv")
        if self.score and self.form == "tsv" and _kind_of_part(self.score) != _kind_of_part(self.source or 1):
            raise ValueError("score: write it as source and target are: all as numbers of columns, or all as names")
        if self.form and len(parts) == 2 and self.source == self.target:
            raise ValueError(f"source and target are both {self.source}; name two different ones")
        if self.score is not None and self.score in (parts or {"source": 1, "target": 2}).values():
            raise ValueError(f"score={self.score} is the column of the source or target; name another one")
        return self

    @model_serializer
    def _only_given(self) -> dict[str, Any]:
        """Write only the keys that were given, since most keys are for other forms."""
        return {key: value for key, value in self if value is not None}


def _form(split: Any) -> str:
    """Return a name for the form of a split. No test set can have such a name, so error messages can remove it."""
    return "(text)" if isinstance(split, str | int | float | None) else "(where)"


def _is_share(split: Any) -> TypeGuard[PairedText]:
    return isinstance(split, PairedText) and split.share is not None


_OneText = Annotated[_Where, Tag("(text)")] | Annotated[PairedText, Tag("(where)")]
Split = Annotated[_OneText, Discriminator(_form)]
TrainingSplit = Annotated[
    _OneText | Annotated[tuple[PairedText, ...], Tag("(several)"), Field(max_length=10_000, strict=False)],
    Discriminator(lambda split: "(several)" if isinstance(split, list | tuple) else _form(split)),
]


class StageConfig(Section):
    """A stage of training: what an epoch contains, and when the next stage begins."""

    weights: dict[Name, Annotated[float, Field(ge=0.0, le=1e6)]]
    """How many times an epoch contains each pair of a corpus, by the names in corpus.train; 0 for all others."""
    epochs: PositiveCount | None = None
    """The stage has this many epochs."""
    updates: PositiveCount | None = None
    """The stage has this many updates."""


class CorpusConfig(Section):
    """Where the sentence pairs are, and which of them `prepare` leaves out of training."""

    source_language: Language
    """The code of the source language, such as en. It is the ending of the names of text files, and the name of a
    column in other forms."""
    target_language: Language
    """The code of the target language. It is used like source_language, and it chooses the tokenisation of BLEU."""
    train: TrainingSplit
    """The training set, in one of three ways. A path: a file such as my/train.tsv, or my/train for the two files
    my/train.<source_language> and my/train.<target_language>, compressed (.gz, .zst or .xz) or not. Or keys, such as
    {source: FILE, target: FILE} or {hub: NAME, split: train}. Or a list of several corpora, each with such keys and a
    name. `python -m transformer_mt settings corpus.train` lists the keys."""
    valid: TrainingSplit
    """The validation set, with which training scores the model. Write it like corpus.train. In a list, the first set
    decides which checkpoints are best; for the others, training only shows the scores, and `average` sees to it that
    they do not fall much below those of the model from which training started."""
    test: dict[Name, Split] = Field(default={})
    """The test sets, which only `evaluate` needs: a name for each, and its text, written like a corpus.train that is no
    list. Files get this name, so it has only letters, digits, '.', '_' and '-'."""
    temperature: float | None = Field(default=None, ge=1.0, le=1e6)
    """For several corpora, instead of weights: the number of pairs that an epoch takes from a corpus of n pairs is
    proportional to n^(1/temperature). So 1 takes pairs by size, and higher values take more from small corpora. An
    epoch contains each pair of the largest corpus once."""
    stages: tuple[StageConfig, ...] | None = Field(default=None, max_length=100, strict=False)
    """For several corpora, instead of weights: the stages of training, one after another, such as first all text and
    then that of the wanted domain. Each has weights, and all but the last also epochs or updates, as in
    [{weights: {web: 1}, epochs: 2}, {weights: {web: 0.1, captions: 1}}]."""
    max_length: Positions = 256
    """The most subword pieces on either side of a training pair, the end of the sentence included. `prepare` leaves out
    longer pairs and counts them."""
    max_ratio: float = Field(default=4.0, gt=0.0, le=1e6)
    """The largest ratio of subword pieces between the longer and the shorter side of a training pair. `prepare` leaves
    out pairs above it and counts them, unless both sides are short (at most 10 pieces)."""

    @property
    def training_corpora(self) -> tuple[PairedText, ...]:
        """The corpora of train, each with a name; a single corpus has the name train."""
        if isinstance(self.train, tuple):
            return self.train
        return (self.text_of(self.train).model_copy(update={"name": "train"}),)

    def languages_of(self, split: Split) -> tuple[str, str]:
        """Return the codes of the source and target languages of a split."""
        if _is_share(split):
            split = self.shared_corpora(split)[0]
        if isinstance(split, str):
            return self.source_language, self.target_language
        source = split.source_language or self._language_in(split.source) or self.source_language
        return source, split.target_language or self._language_in(split.target) or self.target_language

    def languages_of_test(self, name: str) -> tuple[str, str]:
        """Return the codes of the languages of a test set; those of the corpus if it has no test set of this name."""
        return self.languages_of(self.test.get(name, ""))

    def _language_in(self, part: str | int | None) -> str | None:
        """Return the language code in which the name of a file, field or column ends, if it is one of our two."""
        name = re.sub(r"\.(gz|zst|xz)$", "", str(part)).split(".")[-1]
        return name if name in (self.source_language, self.target_language) else None

    @property
    def without_weights(self) -> "CorpusConfig":
        """The same corpora without weights, temperature and stages, which do not change the prepared data."""
        train = self.train
        if isinstance(train, tuple):
            train = tuple(corpus.model_copy(update={"weight": None}) for corpus in train)
        return self.model_copy(update={"train": train, "temperature": None, "stages": None})

    @property
    def tags(self) -> tuple[str, ...]:
        """Every token that some corpus, validation or test set puts before its sources, once, in order."""
        texts = [*self.training_corpora, *(self.text_of(split) for split in self.held_out.values())]
        return tuple(dict.fromkeys(token for text in texts if text.tag for token in text.tag.split(" ")))

    def text_of(self, split: Split) -> PairedText:
        """Return a split as keys. Except for a TSV, the languages are the default names of source and target."""
        if _is_share(split):
            return split.model_copy(update={"tag": self.shared_corpora(split)[0].tag})
        text = PairedText(path=split) if isinstance(split, str) else split
        if text.form == "tsv":
            return text
        source, target = self.languages_of(split)
        return text.model_copy(update={"source": text.source or source, "target": text.target or target})

    @property
    def validation_sets(self) -> dict[str, Split]:
        """The validation sets by their names in a data_dir: valid for the first, valid/NAME for further ones."""
        if not isinstance(self.valid, tuple):
            return {"valid": self.valid}
        return {f"valid/{text.name}" if number else "valid": text for number, text in enumerate(self.valid)}

    @property
    def held_out(self) -> dict[str, Split]:
        """The validation and test sets by their names in a data_dir: valid, valid/NAME and test/NAME."""
        return {**self.validation_sets, **{f"test/{name}": split for name, split in self.test.items()}}

    def shared_corpora(self, share: PairedText) -> tuple[PairedText, ...]:
        """Return the training corpora from which a share takes its pairs: the named one, or all."""
        return tuple(text for text in self.training_corpora if share.name in (None, text.name))

    @property
    def held_shares(self) -> dict[str, tuple[float, float]]:
        """The range of places of each set that is a share of train. Ranges of a corpus stand side by side from 0 on."""
        ends, found = dict[str | None, float](), dict[str, tuple[float, float]]()
        for name, split in self.held_out.items():
            if _is_share(split):
                begin = ends.get(split.name, 0.0)
                ends[split.name] = begin + (split.share or 0.0)
                found[name] = begin, ends[split.name]
        return found

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if any(map(_is_share, self.train if isinstance(self.train, tuple) else (self.train,))):
            raise ValueError("share is for validation and test sets; corpus.train needs a text")
        shares = {key: split for key, split in self.held_out.items() if _is_share(split)}
        for key, split in shares.items():
            of = self.shared_corpora(split)
            if not of:
                raise ValueError(
                    f"{key}: corpus.train has no corpus with the name {split.name}, to take a share from; correct the "
                    "name, or leave it out to take the share from all of corpus.train"
                )
            if len({(text.tag, self.languages_of(text)) for text in of}) > 1:
                raise ValueError(
                    f"{key}: share needs corpora with the same tag and the same languages in corpus.train: name one of "
                    "them, or give the set as a text of its own"
                )
        names = {split.name for split in shares.values()}
        if None in names and len(names) > 1:
            raise ValueError("some shares name a corpus and some do not: give each share the name of its corpus")
        if (total := max((end for _, end in self.held_shares.values()), default=0.0)) > 0.5:
            raise ValueError(
                f"the shares are {total:g} of corpus.train together; leave at least half of it to training"
            )
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, listed in {"train": self.train, "valid": self.valid}.items():
            if isinstance(listed, tuple):
                _check_names(key, [text.name for text in listed])
        corpora = self.train if isinstance(self.train, tuple) else ()
        if self.temperature is not None and (not corpora or any(text.weight for text in corpora)):
            raise ValueError("temperature is only for a list of corpora without weights; leave it, or the weights, out")
        for key, split in {"train": self.train, **self.held_out}.items():
            is_named = _is_share(split) or (isinstance(self.valid, tuple) and split in self.valid)
            if isinstance(split, PairedText) and (split.weight or (split.name and not is_named)):
                raise ValueError(
                    f"{key}: name is only for a text in a list, and weight only for a corpus in the list of train; "
                    "leave them out"
                )
        return self

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        corpora = self.train if isinstance(self.train, tuple) else ()
        if self.stages == ():
            raise ValueError("stages is an empty list: give at least one stage, or leave the key out")
        if self.stages is not None and (self.temperature is not None or any(text.weight for text in corpora)):
            raise ValueError("stages have the weights of corpora: leave out temperature, and weight in train")
        stages = self.stages or ()
        for number, stage in enumerate(stages, start=1):
            if unknown := stage.weights.keys() - {text.name for text in corpora}:
                raise ValueError(
                    f"stage {number}: corpus.train has no corpus with the name {min(unknown)} in a list; "
                    "correct the name, or train without stages: corpus.stages=null"
                )
            num_ends = (stage.epochs is not None) + (stage.updates is not None)
            if number == len(stages) and num_ends:
                raise ValueError("the last stage: leave out epochs and updates, because training.max_steps ends it")
            if number < len(stages) and num_ends != 1:
                raise ValueError(f"stage {number}: give either epochs or updates, after which the next stage begins")
        return self


_TAKEN = ("shards.json", "kept.rows", "sizes.json", "source.ids", "source.offsets", "target.ids", "target.offsets")


def _check_names(key: str, names: Sequence[str | None]) -> None:
    """Raise ValueError unless each text in a list has a name of its own, which becomes the name of a directory."""
    if not names:
        raise ValueError(f"{key} is an empty list; give at least one corpus, such as {{name: europarl, path: FILE}}")
    if None in names:
        nameless = f"{key}[{names.index(None) + 1}]"
        raise ValueError(f"{nameless} has no name; in a list each corpus needs one: {{name: europarl, path: FILE}}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two corpora of {key} have the name {twice}; give them different names")
    if taken := set(_TAKEN).intersection(names):
        raise ValueError(f"{min(taken)} is the name of a file of `prepare`: give this corpus of {key} another name")
