"""What a stage runs on: the device, the precision of its matrix products, and how to be quick there."""

import ctypes
import platform
from dataclasses import dataclass

import torch

from transformer_mt.errors import ConfigError
from transformer_mt.wording import counted

ONEDNN_REFUSES = "could not create a primitive"  # its only word for a lack of memory


@dataclass(frozen=True)
class Device:
    """Where tensors live, and the type of matrix products (weights are always fp32)."""

    torch_device: torch.device
    dtype: torch.dtype
    description: str

    def synchronize(self) -> None:
        """Wait for the work that is queued on a GPU, so that it can be timed."""
        if self.torch_device.type == "cuda":
            torch.cuda.synchronize(self.torch_device)

    def give_back(self) -> None:
        """Return the memory that is freed and kept for reuse, so that other shapes, and oneDNN's code, find room."""
        if self.torch_device.type == "cuda":
            torch.cuda.empty_cache()
        elif platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        enabled = self.dtype != torch.float32
        return torch.autocast(self.torch_device.type, dtype=self.dtype, enabled=enabled)


def choose_device(name: str = "auto", precision: str = "auto", num_threads: int = 0) -> Device:
    """The device of that name, set up; `auto` is CUDA if there is one.

    `precision` auto is bf16 on a device that multiplies it in hardware, and else fp32. Raises ConfigError.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("it is neither a CPU nor CUDA")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name} cannot be used ({reason}); say auto, cpu, cuda or cuda:N") from None
    if precision == "auto":
        precision = "bf16" if _multiplies_bf16(device) else "fp32"
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    else:
        _set_up_cpu(num_threads)
        hardware = f"CPU, {counted(torch.get_num_threads(), 'thread')}"
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return Device(device, dtype, f"{hardware}, {precision}")


def do_without_onednn() -> None:
    """Leave products to MKL from now on: where oneDNN found no room for its code once, it never looks again."""
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]


def _multiplies_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _set_up_cpu(num_threads: int) -> None:
    if num_threads:
        torch.set_num_threads(num_threads)
    torch.set_flush_denormal(True)
    _keep_freed_memory()
    _route_products_to_onednn()


def _keep_freed_memory() -> None:
    """Let glibc reuse large blocks: else each large tensor is mapped, zeroed and unmapped page by page."""
    if platform.libc_ver()[0] != "glibc":
        return
    mmap_threshold, trim_threshold, gigabyte = -3, -1, 1 << 30
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_threshold, gigabyte)
    libc.mallopt(trim_threshold, 2 * gigabyte - 1)


def _route_products_to_onednn() -> None:
    """Have fp32 products done by oneDNN where it is exact; on AMD it is twice as fast as MKL.

    The setting allows bf16 inside. A processor without AMX does not make use of that, and one with it
    would: so the result of one product decides.
    """
    mkldnn = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # the module is replaced at import
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(256, 512, generator=generator)
    right = torch.randn(512, 512, generator=generator)
    exact = left.double() @ right.double()
    before = mkldnn.fp32_precision
    mkldnn.fp32_precision = "bf16"
    if ((left @ right).double() - exact).norm() > 1e-6 * exact.norm():
        mkldnn.fp32_precision = before
