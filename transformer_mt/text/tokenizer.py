"""Trains, saves and loads sentencepiece tokenizers, and turns text into subword pieces and back."""

import hashlib
import io
import re
import struct
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from transformer_mt.base.errors import TokenizerError
from transformer_mt.base.languages import BOS, EOS, PAD, UNK
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.storage.checksums import TOKENIZERS
from transformer_mt.storage.files import read_regular, write_whole


def tagged(tag: str | None, source: str) -> str:
    """Return a source with the tag before it. A blank source stays blank, so that it still counts as blank."""
    return f"{tag} {source}" if tag and source.strip() else source


# Numbers of fields and values in sentencepiece_model.proto. We read this format ourselves, because sentencepiece's own
# reader needs the package protobuf.
_PIECES, _TRAINER_SPEC, _NORMALIZER_SPEC = 1, 2, 3  # fields of ModelProto
_PIECE, _SCORE, _TYPE = 1, 2, 3  # fields of SentencePiece
NORMAL, USER_DEFINED = 1, 4  # values of its type
_MODEL_TYPE = 3  # a field of TrainerSpec
_NAME, _CHARACTER_MAP = 1, 2  # fields of NormalizerSpec
SPACE = "\u2581"  # stands for a space in pieces
_ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "character"}


def algorithm_of(processor: SentencePieceProcessor) -> str:
    """Return the algorithm by its name in tokenizer.algorithm. sentencepiece leaves out its default, unigram."""
    return _ALGORITHMS.get(_field(processor, _TRAINER_SPEC).get(_MODEL_TYPE, 1), "unknown")


def normalisation(processor: SentencePieceProcessor) -> str:
    """Return the name of sentencepiece's rule for replacing characters; empty if it replaces none."""
    rule = _field(processor, _NORMALIZER_SPEC)
    return rule.get(_NAME, b"").decode() or "without a name" if rule.get(_CHARACTER_MAP) else ""


@lru_cache(maxsize=4)
def user_symbols(processor: SentencePieceProcessor) -> list[str]:
    """Return the user-defined pieces, which the tokenizer never cuts."""
    model = fields(processor.serialized_model_proto())
    pieces = [dict(fields(value)) for number, value in model if number == _PIECES]
    return [piece[_PIECE].decode() for piece in pieces if piece.get(_TYPE) == USER_DEFINED]


def pieces_of(processor: SentencePieceProcessor, ids: Iterable[int] | None = None) -> list[str]:
    """Return the pieces of these ids, or all pieces, in the order of their ids."""
    pieces: list[str] = processor.id_to_piece(list(range(processor.get_piece_size()) if ids is None else ids))
    return pieces


def _field(processor: SentencePieceProcessor, number: int) -> dict[int, Any]:
    """Return the fields of the message that is this field of the model."""
    return dict(fields(dict(fields(processor.serialized_model_proto())).get(number, b"")))


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value, an int or bytes, of each field in a Protocol Buffers message, in order.

    Format: protobuf.dev/programming-guides/encoding. The message comes from sentencepiece, so it is complete.
    """
    at = 0
    while at < len(message):
        tag, at = _variable_length(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _variable_length(message, at)
            yield number, value
        else:  # 5 is a float of 4 bytes; the others are bytes after their length
            length, at = (4, at) if kind == 5 else _variable_length(message, at)
            yield number, message[at : at + length]
            at += length


def _variable_length(message: bytes, at: int) -> tuple[int, int]:
    """Read the number that begins at this byte, seven bits per byte, lowest first. Returns it and the next position."""
    number = shift = 0
    while message[at] & 0x80:
        number |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | message[at] << shift, at + 1


def message_of(content: Iterable[tuple[int, bytes | int | float]]) -> bytes:
    """Write a message of Protocol Buffers from the number and the value of each field."""
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


def piece_field(text: str, score: float, kind: int) -> tuple[int, bytes]:
    """Return a piece as a field of a model, for `message_of`. `kind` is the number of its type."""
    return _PIECES, message_of([(_PIECE, text.encode()), (_SCORE, score), (_TYPE, kind)])


def _varint(number: int) -> bytes:
    """Seven bits per byte, lowest first."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low]) if not rest else bytes([low | 0x80]) + _varint(rest)


_JOINT, _SEPARATE = TOKENIZERS[:1], TOKENIZERS[1:]
_CHARACTERS_PER_LINE = 4000  # training cuts longer lines, because sentencepiece would leave them out
_MANY_MARKS = re.compile("[\u0300-\U0010ffff]{32,}")  # no combining mark comes before U+0300
_MODEL_TYPES = {"bpe": "bpe", "unigram": "unigram", "character": "char"}  # sentencepiece's names for the algorithms
_SURROGATE = re.compile("[\ud800-\udfff]")
_THREADS = 4  # for training; a constant, because the pieces may depend on it
_FEW_LINES = 24  # encoding this many lines takes as long as starting the threads of sentencepiece


