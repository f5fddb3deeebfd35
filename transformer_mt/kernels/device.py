"""The device of a stage, the precision of its matrix products, and PyTorch's settings for fast ones on a CPU.

The settings change PyTorch's speed and memory. The results of fp32 products stay exact to fp32.
"""

import ctypes
import os
import platform
import shutil
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from transformer_mt.base.cores import num_cores, sleep_beside_others
from transformer_mt.base.errors import ConfigError
from transformer_mt.base.wording import counted

ONEDNN_REFUSES = "could not create a primitive"  # oneDNN's error message when it gets no memory
GPU_FILES = ("/dev/nvidia0", "/proc/driver/nvidia/version")  # Linux has them if there is an NVIDIA GPU


@dataclass(frozen=True)
class Device:
    """The device of tensors, and the type of matrix products (weights are always fp32)."""

    torch_device: torch.device
    dtype: torch.dtype
    description: str

    def synchronize(self) -> None:
        """Wait until a GPU has done its queued work, so that its time can be measured."""
        if self.torch_device.type == "cuda":
            torch.cuda.synchronize(self.torch_device)

    def give_back(self) -> None:
        """Return freed memory that was kept for reuse: tensors of other shapes and oneDNN's code may need it."""
        if self.torch_device.type == "cuda":
            torch.cuda.empty_cache()
        elif platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)

    def autocast(self) -> torch.autocast:
        """The context of a forward pass."""
        enabled = self.dtype != torch.float32
        return torch.autocast(self.torch_device.type, dtype=self.dtype, enabled=enabled)


def choose_device(name: str, precision: str, num_threads: int = 0) -> Device:
    """The device with that name, ready to use; `auto` is a GPU if CUDA has one, otherwise the CPU.

    The precision `auto` is bf16 on a device that multiplies bf16 faster than fp32, fp16 on an older GPU with tensor
    cores, otherwise fp32. Raises ConfigError.
    The CPU changes settings of the whole process (`set_up_cpu`). A GPU becomes this thread's current
    one, on which Triton's kernels run, and turns cuDNN's attention off for the whole process.
    """
    device = usable_device(name)
    if precision == "auto":
        precision = fastest_precision(device)
    if device.type == "cuda":
        # cuDNN makes a plan for each new shape of attention, but padded batches have hundreds of shapes.
        torch.backends.cuda.enable_cudnn_sdp(False)
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(device)
        hardware = torch.cuda.get_device_name(device)
    else:
        set_up_cpu(num_threads)
        hardware = f"CPU, {counted(torch.get_num_threads(), 'thread')}"
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return Device(device, dtype, f"{hardware}, {precision}")


def usable_device(name: str) -> torch.device:
    """The device with that name, as in `choose_device`. Raises ConfigError if PyTorch cannot use it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.ones(1, device=device)  # runs a kernel, which PyTorch may not have for this GPU
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("it is neither a CPU nor CUDA")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        if "no kernel image" in reason:
            major, minor = torch.cuda.get_device_capability(device)
            raise ConfigError(
                f"device {name} cannot be used: it is an sm_{major}{minor}, and PyTorch {torch.__version__} is built "
                f"for {', '.join(torch.cuda.get_arch_list())}. Install a PyTorch that is built for it, or choose cpu"
            ) from None
        raise ConfigError(f"device {name} cannot be used ({reason}); choose auto, cpu, cuda or cuda:N") from None
    return device


def why_gpu_unused() -> str:
    """Why PyTorch cannot use this machine's GPU; empty if it can, if there is none, or if the user has hidden it."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if hidden or not any(Path(file).exists() for file in GPU_FILES):
        return ""
    try:
        torch.empty(0, device="cuda")
        return ""
    except (RuntimeError, AssertionError) as error:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs only"
        return f"{str(error).splitlines()[0]} (PyTorch {torch.__version__} is built for {built})"


def check_c_compiler() -> None:
    """Raises ConfigError if this machine cannot compile the code that starts Triton's kernels on a GPU."""
    if os.name != "posix":
        return
    header = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
    compilers = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    if not any(map(shutil.which, compilers)):
        missing = f"this machine has no C compiler ({' or '.join(compilers)})"
    elif not header.is_file():
        missing = f"{header}, which the C compiler needs, is missing"
    else:
        return
    raise ConfigError(
        f"{missing}, but PyTorch compiles code for a GPU when it starts. Install it (on Debian and Ubuntu: apt-get "
        "install gcc python3-dev), or use the CPU (training.device=cpu; --device cpu)"
    )


def fastest_precision(device: torch.device) -> Literal["fp32", "bf16", "fp16"]:
    """The precision that `choose_device` takes for `auto`."""
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        return "bf16" if capability >= (8, 0) else "fp16" if capability >= (7, 0) else "fp32"
    capabilities = torch.cpu.get_capabilities()
    # Without AMX, bf16 has half the speed of fp32 on an Intel Xeon. It is faster than fp32 on an AMD EPYC.
    has_fast_avx512 = capabilities.get("avx512_bf16") and "Intel" not in str(capabilities.get("cpu_name"))
    return "bf16" if has_fast_avx512 or capabilities.get("amx_bf16") else "fp32"


def on_host(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the host's memory. If they are on a GPU, the host waits once for all of them."""
    if not tensors[0].is_cuda:
        return tensors
    copies = tuple(tensor.to("cpu", non_blocking=True) for tensor in tensors)
    torch.cuda.current_stream(tensors[0].device).synchronize()
    return copies


def on_device(numbers: Sequence[float] | Tensor, device: torch.device) -> Tensor:
    """The numbers as a tensor on the device. A GPU copies them after its queued work; the host does not wait."""
    here = torch.as_tensor(numbers)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)


def set_up_cpu(num_threads: int) -> None:
    """Set up this whole process for fast fp32 on the CPU; `num_threads` 0 means one thread per core.

    Numbers too small for normal fp32 become 0, freed memory is kept, oneDNN multiplies matrices, and threads that wait
    sleep while other programs need the cores.
    """
    # PyTorch's own number may be lower than that of the cores, as under torchrun.
    torch.set_num_threads(num_threads or min(torch.get_num_threads(), num_cores()))
    sleep_beside_others(torch.get_num_threads())
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


def give_matmul_to_onednn() -> None:
    """Let oneDNN multiply fp32 matrices if it is exact; on AMD it is twice as fast as MKL.

    PyTorch's only switch for this also allows oneDNN to compute in bf16. Processors without AMX still compute in fp32,
    but those with AMX do not. So this function measures the error of one product, and decides.
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


def do_without_refused_onednn(error: Exception) -> None:
    """If oneDNN had no memory for its code, use MKL for matrix products from now on: oneDNN never tries again."""
    if ONEDNN_REFUSES in str(error):
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]


@contextmanager
def best_matmul(few: bool) -> Iterator[None]:
    """If `few`, MKL computes in this context: it is twice as fast as oneDNN for few products and for vectors."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # the module is replaced at import
    before = matmul.fp32_precision
    if few:
        matmul.fp32_precision = "none"
    try:
        yield
    finally:
        matmul.fp32_precision = before
