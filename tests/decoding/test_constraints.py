"""What may come next, against rules written with lists, one hypothesis at a time."""

import math
from itertools import product

import pytest
import torch
from helpers.thorough import pairwise

from transformer_mt.base.languages import BOS, EOS, PAD, UNK
from transformer_mt.decoding.constraints import Constraints

V = 8
WORDS = [UNK, *range(EOS + 1, V)]


def plainly_allowed(constraints, sentence, words):
    """The pieces that may come after `words`."""
    length = len(words) + 1
    prefix = constraints.prefixes[sentence]
    n = constraints.no_repeat_ngram
    if length == constraints.max_length[sentence]:
        return {EOS}
    if length <= len(prefix):
        return {prefix[length - 1]}
    allowed = {*WORDS, EOS}
    if length <= constraints.min_length:
        allowed.remove(EOS)
    if n:
        held = [words[i : i + n] for i in range(len(words) - n + 1)]
        allowed = {word for word in allowed if word == EOS or [*words, word][-n:] not in held}
    return allowed or {EOS}


def random_words(shape, seed):
    return torch.tensor(WORDS)[torch.randint(0, len(WORDS), shape, generator=torch.Generator().manual_seed(seed))]


def forbidden_in(constraints, words_AWT, sentences, scores_AWV=None):
    """The scores after `forbid_`, random ones unless given."""
    A, W, T = words_AWT.shape
    if scores_AWV is None:
        scores_AWV = torch.randn(A, W, V, generator=torch.Generator().manual_seed(T))
    tokens_AWT = torch.cat([torch.full((A, W, 1), BOS), words_AWT], dim=-1)
    constraints.forbid_(scores_AWV, tokens_AWT, sentences, length=T + 1)
    return scores_AWV


@pairwise(no_repeat_ngram=[0, 1, 2, 3], min_length=[0, 3], with_prefixes=[False, True])
def test_what_may_come_is_what_plain_rules_allow(no_repeat_ngram, min_length, with_prefixes):
    max_length = [9, 1, 4, 7, 2, 9]
    prefixes = [[], [4], [4, 5, 4, 5, 4], [6, 6, 6], [], [7]] if with_prefixes else [[]] * 6
    constraints = Constraints(max_length, prefixes, no_repeat_ngram, min_length)
    for length, seed in product(range(1, 10), range(5)):
        sentences = [b for b in (5, 0, 3, 2, 1, 4) if length <= max_length[b]]
        words_AWT = random_words((len(sentences), 3, length - 1), seed)
        before_AWV = torch.randn(len(sentences), 3, V)
        after_AWV = forbidden_in(constraints, words_AWT, sentences, before_AWV.clone())
        for row, sentence in enumerate(sentences):
            for words, before_V, after_V in zip(words_AWT[row].tolist(), before_AWV[row], after_AWV[row], strict=True):
                allowed = plainly_allowed(constraints, sentence, words)
                assert {word for word in range(V) if after_V[word] > -math.inf} == allowed
                # What may come keeps its score, to the bit.
                assert all(after_V[word] == before_V[word] for word in allowed)


def test_the_plain_rules_forbid_each_in_its_way():
    """So that the test above says something."""
    free = Constraints([9], [[]])
    assert plainly_allowed(free, 0, []) == {*WORDS, EOS}
    assert plainly_allowed(Constraints([2], [[4, 5, 6]], 1, 9), 0, [4]) == {EOS}
    assert plainly_allowed(Constraints([9], [[4, 4]], 1, 9), 0, [4]) == {4}
    assert plainly_allowed(Constraints([9], [[]], 0, 2), 0, [4]) == set(WORDS)
    assert plainly_allowed(Constraints([9], [[]], 0, 2), 0, [4, 4]) == {*WORDS, EOS}
    assert plainly_allowed(Constraints([9], [[]], 2), 0, [4, 5, 6, 4]) == {*WORDS, EOS} - {5}
    assert plainly_allowed(Constraints([9], [[]], 1, 8), 0, WORDS) == {EOS}


def test_a_search_without_constraints_only_knows_words():
    scores_AWV = forbidden_in(Constraints([99, 99], [[], []]), random_words((2, 3, 4), 1), [0, 1])
    assert (scores_AWV == -math.inf).nonzero()[:, 2].unique().tolist() == [PAD, BOS]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_sequence_comes_twice_in_what_is_taken_by_chance(n):
    for seed in range(5):
        torch.manual_seed(seed)
        constraints = Constraints([30] * 4, [[]] * 4, no_repeat_ngram=n)
        words_AWT = torch.empty(4, 2, 0, dtype=torch.int64)
        for _ in range(20):
            scores_AWV = forbidden_in(constraints, words_AWT, [0, 1, 2, 3])
            scores_AWV[..., EOS] -= 50  # only where nothing else is left
            words_AWT = torch.cat([words_AWT, scores_AWV.softmax(-1).flatten(0, 1).multinomial(1).view(4, 2, 1)], -1)
        for words in words_AWT.flatten(0, 1).tolist():
            words = words[: words.index(EOS)] if EOS in words else words
            sequences = list(zip(*(words[i:] for i in range(n)), strict=False))
            assert len(set(sequences)) == len(sequences)


def test_half_precision_and_rows_in_part_of_a_tensor_do_as_well():
    """Logits may be bf16, and a view."""
    constraints = Constraints([9, 9], [[], [4, 5]], no_repeat_ngram=1, min_length=3)
    words_AWT = torch.tensor([[[5], [6]], [[4], [4]]])
    whole_AWV = torch.zeros(2, 2, V + 3, dtype=torch.bfloat16)
    constraints.forbid_(
        whole_AWV[..., :V], torch.cat([torch.full((2, 2, 1), BOS), words_AWT], -1), sentences=[0, 1], length=2
    )
    assert (whole_AWV[..., V:] == 0).all()
    assert (whole_AWV[0, :, :V] == 0).nonzero().tolist() == [
        *([0, word] for word in WORDS if word != 5),
        *([1, word] for word in WORDS if word != 6),
    ]
    assert (whole_AWV[1, :, :V] == 0).nonzero().tolist() == [[0, 5], [1, 5]]
