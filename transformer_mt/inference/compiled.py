"""A frozen Transformer whose steps are compiled by PyTorch's AOTInductor.

A step of a few rows is a hundred operations of some microseconds each, most of which goes into calling them.
Compiled, a step is one call of C++ that PyTorch has written for this model and this processor.

B sentences  W hypotheses of a sentence  D model width
"""

import hashlib
import logging
import os
import platform
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch._inductor.utils import clear_caches

from transformer_mt.errors import TranslationError, UserError
from transformer_mt.inference.ensemble import Ensemble
from transformer_mt.inference.frozen import FrozenTransformer, few_matmuls, has_frozen_form
from transformer_mt.inference.frozen_state import FrozenState
from transformer_mt.inference.traced import MOST_SLOTS, Kind, step_tensors, traced
from transformer_mt.kernels.cpu import best_matmul
from transformer_mt.kernels.matmul import X86, Matmul, mkl_is_quicker
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.transformer import Transformer
from transformer_mt.storage.compiler_files import cache_directory, fresh_torch_cache, read_digest

PACKAGE = Path(__file__).parent.parent
UNFINISHED = "compiling-"  # the directory of what is not whole yet
OPTIONS = {
    "cpp.threads": 1,
    "freezing": True,  # weights are constants, and put in order
    "max_autotune": True,  # of PyTorch's own product and what is compiled, the quicker
    "max_autotune_gemm_backends": "CPP,ATEN",
    "max_autotune_report_choices_stats": False,
    "autotune_num_choices_displayed": 0,
    "cpp_cache_precompile_headers": False,  # which are kept in the temporary directory, wherever the rest is
    "aot_inductor.precompile_headers": False,
}

Step = Callable[[list[Tensor]], list[Tensor]]
"""`step_tensors` to the logits."""

_log = logging.getLogger(__name__)


def compiled(model: Seq2Seq, matmul: Matmul) -> Seq2Seq:
    """The model for search in fp32 or int8 on a CPU, as `frozen` makes it; `compile_steps` is to follow.

    Raises TranslationError if the model has no such form, or the processor or PyTorch none for int8.
    """
    if matmul.quantization == "int8" and (platform.machine() not in X86 or torch.__version__ < "2.13"):
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
    made: list[Seq2Seq] = [CompiledTransformer(transformer, matmul) for transformer in transformers]
    return (Ensemble(made) if isinstance(model, Ensemble) else made[0]).eval()


