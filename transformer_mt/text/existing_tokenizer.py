"""Opens an existing tokenizer, and checks that the settings fit it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_mt.base.errors import TokenizerError
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.storage.checksums import SUMS, TOKENIZERS, fault
from transformer_mt.text.tokenizer import Tokenizer, holds_tokenizer, normalisation, user_symbols

_ADVICE = (
    "name a model directory, such as runs/<name>/model, a run, a prepared data_dir, or a .model file of sentencepiece"
)


def _key(settings: TokenizerConfig) -> str:
    """The setting that names the tokenizer, for messages."""
    key = "from" if settings.extend_from is None else "extend_from"
    return f"tokenizer.{key}={settings.from_ or settings.extend_from}"


def open_existing(path: Path, key: str = "tokenizer.from") -> Tokenizer:
    """Open the tokenizer of a stage's directory, or a sentencepiece file for both languages. Raises TokenizerError."""
    if not path.exists():
        raise TokenizerError(f"{key}={path}: there is no such directory or file; {_ADVICE}")
    if not path.is_dir():
        return Tokenizer.load_file(path)
    if not holds_tokenizer(path):
        raise TokenizerError(f"{key}={path}: this directory has no tokenizer.model; {_ADVICE}")
    if (path / SUMS).exists() and (damage := fault(path, TOKENIZERS)):
        raise TokenizerError(f"{key}={path}: {path / damage.name} {damage.what}; copy the complete directory again")
    return Tokenizer.load(path)


def check_fits(tokenizer: Tokenizer, settings: TokenizerConfig) -> None:
    """Raises TokenizerError if tokenizer.joint is true and the tokenizer has two vocabularies, or the reverse."""
    if tokenizer.joint == settings.joint:
        return
    if tokenizer.joint:
        found, cure = "one vocabulary for both languages", "tokenizer.joint=true"
    else:
        found = "a vocabulary for each language"
        cure = "tokenizer.joint=false and model.tied_embeddings=target (or none)"
    raise TokenizerError(
        f"tokenizer.joint={str(settings.joint).lower()} does not fit {_key(settings)}, which has {found}: set {cure}"
    )


def check_symbols(tokenizer: Tokenizer, settings: TokenizerConfig, tags: Sequence[str]) -> None:
    """Raises TokenizerError if a tag, or one of tokenizer.user_symbols, is not a user-defined piece."""
    keys = dict.fromkeys(tags, "a tag of the corpora")
    keys |= dict.fromkeys(settings.user_symbols, "in tokenizer.user_symbols")
    for symbol, key in keys.items():
        forms = {symbol, f"\u2581{symbol}"}  # a tag of Marian includes the space before it
        if any(forms.isdisjoint(user_symbols(processor)) for processor in tokenizer.processors):
            raise TokenizerError(
                f"{symbol} ({key}) is not a user-defined piece of {_key(settings)}, which would cut it "
                "into pieces like a word. Remove the tag or symbol from the configuration; or train a tokenizer that "
                f"has it: tokenizer.from=null, or `spm_train --user_defined_symbols={symbol}`"
            )


def tokenizer_warnings(tokenizer: Tokenizer) -> Iterator[str]:
    """Yield a warning for each way in which this tokenizer changes text; one that `prepare` trained has none."""
    if not all(processor.is_byte(processor.piece_to_id("<0x00>")) for processor in tokenizer.processors):
        yield (
            "this tokenizer has no byte fallback, so a character that is not one of its pieces becomes the "
            "unknown piece, and is missing in translations"
        )
    for rule in sorted({normalisation(processor) for processor in tokenizer.processors} - {""}):
        yield (
            f"this tokenizer normalises text by the rule {rule}: it replaces some characters by others, and "
            "translations contain only the replacements. For example, nmt_nfkc replaces … by three full stops, and a "
            "rule with a name in _cf replaces capital letters by small ones"
        )
