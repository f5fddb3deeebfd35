"""What tests on a GPU share: memory full of NaN, models for bf16, and how near to the exact numbers bf16 has to be.

bf16 has 8 bits, so a rounding is wrong by up to 2^-9 of the number. How many roundings meet in a result, nobody can
say; but two ways of computing the same in bf16 meet about as many. So a fast form is measured by its distance to fp64,
and the distance of the plain form, in bf16 too, is the measure. A row that is left out, or sees its neighbour, is
wrong by about its own size, a hundred times as much.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from transformer_mt.inference.fast import build_model
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.model_settings import TransformerConfig

BF16_ROUNDING, FP32_ROUNDING = 2.0**-9, 2.0**-24
AS_MANY_ROUNDINGS = 3.0
"""How much farther from the exact numbers a fast form may be: it rounds at other places, and its sums are ordered
otherwise."""


def poison(device: torch.device, megabytes: int = 1024) -> None:
    """Fill free memory of a GPU with NaN, so that whoever reads what nobody has written gets NaN.

    All bits set are NaN in every floating-point format. PyTorch keeps freed memory, and gives it to the next tensors
    as it is; blocks below 1 MB come from a pool of their own.
    """
    if device.type != "cuda":
        return
    megabytes = min(megabytes, torch.cuda.mem_get_info(device)[0] // 2**22)  # other tests use the GPU, too
    small = [torch.full((2**10 * 2**power,), 255, dtype=torch.uint8, device=device) for power in range(9)]
    small += [torch.full((2**19,), 255, dtype=torch.uint8, device=device) for _ in range(64)]
    large = [torch.full((2**20 * size,), 255, dtype=torch.uint8, device=device) for size in (4, 16, 64)]
    large.append(torch.full((2**20 * megabytes,), 255, dtype=torch.uint8, device=device))
    del small, large


def moved_transformer(vocab_size: int, **settings: object) -> Seq2Seq:
    """A model in fp64 and in evaluation mode whose biases and norms are not as at the beginning, which hides mistakes.

    It is moved so little that rounding is not amplified on the way through its layers.
    """
    torch.manual_seed(1)
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0, "max_positions": 128}
    model = build_model(TransformerConfig.model_validate(sizes | settings), vocab_size, vocab_size).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model.eval()


FAR_FROM_A_KINK = 6.0


def away_from_kinks(model: Seq2Seq) -> Seq2Seq:
    """The same model, but each ReLU is always open or always closed: its input is shifted far up or far down.

    An input near 0 may have another sign in bf16 than in fp64, and then a complete gradient is there or is not. If
    there are few rows, chance decides in which of two forms this happens. All roundings of a GPU were computed on a
    CPU, for 100 to 150 models of each case: the distance to fp64, as a share of what `assert_as_near` allows, of the
    parameter with the largest share.

    - One sentence, or one word, without shift: up to 19; in 8 and 10 % of the draws more than 1 of the gradient of the
      last ReLU's bias, whichever form is called plain. Without such an input it was at most 0.32 (one word).
    - With a shift of 4, one model of 400 still had such an input, and 3.9. With 6, the largest share was 0.62.

    The test is also stricter with it: if the gradient of that bias is summed in bf16 over all words of a full batch,
    the share is 5 to 7, without the shift 0.5.
    """
    with torch.no_grad():
        for name, bias in model.named_parameters():
            if name.endswith("feed_forward.inner.bias"):
                bias[::2] += FAR_FROM_A_KINK
                bias[1::2] -= FAR_FROM_A_KINK
    return model


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double().cpu() - exact.double().cpu()).norm())


def assert_as_near(
    found: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor, name: str = "", rounding: float = BF16_ROUNDING
) -> None:
    """That `found` is about as near to the exact numbers as the plain form in the same precision, or two roundings."""
    assert found.isfinite().all(), f"{name}: not a number"
    allowed = AS_MANY_ROUNDINGS * distance(plain, exact) + 2 * rounding * float(exact.double().norm())
    assert distance(found, exact) <= allowed, f"{name}: {distance(found, exact):.3g} from exact, allowed {allowed:.3g}"


def assert_rows_as_near(
    found_ND: torch.Tensor, plain_ND: torch.Tensor, exact_ND: torch.Tensor, rounding: float = BF16_ROUNDING
) -> None:
    """Also that no row is farther off than any row of the plain form may be: one wrong row is lost among many."""
    assert_as_near(found_ND, plain_ND, exact_ND, "all rows", rounding)
    of_found_N, of_plain_N, size_N = (
        x_ND.double().cpu().norm(dim=-1)
        for x_ND in (found_ND.cpu() - exact_ND.cpu(), plain_ND.cpu() - exact_ND.cpu(), exact_ND)
    )
    allowed_N = AS_MANY_ROUNDINGS * of_plain_N.max() + 2 * rounding * size_N
    worst = int((of_found_N - allowed_N).argmax())
    assert of_found_N[worst] <= allowed_N[worst], f"row {worst}: {of_found_N[worst]:.3g} from exact"


def gradients(model: torch.nn.Module, features_ND: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a sum in which each feature has a weight of its own, of every parameter; on the CPU, in fp64."""
    model.zero_grad()
    weights_ND = torch.randn(features_ND.shape, generator=torch.Generator().manual_seed(1))
    (features_ND * weights_ND.to(features_ND)).sum().backward()
    return {name: weight.grad.double().cpu() for name, weight in model.named_parameters() if weight.grad is not None}


def num_compiled() -> int:
    """How many graphs this process has compiled, those compiled anew for other shapes among them."""
    from torch._dynamo.utils import counters  # here, because it takes seconds

    return counters["stats"]["unique_graphs"]


@contextmanager
def no_waiting() -> Iterator[None]:
    """Inside, whatever makes the host wait for the GPU is an error."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
