"""The bytes that a search writes spell characters, as Python's own decoder reads them."""

import math
from itertools import product

import pytest
import torch
from helpers.plain_search import CAPS, assert_well_formed, every_translation, penalised, teacher_forced
from helpers.thorough import pairwise, thorough
from helpers.tiny import demo_pairs
from helpers.untrained import write_untrained

from transformer_mt import export
from transformer_mt.base.languages import BOS, PAD
from transformer_mt.decoding import sampling, search
from transformer_mt.decoding.constraints import Constraints, Utf8
from transformer_mt.decoding.sampling import sample
from transformer_mt.decoding.scorer import Scorer
from transformer_mt.decoding.translator import Translator
from transformer_mt.decoding.word_pieces import byte_of
from transformer_mt.settings.search_settings import DecodingConfig

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
FIRST = len(SPECIAL)  # the piece of byte 0
PIECES = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *(f"▁word{i}" for i in range(20))]
V = len(PIECES)
CPU = torch.device("cpu")
UTF8 = Utf8.of(PIECES, CPU)
LINES = [source for source, _ in demo_pairs(12)]


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def spelt(tokens, pieces=PIECES):
    return bytes(ord(" ") if byte is None else byte for byte in (byte_of(pieces[token]) for token in tokens))


def is_utf8(text):
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def can_become_utf8(text, room):
    """Whether at most `room` bytes more can make UTF-8 of it. Of 80, 90 and A0, each character takes one."""
    more = (bytes(rest) for number in range(room + 1) for rest in product(b"\x80\x90\xa0", repeat=number))
    return any(is_utf8(text + rest) for rest in more)


def allowed_in(scores_V):
    return {piece for piece, score in enumerate(scores_V.tolist()) if score > -math.inf}


def beginnings(*before):
    """Hypotheses of one character or a part of one after others: all kinds of first bytes, and their bounds."""
    texts = ["ab", "é", "ߖ", "ࠀ", "漢", "퟿", "\ue000", "\uffff", "𐀀", "🙂", "\U000fffff", "\U0010ffff"]
    for start, text in product(before, texts):
        whole = (start + text).encode()
        yield from (whole[:length] for length in range(len(start.encode()), len(whole) + 1))


@pytest.mark.thorough
@pytest.mark.parametrize("before", ["a漢", *thorough("", "é", "🙂")])
def test_what_may_come_is_what_can_still_become_utf8(before):
    for text in set(beginnings(before)):
        tokens = [BOS, *(FIRST + byte for byte in text)]
        for room in range(5):  # bytes after the next piece; EOS comes at last
            scores_AWV, length = torch.zeros(1, 1, V), len(tokens)
            Constraints([length + room + 1], utf8=UTF8).forbid_(scores_AWV, torch.tensor([[tokens]]), [0], length)
            found = allowed_in(scores_AWV[0, 0])
            if not can_become_utf8(text, room + 1):
                continue  # no search comes here
            pieces = {p for p in range(V) if p not in (PAD, BOS) and can_become_utf8(text + spelt([p]), room)}
            assert found == pieces, (text, room)


def test_it_is_the_same_for_many_rows():
    texts = [text for text in beginnings("", "é", "a漢", "🙂") if len(text) == 5]
    tokens_AWT = torch.tensor([[[BOS, *(FIRST + byte for byte in text)]] * 2 for text in texts])
    before_AWV = torch.randn(len(texts), 2, V)
    together_AWV = before_AWV.clone()
    inside_AW = UTF8.forbid_(together_AWV, tokens_AWT)
    assert inside_AW[:, 0].tolist() == [not is_utf8(text) for text in texts]
    for row in range(len(texts)):
        alone_AWV = before_AWV[row : row + 1].clone()
        UTF8.forbid_(alone_AWV, tokens_AWT[row : row + 1])
        assert torch.equal(alone_AWV[0], together_AWV[row])


def test_a_vocabulary_without_bytes_needs_no_constraint():
    assert Utf8.of([*SPECIAL, "▁a", "<0x>", "<0xab>"], CPU) is None


PREFIXES = [[FIRST + byte for byte in "é🙂".encode()], *([[]] * (len(CAPS) - 1))]


def found_by(model, source_BS, kind, constraints):
    if kind == "greedy":
        return [[found] for found in sampling.greedy(model, source_BS, constraints, DecodingConfig(beam_size=1))]
    if kind == "beam":
        return search.beam_search(model, source_BS, constraints, DecodingConfig(beam_size=4, n_best=4))
    decoding = DecodingConfig(sampling=True, n_best=4)
    return sample(model, source_BS, list(range(len(CAPS))), constraints, decoding)