@dataclass(frozen=True)
class Tokenizer:
    """The subword pieces of both languages: one sentencepiece model, or one for each language."""

    source: SentencePieceProcessor
    target: SentencePieceProcessor

    @classmethod
    def train(
        cls,
        source_lines: Iterable[str],
        target_lines: Iterable[str],
        settings: TokenizerConfig,
        symbols: Sequence[str] = (),
    ) -> "Tokenizer":
        """Learn the pieces from these lines, which must fit into memory. The same lines give the same pieces.

        Each text in `symbols` becomes a user-defined piece. Raises TokenizerError if tokenizer.vocab_size is more than
        the text has pieces, or less than its characters need.
        """
        source, target = _training_lines(source_lines), _training_lines(target_lines)
        if settings.joint:
            source += target
            target.clear()
            both = _train(source, settings, symbols, "source and target")
            return cls(both, both)
        return cls(_train(source, settings, symbols, "source"), _train(target, settings, symbols, "target"))

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """Load the files that `save` wrote. Raises TokenizerError if one is missing or damaged."""
        if (directory / _SEPARATE[0]).exists():
            return cls(*(_read(directory / name) for name in _SEPARATE))
        return cls.load_file(directory / _JOINT[0])

    @classmethod
    def load_file(cls, path: Path) -> "Tokenizer":
        """Load a sentencepiece model for both languages. Raises TokenizerError if it cannot be used."""
        both = _read(path)
        return cls(both, both)

    def save(self, directory: Path) -> None:
        """Write tokenizer.model, or tokenizer.source.model and tokenizer.target.model."""
        directory.mkdir(parents=True, exist_ok=True)
        names, others = (_JOINT, _SEPARATE) if self.source is self.target else (_SEPARATE, _JOINT)
        for name in others:
            (directory / name).unlink(missing_ok=True)
        for name, model in zip(names, self._models(), strict=True):
            write_whole(directory / name, model)

    @property
    def processors(self) -> list[SentencePieceProcessor]:
        """The sentencepiece model of both languages together, or the two models."""
        return [self.source] if self.source is self.target else [self.source, self.target]

    @property
    def joint(self) -> bool:
        """Whether an id is the same piece on both sides. In Marian, two models may still cut the text differently."""
        if self.source is self.target:
            return True
        return pieces_of(self.source) == pieces_of(self.target)

    @property
    def source_vocab_size(self) -> int:
        return self.source.get_piece_size()

    @property
    def target_vocab_size(self) -> int:
        return self.target.get_piece_size()

    @property
    def digest(self) -> str:
        """The SHA-256 of the model or models, hexadecimal."""
        return hashlib.sha256(b"".join(self._models())).hexdigest()

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of the pieces of each source line, and EOS at the end. A blank line has only EOS."""
        return _encode(self.source, lines)

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        return _encode(self.target, lines)

    def encode_cleaned(self, sources: list[str], targets: list[str]) -> tuple[list[list[int]], list[list[int]]]:
        """Encode lines that are results of `clean`, in a single thread, for use in several processes at once."""
        encode = partial(SentencePieceProcessor.encode, out_type=int, add_eos=True, num_threads=1)
        return encode(self.source, sources), encode(self.target, targets)

    def decode_target(self, ids: Sequence[int]) -> str:
        """Turn ids into a line of text, without special ids. Bytes that are not UTF-8 become U+FFFD.

        decode_target(encode_target([line])[0]) is clean(line).
        """
        text: str = self.target.decode([i for i in ids if i > EOS])
        return clean(text)

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each source id. U+2581 begins a word, and <0x0A> is a byte."""
        return pieces_of(self.source, ids)

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        return pieces_of(self.target, ids)

    def target_ids(self, pieces: Sequence[str]) -> list[int]:
        """Return the ids of pieces, as `target_pieces` returns them. Raises TokenizerError if one is unknown."""
        ids = [int(self.target.piece_to_id(piece)) for piece in pieces]
        for piece, i in zip(pieces, ids, strict=True):
            if i == UNK and piece != self.target.id_to_piece(UNK):
                raise TokenizerError(f"{piece!r} is not a piece of the target vocabulary; write pieces, not words")
        return ids

    def _models(self) -> list[bytes]:
        return [processor.serialized_model_proto() for processor in self.processors]


def holds_tokenizer(directory: Path) -> bool:
    """Whether a directory contains the files that `save` writes."""
    return any((directory / names[0]).is_file() for names in (_JOINT, _SEPARATE))


def clean(line: str) -> str:
    """Normalise a line: NFC, one space for each run of white space, U+FFFD for a surrogate without its partner.

    Only this function changes text, and the changes are invisible. sentencepiece changes nothing: by its rule nmt_nfkc,
    which writes ... for U+2026, no translation could match a reference with the original characters. U+2581, with which
    sentencepiece marks a space, becomes a space.
    """
    if not line.isascii():  # ASCII text needs none of these changes
        if not unicodedata.is_normalized("NFC", line):
            line = unicodedata.normalize("NFC", _MANY_MARKS.sub(_in_canonical_order, line))
        line = line.replace(SPACE, " ")
        # No surrogate is printable, nor is any white space but the space.
        line = line if line.isprintable() else _SURROGATE.sub("\ufffd", line)
    if line.isprintable() and "  " not in line and line[:1] != " " and line[-1:] != " ":
        return line  # most lines need no change, and this check takes a third of the time of the next line
    return " ".join(line.split())


