"""A frozen Transformer whose steps of the search are compiled to C++ by PyTorch's AOTInductor.

A step of a few rows is a hundred operations of some microseconds each, and most of this time goes into calling them.
When compiled, a step is a single call of C++ code that PyTorch has written for this model and this processor.

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
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.models.transformer import Transformer
from transformer_mt.storage.compiler_files import cache_directory, fresh_torch_cache, read_digest

PACKAGE = Path(__file__).parent.parent
UNFINISHED = "compiling-"  # begins the names of directories of compilations that are not finished
OPTIONS = {
    "cpp.threads": 1,
    "freezing": True,  # weights are constants, laid out as the code reads them
    "max_autotune": True,  # choose the faster of PyTorch's own matrix product and a compiled one
    "max_autotune_gemm_backends": "CPP,ATEN",
    "max_autotune_report_choices_stats": False,
    "autotune_num_choices_displayed": 0,
    "cpp_cache_precompile_headers": False,  # else they lie in the temporary directory, wherever the rest is
    "aot_inductor.precompile_headers": False,
}

Step = Callable[[list[Tensor]], list[Tensor]]
"""Takes `step_tensors`, and returns the logits."""

_log = logging.getLogger(__name__)


def compiled(model: Seq2Seq, matmul: Matmul) -> Seq2Seq:
    """The model for search in fp32 or int8 on a CPU, like `frozen`. `compile_steps` then compiles its steps.

    Raises TranslationError if the model has no such form, or if the processor or PyTorch cannot do it in int8.
    """
    if matmul.quantization == "int8" and (platform.machine() not in X86 or torch.__version__ < "2.13"):
        raise TranslationError(
            "--compile with int8 needs an x86 processor and PyTorch 2.13 or later: leave out --compile or --quantize"
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
    """Compile the steps of searches with `width` hypotheses of a sentence. False if they are already compiled.

    `alone`: for one sentence at a time, else for several. It takes about a minute, or no time if the user's cache
    directory has it from before. The compiled code is for one thread, and holds a copy of the decoder's weights.
    Raises TranslationError if it cannot be compiled here.
    """
    members = model.members() if isinstance(model, Ensemble) else [model]
    return any([member.compile_steps(alone, width) for member in members if isinstance(member, CompiledTransformer)])


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Let one process at a time compile: PyTorch names its files alike for all models of one architecture."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # Windows does not have it

    with open(directory / "lock", "w", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in directory.glob(f"{UNFINISHED}*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        yield


def _whole(directory: Path, name: str) -> Path | None:
    """The file that is kept under this name, or None. A damaged file is removed."""
    for kept in directory.glob(f"{name}-*.pt2"):
        if kept.name == f"{name}-{read_digest(kept)}.pt2":
            return kept
        _log.warning("%s is damaged, and compiled anew", kept)
        kept.unlink()
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class CompiledTransformer(FrozenTransformer):
    """A frozen Transformer of which some kinds of steps are compiled. All others are those of the frozen model."""

    def __init__(self, model: Transformer, matmul: Matmul) -> None:
        super().__init__(model, matmul)
        self.matmul = matmul
        self.steps: dict[Kind, Step] = {}

    def compile_steps(self, alone: bool, width: int) -> bool:
        """See the function `compile_steps`.

        Steps with other numbers of hypotheses, at the beginning and the end of a search for several sentences, are not
        compiled. Nor are steps for several sentences in fp32 where MKL is faster: no compiler makes its products.
        """
        kind = Kind.of(alone, width)
        if kind in self.steps or (not alone and self.matmul == Matmul() and mkl_is_quicker()):
            return False
        self.steps[kind] = self._compiled(kind)
        return True

    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, FrozenState]:
        """See Seq2Seq.step. A single hypothesis is computed twice if only steps for two or more are compiled.

        This happens at the first step of a beam search for one sentence, and at the last ones if its beam gets narrow.
        The compiled step is faster, although it computes a row too many.
        """
        if token_BW.shape != (1, 1) or Kind.of(True, 1) in self.steps or Kind.of(True, 2) not in self.steps:
            return super().step(token_BW, state)
        twice_BW = token_BW.new_zeros(1, 2)
        logits_BWV, next_state = super().step(token_BW.expand(1, 2), state.follow(twice_BW))
        return logits_BWV[:, :1], next_state

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
        """Load the step from the cache, or compile it first. Raises TranslationError if that cannot be done."""
        told = self._digest.copy()
        told.update(repr(kind).encode())
        directory, name = cache_directory(), told.hexdigest()
        try:
            with _one_at_a_time(directory):
                kept = _whole(directory, name) or self._compile(kind, directory, name)
                step: Step = aoti_load_package(str(kept)).loader.boxed_run  # calling the package itself takes longer
                return step
        except OSError as error:
            raise TranslationError(
                f"compiled code cannot be kept in {directory} ({error}): let XDG_CACHE_HOME name a directory of "
                "yours that has room, or leave --compile out"
            ) from None
        except (RuntimeError, ValueError, KeyError) as error:
            if isinstance(error, UserError):
                raise
            raise TranslationError(
                f"{kept}: cannot be loaded ({_first_line(error)}): make sure that the directory for temporary files "
                "has room, and that programs in it may be run"
            ) from None

    def _compile(self, kind: Kind, directory: Path, name: str) -> Path:
        """Compile the step; returns the file that it is kept in, whose name ends in the digest of its content."""
        _log.warning("compiling the search, which takes about a minute; the result is kept in %s", directory)
        try:
            with (
                TemporaryDirectory(prefix=UNFINISHED, dir=directory) as unfinished,
                fresh_torch_cache(Path(unfinished)),
                warnings.catch_warnings(action="ignore"),  # the compiler warns of itself
                torch.inference_mode(mode=False),
                torch.no_grad(),
                best_matmul(few=True),
            ):
                clear_caches()  # this process may remember files that are gone
                new, program = Path(unfinished) / f"{name}.pt2", traced(self, self.matmul, kind)
                aoti_compile_and_package(program, package_path=str(new), inductor_configs=OPTIONS.copy())
                new.chmod(0o600)
                kept = directory / f"{name}-{read_digest(new)}.pt2"
                os.replace(new, kept)
                return kept
        except RuntimeError as error:
            raise TranslationError(
                f"the model cannot be compiled here: {_first_line(error)}. It needs a C++ compiler (g++, or the one "
                f"that the environment variable CXX names) and room in {directory}; or leave --compile out"
            ) from None

    @cached_property
    def _digest(self) -> Any:
        """A hash of everything that the compiled code depends on, except for the kind of step."""
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
