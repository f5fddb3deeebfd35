"""A tokenizer of Marian as ours: its sentencepiece models, with pieces in the order of our ids.

Marian cuts a line by source.spm or target.spm, and numbers the pieces by vocab.json. We have only a sentencepiece
model, which does both, so this module writes one with the same pieces and scores under new numbers.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from transformer_mt.base.errors import CheckpointError, TokenizerError
from transformer_mt.storage.files import read_json
from transformer_mt.text import tokenizer

# Numbers of fields and values in sentencepiece_model.proto.
_PIECES, _TRAINER_SPEC, _SELF_TEST = 1, 2, 4  # fields of the model
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_BYTE_FALLBACK, _UNK_PIECE, _BOS_PIECE, _EOS_PIECE, _PAD_PIECE = 35, 45, 46, 47, 48
SIDES = ("source.spm", "target.spm")
ADVICE = "copy the complete directory again"
_UNKNOWN_PENALTY = 10.0  # of an unknown character in sentencepiece (unigram_model.cc), below the lowest score


def read_tokenizer(
    directory: Path, config: Mapping[str, Any], texts: Mapping[str, Any]
) -> tuple[tokenizer.Tokenizer, list[int], list[int]]:
    """The tokenizer of a directory, and Marian's id of each of our source and target pieces.

    `config` is its config.json, `texts` its tokenizer_config.json. A piece of a unigram model that vocab.json does not
    have is left out, so the text is cut into smaller pieces, which the model knows. Raises TokenizerError if a file is
    missing or damaged, or if this would change the other pieces.
    """
    originals = [tokenizer.open_model(tokenizer.read_model(directory / name), str(directory / name)) for name in SIDES]
    own_tags = {symbol for original in originals for symbol in tokenizer.user_symbols(original)}
    source_ids = _read_ids(directory / "vocab.json")
    separate = has_two_vocabularies(directory, texts)
    target_ids = _read_ids(directory / "target_vocab.json") if separate else source_ids
    special = [int(config[key]) for key in ("pad_token_id", "decoder_start_token_id", "eos_token_id")]
    of_source = [source_ids.get(name, i) for name, i in zip(("<pad>", "<pad>", "</s>"), special, strict=True)]
    processors, orders = list[SentencePieceProcessor](), list[list[int]]()
    for name, original, ids, known in zip(
        SIDES, originals, (source_ids, target_ids), (of_source if separate else special, special), strict=True
    ):
        place, unknown = str(directory / name), str(texts.get("unk_token") or "<unk>")
        if unknown not in ids:
            raise TokenizerError(f"{directory}: the vocabulary of {name} has no piece {unknown}; {ADVICE}")
        order = our_order(ids, known, ids[unknown], own_tags)
        processors.append(_renumbered(original, [piece for piece, _ in order], place))
        orders.append([i for _, i in order])
    source, target = processors
    is_same = source.serialized_model_proto() == target.serialized_model_proto()
    return tokenizer.Tokenizer(source, source if is_same else target), orders[0], orders[1]


def read_json_object(path: Path) -> dict[str, Any]:
    """Read an object of JSON. Raises CheckpointError."""
    try:
        values = read_json(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); {ADVICE}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: is not an object of JSON; {ADVICE}")
    return values


def has_two_vocabularies(directory: Path, texts: Mapping[str, Any]) -> bool:
    """Whether source and target have a vocabulary each."""
    return bool(texts.get("separate_vocabs", True)) and (directory / "target_vocab.json").is_file()


def our_order(
    ids: Mapping[str, int], special: Sequence[int], unknown: int, own_tags: Collection[str] = ()
) -> list[tuple[str, int]]:
    """Pairs of a piece and Marian's id, in our order: PAD, UNK, BOS, EOS, then the others by Marian's ids.

    `special` are Marian's ids of padding, of the start of a translation and of its end.
    """
    pad, start, end = special
    others = sorted((i, piece) for piece, i in ids.items() if i not in {pad, unknown, start, end})
    taken = {piece for _, piece in others}
    names = [name if name not in taken else f"<{name}>" for name in ("<pad>", "<unk>", "<s>", "</s>")]
    # A tag that sentencepiece does not know includes the space before it: Marian puts no piece there.
    named = [(tokenizer.SPACE + piece if _is_tag(piece) and piece not in own_tags else piece, i) for i, piece in others]
    return [*zip(names, (pad, unknown, start, end), strict=True), *named]


def name_in_marian(piece: str) -> str:
    """The name of a piece of ours in vocab.json."""
    return piece.removeprefix(tokenizer.SPACE) if _is_tag(piece) else piece


def _is_tag(piece: str) -> bool:
    return piece.removeprefix(tokenizer.SPACE).startswith(">>") and piece.endswith("<<")


def _read_ids(path: Path) -> dict[str, int]:
    ids = read_json_object(path)
    if not all(isinstance(i, int) and i >= 0 for i in ids.values()):
        raise TokenizerError(f"{path}: must give the id of each piece; {ADVICE}")
    return ids


def _renumbered(original: SentencePieceProcessor, pieces: list[str], name: str) -> SentencePieceProcessor:
    """A sentencepiece model with these pieces in this order, the first four special; each as the original has it."""
    known = {original.id_to_piece(i): i for i in range(original.get_piece_size())}
    ordinary = [piece for piece, i in known.items() if not (original.is_control(i) or original.is_unknown(i))]
    used = set(pieces)
    missing = sum(piece not in used for piece in ordinary)
    if missing and tokenizer.algorithm_of(original) == "bpe":
        raise TokenizerError(
            f"{name}: {missing} of its pieces are not in the vocabulary of the model. BPE needs them to make other "
            "pieces, so this package cannot use the model"
        )
    lowest = min(original.get_score(i) for i in known.values())
    has_bytes = all(f"<0x{byte:02X}>" in known and f"<0x{byte:02X}>" in used for byte in range(256))
    symbols = set(tokenizer.user_symbols(original))
    messages = []
    for number, piece in enumerate(pieces):
        i = known.get(piece)
        if number < 4:
            kind, score = _UNKNOWN if number == 1 else _CONTROL, 0.0
        elif piece in symbols or _is_tag(piece):
            kind, score = _USER_DEFINED, 0.0
        elif piece not in ordinary or i is None or original.is_unused(i) or (original.is_byte(i) and not has_bytes):
            # Only the other language has it. Where Marian's sentencepiece finds no piece, it returns the character
            # itself, to which vocab.json may give an id; longer pieces never come from it.
            kind = _NORMAL if len(piece) == 1 and not has_bytes else _UNUSED
            score = lowest - _UNKNOWN_PENALTY
        else:
            kind, score = _BYTE if original.is_byte(i) else _NORMAL, original.get_score(i)
        messages.append(tokenizer.piece_field(piece, score, kind))
    special = [(_UNK_PIECE, pieces[1]), (_BOS_PIECE, pieces[2]), (_EOS_PIECE, pieces[3]), (_PAD_PIECE, pieces[0])]
    changes = tokenizer.message_of(
        [(_BYTE_FALLBACK, int(has_bytes)), *((field, text.encode()) for field, text in special)]
    )
    for field, value in tokenizer.fields(original.serialized_model_proto()):
        if field == _TRAINER_SPEC:
            messages.append((field, value + changes))  # of a field that comes twice, the later value counts
        elif field not in (_PIECES, _SELF_TEST):
            messages.append((field, value))
    return tokenizer.open_model(tokenizer.message_of(messages), name)
