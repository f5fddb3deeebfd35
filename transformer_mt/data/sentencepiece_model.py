"""Reads from a model of sentencepiece what sentencepiece has no function for: its algorithm, its rules, its symbols."""

from collections.abc import Iterator

from sentencepiece import SentencePieceProcessor

# Numbers of fields and values in sentencepiece_model.proto. sentencepiece's own reader of this format needs the package
# protobuf.
_PIECES, _TRAINER_SPEC, _NORMALIZER_SPEC = 1, 2, 3  # fields of ModelProto
_PIECE, _TYPE = 1, 3  # fields of SentencePiece
_USER_DEFINED = 4  # a value of its type
_MODEL_TYPE = 3  # a field of TrainerSpec
_NAME, _CHARACTER_MAP = 1, 2  # fields of NormalizerSpec
_ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "character"}


def algorithm_of(processor: SentencePieceProcessor) -> str:
    """Return the algorithm, as tokenizer.algorithm names it. sentencepiece leaves out its default, unigram."""
    number = dict(_fields(_message(processor, _TRAINER_SPEC))).get(_MODEL_TYPE, 1)
    return _ALGORITHMS.get(number, "unknown") if isinstance(number, int) else "unknown"


def normalisation(processor: SentencePieceProcessor) -> str:
    """Return the name of the rule by which sentencepiece replaces characters; empty if it replaces none."""
    fields = dict(_fields(_message(processor, _NORMALIZER_SPEC)))
    name = fields.get(_NAME, b"")
    if not fields.get(_CHARACTER_MAP):
        return ""
    return name.decode() if isinstance(name, bytes) and name else "without a name"


def user_symbols(processor: SentencePieceProcessor) -> list[str]:
    """Return the user-defined pieces, which are kept whole wherever they stand in a text."""
    found = []
    for number, value in _fields(processor.serialized_model_proto()):
        if number != _PIECES or not isinstance(value, bytes):
            continue
        piece = dict(_fields(value))
        text = piece.get(_PIECE)
        if piece.get(_TYPE) == _USER_DEFINED and isinstance(text, bytes):
            found.append(text.decode())
    return found


def _message(processor: SentencePieceProcessor, number: int) -> bytes:
    value = dict(_fields(processor.serialized_model_proto())).get(number, b"")
    return value if isinstance(value, bytes) else b""


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Give the number and the value of each field in a message of Protocol Buffers, in order.

    sentencepiece has just written the message, so it is complete (protobuf.dev/programming-guides/encoding).
    """
    at = 0
    while at < len(message):
        tag, at = _variable_length(message, at)
        match tag & 7:
            case 0:
                value, at = _variable_length(message, at)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _variable_length(message, at)
            case _:
                length = 4
        yield tag >> 3, message[at : at + length]
        at += length


def _variable_length(message: bytes, at: int) -> tuple[int, int]:
    """Read the number that begins at this byte, seven bits per byte, lowest first. Returns it and where it ends."""
    number = shift = 0
    while message[at] & 0x80:
        number |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | message[at] << shift, at + 1
