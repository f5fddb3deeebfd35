"""Text survives its pieces; ids of special symbols are never made of text."""

import io
import random
import re
import unicodedata
from pathlib import Path

import pytest
from helpers.messages import message
from helpers.text import ENGLISH, GERMAN, ODD, settings
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from transformer_mt.base.errors import TokenizerError
from transformer_mt.base.languages import BOS, EOS, PAD, UNK
from transformer_mt.text.tokenizer import Tokenizer, clean, user_symbols


@pytest.fixture(scope="module", params=["bpe", "unigram", "character"])
def joint(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(ENGLISH, GERMAN, settings(algorithm=request.param, character_coverage=1.0))


def visible(line: str) -> str:
    """What a reader sees of a line: the test of decode_target in its docstring, said once more."""
    line = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else " " if c == "\u2581" else c for c in line)
    return " ".join(unicodedata.normalize("NFC", line).split())


def random_lines(count: int) -> list[str]:
    generator = random.Random(0)
    ranges = [(0, 0x250), (0x300, 0x370), (0x2000, 0x2100), (0x2500, 0x2600), (0x3000, 0x3100), (0, 0x110000)]

    def character() -> str:
        return chr(generator.randrange(*generator.choice(ranges)))

    return ["".join(character() for _ in range(generator.randrange(30))) for _ in range(count)]


def test_text_survives(joint: Tokenizer) -> None:
    lines = ENGLISH + GERMAN + ODD + random_lines(2000)
    for line, ids in zip(lines, joint.encode_target(lines), strict=True):
        assert joint.decode_target(ids) == visible(line)
    assert joint.encode_source(lines) == joint.encode_source([visible(line) for line in lines])


def test_any_run_of_combining_marks_is_in_nfc() -> None:
    generator = random.Random(2)
    marks = "\u0300\u0301\u0316\u0323\u0327\u0344\u05b0\u0f73\u0f81"
    for starter in ("", "a", "\u01d6", "\u1100\u1161", "\u0915\u093c"):
        run = "".join(generator.choices(marks, k=200))
        line = f"{starter}{run}\u4e2d{run[:31]}e\u0301"
        assert clean(line) == unicodedata.normalize("NFC", line)


def test_a_line_of_combining_marks_alone_stops_nothing() -> None:
    # To sort them by insertion, as NFC does in Python, would take many minutes.
    assert clean("a" + "\u0301\u0323" * 250_000) == "\u1ea1" + "\u0323" * 249_999 + "\u0301" * 250_000


def test_ids_end_in_eos_and_have_no_other_special(joint: Tokenizer) -> None:
    lines = ENGLISH + ODD + random_lines(2000)
    for encode in (joint.encode_source, joint.encode_target):
        for ids in encode(lines):
            assert ids[-1] == EOS
            assert all(EOS < i < joint.target_vocab_size for i in ids[:-1])
    assert joint.encode_source(["", " \t", "\u2581"]) == [[EOS], [EOS], [EOS]]
    assert joint.encode_source([]) == []


def test_a_line_is_encoded_alike_in_any_company(joint: Tokenizer) -> None:
    lines = ENGLISH + ODD
    assert joint.encode_source(lines) == [joint.encode_source([line])[0] for line in lines]


def test_any_id_can_be_decoded_to_one_line(joint: Tokenizer) -> None:
    generator = random.Random(1)
    for _ in range(2000):
        ids = [generator.randrange(joint.target_vocab_size) for _ in range(generator.randrange(20))]
        text = joint.decode_target(ids)
        assert text == joint.decode_target([i for i in ids if i not in (PAD, UNK, BOS, EOS)])
        assert text.splitlines() in ([text], [])
        text.encode("utf-8")
    newline = joint.target.piece_to_id("<0x0A>")
    assert joint.decode_target([newline, newline]) == ""


def test_sizes_and_joint(joint: Tokenizer) -> None:
    assert joint.joint
    size = joint.target_vocab_size
    assert joint.source_vocab_size == size == 340 or (
        size < 340 and max(map(len, joint.target_pieces(range(size)))) == 6
    )
    assert joint.encode_source(GERMAN) == joint.encode_target(GERMAN)
    # The letters of both languages are pieces; what is in neither text is spelled in bytes.
    for lines in (ENGLISH, GERMAN):
        assert all(i >= 4 + 256 for ids in joint.encode_source(lines) for i in ids[:-1])
    assert min(joint.encode_source(["日"])[0][:-1]) < 4 + 256


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
@pytest.mark.parametrize("is_joint", [True, False])
def test_same_text_same_bytes(tmp_path: Path, algorithm: str, is_joint: bool) -> None:
    chosen = settings(algorithm=algorithm, joint=is_joint, vocab_size=320)
    files = []
    for name in ("one", "two"):
        Tokenizer.train(iter(ENGLISH), iter(GERMAN), chosen).save(tmp_path / name)
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert files[0] == files[1]
    separate = {"tokenizer.source.model", "tokenizer.target.model"}
    assert set(files[0]) == ({"tokenizer.model"} if is_joint else separate)


