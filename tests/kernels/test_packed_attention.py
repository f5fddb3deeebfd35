"""Attention of packed sentences is PyTorch's for each sentence on its own."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

from transformer_mt.kernels.packed_attention import Segments


def attended(query_NHK, key_MHK, value_MHK, segments):
    """The attention of each segment separately, NHK."""
    in_heads = (x.transpose(0, 1) for x in (query_NHK, key_MHK, value_MHK))
    return segments.attend(*in_heads, None).transpose(0, 1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 3, 10])
def test_attention_of_variable_length_equals_a_loop_over_sentences(causal, window):
    generator = torch.Generator().manual_seed(1)
    query_lengths = [5, 1, 8, 3]
    key_lengths = query_lengths if causal or window else [2, 7, 1, 4]
    offsets = [torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (query_lengths, key_lengths)]
    offsets = [F.pad(ends, (0, 3), value=int(ends[-1])) for ends in offsets]
    query_NHK = torch.randn(17, 3, 4, dtype=torch.float64, generator=generator)
    key_MHK, value_MHK = torch.randn(2, sum(key_lengths), 3, 4, dtype=torch.float64, generator=generator)
    ours_NHK = attended(query_NHK, key_MHK, value_MHK, Segments(*offsets, 8, 8, causal, window))
    theirs = []
    for query_THK, *memory in zip(
        query_NHK.split(query_lengths), key_MHK.split(key_lengths), value_MHK.split(key_lengths), strict=True
    ):
        query_HTK, key_HSK, value_HSK = (x.transpose(0, 1) for x in (query_THK, *memory))
        after_TS = torch.arange(key_HSK.shape[1]) - torch.arange(query_HTK.shape[1])[:, None]
        mask_TS = (after_TS.abs() <= (window or 99)) & (after_TS <= (0 if causal else 99))
        mixed_HTK = F.scaled_dot_product_attention(query_HTK, key_HSK, value_HSK, attn_mask=mask_TS)
        theirs.append(mixed_HTK.transpose(0, 1))
    torch.testing.assert_close(ours_NHK, torch.cat(theirs))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("longest", [40, 600])
def test_cuda_calls_the_kernel_as_it_wants_to_be_called(causal, window, longest):
    """Tensors without numbers, of CUDA in name alone: PyTorch checks the arguments without a GPU."""
    with FakeTensorMode(), torch.device("cuda"), torch.no_grad():
        query_NHK, key_NHK, value_NHK = torch.empty(48, 3, 4, 32, dtype=torch.bfloat16).unbind(1)
        offsets = torch.empty(9, dtype=torch.int32)
        segments = Segments(offsets, offsets, longest, longest, causal, window)
        mixed_NHK = attended(query_NHK, key_NHK, value_NHK, segments)
    assert mixed_NHK.device.type == "cuda"
    assert (mixed_NHK.shape, mixed_NHK.dtype) == ((48, 4, 32), torch.bfloat16)
