"""Reads what `prepare` wrote about a data_dir, and checks that its files are as they were written."""

import hashlib
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.data.encoded import FILES, EncodedCorpus
from transformer_mt.data.existing_tokenizer import open_existing
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import CorpusError, UserError
from transformer_mt.settings.experiment import CorpusConfig, TokenizerConfig
from transformer_mt.storage.checksums import SUMS, fault, has_sums, read_sums, sums_of, write_sums
from transformer_mt.storage.json_text import read_json
from transformer_mt.storage.run_directory import TOKENIZERS

SUMMARY = "prepare.json"
# The files in a data_dir that the stages read.
_VALIDATION = (*(f"valid/{name}" for name in FILES), "valid.source.txt", "valid.target.txt")
_TRAINING = tuple(f"train/{name}" for name in FILES)
VALIDATED_ON = (*TOKENIZERS, *_VALIDATION)
TRAINED_ON = (SUMMARY, *VALIDATED_ON, *_TRAINING, "train.lines", "training_lines.json")


@dataclass(frozen=True)
class Prepared:
    """What a data_dir was made from."""

    directory: Path
    corpus: CorpusConfig
    tokenizer: TokenizerConfig
    digests: dict[str, str]
    """The digest of the text of each split, by the name of the split."""
    tokenizer_digest: str

    def load_tokenizer(self) -> Tokenizer:
        """Load the tokenizer that made the token ids. Raises CorpusError if another one is there now."""
        tokenizer = Tokenizer.load(self.directory)
        if tokenizer.digest != self.tokenizer_digest:
            raise CorpusError(
                f"the tokenizer in {self.directory} (digest {tokenizer.digest[:8]}) is not the one that "
                f"{self.directory / SUMMARY} names (digest {self.tokenizer_digest[:8]}) and that made the token ids "
                "there. Put that one back, or delete the directory and prepare again. To train with another "
                "tokenizer, prepare into another data_dir with tokenizer.from=PATH"
            )
        return tokenizer

    def same_tokenizer(self, settings: TokenizerConfig) -> bool:
        """Whether these settings make the same tokenizer from the same text.

        If both name an existing tokenizer, only tokenizer.joint is compared, because the file may have been moved;
        `tokenizer_changes` compares the content.
        """
        if self.tokenizer.from_ is None or settings.from_ is None:
            return self.tokenizer == settings
        return self.tokenizer.joint == settings.joint

    def tokenizer_changes(self, settings: TokenizerConfig) -> list[str]:
        """Return how the existing tokenizer in the settings differs from that of this data; empty if it does not.

        The file may have been moved. If the settings still name the old place, it may also have been deleted. Raises
        TokenizerError if they name another place and no tokenizer is there.
        """
        path = settings.from_
        if path is None or (path == self.tokenizer.from_ and not Path(path).exists()):
            return []
        digest = open_existing(Path(path)).digest
        if digest == self.tokenizer_digest:
            return []
        return [f"tokenizer.from={path} is another tokenizer (digest {self.tokenizer_digest[:8]}, now {digest[:8]})"]


def read_prepared(data_dir: Path) -> Prepared | None:
    """Read what a data_dir was made from; None if `prepare` has not finished there, or if it cannot be read."""
    try:
        content = read_json(data_dir / SUMMARY)
        return Prepared(
            data_dir,
            CorpusConfig.model_validate(content["corpus"]),
            TokenizerConfig.model_validate(content["tokenizer"]),
            dict(content["digests"]),
            str(content["tokenizer_digest"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def files_of_test_set(name: str) -> list[str]:
    """Return the names of the files of a test set in a data_dir: source and target."""
    return [f"test/{name}.{side}.txt" for side in ("source", "target")]


def write_data_sums(data_dir: Path, summary: bytes, test_names: Iterable[str]) -> None:
    """Write the checksums of all files that `prepare` has written, and of the summary that it will write last."""
    names = [*TRAINED_ON, *(file for name in test_names for file in files_of_test_set(name))]
    sums = sums_of(data_dir, _existing(data_dir, set(names) - {SUMMARY}))
    write_sums(data_dir, sums | {SUMMARY: hashlib.sha256(summary).hexdigest()})


def write_sums_of_older(data_dir: Path, test_names: Iterable[str]) -> None:
    """Write the checksums of data that an older version prepared; print a warning if they cannot be written.

    Such data can be used without checksums, and may lie where this user can only read. Raises CorpusError if token ids
    are missing or cut short, so that no checksums of damaged files are written.
    """
    for split in ("train", "valid"):
        EncodedCorpus.load(data_dir / split)
    try:
        write_data_sums(data_dir, (data_dir / SUMMARY).read_bytes(), test_names)
    except UserError as error:
        print(f"warning: {error}. The data are used as they are, but damage to them cannot be found", file=sys.stderr)


def check_data(data_dir: Path, names: Collection[str]) -> None:
    """Compare these files of a data_dir with their checksums.

    If there are none, because an older version prepared it, prints a warning. Raises CorpusError if a file is not as it
    was written.
    """
    if not has_sums(data_dir):
        print(
            f"warning: {data_dir} holds no {SUMS}, because an older version prepared it, so damage to its files cannot "
            "be found. `python -m transformer_mt.prepare` with the same configuration writes it",
            file=sys.stderr,
        )
    elif damage := fault(data_dir, names):
        raise CorpusError(
            f"{data_dir / damage.name} {damage.what}. Delete the directory {data_dir} and prepare again, or copy it "
            "again from where it is whole"
        )


def data_digests(data_dir: Path) -> dict[str, str]:
    """Return the SHA-256 of the token ids and texts of train and of valid, by these names.

    Names and times of files do not count, so data that were moved, or prepared again from the same text, have the same
    digests.
    """
    sums: Mapping[str, str]
    if has_sums(data_dir):
        sums = read_sums(data_dir)
    else:
        sums = sums_of(data_dir, _existing(data_dir, (*_TRAINING, *_VALIDATION)))
    return {"train": _digest(sums, _TRAINING), "valid": _digest(sums, _VALIDATION)}


def _existing(data_dir: Path, names: Collection[str]) -> list[str]:
    """Return the names of the files that exist. Whoever reads a missing one reports it."""
    return [name for name in names if (data_dir / name).exists()]


def _digest(sums: Mapping[str, str], names: Collection[str]) -> str:
    return hashlib.sha256("".join(f"{sums.get(name)}  {name}\n" for name in names).encode()).hexdigest()
