"""Properties of an engine, whatever the settings: against a search with lists, forced decoding, other batches."""

import math
from dataclasses import replace

import pytest
import torch
from helpers.thorough import pairwise, thorough, thorough_rows

from transformer_mt.base.languages import BOS, EOS, PAD, UNK
from transformer_mt.decoding.engine import Sentence, Wanted, positions_per_batch
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.kernels.device import choose_device
from transformer_mt.models.attention_weights import attention_to_source
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.settings.search_settings import DecodingConfig

VOCAB_SIZE = 8
WORDS = [UNK, *range(EOS + 1, VOCAB_SIZE)]
MAX_POSITIONS = 12
PREFIXES = [[4, 5], [], [7, 7, 7, 7], [], [5, 6, 5, 6, 5, 6]]
MORE_PREFIXES = [[4, 5], [], [6], [7, 7, 7, 7], [], [4], [], [5, 6, 5, 6, 5, 6]]

SEARCHES = [
    {"beam_size": 1, "no_repeat_ngram": 2, "min_length": 3},
    {"beam_size": 4, "n_best": 4},
    {"beam_size": 3, "n_best": 3, "length_penalty_form": "average", "length_penalty": 1.0},
    {"beam_size": 2, "n_best": 2, "no_repeat_ngram": 2, "max_extra_length": 9, "min_length": 9},
    {"beam_size": 10, "n_best": 10},  # wider than there are words
]
MORE_SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 2, "length_penalty_form": "none"},
    {"beam_size": 4, "n_best": 4, "min_length": 4},
    {"beam_size": 4, "n_best": 4, "no_repeat_ngram": 1},
    {"beam_size": 5, "n_best": 5, "no_repeat_ngram": 3, "min_length": 2, "max_extra_length": 0},
]
SAMPLINGS = [
    {"sampling": True, "n_best": 3},
    {"sampling": True, "n_best": 2, "temperature": 2.0, "top_k": 4, "top_p": 0.9, "no_repeat_ngram": 2, "seed": 5},
]


def named(settings):
    return " ".join(f"{key}={value}" for key, value in settings.items())


searches = pytest.mark.parametrize("settings", [*SEARCHES, *thorough(*MORE_SEARCHES)], ids=named)
searches_and_samplings = pytest.mark.parametrize(
    "settings", [*SEARCHES, SAMPLINGS[1], *thorough(*MORE_SEARCHES, SAMPLINGS[0])], ids=named
)
# Among the prefixes are empty ones.
prefixes = pytest.mark.parametrize(
    "prefixes", [*thorough([[]] * 8, MORE_PREFIXES), PREFIXES], ids=["free", "more", "prefixes"]
)


def test_batches_are_larger_on_a_gpu_unless_their_size_is_given():
    auto, given = DecodingConfig(), DecodingConfig(tokens_per_batch=500)
    assert [positions_per_batch(auto, 4, on_gpu=on_gpu) for on_gpu in (False, True)] == [1024, 8192]
    assert [positions_per_batch(given, 4, on_gpu=on_gpu) for on_gpu in (False, True)] == [125, 125]


def test_short_sentences_on_a_gpu_do_not_fill_batches_of_thousands(tiny_model, monkeypatch):
    engine, tasks = TorchEngine(tiny_model(VOCAB_SIZE), MAX_POSITIONS, choose_device("cpu", "fp32")), []
    assert engine.searched
    monkeypatch.setattr(engine, "device", replace(engine.device, torch_device=torch.device("cuda")))
    monkeypatch.setattr(engine.translators, "map_unordered", lambda given: tasks.extend(given) or [])
    assert not list(engine.translate_unordered([Sentence([4, EOS])] * 1100, DecodingConfig()))
    assert [len(batch) for batch, *_ in tasks] == [512, 512, 76]


@pytest.fixture
def engines(tiny_model):
    """Of a model, and of two as one."""
    device = choose_device("cpu", "fp32")
    one, other = tiny_model(VOCAB_SIZE, 1), tiny_model(VOCAB_SIZE, 2, norm="pre")
    return [TorchEngine(model, MAX_POSITIONS, device) for model in (one, Ensemble([one, other]))]


