"""Attention as its papers write it: a number at a time."""

import math

import torch

from transformer_mt.models.scores import FixedConcat, Location, build_score
from transformer_mt.settings.model_settings import ScoreChoice

SCORES = ["dot", "scaled_dot", "general", "additive", "concat"]


def randn(*shape, seed=2):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_mask(*shape):
    """Each query may see at least one key."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.5
    mask[..., 0] |= ~mask.any(dim=-1)
    return mask


def new_score(name, num_heads, query_width, key_width, num_positions=9):
    """Also location and fixed_concat, and additive with a bias. Biases are fresh at 0 and are not here."""
    torch.manual_seed(1)
    match name:
        case "location":
            return Location(query_width, num_positions).double()
        case "fixed_concat":
            score = FixedConcat(query_width, key_width, num_positions).double()
            torch.nn.init.normal_(score.joined.bias)
        case "biased_additive":
            score = build_score(ScoreChoice("additive", biased=True), num_heads, query_width, key_width).double()
            torch.nn.init.normal_(score.bias_H1A)
        case _:
            return build_score(ScoreChoice(name), num_heads, query_width, key_width).double()
    return score


def score_of_pair(name, score, head, query_Q, keys_SK, s):
    """f(q, k_s) of one head: one number."""
    key_K = keys_SK[s]
    match name:
        case "dot":
            return query_Q @ key_K
        case "scaled_dot":
            return query_Q @ key_K / math.sqrt(len(key_K))
        case "general":
            return query_Q @ score.weight_HQK[head] @ key_K
        case "additive":
            inner_A = torch.tanh(query_Q @ score.query_weight_HQA[head] + key_K @ score.key_weight_HKA[head])
            return inner_A @ score.inner_weight_HA1[head, :, 0]
        case "biased_additive":
            weight_IA = torch.cat([score.query_weight_HQA[head], score.key_weight_HKA[head]])
            inner_A = torch.tanh(torch.cat([query_Q, key_K]) @ weight_IA + score.bias_H1A[head, 0])
            return inner_A @ score.inner_weight_HA1[head, :, 0]
        case "location":
            return score.weight_SQ[s] @ query_Q
        case "concat":
            weight_I = torch.cat([score.query_weight_HQ1[head], score.key_weight_HK1[head]])[:, 0]
            return weight_I @ torch.cat([query_Q, key_K])
        case "fixed_concat":
            return score.joined(torch.cat([query_Q, keys_SK[-1]]))[s]


def scores_by_loops(name, score, query_BHTK, key_BHSK):
    """Scores BHTS, one after the other."""
    (B, H, T, _), S = query_BHTK.shape, key_BHSK.shape[2]
    scores_BHTS = torch.empty(B, H, T, S, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                for s in range(S):
                    scores_BHTS[b, h, t, s] = score_of_pair(name, score, h, query_BHTK[b, h, t], key_BHSK[b, h], s)
    return scores_BHTS


def attention_by_loops(name, score, query_BHTK, key_BHSK, value_BHSK, mask_BHTS):
    """What each query reads: over the keys that it may see, exp(score) / sum of them, times the value."""
    exp_BHTS = scores_by_loops(name, score, query_BHTK, key_BHSK).exp() * mask_BHTS
    weights_BHTS = exp_BHTS / exp_BHTS.sum(dim=-1, keepdim=True)
    return torch.einsum("bhts,bhsk->bhtk", weights_BHTS, value_BHSK), weights_BHTS
