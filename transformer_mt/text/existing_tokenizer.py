"""Opens an existing tokenizer, checks that the settings fit it, and adds pieces for other languages or texts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from transformer_mt.base.errors import TokenizerError
from transformer_mt.base.languages import UNK
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.storage.checksums import SUMS, TOKENIZERS, fault
from transformer_mt.text.tokenizer import (
    NORMAL,
    SPACE,
    USER_DEFINED,
    Tokenizer,
    algorithm_of,
    holds_tokenizer,
    message_of,
    normalisation,
    open_model,
    piece_field,
    pieces_of,
    user_symbols,
)

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
        forms = {symbol, f"{SPACE}{symbol}"}  # a tag of Marian includes the space before it
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


def extended(old: Tokenizer, trained: Tokenizer, settings: TokenizerConfig, symbols: Sequence[str]) -> Tokenizer:
    """Return the old tokenizer with `symbols` and the first pieces of `trained` that it lacks, up to vocab_size.

    With BPE, the new pieces are merged after all old ones, so text that needs no new piece is cut as before. Raises
    TokenizerError if vocab_size leaves no room, or if the old tokenizer was trained with another algorithm.
    """
    found = algorithm_of(old.source)
    if found != settings.algorithm:
        raise TokenizerError(
            f"tokenizer.extend_from={settings.extend_from} was trained with the algorithm {found}: set "
            f"tokenizer.algorithm={found}, not {settings.algorithm}"
        )
    if old.joint:  # the two models of Marian have the same ids, so both get the same pieces
        added = _added(old.processors, trained.source, settings, symbols)
        models = [_grown(processor, added) for processor in old.processors]
    else:
        sides = zip(old.processors, trained.processors, strict=True)
        models = [_grown(before, _added([before], new, settings, symbols)) for before, new in sides]
    return Tokenizer(models[0], models[-1])


Piece = tuple[str, float, int]  # its text, score and type


def _added(
    old: Sequence[SentencePieceProcessor],
    trained: SentencePieceProcessor,
    settings: TokenizerConfig,
    symbols: Sequence[str],
) -> list[Piece]:
    """Return the new pieces for models with the same ids. Raises TokenizerError if there is room for none."""
    before = set(pieces_of(old[0]))
    space = SPACE if any(symbol.startswith(SPACE) for symbol in user_symbols(old[0])) else ""  # as in tags of Marian
    new_symbols = [symbol for symbol in (space + symbol for symbol in symbols) if symbol not in before]
    room = settings.vocab_size - len(before) - len(new_symbols)
    if room < 0 or room + len(new_symbols) == 0:
        raise TokenizerError(
            f"tokenizer.vocab_size={settings.vocab_size} is too small to extend {settings.extend_from}, which has "
            f"{len(before):,} pieces, by {len(new_symbols)} new tags and user_symbols and by new pieces: raise it"
        )
    taken = {*before, *new_symbols, *symbols}
    special = trained.is_control, trained.is_unknown, trained.is_byte
    others = [number for number, piece in enumerate(pieces_of(trained)) if piece not in taken]
    others = [number for number in others if not any(is_special(number) for is_special in special)]
    others.sort(key=lambda number: len(trained.id_to_piece(number)) > 1)  # letters first: without them, words are bytes
    scores = [trained.get_score(number) for number in others]
    if settings.algorithm != "unigram":
        lowest = min(processor.get_score(number) for processor in old for number in range(len(before)))
        scores = [lowest - rank for rank in range(1, len(others) + 1)]
    pieces = [
        (trained.id_to_piece(number), score, NORMAL) for number, score in zip(others[:room], scores, strict=False)
    ]
    return [(symbol, 0.0, USER_DEFINED) for symbol in new_symbols] + pieces


def _grown(processor: SentencePieceProcessor, added: Sequence[Piece]) -> SentencePieceProcessor:
    """Return the model with these pieces after its own. In a Protocol Buffers message, a list may continue anywhere."""
    pieces = message_of(piece_field(*piece) for piece in added)
    return open_model(processor.serialized_model_proto() + pieces, "the extended model")


def old_parts(tokenizer: Tokenizer, old: Tokenizer) -> tuple[list[list[int]], list[list[int]]] | None:
    """Return the ids of the old pieces from which each new piece can be put together, for source and target.

    None if `tokenizer` does not begin with all pieces of `old`. From left to right, each part is the longest old piece,
    or the bytes of a character that no old piece has.
    """
    parts = []
    for grown, before in ((tokenizer.source, old.source), (tokenizer.target, old.target)):
        pieces, ids = pieces_of(grown), {piece: number for number, piece in enumerate(pieces_of(before))}
        if pieces[: len(ids)] != list(ids):
            return None
        parts.append([_parts(piece, ids) for piece in pieces[len(ids) :]])
    return parts[0], parts[1]


def _parts(piece: str, ids: Mapping[str, int]) -> list[int]:
    parts, start = list[int](), 0
    while start < len(piece):
        end = next((end for end in range(len(piece), start, -1) if piece[start:end] in ids), None)
        if end is None:
            end = start + 1
            parts += [ids.get(f"<0x{byte:02X}>", UNK) for byte in piece[start:end].encode()]
        else:
            parts.append(ids[piece[start:end]])
        start = end
    return parts
