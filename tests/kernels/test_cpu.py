"""What is set for the whole process: fast, and as exact as before."""

import ctypes
import platform

import pytest
import torch

from transformer_mt.kernels import device as kernels_device
from transformer_mt.kernels.device import best_matmul, set_up_cpu

MATMUL = torch.backends.mkldnn.matmul


@pytest.fixture(autouse=True)
def process_is_left_as_it_was():
    threads, precision = torch.get_num_threads(), MATMUL.fp32_precision
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)
    MATMUL.fp32_precision = precision


def test_threads_are_as_many_as_asked_for_and_0_leaves_them_but_for_those_without_a_core(monkeypatch):
    for asked, cores, expected in ((2, 1, 2), (0, 3, 2), (0, 2, 2), (0, 1, 1), (0, 2, 1)):
        monkeypatch.setattr(kernels_device, "num_cores", lambda number=cores: number)
        set_up_cpu(asked)
        assert torch.get_num_threads() == expected


@pytest.mark.parametrize(("few", "inside"), [(True, "none"), (False, "ieee")])
def test_few_products_are_left_to_mkl_and_only_inside(few, inside):
    MATMUL.fp32_precision = "ieee"
    with pytest.raises(ZeroDivisionError), best_matmul(few):
        assert MATMUL.fp32_precision == inside
        raise ZeroDivisionError
    assert MATMUL.fp32_precision == "ieee"


def test_numbers_too_small_for_quick_arithmetic_are_zero():
    set_up_cpu(0)
    assert (torch.full((1,), 1e-30) * 1e-10).item() == 0.0


def relative_error(seed):
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.randn(96, 300, generator=generator), torch.randn(300, 200, generator=generator)
    exact = left.double() @ right.double()
    return ((left @ right).double() - exact).norm() / exact.norm()


def test_fp32_products_stay_exact():
    set_up_cpu(0)
    assert relative_error(seed=1) < 1e-6


@pytest.mark.parametrize("exact", [True, False])
def test_the_quick_route_is_kept_where_its_products_are_exact_and_left_where_they_are_not(monkeypatch, exact):
    MATMUL.fp32_precision = before = "ieee"

    def product(left, right):
        if left.dtype == torch.float32 and MATMUL.fp32_precision == "bf16" and not exact:
            left, right = left.bfloat16().float(), right.bfloat16().float()  # as a processor with AMX does it
        return torch.mm(left.double(), right.double()).to(left.dtype)

    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    set_up_cpu(0)
    assert MATMUL.fp32_precision == ("bf16" if exact else before)
    assert relative_error(seed=2) < 1e-6


@pytest.mark.parametrize("library", ["glibc", "musl", ""])
def test_only_glibc_is_told_to_keep_freed_memory(monkeypatch, library):
    told = {}

    class Libc:
        @staticmethod
        def mallopt(option, value):
            told[option] = value

    monkeypatch.setattr(platform, "libc_ver", lambda: (library, "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Libc)
    kernels_device.keep_freed_memory()
    # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, as malloc.h numbers them; both fit an int.
    assert told.keys() == ({-3, -1} if library == "glibc" else set())
    assert all(1 << 30 <= value < 1 << 31 for value in told.values())
