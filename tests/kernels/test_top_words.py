"""The best words found by groups are those that torch.argmax and torch.topk find among all."""

import itertools
import math

import pytest
import torch
from helpers.thorough import pairwise

from transformer_mt.decoding import sampling, search
from transformer_mt.kernels.top_words import best_continuations, most_probable

SEEDS = range(4)

# Multiples of the sizes of groups, primes, and fewer words than a group has.
VOCAB_SIZES = [1, 5, 31, 40, 64, 97, 127, 128, 200, 509, 1024, 8000]


def drawn_logits(num_sentences, width, vocab_size, share_forbidden, seed):
    """AWV. About that share of them is -inf, but never all words of a hypothesis."""
    generator = torch.Generator().manual_seed(seed)
    logits_AWV = 3 * torch.randn(num_sentences, width, vocab_size, generator=generator)
    forbidden_AWV = torch.rand(logits_AWV.shape, generator=generator) < share_forbidden
    allowed_AW1 = torch.randint(vocab_size, (num_sentences, width, 1), generator=generator)
    return logits_AWV.masked_fill(forbidden_AWV.scatter(-1, allowed_AW1, False), -math.inf)


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
@pytest.mark.parametrize("share_forbidden", [0.0, 0.5, 0.99])
def test_the_most_probable_word_is_the_largest_logit(vocab_size, share_forbidden):
    for seed in SEEDS:
        logits_AWV = drawn_logits(7, 3, vocab_size, share_forbidden, seed)
        assert torch.equal(most_probable(logits_AWV), sampling.most_probable(logits_AWV))


def test_of_equals_the_first_is_the_most_probable():
    logits_AWV = torch.zeros(1, 4, 1024)
    for w, places in enumerate([[1023, 3], [130, 900, 131], [127, 128]]):
        logits_AWV[0, w, places] = 1.0
    assert most_probable(logits_AWV).tolist() == [[3, 130, 127, 0]]


@pairwise(vocab_size=VOCAB_SIZES, share_forbidden=[0.0, 0.5, 0.99], count=[1, 2, 8, 50])
def test_the_best_continuations_are_the_largest_sums(vocab_size, share_forbidden, count):
    """All of them, if there are fewer than asked for. Hypotheses at -inf and forbidden words come last."""
    for seed, width in itertools.product(SEEDS, (1, 4)):
        log_probs_AWV = drawn_logits(5, width, vocab_size, 0.0, seed).log_softmax(dim=-1)
        forbidden_AWV = drawn_logits(5, width, vocab_size, share_forbidden, seed + 100) == -math.inf
        score_AW = -5 * torch.rand(5, width, generator=torch.Generator().manual_seed(seed))
        score_AW[0, 1:] = -math.inf
        sum_AWV = (log_probs_AWV + score_AW[..., None]).masked_fill(forbidden_AWV, -math.inf)
        allowed_AWV = log_probs_AWV.masked_fill(forbidden_AWV, -math.inf)
        score_AC, parent_AC, token_AC = best_continuations(allowed_AWV, score_AW, count)
        torch.testing.assert_close(search.best_continuations(allowed_AWV, score_AW, count)[0], score_AC)
        expected_AC = sum_AWV.flatten(1).topk(min(count, width * vocab_size)).values
        torch.testing.assert_close(score_AC, expected_AC, rtol=1e-6, atol=1e-6)
        chosen_AC = parent_AC * vocab_size + token_AC
        assert torch.equal(sum_AWV.flatten(1).gather(1, chosen_AC).isneginf(), expected_AC.isneginf())
        torch.testing.assert_close(sum_AWV.flatten(1).gather(1, chosen_AC), score_AC, rtol=1e-6, atol=1e-6)
        assert all(len(set(row)) == len(row) for row in chosen_AC.tolist())


def test_a_probability_of_zero_is_no_ban():
    """A word whose probability is 0 in fp32 may be the only one allowed, as EOS is at the greatest length."""
    log_probs_AWV = torch.tensor([0.0, -400.0, -200.0]).log_softmax(dim=-1).repeat(1, 1, 1)
    log_probs_AWV[0, 0, 0] = -math.inf
    score_AC, _, token_AC = best_continuations(log_probs_AWV, torch.zeros(1, 1), 3)
    assert token_AC[0, :2].tolist() == [2, 1]
    assert score_AC[0].isfinite().tolist() == [True, True, False]
