"""A frozen Transformer whose steps are compiled by PyTorch's AOTInductor.

A step of a few rows is a hundred operations of some microseconds each, most of which goes into calling them.
Compiled, a step is one call of C++ that PyTorch has written for this model and this processor.

B sentences  W hypotheses of a sentence  N slots of the cache  M source positions, rounded up  D model width
K width of a head  X sentences times heads  F heads times source positions  V vocabulary
"""

import hashlib
import logging
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch.export import Dim, ExportedProgram, export

from transformer_mt.errors import TranslationError
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.models.folded import MOST_POSITIONS, FoldedMemory
from transformer_mt.models.frozen import FrozenTransformer, few_products, has_frozen_form
from transformer_mt.models.frozen_state import ROW, FrozenState
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.products import X86, Products, best_products
from transformer_mt.models.transformer import Transformer
from transformer_mt.vocabulary import EOS

MOST_SLOTS = 4096  # the compiler is told that there are no more, nor more source positions
OPTIONS = {
    "cpp.threads": 1,
    "freezing": True,  # weights are constants, and put in order
    "max_autotune": True,  # of PyTorch's own product and what is compiled, the quicker
    "max_autotune_gemm_backends": "CPP,ATEN",
    "max_autotune_report_choices_stats": False,
    "autotune_num_choices_displayed": 0,
}

Step = Callable[[list[Tensor]], list[Tensor]]
"""The tensors that _Step.forward takes, one after the other, to the logits."""

_log = logging.getLogger(__name__)


class Kind(NamedTuple):
    """Of steps that are compiled together."""

    alone: bool
    """One sentence; or any number of them from two on."""
    width: int
    """So many hypotheses; of a sentence alone, 2 are any number from two on."""

    @property
    def any_width(self) -> bool:
        return self.alone and self.width == 2


def compiled(model: Seq2Seq, products: Products) -> Seq2Seq:
    """The model for search in fp32 or int8 on a CPU, as `frozen` makes it; `compile_steps` is to follow.

    Raises TranslationError if the model has no such form, or the processor or PyTorch none for int8.
    """
    if products.quantization == "int8" and (platform.machine() not in X86 or torch.__version__ < "2.13"):
        raise TranslationError(
            "--compile is for int8 on x86 processors alone, by PyTorch 2.13 or later: leave it or --quantize out"
        )
    members = model.members() if isinstance(model, Ensemble) else [model]
    transformers = [member for member in members if isinstance(member, Transformer)]
    if len(transformers) < len(members) or not all(map(has_frozen_form, transformers)):
        raise TranslationError(
            "--compile is for Transformers with model.attention_score=scaled_dot and without "
            "model.attention_window: leave it out"
        )
    made: list[Seq2Seq] = [CompiledTransformer(transformer, products) for transformer in transformers]
    return (Ensemble(made) if isinstance(model, Ensemble) else made[0]).eval()


def compile_steps(model: Seq2Seq, width: int) -> bool:
    """Compile the steps of searches with so many hypotheses of a sentence; False if they are.

    For each kind of steps that takes about a minute, or no time where the user's cache directory has what was
    compiled before. All are for one thread, and each holds the decoder's weights. Raises TranslationError if nothing
    can be compiled here.
    """
    members = model.members() if isinstance(model, Ensemble) else [model]
    return any([member.compile_steps(width) for member in members if isinstance(member, CompiledTransformer)])


