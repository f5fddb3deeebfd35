"""Reads the descriptions of a data_dir and of its tokenizer, and checks the files of the data_dir by checksums."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from transformer_mt.base.errors import CorpusError, TokenizerError
from transformer_mt.batches.encoded import FILES, INDEX, KEPT, ShardIndex
from transformer_mt.marian import as_model_dir
from transformer_mt.preparing.shards import SHARD_FILES
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.suggestions import remove_former_keys
from transformer_mt.settings.text_settings import FiltersConfig, TokenizerConfig
from transformer_mt.storage.checksums import SUMS, TOKENIZERS, Fault, fault, read_sums, sha256, write_sums
from transformer_mt.storage.files import read_json, write_whole
from transformer_mt.text.existing_tokenizer import open_existing
from transformer_mt.text.tokenizer import Tokenizer

SUMMARY, ORIGIN = "prepare.json", "tokenizer_origin.json"
# The files of a data_dir that the later stages read.
VALIDATION_TEXT = ("valid.source.txt", "valid.target.txt")
_VALIDATION = (*(f"valid/{name}" for name in FILES), *VALIDATION_TEXT)
_TRAINED_ON = (SUMMARY, *TOKENIZERS, *_VALIDATION, "training_lines.json", ORIGIN)
# Files about shards. Each shard has a file with its own checksums; the data_dir has the checksums of these files.
_SHARDS = (f"train/{INDEX}", f"train/{KEPT}", f"train/*/*/{SUMS}")


class Prepared(BaseModel):
    """The settings from which a data_dir was made, and the digests of its texts."""

    model_config = ConfigDict(frozen=True)

    directory: Path
    corpus: CorpusConfig
    tokenizer: TokenizerConfig
    digests: dict[str, str]
    """The digest of the text of each split, by the name of the split."""
    tokenizer_digest: str
    filters: FiltersConfig
    counts: dict[str, dict[str, int]]
    """How many pairs of each split were read, kept, and left out for each reason, and their numbers of tokens."""
    corpora: dict[str, dict[str, int]]
    """How many pairs of each training corpus were kept, and left out for each reason, by its name."""
    also_in_training: dict[str, dict[str, int]]
    """How many lines of each validation and test set are also in the training text, by the name of the split."""

    def filters_for(self, settings: FiltersConfig) -> FiltersConfig:
        """Return the filters to compare with these. on_bad_line=stop met no bad line, so skip gives the same data."""
        stopped = self.filters.on_bad_line == "stop"
        return self.filters.model_copy(update={"on_bad_line": settings.on_bad_line}) if stopped else self.filters

    def check_files(self, tests: Iterable[str] = ()) -> None:
        """Check the files that training reads, and those of these test sets, as `check_data` does.

        A shard is represented by its checksum file. Raises CorpusError.
        """
        names = list(_TRAINED_ON)
        with suppress(OSError, ValueError):  # `check_data` finds the same error, and reports it
            sums = read_sums(self.directory)
            names += [name for name in sums if name.startswith(("train/", "valid/")) and name not in _TRAINED_ON]
        check_data(self.directory, [*names, *(file for name in tests for file in files_of(f"test/{name}"))])

    def load_tokenizer(self) -> Tokenizer:
        """Load the tokenizer that made the token ids. Raises CorpusError if the data_dir now has another one."""
        tokenizer = Tokenizer.load(self.directory)
        if tokenizer.digest != self.tokenizer_digest:
            raise CorpusError(
                f"the tokenizer in {self.directory} (digest {tokenizer.digest[:8]}) is not the tokenizer that made the "
                f"token ids there (digest {self.tokenizer_digest[:8]} in {self.directory / SUMMARY}). Put that "
                "tokenizer back, or delete the directory and prepare again. To train with another tokenizer, prepare "
                "into another data_dir with tokenizer.from=PATH"
            )
        return tokenizer

    def same_tokenizer(self, settings: TokenizerConfig) -> bool:
        """Whether these settings make the same tokenizer from the same text.

        If both use an existing tokenizer, this compares only tokenizer.joint, because the file may have been moved;
        `tokenizer_changes` compares the content. If both extend one, its place does not matter either.
        """
        if self.tokenizer.from_ is not None and settings.from_ is not None:
            return self.tokenizer.joint == settings.joint
        if self.tokenizer.extend_from is not None and settings.extend_from is not None:
            settings = settings.model_copy(update={"extend_from": self.tokenizer.extend_from})
        return self.tokenizer == settings

    def tokenizer_changes(self, settings: TokenizerConfig) -> list[str]:
        """Return how the existing tokenizer of the settings differs from that of these data; empty if it does not.

        The tokenizer may have been moved. If it was deleted, and the settings still name its old place, they count as
        unchanged. Raises TokenizerError if they name another place without a tokenizer.
        """
        path = settings.from_
        if path is None or (path == self.tokenizer.from_ and not Path(path).exists()):
            return []
        digest = open_existing(as_model_dir(Path(path))).digest
        if digest == self.tokenizer_digest:
            return []
        return [f"tokenizer.from={path} is another tokenizer (digest {self.tokenizer_digest[:8]}, now {digest[:8]})"]


def read_prepared(data_dir: Path) -> Prepared | None:
    """Read the description of a data_dir; None if `prepare` has not finished there, or if the file is unreadable."""
    try:
        values = {**read_json(data_dir / SUMMARY)}
        remove_former_keys(values)
        return Prepared.model_validate({**values, "directory": data_dir})
    except (OSError, ValueError, TypeError):
        return None


def is_training(split: str) -> bool:
    """Whether a split with this name in prepare.json is the training set or one of its corpora."""
    return split == "train" or split.startswith("train/")


def files_of(split: str) -> list[str]:
    """Return the names of the files of a validation or test set in a data_dir."""
    texts = [f"{split}.{side}.txt" for side in ("source", "target")]
    return texts if split.startswith("test/") else [*(f"{split}/{name}" for name in FILES), *texts]


def write_data_sums(data_dir: Path, summary: bytes, held_out: Iterable[str]) -> None:
    """Write the checksums of all files, and of `summary`, which follows. `held_out`: the validation and test sets."""
    shards = [path.relative_to(data_dir).as_posix() for pattern in _SHARDS for path in data_dir.glob(pattern)]
    names = [*_TRAINED_ON, *shards, *(file for split in held_out for file in files_of(split))]
    files = {name for name in names if (data_dir / name).exists()} - {SUMMARY}
    write_sums(data_dir, files, {SUMMARY: hashlib.sha256(summary).hexdigest()})


def check_data(data_dir: Path, names: Collection[str]) -> None:
    """Compare these files of a data_dir with their checksums; where one is a shard's list of checksums, also its files.

    Raises CorpusError if one is missing or has changed.
    """
    damage = fault(data_dir, names)
    for shard in [Path(name).parent for name in names if Path(name).name == SUMS]:
        if damage is None and (in_shard := fault(data_dir / shard, SHARD_FILES)):
            damage = Fault(f"{shard.as_posix()}/{in_shard.name}", in_shard.what)
    if damage is not None:
        raise CorpusError(
            f"{data_dir / damage.name} {damage.what}. Delete the directory {data_dir} and prepare again, or copy it "
            "again from an undamaged one"
        )


def data_digests(data_dir: Path) -> dict[str, str]:
    """Return the SHA-256 of the training data under the name train, and of the validation data under valid.

    Names and times of files do not matter, so data that were moved, or prepared again from the same text, have the same
    digests. Raises OSError or ValueError if the checksums or the list of shards cannot be read.
    """
    directory = data_dir / "train"
    index, found = ShardIndex.load(directory), dict[str, str]()
    for number, shard in enumerate(index.shards):
        place = "train" if len(index.shards) == 1 else f"train/{number}"  # whatever the name of the corpus
        of_shard = read_sums(directory / shard)
        found |= {f"{place}/{name}": of_shard[name] for name in FILES}
    if index.has_kept:
        found[f"train/{KEPT}"] = sha256(directory / KEPT)
    return {"train": _digest(found, found), "valid": validation_digest(data_dir)}


def validation_digest(data_dir: Path) -> str:
    """Return the SHA-256 that `data_digests` gives of the validation data. Raises the errors of `read_sums`."""
    sums = read_sums(data_dir)
    further = sorted(name for name in sums if name.startswith("valid/") and name not in _VALIDATION)
    return _digest(sums, [*_VALIDATION, *further])


def _digest(sums: Mapping[str, str], names: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{sums.get(name)}  {name}\n" for name in names).encode()).hexdigest()


class TokenizerOrigin(BaseModel):
    """The corpora on which a tokenizer was trained, and those that it encodes.

    With one corpus more, another tokenizer would be trained, and all corpora encoded again. So a rerun keeps the first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    settings: str
    """A hash of the settings with which it was trained."""
    trained_on: tuple[str, ...]
    """The names of the corpora."""
    used_for: dict[str, str]
    """The digests of the corpora that it encodes, by name."""
    digest: str
    """The digest of the tokenizer."""

    @classmethod
    def load(cls, data_dir: Path) -> "TokenizerOrigin | None":
        """Read the file that `save` wrote; None if it is missing or unreadable."""
        try:
            return cls.model_validate(read_json(data_dir / ORIGIN))
        except (OSError, ValueError):
            return None

    def save(self, data_dir: Path) -> None:
        write_whole(data_dir / ORIGIN, self.model_dump_json(indent=2) + "\n")

    def tokenizer_for(self, data_dir: Path, settings: str, corpora: Mapping[str, str]) -> Tokenizer | None:
        """Return the tokenizer that an earlier start has trained for these corpora; None if there is none."""
        if (self.settings, self.used_for) == (settings, dict(corpora)):
            with suppress(TokenizerError):
                tokenizer = Tokenizer.load(data_dir)
                return tokenizer if tokenizer.digest == self.digest else None
        return None
