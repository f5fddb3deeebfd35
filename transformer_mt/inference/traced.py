"""A frozen Transformer's step as a program of tensors for a compiler, for any number of slots and source positions.

B sentences  W hypotheses of a sentence  N slots of the cache  M source positions, rounded up  D model width
K width of a head  X sentences times heads
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from transformer_mt.inference.folded import MOST_POSITIONS, FoldedMemory
from transformer_mt.inference.frozen import FrozenTransformer
from transformer_mt.inference.frozen_state import ROW, FrozenState
from transformer_mt.kernels.matmul import Matmul
from transformer_mt.vocabulary import EOS

MOST_SLOTS = 4096  # the compiler may rely on it that there are no more slots, and no more source positions


class Kind(NamedTuple):
    """The kinds of steps: those of one kind are served by one compiled program."""

    alone: bool
    """Whether there is one sentence, or any number of them from two on."""
    width: int
    """The number of hypotheses; for a single sentence, 2 stands for any number from two on."""

    @classmethod
    def of(cls, alone: bool, width: int) -> "Kind":
        return cls(alone, min(width, 2) if alone else width)

    @property
    def any_width(self) -> bool:
        return self.alone and self.width == 2


def traced(model: FrozenTransformer, matmul: Matmul, kind: Kind) -> ExportedProgram:
    """The program that makes logits of `step_tensors`: the model's step, with products that a compiler can see into."""
    num_sentences, width = 1 if kind.alone else 64, 3 if kind.any_width else kind.width
    # Two blocks of positions, and of slots: the compiler would take a dimension of size one for a constant.
    state = model.start(torch.full((num_sentences, ROW + 1), EOS), width).with_slots()
    state = replace(state, used=state.past_B1WN.shape[3]).with_slots()
    token_BW, position_D = torch.full((num_sentences, width), EOS), model.model.positions.first(1)[0]
    step = _Step(FrozenTransformer(model.model, replace(matmul, prepared=False)))
    example = _by_argument(token_BW, position_D, torch.arange(width), state)
    return export(step, example, dynamic_shapes=_shapes(kind, state, model.num_heads), strict=False)


def step_tensors(token_BW: Tensor, position_D: Tensor, slots_W: Tensor, state: FrozenState) -> list[Tensor]:
    """The program's arguments. It relies on it that they are contiguous, and have the shapes of its kind."""
    *first, keys, values, memories, memory_bias = _by_argument(token_BW.contiguous(), position_D, slots_W, state)
    return [*first, *keys, *values, *(x for memory in memories for x in memory), memory_bias]


class _Step(nn.Module):
    """The module that is compiled: tensors in, logits out; keys and values are written into the slots."""

    def __init__(self, frozen: FrozenTransformer) -> None:
        super().__init__()
        self.frozen = (frozen,)  # in a tuple it is no submodule, so its weights are constants

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


def _by_argument(token_BW: Tensor, position_D: Tensor, slots_W: Tensor, state: FrozenState) -> tuple[Any, ...]:
    """The arguments of _Step.forward."""
    memories = state.folded or zip(state.memory_keys_XKM, state.memory_values_XMK, strict=True)
    lists = state.keys_XKN, state.values_XNK, [list(memory) for memory in memories]
    return token_BW, position_D, slots_W, state.past_B1WN, *lists, state.memory_bias_B11M


def _shapes(kind: Kind, state: FrozenState, num_heads: int) -> tuple[Any, ...]:
    """The dimensions that vary, for each argument of _Step.forward."""
    sentences: Any = 1 if kind.alone else Dim("sentences", min=2)
    hypotheses: Any = Dim("hypotheses", min=2) if kind.any_width else kind.width
    blocks_of_slots = Dim("blocks_of_slots", min=1, max=MOST_SLOTS // ROW)
    most = MOST_POSITIONS if state.folded else MOST_SLOTS
    blocks_of_positions = Dim("blocks_of_positions", min=1, max=most // ROW)
    heads, slots, positions = num_heads * sentences, ROW * blocks_of_slots, ROW * blocks_of_positions
    memory: Any = [{0: heads, 2: positions}, {0: heads, 1: positions}]
    if state.folded:
        memory = [{0: num_heads * ROW * blocks_of_positions} for _ in FoldedMemory._fields]
    return (
        {0: sentences, 1: hypotheses},
        {},
        {0: hypotheses},
        {0: sentences, 2: hypotheses, 3: slots},
        [{0: heads, 2: slots} for _ in state.keys_XKN],
        [{0: heads, 1: slots} for _ in state.values_XNK],
        [memory for _ in state.keys_XKN],
        {0: sentences, 3: positions},
    )
