"""A frozen Transformer whose steps of one sentence are compiled by PyTorch's AOTInductor.

A step of a few rows is a hundred operations of some microseconds each, most of which goes into calling them.
Compiled, a step is one call of C++ that PyTorch has written for this model and this processor.

B sentences  W hypotheses of a sentence  N slots of the cache  M source positions, rounded up  D model width
K width of a head  X sentences times heads  F heads times source positions  V vocabulary
"""

import hashlib
import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch._inductor.exc import CppCompileError, InductorError, InvalidCxxCompiler
from torch.export import Dim, ExportedProgram, export

from transformer_mt.errors import TranslationError
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.models.folded import MOST_POSITIONS, FoldedMemory
from transformer_mt.models.frozen import FrozenTransformer, has_frozen_form
from transformer_mt.models.frozen_state import ROW, FrozenState
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.products import Products, best_products
from transformer_mt.models.transformer import Transformer
from transformer_mt.vocabulary import EOS

SEVERAL = 3  # hypotheses of the example, which stands for all numbers from two on
MOST_SLOTS = 4096  # longer rows the compiler sums up in another way
OPTIONS = {
    "freezing": True,  # weights are constants, and put in order
    "max_autotune": True,  # of PyTorch's own product and what is compiled, the quicker
    "max_autotune_gemm_backends": "CPP,ATEN",
    "max_autotune_report_choices_stats": False,
    "autotune_num_choices_displayed": 0,
}

_log = logging.getLogger(__name__)


def compiled(model: Seq2Seq) -> Seq2Seq:
    """The model for search in fp32 on a CPU, as `frozen` makes it, compiled for one thread.

    That takes half a minute to a minute; two seconds where the user's cache directory has what was compiled before.
    Raises TranslationError if the model has no such form, or if nothing can be compiled here.
    """
    members = model.members() if isinstance(model, Ensemble) else [model]
    transformers = [member for member in members if isinstance(member, Transformer)]
    if len(transformers) < len(members) or not all(map(has_frozen_form, transformers)):
        raise TranslationError(
            "--compile is for Transformers with model.attention_score=scaled_dot and without "
            "model.attention_window: leave it out"
        )
    made: list[Seq2Seq] = [CompiledTransformer(transformer) for transformer in transformers]
    return (Ensemble(made) if isinstance(model, Ensemble) else made[0]).eval()


class CompiledTransformer(FrozenTransformer):
    """Steps of several sentences, and of a long one, are those of the frozen model: their products count more."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model, Products())
        step = _Step(FrozenTransformer(model, Products(prepared=False)))
        with torch.inference_mode(mode=False), torch.no_grad(), best_products(few=True):
            self.with_one, self.with_several = (_compiled(self._exported(step, width)) for width in (1, SEVERAL))

    def logits(self, token_BW: Tensor, position_D: Tensor, slots: slice | Tensor, state: FrozenState) -> Tensor:
        if not state.folded or state.past_B1WN.shape[3] > MOST_SLOTS:
            return super().logits(token_BW, position_D, slots, state)
        slots_W = torch.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        step = self.with_one if token_BW.shape[1] == 1 else self.with_several
        with best_products(few=True):
            return step(*_tensors(token_BW.contiguous(), position_D, slots_W, state))

    def _exported(self, step: "_Step", width: int) -> ExportedProgram:
        """The steps with one hypothesis, or with any number beyond; of sources and pasts of all lengths."""
        # Two blocks of positions, and of slots: a dimension of one would be taken for no others.
        state = self.start(torch.full((1, 2 * ROW), EOS), width).with_slots()
        state = replace(state, used=state.past_B1WN.shape[3]).with_slots()
        example = _tensors(torch.full((1, width), EOS), self.model.positions.first(1)[0], torch.arange(width), state)
        hypotheses = Dim("hypotheses", min=2) if width > 1 else 1
        slots = ROW * Dim("blocks_of_slots", min=1, max=MOST_SLOTS // ROW)
        scores = self.num_heads * ROW * Dim("blocks_of_positions", min=1, max=MOST_POSITIONS // ROW)
        shapes: tuple[Any, ...] = (
            {1: hypotheses},
            {},
            {0: hypotheses},
            {2: hypotheses, 3: slots},
            [{2: slots} for _ in state.keys_XKN],
            [{1: slots} for _ in state.values_XNK],
            [[{0: scores} for _ in memory] for memory in state.folded],
        )
        return export(step, example, dynamic_shapes=shapes, strict=False)


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
        folded: list[list[Tensor]],
    ) -> Tensor:
        state = FrozenState(
            keys_XKN=keys_XKN,
            values_XNK=values_XNK,
            past_B1WN=past_B1WN,
            memory_keys_XKM=[],
            memory_values_XMK=[],
            memory_bias_B11M=past_B1WN,
            position=0,
            used=0,
            folded=tuple(FoldedMemory(*memory) for memory in folded),
        )
        return self.frozen[0].traceable_logits(token_BW, position_D, slots_W, state)


def _tensors(token_BW: Tensor, position_D: Tensor, slots_W: Tensor, state: FrozenState) -> tuple[Any, ...]:
    """As _Step.forward takes them. All that is compiled relies on is that they are contiguous, and of these shapes."""
    folded = [list(memory) for memory in state.folded]
    return token_BW, position_D, slots_W, state.past_B1WN, state.keys_XKN, state.values_XNK, folded


def _compiled(exported: ExportedProgram) -> Callable[..., Tensor]:
    """From the cache, or for it.

    Raises TranslationError if it cannot be compiled, or not be kept.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer_mt"
    kept = cache / f"{_digest(exported)}.pt2"
    try:
        if not kept.exists():
            _log.warning("compiling steps of a search, which takes up to a minute; they are kept in %s", cache)
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            with TemporaryDirectory(dir=cache) as directory:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the compiler's, of itself
                    new = str(Path(directory) / kept.name)
                    aoti_compile_and_package(
                        exported, package_path=new, inductor_configs=dict(OPTIONS)
                    )  # it adds to them
                os.replace(new, kept)
        return aoti_load_package(str(kept))
    except (CppCompileError, InductorError, InvalidCxxCompiler) as error:
        raise TranslationError(
            f"the model cannot be compiled here: {str(error).strip().splitlines()[0]}. It takes a C++ compiler, g++ "
            "or what the environment's CXX names, and a directory to write and run programs in "
            "(TORCHINDUCTOR_CACHE_DIR); or leave --compile out"
        ) from None
    except RuntimeError as error:
        raise TranslationError(f"{kept}: cannot be loaded ({error}): remove it, to have it compiled again") from None
    except OSError as error:
        raise TranslationError(
            f"what is compiled cannot be kept in {cache} ({error.strerror}): let XDG_CACHE_HOME name a directory of "
            "yours, or leave --compile out"
        ) from None


def _digest(exported: ExportedProgram) -> str:
    """Of all that makes a difference to what is compiled: the computation, its numbers, PyTorch, the processor."""
    processor = {key: value for key, value in torch.cpu.get_capabilities().items() if not key.startswith("num_")}
    shapes = [str(node.meta.get("val")) for node in exported.graph.nodes]
    ranges = sorted(map(str, exported.range_constraints.items()))
    told = [exported.graph_module.code, shapes, ranges, sorted(processor.items()), torch.__version__, OPTIONS]
    digest = hashlib.sha256(repr(told).encode())
    for name, constant in sorted(exported.constants.items()):
        assert isinstance(constant, Tensor), name
        digest.update(constant.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