@pytest.fixture
def sentences(sources):
    """A function that gives as many sentences as prefixes, with these."""

    def build(prefixes):
        source_BS = sources(len(prefixes), 6, VOCAB_SIZE)
        texts = [source_S[source_S != PAD].tolist() for source_S in source_BS]
        return [
            Sentence(text, prefix, number)
            for number, (text, prefix) in enumerate(zip(texts, prefixes, strict=True), start=100)
        ]

    return build


def pieces_allowed(words, prefix, max_length, decoding):
    """The pieces that may come after `words`."""
    length, n = len(words) + 1, decoding.no_repeat_ngram
    if length == max_length:
        return {EOS}
    if length <= len(prefix):
        return {prefix[length - 1]}
    held = [words[i : i + n] for i in range(len(words) - n + 1)] if n else []
    allowed = {word for word in WORDS if [*words, word][-n:] not in held}
    return allowed if allowed and length <= decoding.min_length else allowed | {EOS}


def penalty(length, decoding):
    alpha = decoding.length_penalty
    return {"gnmt": ((5 + length) / 6) ** alpha, "average": length**alpha, "none": 1}[decoding.length_penalty_form]


def plain_search(model, sentence, decoding):
    """Beam search of one sentence with lists: (tokens, log-probability, score), best first."""
    width = decoding.beam_size
    longest = max(len(sentence.source), len(sentence.prefix) + 1)
    max_length = min(longest + decoding.max_extra_length, MAX_POSITIONS)
    living, finished = [([], 0.0)], []
    for length in range(1, max_length + 1):
        decoder_input_BT = torch.tensor([[BOS, *words] for words, _ in living])
        source_BS = torch.tensor([sentence.source]).expand(len(living), -1)
        log_probs_BV = model(source_BS, decoder_input_BT)[:, -1].log_softmax(dim=-1).tolist()
        candidates = [
            ([*words, piece], log_prob + log_probs_V[piece])
            for (words, log_prob), log_probs_V in zip(living, log_probs_BV, strict=True)
            for piece in pieces_allowed(words, sentence.prefix, max_length, decoding)
        ]
        candidates.sort(key=lambda candidate: candidate[1], reverse=True)
        ended = [candidate for candidate in candidates[:width] if candidate[0][-1] == EOS]
        finished += [(words, log_prob, log_prob / penalty(length, decoding)) for words, log_prob in ended]
        living = [candidate for candidate in candidates if candidate[0][-1] != EOS][:width]
        best_to_come = living[0][1] / penalty(max_length, decoding) if living else -math.inf
        if sum(score >= best_to_come for _, _, score in finished) >= decoding.n_best:
            break
    return sorted(finished, key=lambda found: found[2], reverse=True)[: decoding.n_best]


@searches
@prefixes
@torch.no_grad()
def test_searches_find_what_one_with_lists_finds(settings, prefixes, engines, sentences):
    decoding = DecodingConfig(**settings)
    for engine in engines:
        found = engine.translate(sentences(prefixes), decoding)
        for sentence, hypotheses in zip(sentences(prefixes), found, strict=True):
            expected = plain_search(engine.model, sentence, decoding)
            assert [hypothesis.tokens for hypothesis in hypotheses] == [words for words, _, _ in expected]
            for hypothesis, (_, log_prob, score) in zip(hypotheses, expected, strict=True):
                assert (hypothesis.log_prob, hypothesis.score) == pytest.approx((log_prob, score), rel=1e-5)


@searches_and_samplings
@prefixes
def test_the_score_of_every_hypothesis_is_that_of_forced_decoding(settings, prefixes, engines, sentences):
    decoding = DecodingConfig(**settings)
    for engine in engines:
        found = engine.translate(sentences(prefixes), decoding)
        pairs = [
            (sentence.source, hypothesis)
            for sentence, hypotheses in zip(sentences(prefixes), found, strict=True)
            for hypothesis in hypotheses
        ]
        forced = engine.score([(source, hypothesis.tokens) for source, hypothesis in pairs])
        for (_, hypothesis), log_probs in zip(pairs, forced, strict=True):
            assert len(log_probs) == len(hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(sum(log_probs), rel=1e-5)
            score = hypothesis.log_prob / penalty(len(hypothesis.tokens), decoding)
            assert hypothesis.score == pytest.approx(score, rel=1e-9)


@searches_and_samplings
@prefixes
def test_what_is_found_does_not_depend_on_batch_order_or_neighbours(settings, prefixes, engines, sentences):
    for engine in engines:
        together = engine.translate(sentences(prefixes), DecodingConfig(**settings))
        backwards = engine.translate(sentences(prefixes)[::-1], DecodingConfig(**settings))[::-1]
        in_parts = engine.translate(sentences(prefixes), DecodingConfig(**settings, tokens_per_batch=60))
        alone = [engine.translate([sentence], DecodingConfig(**settings))[0] for sentence in sentences(prefixes)]
        for other in (backwards, in_parts, alone):
            for hypotheses, same in zip(together, other, strict=True):
                assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in same]
                scores = [hypothesis.score for hypothesis in same]
                assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(scores, rel=1e-5)