def compile_steps(model: Seq2Seq, alone: bool, width: int) -> bool:
    """Compile the steps of searches with so many hypotheses of a sentence; False if they are.

    `alone`: one sentence at a time, else several. That takes about a minute, or no time where the user's cache
    directory has what was compiled before. It is for one thread, and holds the decoder's weights. Raises
    TranslationError if nothing can be compiled here.
    """
    members = model.members() if isinstance(model, Ensemble) else [model]
    return any([member.compile_steps(alone, width) for member in members if isinstance(member, CompiledTransformer)])


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Of all processes: files that PyTorch makes on its way have the same names for models of one architecture."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # which Windows has not

    with open(directory / "lock", "w", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in directory.glob(f"{UNFINISHED}*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        yield


def _whole(directory: Path, name: str) -> Path | None:
    """What is kept under this name, if it is as it was written; damaged, it is removed."""
    for kept in directory.glob(f"{name}-*.pt2"):
        if kept.name == f"{name}-{read_digest(kept)}.pt2":
            return kept
        _log.warning("%s is damaged, and compiled anew", kept)
        kept.unlink()
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class CompiledTransformer(FrozenTransformer):
    """Compiled are the steps of the kinds asked for; the others are those of the frozen model."""

    def __init__(self, model: Transformer, matmul: Matmul) -> None:
        super().__init__(model, matmul)
        self.matmul = matmul
        self.steps: dict[Kind, Step] = {}

    def compile_steps(self, alone: bool, width: int) -> bool:
        """As the function. A search begins with fewer hypotheses, and may end so: these few steps stay as they are.

        So do those of several sentences in fp32 where MKL is quicker, whose products no compiler makes.
        """
        kind = Kind.of(alone, width)
        if kind in self.steps or (not alone and self.matmul == Matmul() and mkl_is_quicker()):
            return False
        self.steps[kind] = self._compiled(kind)
        return True

    def logits(self, token_BW: Tensor, position_D: Tensor, slots: slice | Tensor, state: FrozenState) -> Tensor:
        B, W = token_BW.shape
        step = self._step_for(B, W, state)
        if step is None:
            return super().logits(token_BW, position_D, slots, state)
        slots_W = torch.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        with best_matmul(few_matmuls(B, W, self.num_heads)):
            return step(step_tensors(token_BW, position_D, slots_W, state))[0]

    def _step_for(self, num_sentences: int, width: int, state: FrozenState) -> Step | None:
        longest, alone = max(state.past_B1WN.shape[3], state.memory_bias_B11M.shape[3]), num_sentences == 1
        if longest > MOST_SLOTS or (alone and self.folding is not None and not state.folded):
            return None
        return self.steps.get(Kind.of(alone, width))

    def _compiled(self, kind: Kind) -> Step:
        """From the cache, or for it. Raises TranslationError if it cannot be compiled, kept or loaded."""
        told = self._digest.copy()
        told.update(repr(kind).encode())
        directory, name = cache_directory(), told.hexdigest()
        try:
            with _one_at_a_time(directory):
                kept = _whole(directory, name) or self._compile(kind, directory, name)
                step: Step = aoti_load_package(str(kept)).loader.boxed_run  # to call the package takes longer
                return step
        except OSError as error:
            raise TranslationError(
                f"what is compiled cannot be kept in {directory} ({error}): let XDG_CACHE_HOME name a directory of "
                "yours that has room, or leave --compile out"
            ) from None
        except (RuntimeError, ValueError, KeyError) as error:
            if isinstance(error, UserError):
                raise
            raise TranslationError(
                f"{kept}: cannot be loaded ({_first_line(error)}): see that the directory for temporary files has "
                "room, and may hold programs"
            ) from None

    def _compile(self, kind: Kind, directory: Path, name: str) -> Path:
        """The file it is kept in, whose name ends in the digest of its content."""
        _log.warning("compiling steps of the search, for a minute or so; they are kept in %s", directory)
        try:
            with (
                TemporaryDirectory(prefix=UNFINISHED, dir=directory) as unfinished,
                fresh_torch_cache(Path(unfinished)),
                warnings.catch_warnings(action="ignore"),  # the compiler's, of itself
                torch.inference_mode(mode=False),
                torch.no_grad(),
                best_matmul(few=True),
            ):
                clear_caches()  # of this process, of files that are no more
                new, program = Path(unfinished) / f"{name}.pt2", traced(self, self.matmul, kind)
                aoti_compile_and_package(program, package_path=str(new), inductor_configs=OPTIONS.copy())
                new.chmod(0o600)
                kept = directory / f"{name}-{read_digest(new)}.pt2"
                os.replace(new, kept)
                return kept
        except RuntimeError as error:
            raise TranslationError(
                f"the model cannot be compiled here: {_first_line(error)}. It takes a C++ compiler, g++ or what the "
                f"environment's CXX names, and room in {directory}; or leave --compile out"
            ) from None

    @cached_property
    def _digest(self) -> Any:
        """A hash of all that makes a difference to what is compiled, but its kind."""
        processor = {key: value for key, value in torch.cpu.get_capabilities().items() if not key.startswith("num_")}
        processor["used"] = torch.backends.cpu.get_cpu_capability()
        told = [self.matmul, self.model.config, sorted(processor.items()), torch.__version__, OPTIONS]
        digest = hashlib.sha256(repr(told).encode())
        rooms = (PACKAGE / room for room in ("kernels", "models", "inference"))  # which say what is computed
        for path in (path for room in rooms for path in sorted(room.glob("*.py"))):
            digest.update(path.read_bytes())
        for name, weight in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(weight.contiguous().flatten().view(torch.uint8).numpy().data)
        return digest
