"""Searches that are slow and obvious, to compare with; and the short way to call ours."""

import itertools

import pytest
import torch

from transformer_mt.base.languages import BOS, EOS, PAD, UNK
from transformer_mt.decoding import sampling, search
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.settings.search_settings import DecodingConfig

VOCAB_SIZE = 8
WORDS = [UNK, *range(EOS + 1, VOCAB_SIZE)]
CAPS = [8, 3, 6, 1, 8, 2, 10, 5]


def penalised(log_prob, length, alpha):
    return log_prob / ((5 + length) / 6) ** alpha


def next_log_probs(model, source_1S, prefixes):
    """Teacher forcing: for each prefix, all of one length, the log-probability of each next word."""
    decoder_input_BT = torch.tensor([[BOS, *prefix] for prefix in prefixes])
    return model(source_1S.expand(len(prefixes), -1), decoder_input_BT)[:, -1].log_softmax(dim=-1).tolist()


def teacher_forced(model, source_1S, tokens):
    """The log-probability of a translation, EOS included."""
    log_probs_TV = model(source_1S, torch.tensor([[BOS, *tokens[:-1]]]))[0].log_softmax(dim=-1)
    return sum(log_probs_V[token].item() for log_probs_V, token in zip(log_probs_TV, tokens, strict=True))


def words_at(length, cap):
    """What may stand there: at the last position EOS alone."""
    return [EOS] if length == cap else [*WORDS, EOS]


def plain_greedy(model, source_1S, cap):
    tokens = []
    while EOS not in tokens:
        (log_probs_V,) = next_log_probs(model, source_1S, [tokens])
        tokens.append(max(words_at(len(tokens) + 1, cap), key=log_probs_V.__getitem__))
    return tokens


def plain_beam_search(model, source_1S, width, alpha, cap, patience=0.0):
    """Beam search of one sentence with lists; (tokens, score), best first."""
    living, finished = [([], 0.0)], []
    for length in range(1, cap + 1):
        candidates = [
            ([*tokens, word], log_prob + log_probs_V[word])
            for (tokens, log_prob), log_probs_V in zip(
                living, next_log_probs(model, source_1S, [tokens for tokens, _ in living]), strict=True
            )
            for word in words_at(length, cap)
        ]
        candidates.sort(key=lambda candidate: candidate[1], reverse=True)
        finished += [
            (tokens, penalised(log_prob, length, alpha)) for tokens, log_prob in candidates[:width] if tokens[-1] == EOS
        ]
        living = [candidate for candidate in candidates if candidate[0][-1] != EOS][:width]
        if not living or sum(score >= penalised(living[0][1], cap, alpha) for _, score in finished) >= width:
            break
        if patience and len(finished) >= patience * width:
            break
    return sorted(finished, key=lambda found: found[1], reverse=True)[:width]


def every_translation(cap):
    for length in range(cap):
        for words in itertools.product(WORDS, repeat=length):
            yield [*words, EOS]


def assert_well_formed(tokens, cap):
    assert len(tokens) <= cap
    assert tokens.index(EOS) == len(tokens) - 1
    assert PAD not in tokens
    assert BOS not in tokens


def assert_same(found, expected):
    """The same translations in the same order; scores are sums in fp32."""
    assert [hypothesis.tokens for hypothesis in found] == [hypothesis.tokens for hypothesis in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-5)


def greedy(model, source_BS, caps, alpha=0.0):
    return sampling.greedy(model, source_BS, Constraints(caps), DecodingConfig(beam_size=1, length_penalty=alpha))


def beam_search(model, source_BS, width, alpha, caps, n_best=None, patience=0.0):
    """The n best, or all that are the best of a beam."""
    decoding = DecodingConfig(beam_size=width, n_best=n_best or width, length_penalty=alpha, patience=patience)
    return search.beam_search(model, source_BS, Constraints(caps), decoding)