@searches_and_samplings
@prefixes
def test_hypotheses_are_sorted_distinct_and_at_most_n_best(settings, prefixes, engines, sentences):
    decoding = DecodingConfig(**settings)
    for engine in engines:
        for hypotheses in engine.translate(sentences(prefixes), decoding):
            assert 1 <= len(hypotheses) <= decoding.n_best
            scores = [hypothesis.score for hypothesis in hypotheses]
            assert all(map(math.isfinite, scores)) and scores == sorted(scores, reverse=True)
            # Two samples may be the same.
            assert decoding.sampling or len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses)


def test_each_setting_changes_what_is_found(engines, sentences):
    """So that the tests here say something."""
    plain = engines[0].translate(sentences([[]] * 8), DecodingConfig(beam_size=4))
    for settings in (
        {"length_penalty_form": "average", "length_penalty": 2.0},
        {"min_length": 4},
        {"no_repeat_ngram": 1},
        {"sampling": True},
    ):
        other = engines[0].translate(sentences([[]] * 8), DecodingConfig(beam_size=4, **settings))
        pairs = zip(plain, other, strict=True)
        assert sum(one[0].tokens != changed[0].tokens for one, changed in pairs) >= 2, settings


# Prefixes


@searches_and_samplings
def test_a_prefix_is_what_a_translation_begins_with_however_long(settings, engines, sentences):
    """Also where it leaves no room: then it is cut, as the end has to come."""
    lengths = [0, 1, 5, MAX_POSITIONS - 2, MAX_POSITIONS - 1, MAX_POSITIONS, MAX_POSITIONS + 1, 30]
    prefixes = [[4 + place % 4 for place in range(length)] for length in lengths]
    decoding = DecodingConfig(**settings | {"max_extra_length": 3})
    for engine in engines:
        for hypotheses, prefix in zip(engine.translate(sentences(prefixes), decoding), prefixes, strict=True):
            for hypothesis in hypotheses:
                assert len(hypothesis.tokens) <= MAX_POSITIONS
                room = len(hypothesis.tokens) - 1
                assert hypothesis.tokens[: len(prefix)] == prefix or hypothesis.tokens == [*prefix[:room], EOS]
                assert room >= min(len(prefix), MAX_POSITIONS - 1)


# Alignment and coverage


def attention_alone(engine, sentence, tokens, layer):
    """Where each target piece looked, EOS included, with no other sentence beside it."""
    decoder_input_1T = torch.tensor([[BOS, *tokens[:-1]]])
    with torch.no_grad():
        return attention_to_source(engine.model, torch.tensor([sentence.source]), decoder_input_1T, layer)[0].tolist()


@pytest.mark.thorough
@pytest.mark.parametrize("layer", [0, *thorough(1), 3])
@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 4, "n_best": 4}, SAMPLINGS[0]], ids=named)
def test_each_piece_is_aligned_to_the_source_piece_it_looked_at_most(settings, layer, engines, sentences):
    """Ends left out: those of sources are not looked for, those of targets do not look."""
    decoding = DecodingConfig(**settings, alignment_layer=layer)
    batch = [sentence for sentence in sentences([[]] * 8) if len(sentence.source) > 1]
    for engine in engines:
        for sentence, hypotheses in zip(batch, engine.translate(batch, decoding, Wanted(alignment=True)), strict=True):
            for hypothesis in hypotheses:
                rows = attention_alone(engine, sentence, hypothesis.tokens, layer)
                expected = [max(range(len(row) - 1), key=row.__getitem__) for row in rows[:-1]]
                assert hypothesis.alignment == expected


