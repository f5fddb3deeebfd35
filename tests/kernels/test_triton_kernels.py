"""Norms and losses by the kernels for GPUs are those of the formulas; seen by Triton's interpreter."""

import importlib.util

import pytest
import torch
from helpers.processes import ended, said, start
from helpers.tiny import ROOT
from torch.nn import functional as F

from transformer_mt.kernels.cross_entropy import softmax_and_gradient
from transformer_mt.kernels.linear import relu_gradient

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None,
        reason="Triton (in the extra `dev`, and with PyTorch for CUDA) is not installed",
    ),
]


def interpreted(kind, cases, directory):
    torch.save(cases, directory / "cases.pt")
    script = ROOT / "tests" / "helpers" / "interpreted.py"
    interpreter = start(directory, "interpreter", script, kind, directory / "cases.pt", directory / "results.pt")
    assert ended(interpreter) == [0], said(interpreter)
    return torch.load(directory / "results.pt", weights_only=True)


def norm_case(num_rows, width, dtype, dropout, seed=1, number=0):
    generator = torch.Generator().manual_seed(num_rows)
    x_ND, sublayer_ND, gradient_ND, rounded_gradient_ND = torch.randn(4, num_rows, width, generator=generator)
    of_sublayer = sublayer_ND.to(dtype), *torch.randn(3, width, generator=generator)
    return [x_ND, *of_sublayer, dropout, seed, number, gradient_ND, rounded_gradient_ND.to(dtype)]


def test_norms_of_sums_and_their_gradients_are_those_of_the_formula(tmp_path):
    """Widths that are no powers of two, and rows that fill no tile, among them."""
    sizes = [(1, 64), (37, 48), (9, 512)]
    types = (torch.float32, 1e-6), (torch.bfloat16, 0.005)  # the interpreter cuts bf16 off, to 2^-8
    cases = [norm_case(*size, dtype, dropout) for size in sizes for dtype, _ in types for dropout in (0.0, 0.3)]
    for case, found in zip(cases, interpreted("norm", cases, tmp_path), strict=True):
        *inputs, dropout, _, _, gradient_ND, rounded_gradient_ND = case
        kept_ND = found[3] != 0  # what is dropped has no gradient
        assert kept_ND.all() if dropout == 0 else not kept_ND.all()
        inputs = [x.double().requires_grad_() for x in inputs]
        sum_ND = inputs[0] + (inputs[1] + inputs[2]) * kept_ND / (1 - dropout)
        output_ND = F.layer_norm(sum_ND, sum_ND.shape[1:], *inputs[3:], 1e-5)
        gradient_ND = gradient_ND.double() + rounded_gradient_ND
        exact = [output_ND.detach()] * 2 + [*torch.autograd.grad(output_ND, inputs, gradient_ND)]
        float32, dtype = torch.float32, case[1].dtype
        assert [x.dtype for x in found] == [float32, dtype, float32, dtype, float32, float32, float32]
        for ours, right in zip(found, exact, strict=True):
            assert (ours - right).norm() <= dict(types)[dtype] * right.norm()
        assert (found[0] - exact[0]).norm() <= 1e-6 * exact[0].norm(), "the next sum gets all of its bits"


def test_the_gradient_of_relu_and_its_sums_are_those_of_the_formula(tmp_path):
    """Of rows and columns that fill no tile, of several tiles, and of what is not a number."""
    generator = torch.Generator().manual_seed(1)
    cases = []
    for size in ((1, 7), (37, 600), (9, 512)):
        gradient_NF, output_NF = torch.randn(2, *size, generator=generator)
        output_NF.relu_()
        output_NF[0, :2] = torch.tensor([1.0, torch.nan])
        cases += [[gradient_NF.to(dtype), output_NF.to(dtype)] for dtype in (torch.float32, torch.bfloat16)]
    for case, (cut_NF, sums_PF) in zip(cases, interpreted("relu", cases, tmp_path), strict=True):
        exact_NF, sum_F = relu_gradient(*case, torch.float32)
        assert torch.equal(cut_NF, exact_NF), "in the same type"
        assert len(sums_PF) == min(3, -(-len(cut_NF) // 8)), "of as many programs"
        torch.testing.assert_close(sums_PF.sum(dim=0), sum_F)


def test_layers_that_pass_sums_in_two_types_are_the_layers(tmp_path):
    """Output and all gradients, that of a bias which the kernel of the norm adds among them."""
    (found,) = interpreted("layers", [[[3, 7, 1], 16]], tmp_path)
    half = len(found) // 2
    for ours, plain in zip(found[:half], found[half:], strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    assert found[1].abs().max() > 1e-3


@pytest.mark.thorough
def test_dropout_keeps_its_share_and_seed_and_number_decide_which(tmp_path):
    draws = (1, 0), (1, 0), (2**61, 0), (1, 1)
    cases = [norm_case(100, 96, torch.float32, 0.1, *draw) for draw in draws]
    one, again, other, next_ = ((found[3] != 0).float() for found in interpreted("norm", cases, tmp_path))
    assert torch.equal(one, again)
    for left, right in ((one, other), (one, next_), (other, next_)):
        assert abs(((left - 0.9) * (right - 0.9)).mean()) < 0.09 * 0.05, "one draw says nothing of another"
    for kept_ND in (one, other, next_):  # four deviations of 9,600 draws; of 100 for a column, and 96 for a row
        assert kept_ND.mean() == pytest.approx(0.9, abs=0.0125)
        for axis in (0, 1):
            assert kept_ND.mean(axis).min() > 0.9 - 0.15
    neighbours = [((one[:, :-shift] - 0.9) * (one[:, shift:] - 0.9)).mean() for shift in (1, 2, 3, 4)]
    assert max(map(abs, neighbours)) < 0.09 * 0.05, "an element says nothing of the next"


def test_the_gradient_of_the_loss_is_that_of_the_formula(tmp_path):
    """Of rows that are a part of a block, several blocks, and large logits."""
    generator = torch.Generator().manual_seed(1)
    cases = []
    for size, scale in ((17, 1.0), (8192, 30.0), (20_001, 3.0)):
        for dtype in (torch.float32, torch.bfloat16):
            logits_NV = (scale * torch.randn(5, size, generator=generator)).to(dtype)
            labels_N1 = torch.randint(size, (5, 1), generator=generator)
            cases += [[logits_NV.clone(), labels_N1, smoothing] for smoothing in (0.0, 0.1)]
    for case, found in zip(cases, interpreted("loss", cases, tmp_path), strict=True):
        logits_NV, labels_N1, smoothing = case
        exact = softmax_and_gradient(logits_NV.double(), labels_N1, smoothing)
        assert [x.dtype for x in found] == [torch.float32, torch.float32, logits_NV.dtype]
        rounding = 1e-5 if logits_NV.dtype == torch.float32 else 2**-7
        for ours, right, error in zip(found, exact, (1e-5, 1e-5, rounding), strict=True):
            torch.testing.assert_close(ours.double(), right.double(), rtol=error, atol=1e-6)
