"""Computes what the kernels for GPUs compute, without a GPU, by Triton's interpreter; a process of its own.

usage: interpreted.py attention|norm|relu|loss|layers CASES RESULTS. Both files are PyTorch's: a list of arguments in
order, and a list of results. For attention and norm, the gradients of the outputs come last in a case, and the
gradients of its first arguments follow the outputs in a result. Where queries and keys come from the same words, what
`short_self_attention` computes follows.
"""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def patch_language(tensor, scope):
    """As the interpreter does it, and so that its scalars, arrays of one number, are bounds of loops for NumPy 2.4."""
    patched(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


def product(self, left, right, sum_, input_precision, max_num_imprecise_acc):
    """As a GPU makes it of bf16: exact products, summed in fp32. The interpreter would hold bf16 as whole numbers."""
    values = [np.float32(_values(handle)) for handle in (left, right)]
    return interpreter.TensorHandle(np.matmul(*values).astype(np.float32) + sum_.data, sum_.dtype.scalar)


def _values(handle):
    """The numbers of a tile; those of bf16 lie in whole numbers of 16 bits."""
    if handle.dtype.scalar == tl.bfloat16:
        return (handle.data.astype(np.uint32) << 16).view(np.float32)
    return handle.data


patched, interpreter._patch_lang_tensor = interpreter._patch_lang_tensor, patch_language
interpreter.InterpreterBuilder.create_dot = product
torch.library.wrap_triton = lambda kernel: kernel  # it takes compiled kernels only

from transformer_mt.inference import fast  # noqa: E402
from transformer_mt.kernels import gradients, residual_norm  # noqa: E402
from transformer_mt.kernels.packed_attention import Segments  # noqa: E402
from transformer_mt.kernels.short_attention import short_attention, short_self_attention  # noqa: E402
from transformer_mt.settings.model_settings import TransformerConfig  # noqa: E402

residual_norm.PROGRAMS = gradients.PROGRAMS = 3  # so that each has several tiles


def attention(query_NHK, key_MHK, value_MHK, *others):
    *segments, gradient_NHK = others
    inputs = [x.requires_grad_() for x in (query_NHK, key_MHK, value_MHK)]
    mixed_NHK, _ = short_attention(*inputs, *segments)
    results = [mixed_NHK.detach(), *torch.autograd.grad(mixed_NHK, inputs, gradient_NHK)]
    query_offsets, key_offsets, max_queries, _, *sees = segments
    if query_offsets.equal(key_offsets):
        rows_N3HK = torch.stack(inputs, dim=1).detach().requires_grad_()
        mixed_NHK, _ = short_self_attention(rows_N3HK, query_offsets, max_queries, *sees)
        (gradient_N3HK,) = torch.autograd.grad(mixed_NHK, rows_N3HK, gradient_NHK)
        results += [mixed_NHK.detach(), *gradient_N3HK.unbind(1)]
    return results


def norm(x_ND, sublayer_ND, sublayer_bias_D, weight_D, bias_D, dropout, seed, number, gradient_ND, rounded_gradient_ND):
    inputs = [x.requires_grad_() for x in (x_ND, sublayer_ND, sublayer_bias_D, weight_D, bias_D)]
    outputs = residual_norm.residual_norm(*inputs, torch.tensor([seed]), number, 1e-5, dropout)[:2]
    gradients = torch.autograd.grad(outputs, inputs, (gradient_ND, rounded_gradient_ND))
    return [*(x.detach() for x in outputs), *gradients]


def layers(lengths, width, settings=None):
    """The output of an encoder of packed words, and all gradients: by the kernel, and without it."""
    torch.manual_seed(1)
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "d_model": width, "num_heads": 2, "ffn_dim": 32, "dropout": 0.0}
    model = fast.build_model(TransformerConfig(**sizes, **settings or {}), 11, 11).train()
    offsets = torch.tensor([0, *lengths]).cumsum(0).int()
    see = Segments(offsets, offsets, max(lengths), max(lengths), causal=False)
    x_ND, sent_back_ND = torch.randn(2, sum(lengths), width)
    x_ND.requires_grad_()
    found = []
    for on_gpu in (True, False):
        fast.is_packed_on_gpu = lambda x, on_gpu=on_gpu: on_gpu
        memory_ND = model.encode(x_ND, see)
        learnt = [x_ND, *model.encoder.parameters()]
        found += [memory_ND.detach(), *torch.autograd.grad(memory_ND, learnt, sent_back_ND)]
    return found


def relu(gradient_NF, output_NF):
    return list(gradients.relu_gradient_parts(gradient_NF, output_NF))


def loss(logits_NV, labels_N1, smoothing):
    log_sum_N1, label_logit_N1, gradient_NV = gradients.softmax_and_gradient_on_gpu(logits_NV, labels_N1, smoothing)
    assert gradient_NV is logits_NV, "the gradient is where the logits were"
    return [log_sum_N1, label_logit_N1, gradient_NV]


computed = {"attention": attention, "norm": norm, "relu": relu, "loss": loss, "layers": layers}[sys.argv[1]]
torch.save([computed(*case) for case in torch.load(sys.argv[2], weights_only=True)], sys.argv[3])
