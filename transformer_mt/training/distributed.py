"""Ranks: the processes of one run, each with its own device. Without torchrun there is one rank.

torchrun starts them and gives each a number. Every rank holds the complete model and works on its share of an update's
micro-batches. The gradients are summed before the weights change, so that all ranks keep the same weights.
"""

import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from transformer_mt.base import torchrun
from transformer_mt.base.errors import RankError, TrainingError, UserError

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

T = TypeVar("T")

MESSAGES = {"fp32": torch.float32, "bf16": torch.bfloat16}  # by training.message_precision
LOST_CONNECTION = ("Connection closed", "Connection reset", "Timed out waiting", "Broken pipe", "NCCL", "Gloo", "gloo")
TIMEOUT = timedelta(minutes=10)  # of one collective operation; saving a checkpoint takes less
ANSWER = timedelta(minutes=1)  # in which a rank that does not hang says so, after another has waited in vain


class Ranks(torchrun.Place):
    """The place of this process among the processes of the run, and what it does with them."""

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes files and prints."""
        return self.rank == 0

    def say(self, text: str, *, warning: bool = False) -> None:
        """Print text, or a warning on standard error. Only the first rank prints."""
        if self.is_first:
            print(f"warning: {text}" if warning else text, file=sys.stderr if warning else sys.stdout, flush=True)

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum over all ranks, in place, of tensors of one shape."""
        if self.size > 1:
            dist.all_reduce(numbers)
        return numbers

    def max(self, number: float) -> float:
        """The largest of all ranks' numbers."""
        if self.size == 1:
            return number
        numbers = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return numbers.item()

    def sum_gradients(self, parameters: Iterable[nn.Parameter], precision: str) -> None:
        """Replace each gradient by its sum over all ranks, in one message.

        `precision` is that of the message. FSDP has already summed sharded gradients.
        """
        if self.size == 1:
            return
        unsharded = [parameter for parameter in parameters if _sharded(parameter) is None]
        if not unsharded:
            return
        # A rank that had no work has no gradients.
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in unsharded]
        message = torch.cat([gradient.flatten() for gradient in gradients]).to(MESSAGES[precision])
        summed = self.sum(message).to(gradients[0].dtype)
        parts = torch.split(summed, [gradient.numel() for gradient in gradients])
        for parameter, part in zip(unsharded, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def gather(self, thing: T) -> list[T]:
        """The `thing` of each rank, in the order of the ranks."""
        if self.size == 1:
            return [thing]
        things: list[Any] = [None] * self.size
        dist.all_gather_object(things, thing)
        return things

    def own_gpu(self, device: str) -> str:
        """The same device; but `auto` and `cuda` become this rank's own GPU if there are GPUs and several ranks."""
        own = self.size > 1 and device in ("auto", "cuda") and torch.cuda.is_available()
        return f"cuda:{self.local_rank}" if own else device

    @contextmanager
    def together(self) -> Iterator[None]:
        """A context for work that each rank does alone: if it fails on one rank, no rank continues.

        Raises TrainingError on every rank, with the messages of all ranks that failed, each message once.
        """
        if self.size == 1:
            yield
            return
        failure = ""
        try:
            yield
        except (UserError, OSError) as error:
            failure = str(error)
        failures = [each for each in self.gather(failure) if each]
        if failures:
            raise TrainingError("\n".join(dict.fromkeys(failures)))


@contextmanager
def all_ranks() -> Iterator[Ranks]:
    """Connect the ranks that torchrun has started. Without torchrun there is a single one.

    Raises RankError if torchrun or another rank ends, ConfigError if torchrun's variables are wrong.
    """
    place = torchrun.place()
    if place is None:
        yield Ranks()
        return
    watch = _connect(place.rank)
    may_wait = True
    ranks = Ranks(*place)
    if warning := torchrun.restart_warning():
        ranks.say(warning, warning=True)
    try:
        yield ranks
    except (RankError, RuntimeError) as error:
        may_wait = False
        if isinstance(error, RankError) or not any(word in str(error) for word in LOST_CONNECTION):
            raise
        reason = _who_hangs(watch) if "Timed out waiting" in str(error) else str(error)
        reason = reason.splitlines()[0].split(". ")[0]
        raise RankError(
            f"rank {place.rank}: lost the connection to another rank ({reason}). Look for that rank's own error "
            "message; if there is none, it hung or was killed. The same command resumes from the newest checkpoint"
        ) from None
    finally:
        if may_wait or not torch.cuda.is_available():  # NCCL would wait for ranks that have ended
            dist.destroy_process_group()
            # Gloo's threads may have to free the last message, and would abort an interpreter that is shutting down.
            time.sleep(0.05)


def _connect(rank: int) -> "dist.ProcessGroup":
    """Connect this rank with the others, twice: a failed operation spoils the first group, and returned is the second.

    Raises RankError if torchrun or the others cannot be reached.
    """
    try:
        store, _, size = next(rendezvous("env://", timeout=TIMEOUT))
        # NCCL sends tensors on a GPU. Gloo sends those on the host, so that reading them does not wait for a GPU.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        watch: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=ANSWER)
    except RuntimeError as error:  # of gloo, of the store (DistError), or of NCCL
        reason = str(error).splitlines()[0]
        raise RankError(
            f"rank {rank}: cannot connect to torchrun or to the other ranks ({reason}). If torchrun was stopped, run "
            "the same command again; otherwise check MASTER_ADDR, MASTER_PORT and the network between the machines"
        ) from None
    return watch


def _who_hangs(watch: "dist.ProcessGroup") -> str:
    """What PyTorch finds out about the ranks that do not answer. Every rank that waits in vain must call this."""
    try:
        dist.monitored_barrier(watch, ANSWER, wait_all_ranks=True)
    except RuntimeError as error:
        return str(error)
    return "Timed out, but every rank answers"


def shard(model: nn.Module, units: Iterable[nn.Module], ranks: Ranks, device: torch.device, precision: str) -> None:
    """Give each rank a part of every parameter, gradient and optimizer state (FSDP2; Zhao et al. 2023).

    The ranks send each other gradients in this `precision`. A unit's parameters are gathered while it runs, all others
    while `model` runs. Units must run in the given order.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    # The warning is about changing the output of a unit in place, which nothing here does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device.type, (ranks.size,))
    policy = MixedPrecisionPolicy(reduce_dtype=MESSAGES[precision])
    sharded = [fully_shard(unit, mesh=mesh, mp_policy=policy) for unit in [*units, model]]
    # The backward pass gathers the previous unit in advance. FSDP would infer it from all forward passes since the last
    # backward pass, including those of a validation. Ranks may make unequal numbers of these, and would wait for ever.
    for former, unit in zip([sharded[0], *sharded], sharded, strict=False):
        unit.set_modules_to_backward_prefetch([former])
        # The sum of the ranks' gradients, as without sharding; FSDP's default is their mean.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)


@contextmanager
def whole_parameters(model: nn.Module) -> Iterator[None]:
    """Inside this context each rank has all parameters, for work that does not call `forward`, such as decoding."""
    sharded = [unit for module in model.modules() if (unit := _unit(module)) is not None]
    for module in sharded:
        module.set_reshard_after_forward(False, recurse=False)  # ranks have unequal work in between
        module.unshard()
    yield
    for module in sharded:
        module.set_reshard_after_forward(module is not _unit(model), recurse=False)  # the default
        module.reshard()


def is_sharded(model: nn.Module) -> bool:
    """Whether `shard` was called on it."""
    return _unit(model) is not None


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its shards. Every rank must call this."""
    sharded = _sharded(tensor)
    return tensor if sharded is None else sharded.full_tensor()


def sharded_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A copy of an unsharded tensor on the parameter's device, sharded if the parameter is."""
    copied = tensor.to(parameter.device, copy=True)
    if (sharded := _sharded(parameter)) is None or not tensor.dim():  # a single number is not sharded
        return copied
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(copied, sharded.device_mesh, sharded.placements)


# If these modules are not imported, nothing is sharded. Importing them takes almost as long as importing PyTorch.


def _sharded(tensor: Tensor) -> "DTensor | None":
    """The tensor if `shard` has split it over the ranks, else None."""
    module = sys.modules.get("torch.distributed.tensor")
    return tensor if module is not None and isinstance(tensor, module.DTensor) else None


def _unit(module: nn.Module) -> "FSDPModule | None":
    """The module if `shard` was called on it, else None."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return module if fsdp is not None and isinstance(module, fsdp.FSDPModule) else None
