"""How this process computes on a CPU: settings of PyTorch, oneDNN, MKL and the C library, for the whole process.

They change how fast the same PyTorch calls are and how much memory they hold. The results of fp32 products stay
exact to fp32.
"""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ONEDNN_REFUSES = "could not create a primitive"  # oneDNN's error message when it gets no memory


def set_up_cpu(num_threads: int = 0) -> None:
    """Set up this whole process for fast fp32 on the CPU; `num_threads` 0 keeps PyTorch's number of threads.

    Numbers too small for normal fp32 become 0, freed memory is kept, and oneDNN multiplies matrices.
    """
    if num_threads:
        torch.set_num_threads(num_threads)
    torch.set_flush_denormal(True)
    keep_freed_memory()
    give_matmul_to_onednn()


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks: otherwise each large tensor is mapped, zeroed and unmapped page by page."""
    if platform.libc_ver()[0] != "glibc":
        return
    mmap_threshold, trim_threshold, gigabyte = -3, -1, 1 << 30
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_threshold, gigabyte)
    libc.mallopt(trim_threshold, 2 * gigabyte - 1)


def return_freed_memory() -> None:
    """Give the memory that glibc has kept for reuse back to the system."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def give_matmul_to_onednn() -> None:
    """Let oneDNN multiply fp32 matrices where it is exact; on AMD it is twice as fast as MKL.

    PyTorch has no switch for that, except one that also allows oneDNN to compute in bf16. Processors without AMX
    compute in fp32 all the same. Those with AMX would not: so the error of one product decides.
    """
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # the module is replaced at import
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(256, 512, generator=generator)
    right = torch.randn(512, 512, generator=generator)
    exact = left.double() @ right.double()
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    if ((left @ right).double() - exact).norm() > 1e-6 * exact.norm():
        matmul.fp32_precision = before


def do_without_onednn() -> None:
    """Give matrix products to MKL from now on: once oneDNN had no memory for its code, it never tries again."""
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]


@contextmanager
def best_matmul(few: bool) -> Iterator[None]:
    """Inside, MKL computes where products are `few` or of a matrix with a vector: half of oneDNN's time on a CPU."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # the module is replaced at import
    before = matmul.fp32_precision
    if few:
        matmul.fp32_precision = "none"
    try:
        yield
    finally:
        matmul.fp32_precision = before