def test_separate_vocabularies_are_of_their_own_language() -> None:
    tokenizer = Tokenizer.train(ENGLISH, GERMAN, settings(joint=False, vocab_size=320))
    assert not tokenizer.joint

    def pieces(encoded: list[list[int]]) -> int:
        return sum(map(len, encoded))

    assert pieces(tokenizer.encode_source(ENGLISH)) < pieces(tokenizer.encode_target(ENGLISH))
    assert pieces(tokenizer.encode_target(GERMAN)) < pieces(tokenizer.encode_source(GERMAN))


@pytest.mark.parametrize("is_joint", [True, False])
def test_saved_and_loaded(tmp_path: Path, is_joint: bool) -> None:
    tokenizer = Tokenizer.train(ENGLISH, GERMAN, settings(joint=is_joint, vocab_size=320))
    # What another setting left behind must not be read in its place.
    Tokenizer.train(GERMAN, ENGLISH, settings(joint=not is_joint, vocab_size=310)).save(tmp_path)
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.joint == is_joint
    assert loaded.digest == tokenizer.digest
    assert loaded.encode_source(ENGLISH + ODD) == tokenizer.encode_source(ENGLISH + ODD)
    assert loaded.encode_target(GERMAN + ODD) == tokenizer.encode_target(GERMAN + ODD)
    assert not list(tmp_path.glob("*.partial"))


def test_digests_differ_with_the_pieces() -> None:
    digests = {Tokenizer.train(ENGLISH, GERMAN, settings(vocab_size=size)).digest for size in (310, 320)}
    assert len(digests) == 2