def _cache_directory() -> Path:
    """Raises TranslationError if there is none, or if it is not ours alone: what it holds is run."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        directory = (named if named.is_absolute() else Path.home() / ".cache") / "transformer_mt"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = directory.stat()
    except (OSError, RuntimeError) as error:
        raise TranslationError(
            f"what is compiled can be kept nowhere ({error}): let XDG_CACHE_HOME name a directory of yours, or leave "
            "--compile out"
        ) from None
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise TranslationError(
            f"{directory}: belongs to somebody else, or others may write to it, and what it holds is run: let "
            "XDG_CACHE_HOME name a directory of yours, or leave --compile out"
        )
    return directory


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Of all processes: files that PyTorch makes on its way have the same names for models of one architecture."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # which Windows has not

    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class CompiledTransformer(FrozenTransformer):
    """Compiled are the steps of a sentence alone, in int8 also those of several with as many hypotheses as asked for.

    The others are those of the frozen model. To several in fp32 compiling gives little, since their products count
    more; in int8 products are so quick that to begin them counts.
    """

    def __init__(self, model: Transformer, products: Products) -> None:
        super().__init__(model, products)
        self.products = products
        self.steps: dict[Kind, Step] = {}

    def compile_steps(self, width: int) -> bool:
        """As the function."""
        # Most searches begin with one hypothesis; that of a sentence alone goes on with any number.
        wanted = {Kind(alone=True, width=1), Kind(alone=True, width=min(width, 2))}
        if self.products.quantization == "int8":
            wanted |= {Kind(alone=False, width=1), Kind(alone=False, width=width)}
        new = sorted(wanted - self.steps.keys())
        for kind in new:
            self.steps[kind] = self._compiled(kind)
        return bool(new)

    def logits(self, token_BW: Tensor, position_D: Tensor, slots: slice | Tensor, state: FrozenState) -> Tensor:
        B, W = token_BW.shape
        step = self._step_for(B, W, state)
        if step is None:
            return super().logits(token_BW, position_D, slots, state)
        slots_W = torch.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        with best_products(few_products(B, W, self.num_heads)):
            return step(list(_flat(_tensors(token_BW.contiguous(), position_D, slots_W, state))))[0]

    def _step_for(self, num_sentences: int, width: int, state: FrozenState) -> Step | None:
        longest = max(state.past_B1WN.shape[3], state.memory_bias_B11M.shape[3])
        if longest > MOST_SLOTS or (self.folding is not None and not state.folded):
            return None
        alone = num_sentences == 1
        return self.steps.get(Kind(alone, min(width, 2) if alone else width))

    def _compiled(self, kind: Kind) -> Step:
        """From the cache, or for it. Raises TranslationError if it cannot be compiled, kept or loaded."""
        told = self._digest.copy()
        told.update(repr(kind).encode())
        kept = _cache_directory() / f"{told.hexdigest()}.pt2"
        try:
            with _one_at_a_time(kept.parent):
                if not kept.exists():
                    self._compile(kind, kept)
        except OSError as error:
            raise TranslationError(
                f"what is compiled cannot be kept in {kept.parent} ({error}): let XDG_CACHE_HOME name a directory of "
                "yours that has room, or leave --compile out"
            ) from None
        try:
            step: Step = aoti_load_package(str(kept)).loader.boxed_run  # to call the package takes longer
            return step
        except (RuntimeError, ValueError, KeyError) as error:
            raise TranslationError(
                f"{kept}: cannot be loaded ({_first_line(error)}): remove it, to have it compiled again; or see that "
                "the directory for temporary files has room, and may hold programs"
            ) from None

    def _compile(self, kind: Kind, kept: Path) -> None:
        _log.warning("compiling steps of the search, for a minute or so; they are kept in %s", kept.parent)
        try:
            with (
                TemporaryDirectory(dir=kept.parent) as directory,
                warnings.catch_warnings(action="ignore"),  # the compiler's, of itself
                torch.inference_mode(mode=False),
                torch.no_grad(),
                best_products(few=True),
            ):
                new = str(Path(directory) / kept.name)
                aoti_compile_and_package(self._exported(kind), package_path=new, inductor_configs=OPTIONS.copy())
                os.replace(new, kept)
        except RuntimeError as error:
            raise TranslationError(
                f"the model cannot be compiled here: {_first_line(error)}. It takes a C++ compiler, g++ or what the "
                f"environment's CXX names, and room in {kept.parent}; or leave --compile out"
            ) from None

    @cached_property
    def _digest(self) -> Any:
        """A hash of all that makes a difference to what is compiled, but its kind."""
        processor = {key: value for key, value in torch.cpu.get_capabilities().items() if not key.startswith("num_")}
        processor["used"] = torch.backends.cpu.get_cpu_capability()
        told = [self.products, self.model.config, sorted(processor.items()), torch.__version__, OPTIONS]
        digest = hashlib.sha256(repr(told).encode())
        for path in sorted(Path(__file__).parent.glob("*.py")):  # which say what is computed
            digest.update(path.read_bytes())
        for name, weight in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(weight.contiguous().flatten().view(torch.uint8).numpy().data)
        return digest

    def _exported(self, kind: Kind) -> ExportedProgram:
        """Steps of any numbers of slots and source positions."""
        num_sentences, width = 1 if kind.alone else 64, 3 if kind.any_width else kind.width
        # Two blocks of positions, and of slots: a dimension of one would be taken for no others.
        state = self.start(torch.full((num_sentences, ROW + 1), EOS), width).with_slots()
        state = replace(state, used=state.past_B1WN.shape[3]).with_slots()
        token_BW = torch.full((num_sentences, width), EOS)
        example = _tensors(token_BW, self.model.positions.first(1)[0], torch.arange(width), state)
        step = _Step(FrozenTransformer(self.model, replace(self.products, prepared=False)))
        return export(step, example, dynamic_shapes=self._shapes(kind, state), strict=False)

    def _shapes(self, kind: Kind, state: FrozenState) -> tuple[Any, ...]:
        """The dimensions that vary, by the tensors of _Step.forward."""
        sentences: Any = 1 if kind.alone else Dim("sentences", min=2)
        hypotheses: Any = Dim("hypotheses", min=2) if kind.any_width else kind.width
        blocks_of_slots = Dim("blocks_of_slots", min=1, max=MOST_SLOTS // ROW)
        most = MOST_POSITIONS if state.folded else MOST_SLOTS
        blocks_of_positions = Dim("blocks_of_positions", min=1, max=most // ROW)
        heads, slots, positions = self.num_heads * sentences, ROW * blocks_of_slots, ROW * blocks_of_positions
        memory: Any = [{0: heads, 2: positions}, {0: heads, 1: positions}]
        if state.folded:
            memory = [{0: self.num_heads * ROW * blocks_of_positions} for _ in FoldedMemory._fields]
        return (
            {0: sentences, 1: hypotheses},
            {},
            {0: hypotheses},
            {0: sentences, 2: hypotheses, 3: slots},
            [{0: heads, 2: slots} for _ in self.decoder],
            [{0: heads, 1: slots} for _ in self.decoder],
            [memory for _ in self.decoder],
            {0: sentences, 3: positions},
        )


class _Step(nn.Module):
    """What is compiled: tensors in, logits out; keys and values are written into the slots."""

    def __init__(self, frozen: FrozenTransformer) -> None:
        super().__init__()
        self.frozen = (frozen,)  # as no module of this one, so that its weights are constants

    def forward(
        self,
        token_BW: Tensor,
        position_D: Tensor,
        slots_W: Tensor,
        past_B1WN: Tensor,
        keys_XKN: list[Tensor],
        values_XNK: list[Tensor],
        memories: list[list[Tensor]],
        memory_bias_B11M: Tensor,
    ) -> Tensor:
        is_folded = len(memories[0]) == len(FoldedMemory._fields)
        state = FrozenState(
            keys_XKN=keys_XKN,
            values_XNK=values_XNK,
            past_B1WN=past_B1WN,
            memory_keys_XKM=[memory[0] for memory in memories],
            memory_values_XMK=[memory[1] for memory in memories],
            memory_bias_B11M=memory_bias_B11M,
            position=0,
            used=0,
            folded=tuple(FoldedMemory(*memory) for memory in memories) if is_folded else (),
        )
        return self.frozen[0].traceable_logits(token_BW, position_D, slots_W, state)


def _tensors(token_BW: Tensor, position_D: Tensor, slots_W: Tensor, state: FrozenState) -> tuple[Any, ...]:
    """As _Step.forward takes them. All that is compiled relies on is that they are contiguous, and of these shapes."""
    memories = state.folded or zip(state.memory_keys_XKM, state.memory_values_XMK, strict=True)
    lists = state.keys_XKN, state.values_XNK, [list(memory) for memory in memories]
    return token_BW, position_D, slots_W, state.past_B1WN, *lists, state.memory_bias_B11M


def _flat(tensors: Iterable[Any]) -> Iterator[Tensor]:
    for x in tensors:
        if isinstance(x, Tensor):
            yield x
        else:
            yield from _flat(x)
