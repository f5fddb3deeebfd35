"""Opens a tokenizer that exists already, and checks which settings fit it."""

from pathlib import Path

from sentencepiece import SentencePieceProcessor

from transformer_mt.data.tokenizer import Tokenizer, holds_tokenizer
from transformer_mt.errors import TokenizerError
from transformer_mt.settings.experiment import TokenizerConfig
from transformer_mt.storage.checksums import fault, has_sums
from transformer_mt.storage.run_directory import TOKENIZERS

# Numbers of fields and values in sentencepiece_model.proto. sentencepiece has no function that returns these values,
# and its own reader of this format needs the package protobuf.
_TRAINER_SPEC, _NORMALIZER_SPEC = 2, 3  # fields of ModelProto
_MODEL_TYPE = 3  # a field of TrainerSpec
_NAME, _CHARACTER_MAP = 1, 2  # fields of NormalizerSpec
_ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}

_ADVICE = (
    "name a model directory, such as runs/<name>/model, a run, a prepared data_dir, or a .model file of sentencepiece"
)


def open_existing(path: Path) -> Tokenizer:
    """Open the tokenizer in a directory that a stage wrote, or in a sentencepiece file, which serves both languages.

    Raises TokenizerError if there is none, or if it is damaged or has other ids for its special pieces.
    """
    if not path.exists():
        raise TokenizerError(f"tokenizer.from={path}: there is no such directory or file; {_ADVICE}")
    if not path.is_dir():
        return Tokenizer.load_file(path)
    if not holds_tokenizer(path):
        raise TokenizerError(f"tokenizer.from={path}: this directory holds no tokenizer.model; {_ADVICE}")
    if has_sums(path) and (damage := fault(path, TOKENIZERS)):
        raise TokenizerError(
            f"tokenizer.from={path}: {path / damage.name} {damage.what}; copy the whole directory again"
        )
    return Tokenizer.load(path)


def check_fits(tokenizer: Tokenizer, settings: TokenizerConfig) -> None:
    """Raises TokenizerError if tokenizer.joint says one vocabulary and the tokenizer has two, or the reverse."""
    if tokenizer.joint == settings.joint:
        return
    if tokenizer.joint:
        found, cure = "one vocabulary for both languages", "tokenizer.joint=true"
    else:
        found = "a vocabulary for each language"
        cure = "tokenizer.joint=false and model.tied_embeddings=target (or none)"
    raise TokenizerError(
        f"tokenizer.joint={str(settings.joint).lower()} does not fit tokenizer.from={settings.from_}, which has "
        f"{found}: set {cure}"
    )


def check_sampling(tokenizer: Tokenizer, settings: TokenizerConfig, subword_sampling: float) -> None:
    """Raises TokenizerError if subword sampling is on, and the tokenizer has another algorithm than the settings."""
    if not subword_sampling:
        return
    for algorithm in _algorithms(tokenizer):
        if algorithm == settings.algorithm:
            continue
        if algorithm in ("bpe", "unigram"):
            cure = f"Set tokenizer.algorithm={algorithm}, and training.subword_sampling to a value that suits it"
        else:
            cure = "Set training.subword_sampling=0: only bpe and unigram can be sampled"
        raise TokenizerError(
            f"training.subword_sampling={subword_sampling} is meant for tokenizer.algorithm={settings.algorithm}, but "
            f"the tokenizer was trained with the algorithm {algorithm}. {cure}"
        )


def remarks(tokenizer: Tokenizer, settings: TokenizerConfig) -> list[str]:
    """Return a line about each setting that has no effect, and about each way in which this tokenizer changes text.

    There are none about a tokenizer that `prepare` trained with the same settings.
    """
    algorithms = " and ".join(sorted(set(_algorithms(tokenizer))))
    sizes = sorted({tokenizer.source_vocab_size, tokenizer.target_vocab_size})
    found = []
    if sizes != [settings.vocab_size]:
        pieces = " and ".join(f"{size:,}" for size in sizes)
        found.append(
            f"note: tokenizer.vocab_size={settings.vocab_size} is not used: this tokenizer has {pieces} pieces"
        )
    if algorithms != settings.algorithm:
        found.append(
            f"note: tokenizer.algorithm={settings.algorithm} is not used: this tokenizer was trained with the "
            f"algorithm {algorithms}"
        )
    if not all(processor.is_byte(processor.piece_to_id("<0x00>")) for processor in _processors(tokenizer)):
        found.append(
            "warning: this tokenizer has no byte fallback, so characters that are not among its pieces become the "
            "unknown piece, and are missing from translations"
        )
    rules = {_normalisation(processor) for processor in _processors(tokenizer)} - {""}
    found += [
        f"warning: this tokenizer normalises text by the rule {rule}: it replaces some characters by others, and "
        "translations contain only the replacements. For example, nmt_nfkc replaces … by three full stops, and rules "
        "that end in _cf replace capital letters by small ones"
        for rule in sorted(rules)
    ]
    return found


def _processors(tokenizer: Tokenizer) -> list[SentencePieceProcessor]:
    return [tokenizer.source] if tokenizer.joint else [tokenizer.source, tokenizer.target]


def _algorithms(tokenizer: Tokenizer) -> list[str]:
    """Return the algorithm of each side. sentencepiece leaves the name out if it is its default, unigram."""
    numbers = [_fields(_message(processor, _TRAINER_SPEC)).get(_MODEL_TYPE, 1) for processor in _processors(tokenizer)]
    return [_ALGORITHMS.get(number, "unknown") if isinstance(number, int) else "unknown" for number in numbers]


def _normalisation(processor: SentencePieceProcessor) -> str:
    """Return the name of the rule by which sentencepiece replaces characters; empty if it replaces none."""
    fields = _fields(_message(processor, _NORMALIZER_SPEC))
    name = fields.get(_NAME, b"")
    if not fields.get(_CHARACTER_MAP):
        return ""
    return name.decode() if isinstance(name, bytes) and name else "without a name"


def _message(processor: SentencePieceProcessor, number: int) -> bytes:
    value = _fields(processor.serialized_model_proto()).get(number, b"")
    return value if isinstance(value, bytes) else b""


def _fields(message: bytes) -> dict[int, int | bytes]:
    """Return the last value of each field in a message of Protocol Buffers, by the number of the field.

    sentencepiece has just written the message, so it is complete (protobuf.dev/programming-guides/encoding).
    """
    fields: dict[int, int | bytes] = {}
    at = 0
    while at < len(message):
        tag, at = _variable_length(message, at)
        match tag & 7:
            case 0:
                fields[tag >> 3], at = _variable_length(message, at)
                continue
            case 1:
                length = 8
            case 2:
                length, at = _variable_length(message, at)
            case _:
                length = 4
        fields[tag >> 3] = message[at : at + length]
        at += length
    return fields


def _variable_length(message: bytes, at: int) -> tuple[int, int]:
    """Read the number that begins at this byte, seven bits per byte, lowest first. Returns it and where it ends."""
    number = shift = 0
    while message[at] & 0x80:
        number |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | message[at] << shift, at + 1
