"""Ranks: the processes of one run, each with a device of its own. One process is the case of one rank.

torchrun starts them and tells each its number. Every rank holds the whole model and works on its share of an
update's micro-batches; the gradients are summed before the weights move, so that all ranks stay equal.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

TIMEOUT = timedelta(minutes=10)  # of one collective: longer than a checkpoint takes to be saved


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among those on this machine: the number of its GPU."""
    local_size: int = 1
    """How many are on this machine."""

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes and talks."""
        return self.rank == 0

    def say(self, text: str, *, warning: bool = False) -> None:
        """Print text, or a warning on standard error; the first rank speaks for all."""
        if self.is_first:
            print(f"warning: {text}" if warning else text, file=sys.stderr if warning else sys.stdout, flush=True)

    def share(self, items: Sequence[T]) -> list[T]:
        """This rank's part, every rank's as long as any other's if their number is a multiple of the ranks'."""
        return list(items[self.rank :: self.size])

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum over all ranks, in place, of tensors of one shape."""
        if self.size > 1:
            dist.all_reduce(numbers)
        return numbers

    def max(self, number: int) -> int:
        """The largest of all ranks' numbers."""
        if self.size == 1:
            return number
        numbers = torch.tensor(number)
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return int(numbers)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Let each gradient be the sum over all ranks; all in one message. Sharded ones are summed already."""
        if self.size == 1:
            return
        whole = [parameter for parameter in parameters if _sharded(parameter) is None]
        for parameter in whole:
            if parameter.grad is None:  # no work here
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in whole if parameter.grad is not None]
        if not gradients:
            return
        summed = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        parts = torch.split(summed, [gradient.numel() for gradient in gradients])
        for parameter, part in zip(whole, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def broadcast(self, thing: T) -> T:
        """What the first rank has."""
        if self.size == 1:
            return thing
        things = [thing]
        dist.broadcast_object_list(things, device=torch.device("cpu"))
        return things[0]

    def gather(self, thing: T) -> list[T]:
        """What each rank has, by rank."""
        if self.size == 1:
            return [thing]
        things: list[Any] = [None] * self.size
        dist.all_gather_object(things, thing)
        return things

    def wait(self, meanwhile: Callable[[], object]) -> None:
        """Wait until every rank has come here, and call `meanwhile` now and then.

        Raises RuntimeError if another rank has gone, which `all_ranks` makes a RankError.
        """
        if self.size == 1:
            return
        coming = dist.all_reduce(torch.zeros(1), async_op=True)
        while not coming.is_completed():
            meanwhile()
            time.sleep(0.5)
        coming.wait()

    def own_gpu(self, device: str) -> str:
        """The GPU of this rank in the place of `auto` and `cuda`, if each of several ranks has its own."""
        own = self.size > 1 and device in ("auto", "cuda") and torch.cuda.is_available()
        return f"cuda:{self.local_rank}" if own else device

    @contextmanager
    def together(self) -> Iterator[None]:
        """Work that each rank does by itself; if it fails on any, no rank continues.

        Raises TrainingError on every rank, with what each of them has met with, said once.
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
def all_ranks(timeout: timedelta = TIMEOUT) -> Iterator[Ranks]:
    """The ranks that torchrun has started, connected; a single one where it has not.

    `timeout` is how long a rank waits for others that still run. Raises RankError if torchrun or another rank goes,
    ConfigError if torchrun's variables are wrong.
    """
    place = torchrun.place()
    if place is None:
        yield Ranks()
        return
    _connect(place.rank, timeout)
    may_wait = True
    try:
        yield Ranks(*place)
    except RankError:
        may_wait = False
        raise
    except RuntimeError as error:
        may_wait = False
        if not _is_of_the_connection(error):
            raise
        reason = str(error).splitlines()[0].split(". ")[0]
        raise RankError(
            f"rank {place.rank}: lost the connection to another rank ({reason}). Look for that rank's own error "
            "message; if there is none, it was killed. The same command resumes from the newest checkpoint"
        ) from None
    finally:
        if may_wait or not torch.cuda.is_available():  # NCCL would wait for what ranks that are gone have to send
            dist.destroy_process_group()
            # The threads of gloo may still let go of the last message, which takes the interpreter. They get it while
            # this one sleeps; if it was ending by then, the process would be aborted.
            time.sleep(0.05)


def _connect(rank: int, timeout: timedelta) -> None:
    """Connect this rank with the others. Raises RankError if torchrun, which tells each where they are, is gone."""
    try:
        # The long timeout of a rank that waits for others does not hold here: nobody would end a rank whose torchrun
        # was killed before the two were connected.
        store, _, size = next(rendezvous("env://", timeout=TIMEOUT))
        # Numbers on a GPU go by NCCL. Those of the host go by gloo, so that reading them waits for no GPU.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    except dist.DistError as error:
        reason = str(error).splitlines()[0]
        raise RankError(
            f"rank {rank}: cannot connect to torchrun or to the other ranks ({reason}). If torchrun was stopped, give "
            "the same command again; else check MASTER_ADDR, MASTER_PORT and the network between the machines"
        ) from None


def shard(model: nn.Module, units: Iterable[nn.Module], ranks: Ranks, device: torch.device) -> None:
    """Give each rank a part of every parameter, gradient and optimizer state (FSDP2; Zhao et al. 2023).

    The parameters of a unit are brought together while it runs, all others of `model` while that does. The units run in
    the order in which they are given.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # Nothing here changes the output of a unit in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device.type, (ranks.size,))
    sharded = [fully_shard(unit, mesh=mesh) for unit in [*units, model]]
    # The backward pass brings the unit before together in advance. Which one that is has to be said: FSDP would go by
    # all forward passes since the last backward pass. Those of a validation are among them, and ranks may have made
    # unequal numbers of them. Then they would wait for each other for ever.
    for former, unit in zip([sharded[0], *sharded], sharded, strict=False):
        unit.set_modules_to_backward_prefetch([former])
        # The sum of the ranks' gradients, as without sharding; by itself FSDP would take their mean.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)


@contextmanager
def whole_parameters(model: nn.Module) -> Iterator[None]:
    """All parameters together on each rank, for work that does not go through `forward`, such as decoding."""
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
    """The tensor with all its shards; every rank has to ask for it."""
    sharded = _sharded(tensor)
    return tensor if sharded is None else sharded.full_tensor()


def sharded_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A copy of a whole tensor where the parameter is, sharded if that is."""
    copied = tensor.to(parameter.device, copy=True)
    sharded = _sharded(parameter)
    if sharded is None:
        return copied
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(copied, sharded.device_mesh, sharded.placements)


# Nothing is sharded where these modules have not been imported, which takes almost as long as PyTorch itself.


def _sharded(tensor: Tensor) -> "DTensor | None":
    """The tensor if `shard` has split it over the ranks, else None."""
    module = sys.modules.get("torch.distributed.tensor")
    return tensor if module is not None and isinstance(tensor, module.DTensor) else None


def _unit(module: nn.Module) -> "FSDPModule | None":
    """The module if `shard` was called on it, else None."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return module if fsdp is not None and isinstance(module, fsdp.FSDPModule) else None


def _is_of_the_connection(error: RuntimeError) -> bool:
    words = ("Connection closed", "Connection reset", "Timed out waiting", "Broken pipe", "NCCL", "Gloo", "gloo")
    return any(word in str(error) for word in words)
