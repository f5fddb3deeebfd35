"""A tokenizer of Marian as ours: its sentencepiece models, with pieces in the order of our ids.

Marian cuts a line by source.spm or target.spm, and numbers the pieces by vocab.json. We have only a sentencepiece
model, which does both, so this module writes one with the same pieces and scores under new numbers.
"""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from transformer_mt.base.errors import TokenizerError
from transformer_mt.marian.marian_directory import read_json_object
from transformer_mt.text.tokenizer import Tokenizer, fields, open_model, read_model

# Numbers of fields and values in sentencepiece_model.proto.
_PIECES, _TRAINER_SPEC = 1, 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_BYTE_FALLBACK, _UNK_PIECE, _BOS_PIECE, _EOS_PIECE, _PAD_PIECE = 35, 45, 46, 47, 48
_SPACE = "\u2581"
_UNKNOWN_PENALTY = 10.0  # of an unknown character in sentencepiece (unigram_model.cc), below the lowest score


def read_tokenizer(directory: Path, config: Mapping[str, Any]) -> tuple[Tokenizer, list[int], list[int]]:
    """The tokenizer of a directory with this config.json, and Marian's id of each of our source and target pieces.

    A piece that a .spm file has and vocab.json has not is unknown to the model. It is left out, so the text is cut into
    smaller pieces, which the model knows. Raises TokenizerError if a file is missing or damaged.
    """
    source_ids = _read_ids(directory / "vocab.json")
    separate = directory / "target_vocab.json"
    target_ids = _read_ids(separate) if separate.is_file() else source_ids
    processors, orders = list[SentencePieceProcessor](), list[list[int]]()
    for name, ids in (("source.spm", source_ids), ("target.spm", target_ids)):
        order = our_order(ids, config)
        original = open_model(read_model(directory / name), str(directory / name))
        processors.append(_renumbered(original, [piece for piece, _ in order], str(directory / name)))
        orders.append([i for _, i in order])
    return Tokenizer(processors[0], processors[1]), orders[0], orders[1]


def our_order(ids: Mapping[str, int], config: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Pairs of a piece and Marian's id, in our order: PAD, UNK, BOS, EOS, then the others by Marian's ids."""
    unknown = ids.get("<unk>", config.get("unk_token_id", -1))
    pad, start, end = (int(config[key]) for key in ("pad_token_id", "decoder_start_token_id", "eos_token_id"))
    special = {pad, unknown, start, end}
    others = sorted((i, piece) for piece, i in ids.items() if i not in special)
    taken = {piece for _, piece in others}
    names = [name if name not in taken else f"<{name}>" for name in ("<pad>", "<unk>", "<s>", "</s>")]
    return [*zip(names, (pad, unknown, start, end), strict=True), *((_named(piece), i) for i, piece in others)]


def _named(piece: str) -> str:
    """The name of a piece in our tokenizer. A tag such as >>deu<< includes the space before it, as no piece follows."""
    return _SPACE + piece if _is_tag(piece) else piece


def name_in_marian(piece: str) -> str:
    """The name of a piece of ours in vocab.json."""
    return piece.removeprefix(_SPACE) if _is_tag(piece) else piece


def _is_tag(piece: str) -> bool:
    return piece.removeprefix(_SPACE).startswith(">>") and piece.endswith("<<")


def _read_ids(path: Path) -> dict[str, int]:
    ids = read_json_object(path)
    if not all(isinstance(i, int) for i in ids.values()):
        raise TokenizerError(f"{path}: must give the id of each piece; copy the complete directory again")
    return ids


def _renumbered(original: SentencePieceProcessor, pieces: list[str], name: str) -> SentencePieceProcessor:
    """A sentencepiece model with these pieces in this order, the first four special; each as the original has it."""
    known = {original.id_to_piece(i): i for i in range(original.get_piece_size())}
    lowest = min(original.get_score(i) for i in known.values())
    messages = []
    for number, piece in enumerate(pieces):
        i = known.get(piece)
        if number < 4:
            kind, score = _UNKNOWN if number == 1 else _CONTROL, 0.0
        elif _is_tag(piece):
            kind, score = _USER_DEFINED, 0.0
        elif i is None or original.is_control(i) or original.is_unknown(i) or original.is_unused(i):
            # Only the other language has it. Where Marian's sentencepiece finds no piece, it returns the character
            # itself, to which vocab.json may give an id; longer pieces never come from it.
            kind, score = _NORMAL if len(piece) == 1 else _UNUSED, lowest - _UNKNOWN_PENALTY
        else:
            kind, score = _BYTE if original.is_byte(i) else _NORMAL, original.get_score(i)
        messages.append((_PIECES, _message([(1, piece.encode()), (2, score), (3, kind)])))
    has_bytes = "<0x00>" in known and "<0x00>" in pieces
    special = [(_UNK_PIECE, pieces[1]), (_BOS_PIECE, pieces[2]), (_EOS_PIECE, pieces[3]), (_PAD_PIECE, pieces[0])]
    changes = _message([(_BYTE_FALLBACK, int(has_bytes)), *((field, text.encode()) for field, text in special)])
    for field, value in fields(original.serialized_model_proto()):
        if field == _TRAINER_SPEC:
            messages.append((field, value + changes))  # of a field that comes twice, the later value counts
        elif field != _PIECES:
            messages.append((field, value))
    return open_model(_message(messages), name)


def _message(content: Iterable[tuple[int, bytes | int | float]]) -> bytes:
    """Write a message of Protocol Buffers from the number and the value of each field (see text/tokenizer.py)."""
    parts = []
    for field, value in content:
        match value:
            case bytes():
                parts += [_varint(field << 3 | 2), _varint(len(value)), value]
            case int():
                parts += [_varint(field << 3), _varint(value)]
            case float():
                parts += [_varint(field << 3 | 5), struct.pack("<f", value)]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Seven bits per byte, lowest first."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low]) if not rest else bytes([low | 0x80]) + _varint(rest)