def _in_canonical_order(found: re.Match[str]) -> str:
    """Decompose a text, and sort each run of combining marks by their classes (Unicode, section 3.11, D108).

    The result has the same NFC as the text. Python's own normalisation takes quadratic time unless they are sorted.
    """
    decomposed = "".join(unicodedata.normalize("NFD", character) for character in found[0])
    runs = groupby(decomposed, key=lambda character: unicodedata.combining(character) > 0)
    return "".join("".join(sorted(run, key=unicodedata.combining) if are_marks else run) for are_marks, run in runs)


def _encode(processor: SentencePieceProcessor, lines: Sequence[str]) -> list[list[int]]:
    encode = partial(processor.encode, out_type=int, add_eos=True)
    cleaned = [clean(line) for line in lines]
    # sentencepiece encodes a list in several threads, and starting them takes longer than encoding a few lines.
    ids: list[list[int]] = encode(cleaned) if len(cleaned) > _FEW_LINES else [encode(line) for line in cleaned]
    return ids


def _training_lines(lines: Iterable[str]) -> list[str]:
    # A list, because sentencepiece turns any error of an iterator into a RuntimeError.
    cleaned = (clean(line) for line in lines)
    width = _CHARACTERS_PER_LINE
    return [line[start : start + width] for line in cleaned for start in range(0, len(line), width)]


def taken(lines: list[str]) -> Iterator[str]:
    """Yield the lines in order, and remove them from the list to save memory, because the caller copies them."""
    lines.reverse()
    while lines:
        yield lines.pop()


def _train(lines: list[str], settings: TokenizerConfig, symbols: Sequence[str], side: str) -> SentencePieceProcessor:
    if not lines:
        raise TokenizerError(
            f"there is no {side} text to train a tokenizer on, because every line is blank, unreadable or left out by "
            "filters; check corpus.train, and run `prepare CONFIG --look`"
        )
    model, again = io.BytesIO(), list(lines) if settings.extend_from else []
    try:
        SentencePieceTrainer.train(
            sentence_iterator=taken(lines),
            model_writer=model,
            model_type=_MODEL_TYPES[settings.algorithm],
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            normalization_rule_name="identity",
            byte_fallback=True,
            split_digits=settings.split_digits,
            user_defined_symbols=list(symbols),
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            max_sentence_length=4 * _CHARACTERS_PER_LINE,  # bytes
            num_threads=_THREADS,
            minloglevel=2,  # only errors
        )
    except RuntimeError as error:
        if again and (largest := re.search(r"value <= (\d+)", str(error))):
            # The new text may have fewer pieces than the extended tokenizer, which also has the old ones.
            return _train(again, settings.model_copy(update={"vocab_size": int(largest[1])}), symbols, side)
        raise TokenizerError(_explain(str(error), settings, side)) from error
    return open_model(model.getvalue(), "the trained model")


def _explain(message: str, settings: TokenizerConfig, side: str) -> str:
    setting = f"tokenizer.vocab_size={settings.vocab_size}"
    if largest := re.search(r"value <= (\d+)", message):
        return f"{setting} is more pieces than the {side} text has: lower it to at most {largest[1]}"
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"{setting} is less than the characters of the {side} text and the 256 bytes need: raise it to at least "
            f"{smallest[1]}, or lower tokenizer.character_coverage={settings.character_coverage}"
        )
    return f"sentencepiece cannot train a tokenizer on the {side} text: {message}"


def read_model(path: Path) -> bytes:
    """Read a file of sentencepiece. Raises TokenizerError if it cannot be read."""
    try:
        return read_regular(path)
    except OSError as error:
        raise TokenizerError(
            f"{path}: cannot be read ({error.strerror}); `python -m transformer_mt.prepare` writes it into data_dir, "
            "and `average` into a model directory: copy the complete directory again"
        ) from None


def open_model(model: bytes, name: str) -> SentencePieceProcessor:
    """Open a model of sentencepiece. Raises TokenizerError, with this name, if it is damaged."""
    processor = SentencePieceProcessor()
    try:
        processor.load_from_serialized_proto(model)
        pieces_of(processor)
    except (RuntimeError, UnicodeDecodeError):  # not a sentencepiece model, or one with a piece that is not UTF-8
        raise TokenizerError(
            f"{name}: is not a sentencepiece model, or is damaged; prepare again, or copy it again"
        ) from None
    return processor


def _read(path: Path) -> SentencePieceProcessor:
    processor = open_model(read_model(path), str(path))
    special = processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()
    if special != (PAD, UNK, BOS, EOS):
        raise TokenizerError(
            f"{path}: the special pieces pad, unk, bos and eos have the ids {special} instead of "
            f"{(PAD, UNK, BOS, EOS)}. Use a tokenizer that `python -m transformer_mt.prepare` wrote, or train one with "
            f"`spm_train --pad_id={PAD} --unk_id={UNK} --bos_id={BOS} --eos_id={EOS} --byte_fallback=true "
            "--normalization_rule_name=identity`"
        )
    return processor
