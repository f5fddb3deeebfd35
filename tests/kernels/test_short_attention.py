"""Attention in small tiles is the plain formula's, with its gradients; seen by Triton's interpreter."""

import importlib.util
import math

import pytest
import torch
from helpers.processes import ended, said, start
from helpers.tiny import ROOT
from torch.nn import functional as F

from transformer_mt.kernels import packed_attention
from transformer_mt.kernels.packed_attention import Segments, are_short, segments_mask

HAS_TRITON = importlib.util.find_spec("triton") is not None

# Lengths of queries; of keys, if they are others; whether causal; the window; the width of a head; the type.
CASES = {
    "parts of a tile": ([5, 1, 8, 3], [2, 7, 1, 4], False, 0, 16, torch.float32),
    "whole tiles, and one word more": ([32, 64, 31], [33, 1, 129], False, 0, 64, torch.float32),
    "several parts": ([1, 130], None, False, 0, 16, torch.float32),
    "causal": ([40, 33, 1], None, True, 0, 32, torch.float32),
    "window": ([100, 33, 1], None, False, 40, 16, torch.float32),
    "a window of one word, causal": ([40, 33, 1], None, True, 1, 16, torch.float32),
    "keys that no query sees": ([3, 0, 5], [4, 6, 7], False, 0, 16, torch.float32),
    "the longest": ([1, 512], None, False, 40, 16, torch.float32),
    "bf16": ([5, 33, 1], [40, 1, 7], False, 0, 64, torch.bfloat16),
    "bf16, causal": ([40, 1], None, True, 0, 128, torch.bfloat16),
    "bf16, no queries": ([3, 0, 33], [4, 6, 7], False, 0, 32, torch.bfloat16),
    "bf16, the longest": ([1, 512], [512, 1], False, 0, 32, torch.bfloat16),
}


def offsets_of(lengths):
    """The last one is repeated, as of a batch with room for more sentences."""
    return F.pad(torch.tensor([0, *lengths]).cumsum(0).int(), (0, 3), value=sum(lengths))


def arguments(query_lengths, key_lengths, causal, window, width, dtype, generator):
    """Those of `short_attention`, and a gradient of its output. Queries are a part of the rows of a larger matrix."""
    key_lengths = key_lengths or query_lengths
    num_queries, num_keys, num_heads = sum(query_lengths), sum(key_lengths), 2
    rows_N3HK = torch.randn(num_queries, 3, num_heads, width, generator=generator)
    key_MHK, value_MHK = torch.randn(2, num_keys, num_heads, width, generator=generator)
    gradient_NHK = torch.randn(num_queries, num_heads, width, generator=generator)
    offsets = offsets_of(query_lengths), offsets_of(key_lengths)
    longest = max(query_lengths), max(key_lengths)
    query_NHK, key_MHK, value_MHK, gradient_NHK = (
        x.to(dtype) for x in (rows_N3HK[:, 1], key_MHK, value_MHK, gradient_NHK)
    )
    return [query_NHK, key_MHK, value_MHK, *offsets, *longest, causal, window, gradient_NHK]


def plain(query_NHK, key_MHK, value_MHK, *others):
    """By the formula, in twice the precision."""
    *segments, gradient_NHK = others
    mask_NM = segments_mask(Segments(*segments), len(query_NHK), len(key_MHK))
    inputs = [x.double().requires_grad_() for x in (query_NHK, key_MHK, value_MHK)]
    query_HNK, key_HMK, value_HMK = (x.transpose(0, 1) for x in inputs)
    scores_HNM = query_HNK @ key_HMK.mT / math.sqrt(query_NHK.shape[-1])
    mixed_HNK = scores_HNM.masked_fill(~mask_NM, -math.inf).softmax(-1) @ value_HMK
    mixed_NHK = mixed_HNK.transpose(0, 1)
    return [mixed_NHK.detach(), *torch.autograd.grad(mixed_NHK, inputs, gradient_NHK.double())]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="Triton (in the extra `dev`, and with PyTorch for CUDA) is not installed")
def test_its_output_and_gradients_are_those_of_the_formula(tmp_path):
    generator = torch.Generator().manual_seed(1)
    cases = {name: arguments(*case, generator) for name, case in CASES.items()}
    torch.save(list(cases.values()), tmp_path / "cases.pt")
    script = ROOT / "tests" / "helpers" / "interpreted.py"
    interpreter = start(tmp_path, "interpreter", script, "attention", tmp_path / "cases.pt", tmp_path / "results.pt")
    assert ended(interpreter) == [0], said(interpreter)
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for (name, case), ours in zip(cases.items(), results, strict=True):
        of_the_same_words = CASES[name][1] is None
        for found, expected in zip(ours, plain(*case) * (2 if of_the_same_words else 1), strict=True):
            assert found.dtype == case[0].dtype
            error = 1e-5 if found.dtype == torch.float32 else 0.03  # bf16 has 8 bits
            torch.testing.assert_close(
                found.double(), expected, rtol=error, atol=error, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.parametrize(
    ("lengths", "width", "short"),
    [
        ([256], 64, True),
        ([257], 64, False),
        ([2000] + [20] * 10, 128, True),
        ([2000] + [20] * 3, 64, False),
        ([40], 48, False),
    ],
    ids=str,
)
def test_what_is_usually_long_and_odd_widths_are_left_to_flash_attention(monkeypatch, lengths, width, short):
    """One long sentence among short ones changes nothing."""
    monkeypatch.setattr(packed_attention, "HAS_TRITON", True)
    offsets = F.pad(torch.tensor(lengths).cumsum(0).int(), (1, 0))
    segments = Segments(offsets, offsets, max(lengths), max(lengths), causal=False)
    query_NHK = torch.empty(sum(lengths), 2, width)
    assert are_short(segments, query_NHK) is short
    monkeypatch.setattr(packed_attention, "HAS_TRITON", False)
    assert not are_short(segments, query_NHK)


@pytest.mark.skipif(not HAS_TRITON, reason="Triton (in the extra `dev`, and with PyTorch for CUDA) is not installed")
@pytest.mark.parametrize(("lengths", "tile"), [([15] * 40, 32), ([16] * 40, 64), ([500] + [3] * 50, 32)], ids=str)
def test_tiles_fit_the_usual_length(lengths, tile):
    from transformer_mt.kernels.short_attention import _constants  # needs Triton

    offsets = F.pad(torch.tensor(lengths).cumsum(0).int(), (1, 0))
    chosen = _constants(torch.empty(sum(lengths), 2, 64), offsets, causal=False, window=0)
    assert chosen["TILE"] == tile