def test_missing_or_damaged_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=message("tokenizer-cannot-be-read", "No such file")):
        Tokenizer.load(tmp_path)
    tokenizer = Tokenizer.train(ENGLISH, GERMAN, settings(joint=False, vocab_size=320))
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.target.model"
    whole = path.read_bytes()
    for content in (b"", b"garbage", whole[:-3], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(TokenizerError, match=message("not-sentencepiece-model", "tokenizer.target.model")):
            Tokenizer.load(tmp_path)
    path.unlink()
    with pytest.raises(TokenizerError, match=message("tokenizer-cannot-be-read", "tokenizer.target.model")):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_the_largest_possible_vocabulary_is_named(algorithm: str) -> None:
    with pytest.raises(TokenizerError, match=message("vocabulary-too-large", "tokenizer.vocab_size=5000")) as caught:
        Tokenizer.train(ENGLISH, GERMAN, settings(algorithm=algorithm, vocab_size=5000))
    largest = int(re.findall(r"\d+", str(caught.value))[-1])
    tokenizer = Tokenizer.train(ENGLISH, GERMAN, settings(algorithm=algorithm, vocab_size=largest))
    assert tokenizer.source_vocab_size == largest


def test_the_smallest_possible_vocabulary_is_named() -> None:
    with pytest.raises(TokenizerError, match=message("vocabulary-too-small", "tokenizer.vocab_size=261")):
        Tokenizer.train(ENGLISH, GERMAN, settings(vocab_size=261))


def test_blank_text_is_refused() -> None:
    with pytest.raises(TokenizerError, match=message("no-text-for-tokenizer", "target")):
        Tokenizer.train(ENGLISH, ["", " "], settings(joint=False))


def test_very_long_lines_are_learned_from() -> None:
    # One line of 12,000 words: sentencepiece alone would leave it out, and spell its letters in bytes.
    tokenizer = Tokenizer.train([" ".join(ENGLISH * 5)], ["."], settings())
    (ids,) = tokenizer.encode_source(["The red dog runs over the field."])
    assert min(ids[:-1]) >= 4 + 256


def test_errors_of_whoever_reads_the_lines_come_through() -> None:
    def lines() -> list[str]:
        raise TokenizerError("of the reader")

    with pytest.raises(TokenizerError, match=r"^of the reader$"):
        Tokenizer.train((line for line in lines()), GERMAN, settings())


def test_with_the_character_algorithm_each_character_is_a_piece() -> None:
    tokenizer = Tokenizer.train(["我 喜欢猫。", "我喜欢狗。"], ["Ich mag Katzen."], settings(algorithm="character"))
    (ids,) = tokenizer.encode_source(["我喜欢Katzen 犬"])
    rare = [f"<0x{byte:02X}>" for byte in "犬".encode()]
    assert tokenizer.source_pieces(ids[:-1]) == ["▁", *"我喜欢Katzen", "▁", *rare]
    assert tokenizer.source_vocab_size == 4 + 256 + len(set("我喜欢猫狗。IchmagKatzen. "))


def test_of_too_many_characters_the_rarest_are_spelled_in_bytes() -> None:
    tokenizer = Tokenizer.train(["a a ab " * 9], ["aa ac"], settings(algorithm="character", vocab_size=263))
    assert tokenizer.target_pieces(tokenizer.encode_target(["abc"])[0][:-1]) == ["▁", "a", "b", "<0x63>"]


SYMBOLS = ("<2de>", "<a,b>", '<"q">', "\u3010名\u3011", "</s2>")


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "character"])
@pytest.mark.parametrize("is_joint", [True, False])
def test_symbols_are_kept_whole_wherever_they_stand(tmp_path: Path, algorithm: str, is_joint: bool) -> None:
    # The letters of a symbol are pieces, too, and it is frequent in the text: it would be learnt in other pieces.
    text = [f"<2de> {line} <2de" for line in ENGLISH]
    chosen = settings(algorithm=algorithm, joint=is_joint, vocab_size=345)
    Tokenizer.train(text, GERMAN, chosen, SYMBOLS).save(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    for processor in tokenizer.processors:
        assert user_symbols(processor) == list(SYMBOLS)
        assert processor.id_to_piece(list(range(4, 4 + len(SYMBOLS)))) == list(SYMBOLS)
    for symbol in SYMBOLS:
        for line in (f"{symbol} The dog", f"The{symbol}dog", f"dog {symbol}{symbol}.", symbol):
            for encode, pieces in (
                (tokenizer.encode_source, tokenizer.source_pieces),
                (tokenizer.encode_target, tokenizer.target_pieces),
            ):
                assert pieces(encode([line])[0]).count(symbol) == line.count(symbol)
            assert tokenizer.decode_target(tokenizer.encode_target([line])[0]) == line


@pytest.mark.parametrize("is_split", [True, False])
def test_split_digits_decides_whether_a_number_is_one_piece(is_split: bool) -> None:
    text = ["in 2018 and 2018 the years"] * 20
    tokenizer = Tokenizer.train(text, text, settings(vocab_size=282, split_digits=is_split))
    pieces = tokenizer.target_pieces(tokenizer.encode_target(["2018"])[0][:-1])
    assert pieces == (["\u2581", "2", "0", "1", "8"] if is_split else ["\u25812018"])
    assert tokenizer.decode_target(tokenizer.encode_target(["7 in 2018, 31.12.1999"])[0]) == "7 in 2018, 31.12.1999"


def test_without_symbols_the_pieces_are_what_they_were_before_there_were_any() -> None:
    """The settings of version 0.1.0, given to sentencepiece as it gave them."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in [*ENGLISH, *GERMAN] if line]),
        model_writer=model,
        **{"model_type": "bpe", "vocab_size": 340, "character_coverage": 0.9999, "byte_fallback": True},
        **{"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS, "normalization_rule_name": "identity"},
        **{"max_sentence_length": 16000, "num_threads": 4, "minloglevel": 2},
    )
    before = SentencePieceProcessor(model_proto=model.getvalue())
    now = Tokenizer.train(ENGLISH, GERMAN, settings())
    assert now.target_pieces(range(340)) == before.id_to_piece(list(range(340)))
    assert now.target.get_score(list(range(340))) == before.get_score(list(range(340)))


def test_the_short_cut_of_clean_is_the_long_way_for_every_character():
    """The short cut looks whether a line is printable: no white space but the space is, and no surrogate."""

    def the_long_way(line):
        line = re.sub("[\ud800-\udfff]", "\ufffd", unicodedata.normalize("NFC", line)).replace("\u2581", " ")
        return " ".join(line.split())

    for code in range(0x11_0000):
        character = chr(code)
        if code < 0x3100 or character.isspace() or 0xD800 <= code < 0xE000:
            for line in (character, f"a{character}b", f"a {character}", f"{character} é", f"é {character} {character}"):
                assert clean(line) == the_long_way(line), hex(code)
