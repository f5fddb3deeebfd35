"""Subword pieces: train, save, load, encode, decode. The pieces are sentencepiece's."""

import hashlib
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from transformer_mt.errors import TokenizerError
from transformer_mt.settings.experiment import TokenizerConfig
from transformer_mt.storage.checksums import read_regular
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.run_directory import TOKENIZERS
from transformer_mt.vocabulary import BOS, EOS, PAD, UNK

_JOINT, _SEPARATE = TOKENIZERS[:1], TOKENIZERS[1:]
_CHARACTERS_PER_LINE = 4000  # in training; sentencepiece drops lines that are longer than it is told
_MANY_MARKS = re.compile("[\u0300-\U0010ffff]{32,}")  # no combining mark comes before U+0300
_THREADS = 4  # in training; a number of its own, because the pieces may depend on it
_FEW_LINES = 24  # are encoded in the time that sentencepiece takes to start its threads


@dataclass(frozen=True)
class Tokenizer:
    """The pieces of both languages: one model if `joint`, or one each."""

    source: SentencePieceProcessor
    target: SentencePieceProcessor

    @classmethod
    def train(cls, source_lines: Iterable[str], target_lines: Iterable[str], settings: TokenizerConfig) -> "Tokenizer":
        """Learn the pieces from all these lines, which are held in memory; the same lines, the same pieces.

        Raises TokenizerError if the text has not so many pieces, or needs more for its characters alone.
        """
        source, target = _training_lines(source_lines), _training_lines(target_lines)
        if settings.joint:
            both = _processor(_train(source + target, settings, "source and target"), "the trained model")
            return cls(both, both)
        models = [_train(source, settings, "source"), _train(target, settings, "target")]
        return cls(*(_processor(model, "the trained model") for model in models))

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """What `save` wrote; raises TokenizerError if a file is missing or damaged."""
        if (directory / _SEPARATE[0]).exists():
            return cls(*(_read(directory / name) for name in _SEPARATE))
        return cls.load_file(directory / _JOINT[0])

    @classmethod
    def load_file(cls, path: Path) -> "Tokenizer":
        """Read a file of sentencepiece, for both languages. Raises TokenizerError if it is missing or does not fit."""
        both = _read(path)
        return cls(both, both)

    def save(self, directory: Path) -> None:
        """Write tokenizer.model, or tokenizer.source.model and tokenizer.target.model, each whole."""
        directory.mkdir(parents=True, exist_ok=True)
        names, others = (_JOINT, _SEPARATE) if self.joint else (_SEPARATE, _JOINT)
        for name in others:
            (directory / name).unlink(missing_ok=True)
        for name, model in zip(names, self._models(), strict=True):
            write_whole(directory / name, model)

    @property
    def joint(self) -> bool:
        return self.source is self.target

    @property
    def source_vocab_size(self) -> int:
        return self.source.get_piece_size()

    @property
    def target_vocab_size(self) -> int:
        return self.target.get_piece_size()

    @property
    def digest(self) -> str:
        """SHA-256 of the model or models, hexadecimal."""
        return hashlib.sha256(b"".join(self._models())).hexdigest()

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line's pieces, then EOS; of EOS alone for a blank line."""
        return _encode(self.source, lines)

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Likewise."""
        return _encode(self.target, lines)

    def decode_target(self, ids: Sequence[int]) -> str:
        """One line of text. Special ids are left out; bytes that are not UTF-8 become U+FFFD.

        decode_target(encode_target([line])[0]) is the line in NFC, each stretch of whitespace one space.
        """
        text: str = self.target.decode([i for i in ids if i > EOS])
        return clean(text)

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as sentencepiece spells it: U+2581 before the first piece of a word, <0x0A> for a byte."""
        pieces: list[str] = self.source.id_to_piece(list(ids))
        return pieces

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Likewise."""
        pieces: list[str] = self.target.id_to_piece(list(ids))
        return pieces

    def target_ids(self, pieces: Sequence[str]) -> list[int]:
        """The ids of target_pieces. Raises TokenizerError if one is no piece of the vocabulary."""
        ids = [int(self.target.piece_to_id(piece)) for piece in pieces]
        for piece, i in zip(pieces, ids, strict=True):
            if i == UNK and piece != self.target.id_to_piece(UNK):
                raise TokenizerError(f"{piece!r} is no piece of the target vocabulary; give pieces, not words")
        return ids

    def _models(self) -> list[bytes]:
        processors = [self.source] if self.joint else [self.source, self.target]
        return [processor.serialized_model_proto() for processor in processors]


def holds_tokenizer(directory: Path) -> bool:
    """Whether `save` has written there."""
    return any((directory / names[0]).is_file() for names in (_JOINT, _SEPARATE))


def clean(line: str) -> str:
    """NFC; each stretch of whitespace one space; no lone surrogate, which UTF-8 cannot write.

    All that is lost of a line is lost here, and none of it is seen. sentencepiece itself changes nothing:
    its nmt_nfkc would write ... for U+2026, 1/2 for one half, and ASCII for Chinese punctuation, also in what
    the model learns to write, so that no translation could match a reference that has them.
    U+2581, sentencepiece's sign for a space, is one here too.
    """
    if not line.isascii():  # else none of it is there
        line = re.sub("[\ud800-\udfff]", "\ufffd", _nfc(line)).replace("\u2581", " ")
    return " ".join(line.split())


def _nfc(line: str) -> str:
    """The line in NFC, in linear time."""
    if unicodedata.is_normalized("NFC", line):
        return line
    return unicodedata.normalize("NFC", _MANY_MARKS.sub(_in_canonical_order, line))


def _in_canonical_order(found: re.Match[str]) -> str:
    """The same text, decomposed, each run of combining marks sorted by their classes (Unicode, section 3.11, D108).

    NFC of it is NFC of the text. Python sorts the marks by insertion, which is quadratic unless they are sorted.
    """
    decomposed = "".join(unicodedata.normalize("NFD", character) for character in found[0])
    runs = groupby(decomposed, key=lambda character: unicodedata.combining(character) > 0)
    return "".join("".join(sorted(run, key=unicodedata.combining) if are_marks else run) for are_marks, run in runs)


def _encode(processor: SentencePieceProcessor, lines: Sequence[str]) -> list[list[int]]:
    encode = partial(processor.encode, out_type=int, add_eos=True)
    cleaned = [clean(line) for line in lines]
    # A list is shared by threads, and to start them takes longer than a few lines.
    ids: list[list[int]] = encode(cleaned) if len(cleaned) > _FEW_LINES else [encode(line) for line in cleaned]
    return ids


def _training_lines(lines: Iterable[str]) -> list[str]:
    # A list, because sentencepiece makes a RuntimeError of whatever an iterator raises.
    cleaned = (clean(line) for line in lines)
    width = _CHARACTERS_PER_LINE
    return [line[start : start + width] for line in cleaned for start in range(0, len(line), width)]


def _train(lines: list[str], settings: TokenizerConfig, side: str) -> bytes:
    if not lines:
        raise TokenizerError(f"no {side} text to train a tokenizer on: every line is blank; see corpus.train")
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.algorithm,
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            normalization_rule_name="identity",
            byte_fallback=True,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            max_sentence_length=4 * _CHARACTERS_PER_LINE,  # bytes
            num_threads=_THREADS,
            minloglevel=2,  # errors alone
        )
    except RuntimeError as error:
        raise TokenizerError(_explain(str(error), settings, side)) from error
    return model.getvalue()


def _explain(message: str, settings: TokenizerConfig, side: str) -> str:
    asked = f"tokenizer.vocab_size={settings.vocab_size}"
    if largest := re.search(r"value <= (\d+)", message):
        return f"{asked} is more than the {side} text has pieces: at most {largest[1]}; lower it"
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"{asked} is less than the characters of the {side} text and the 256 bytes need: at least "
            f"{smallest[1]}; raise it, or lower tokenizer.character_coverage={settings.character_coverage}"
        )
    return f"sentencepiece cannot train a tokenizer on the {side} text: {message}"


def _read(path: Path) -> SentencePieceProcessor:
    try:
        model = read_regular(path)
    except OSError as error:
        raise TokenizerError(
            f"{path}: cannot be read ({error.strerror}); `python -m transformer_mt.prepare` writes it beside the data, "
            "and `average` beside a model: copy the whole directory of either"
        ) from None
    return _processor(model, str(path))


def _processor(model: bytes, name: str) -> SentencePieceProcessor:
    try:
        processor = SentencePieceProcessor(model_proto=model) if model else None
        if processor is not None:
            processor.id_to_piece(list(range(processor.get_piece_size())))
    except (RuntimeError, UnicodeDecodeError):  # no model of sentencepiece, or one with a piece that is not UTF-8
        processor = None
    if processor is None:
        raise TokenizerError(f"{name}: is not a sentencepiece model, or damaged; prepare again or copy it again")
    special = processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()
    if special != (PAD, UNK, BOS, EOS):
        raise TokenizerError(
            f"{name}: its special pieces pad, unk, bos and eos have the ids {special} instead of "
            f"{(PAD, UNK, BOS, EOS)}. Use a tokenizer that `python -m transformer_mt.prepare` wrote, or train one with "
            f"`spm_train --pad_id={PAD} --unk_id={UNK} --bos_id={BOS} --eos_id={EOS} --byte_fallback=true "
            "--normalization_rule_name=identity`"
        )
    return processor
