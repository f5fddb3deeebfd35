"""Remembers what the tokenizer in a data_dir was trained on, so that it stays when `prepare` goes on there.

Training it again on the same text would give the same tokenizer, but takes time. With a further corpus it would give
another one, and all that was encoded would have to be encoded again.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import CorpusError, TokenizerError
from transformer_mt.settings.corpus import PairedText
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.vocabulary import UNK

ORIGIN = "tokenizer_origin.json"


class TokenizerOrigin(BaseModel):
    """What a tokenizer was trained on, and for which text it is used."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    settings: str
    """A hash of the settings that it was trained with."""
    trained_on: tuple[str, ...]
    """The names of the corpora."""
    used_for: dict[str, str]
    """The digests of the corpora that are encoded with it, by name."""
    digest: str
    """The digest of the tokenizer."""

    @classmethod
    def load(cls, data_dir: Path) -> "TokenizerOrigin | None":
        """Read what `save` wrote; None if it is not there or cannot be read."""
        try:
            return cls.model_validate(read_json(data_dir / ORIGIN))
        except (OSError, ValueError):
            return None

    def save(self, data_dir: Path) -> None:
        """Write tokenizer_origin.json."""
        write_whole(data_dir / ORIGIN, self.model_dump_json(indent=2) + "\n")


def kept_tokenizer(data_dir: Path, settings: str, corpora: Mapping[str, str]) -> Tokenizer | None:
    """Return the tokenizer that a process which was stopped trained for these corpora; None if there is none."""
    origin = TokenizerOrigin.load(data_dir)
    if origin is None or (origin.settings, origin.used_for) != (settings, dict(corpora)):
        return None
    try:
        tokenizer = Tokenizer.load(data_dir)
    except TokenizerError:
        return None
    return tokenizer if tokenizer.digest == origin.digest else None


def check_tag(tokenizer: Tokenizer, text: PairedText) -> None:
    """Raises CorpusError if the tag of a corpus is not a piece of a tokenizer that was trained before."""
    missing = [token for token in (text.tag or "").split() if tokenizer.source.piece_to_id(token) == UNK]
    if missing:
        raise CorpusError(
            f"the tag {missing[0]} of the corpus {text.name} is no piece of the tokenizer, which was trained without "
            "this corpus; choose another data_dir, so that the tokenizer is trained on all corpora"
        )