def test_without_being_asked_for_there_is_no_alignment(engines, sentences):
    for decoding in (DecodingConfig(), DecodingConfig(coverage_penalty=0.2)):
        for hypotheses in engines[0].translate(sentences([[]] * 8), decoding):
            assert all(hypothesis.alignment is None for hypothesis in hypotheses)


def test_a_source_without_words_is_translated_and_not_aligned(engines):
    for decoding in (DecodingConfig(), DecodingConfig(beam_size=1), DecodingConfig(coverage_penalty=0.2)):
        [[hypothesis]] = engines[0].translate([Sentence([EOS])], decoding, Wanted(alignment=True))
        assert hypothesis.tokens[-1] == EOS
        assert hypothesis.alignment is None


@pytest.mark.thorough
@pairwise(beta=[0.2, 3.0], layer=[0, 1], n_best=[1, 4])
def test_the_coverage_penalty_ranks_all_of_a_beam_again(n_best, layer, beta, engines, sentences):
    """Its formula: beta times the sum over source positions of log(min(attention received, 1))."""
    plain = DecodingConfig(beam_size=4, n_best=4)
    decoding = DecodingConfig(beam_size=4, n_best=n_best, coverage_penalty=beta, alignment_layer=layer)
    batch, num_changed = sentences([[]] * 8), 0
    for engine in engines:
        before, found = engine.translate(batch, plain), engine.translate(batch, decoding)
        for sentence, candidates, hypotheses in zip(batch, before, found, strict=True):
            expected = []
            for candidate in candidates:
                columns = zip(*attention_alone(engine, sentence, candidate.tokens, layer), strict=True)
                coverage = beta * sum(math.log(min(sum(column), 1.0)) for column in columns)
                expected.append((candidate.log_prob / penalty(len(candidate.tokens), decoding) + coverage, candidate))
            expected.sort(key=lambda pair: pair[0], reverse=True)
            assert [h.tokens for h in hypotheses] == [candidate.tokens for _, candidate in expected[:n_best]]
            assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected[:n_best]], rel=1e-5)
            assert [h.log_prob for h in hypotheses] == pytest.approx([c.log_prob for _, c in expected[:n_best]])
            num_changed += hypotheses[0].tokens != candidates[0].tokens
    assert beta < 1 or num_changed >= 3


# Other precisions


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "quantization"), [("bf16", "none"), ("fp32", "int8"), *thorough_rows(("bf16", "int8"))]
)
@pytest.mark.parametrize("settings", [{"beam_size": 1}, *thorough({"sampling": True, "seed": 3})], ids=named)
def test_scores_are_those_of_forced_decoding_in_other_precisions(settings, dtype, quantization, tiny_model, sentences):
    """Of a sentence alone, followed alone: the scale of integers is that of all inputs of a batch."""
    one, other = tiny_model(VOCAB_SIZE, 1).float(), tiny_model(VOCAB_SIZE, 2, norm="pre").float()
    for model in (one, Ensemble([one, other])):
        engine = TorchEngine(model, MAX_POSITIONS, choose_device("cpu", dtype), quantization)
        exact = TorchEngine(model, MAX_POSITIONS, choose_device("cpu", "fp32"))
        rounding = 0.0
        for sentence in sentences(PREFIXES):
            [[hypothesis]] = engine.translate([sentence], DecodingConfig(**settings))
            pair = (sentence.source, hypothesis.tokens)
            [log_probs], [exact_log_probs] = engine.score([pair]), exact.score([pair])
            assert hypothesis.log_prob == pytest.approx(sum(log_probs), rel=1e-4, abs=1e-4)
            rounding += abs(sum(exact_log_probs) - sum(log_probs)) / len(log_probs) / 8
        assert 1e-4 < rounding < 0.5  # so that these are other precisions, and near


@pytest.mark.thorough
def test_without_scores_the_words_are_the_same(engines, sentences):
    for settings in (*SEARCHES, *MORE_SEARCHES, *SAMPLINGS):
        decoding = DecodingConfig(**settings)
        for engine in engines:
            expected = engine.translate(sentences(PREFIXES), decoding)
            found = engine.translate(sentences(PREFIXES), decoding, Wanted(scores=False))
            for ours, theirs in zip(found, expected, strict=True):
                assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
