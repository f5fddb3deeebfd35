"""Reads what `prepare` wrote about a data_dir, and checks that the tokenizer there made its token ids."""

import json
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.data.existing_tokenizer import open_existing
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import CorpusError
from transformer_mt.settings import CorpusConfig, TokenizerConfig

SUMMARY = "prepare.json"


@dataclass(frozen=True)
class Prepared:
    """What made a data_dir."""

    directory: Path
    corpus: CorpusConfig
    tokenizer: TokenizerConfig
    digests: dict[str, str]
    """Of the text, by the names of what was written of it."""
    tokenizer_digest: str

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer of the token ids. Raises CorpusError if another one lies there now."""
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
        """Whether these settings train the same tokenizer from the same text.

        Of an existing one, it is enough that both name one, for one vocabulary or for two: the file may be moved,
        and `tokenizer_changes` compares what is in it.
        """
        if self.tokenizer.from_ is None or settings.from_ is None:
            return self.tokenizer == settings
        return self.tokenizer.joint == settings.joint

    def tokenizer_changes(self, settings: TokenizerConfig) -> list[str]:
        """How the existing tokenizer that the settings name differs from that of this data; empty if it does not.

        The file may have been moved, or be gone if the settings still name it as they did. Raises TokenizerError
        if another place is named and no tokenizer is there.
        """
        path = settings.from_
        if path is None or (path == self.tokenizer.from_ and not Path(path).exists()):
            return []
        digest = open_existing(Path(path)).digest
        if digest == self.tokenizer_digest:
            return []
        return [f"tokenizer.from={path} is another tokenizer (digest {self.tokenizer_digest[:8]}, now {digest[:8]})"]


def read_prepared(data_dir: Path) -> Prepared | None:
    """None if `prepare` has not finished there, or if what it wrote cannot be read."""
    try:
        content = json.loads((data_dir / SUMMARY).read_text(encoding="utf-8"))
        return Prepared(
            data_dir,
            CorpusConfig.model_validate(content["corpus"]),
            TokenizerConfig.model_validate(content["tokenizer"]),
            dict(content["digests"]),
            str(content["tokenizer_digest"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