@pairwise(kind=["greedy", "beam", "sampling"], no_repeat_ngram=[0, 1, 2], min_length=[0, 4], with_prefix=[False, True])
def test_all_that_a_search_finds_is_utf8_and_scored_by_the_model(
    kind, no_repeat_ngram, min_length, with_prefix, tiny_model, sources
):
    for seed in range(3):
        model, source_BS = tiny_model(V, seed), sources(len(CAPS), 6, V, seed)
        rules = [CAPS, PREFIXES if with_prefix else [], no_repeat_ngram, min_length]
        found = found_by(model, source_BS, kind, Constraints(*rules, UTF8))
        for hypotheses, source_S, cap in zip(found, source_BS, CAPS, strict=True):
            assert hypotheses
            for hypothesis in hypotheses:
                assert_well_formed(hypothesis.tokens, cap)
                assert is_utf8(spelt(hypothesis.tokens)) or (with_prefix and cap <= len(PREFIXES[0]))
                expected = teacher_forced(model, source_S[None], hypothesis.tokens)
                assert hypothesis.log_prob == pytest.approx(expected, rel=1e-4)
        free = found_by(model, source_BS, kind, Constraints(*rules))
        assert not all(is_utf8(spelt(hypothesis.tokens)) for of_one in free for hypothesis in of_one)


def test_a_beam_of_everything_finds_the_best_of_everything_that_is_utf8(tiny_model, sources):
    pieces, cap = [*SPECIAL, "<0xE2>", "<0xA9>", "<0xC3>", "▁a"], 4
    everything = list(every_translation(cap))
    in_utf8 = [tokens for tokens in everything if is_utf8(spelt(tokens, pieces))]
    assert 4 < len(in_utf8) < len(everything) / 2
    decoding = DecodingConfig(beam_size=len(everything), n_best=len(in_utf8), length_penalty=0.6)
    for seed in range(4):
        model, source_BS = tiny_model(len(pieces), seed), sources(1, 4, len(pieces), seed)
        constraints = Constraints([cap], utf8=Utf8.of(pieces, CPU))
        [found] = search.beam_search(model, source_BS, constraints, decoding)
        scores = {tuple(t): penalised(teacher_forced(model, source_BS, t), len(t), 0.6) for t in in_utf8}
        assert {tuple(hypothesis.tokens) for hypothesis in found} <= scores.keys()
        best = max(scores, key=scores.__getitem__)
        assert tuple(found[0].tokens) == best
        assert found[0].score == pytest.approx(scores[best], rel=1e-5)


@pytest.fixture(scope="module")
def untrained(joint_tokenizer, tmp_path_factory):
    """A model of which every second piece is a byte, for each engine."""
    pytest.importorskip("ctranslate2")
    directory = tmp_path_factory.mktemp("untrained")
    write_untrained(directory / "torch", joint_tokenizer)
    export.export(directory / "torch", directory / "ctranslate2", "ctranslate2")
    return directory


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4, "n_best": 4},
        *thorough(
            {"sampling": True, "n_best": 4},
            {"sampling": True, "top_k": 3, "top_p": 0.5, "temperature": 2.0},
            {"beam_size": 4, "n_best": 2, "no_repeat_ngram": 1, "min_length": 6},
            {"mbr_candidates": 6},
        ),
    ],
)
def test_no_translation_has_bytes_that_are_no_character(engine, settings, untrained):
    scorer = Scorer.load(untrained / "torch", "cpu")
    with Translator.load(untrained / engine, "cpu", engine=engine) as translator:
        found = translator.translations(LINES, DecodingConfig(max_extra_length=10, **settings))
        beginning = translator.translations(LINES, DecodingConfig(**settings), prefixes=["Ein 🙂"] * len(LINES))
    everything = scorer.tokenizer.target_pieces(range(scorer.tokenizer.target_vocab_size))
    for line, translations in zip(LINES, found, strict=True):
        wanted = settings.get("n_best", 1)
        # Some of CTranslate2's are the same without the PAD and BOS that an untrained model writes there.
        assert 0 < len(translations) <= wanted and (engine == "ctranslate2" or len(translations) == wanted)
        for translation, score in zip(
            translations,
            scorer.score_pieces([line] * len(translations), [each.pieces for each in translations]),
            strict=True,
        ):
            assert is_utf8(spelt(map(everything.index, translation.pieces), everything))
            assert "\ufffd" not in translation.text
            assert translation.log_prob == pytest.approx(score.log_prob, abs=1e-3)
    assert all(each.text.startswith("Ein 🙂") and "\ufffd" not in each.text for line in beginning for each in line)


def test_no_translation_of_ctranslate2_is_cut_inside_a_character(untrained):
    """At each length."""
    with Translator.load(untrained / "ctranslate2", "cpu", engine="ctranslate2") as translator:
        for most in range(8):
            settings = DecodingConfig(beam_size=1, max_extra_length=most, no_repeat_ngram=1)
            assert not any("\ufffd" in text for text in translator.translate(["A", "It", *LINES[:4]], settings))
