"""Steps of the search as CUDA graphs.

A step of a few rows is a hundred kernels of some microseconds each: the processor needs more time to launch them one by
one than the GPU needs to run them. A graph launches them together. But it always reads and writes the memory, in the
shapes, with which it was captured. So the inputs of a step stay at fixed places, and shapes are rounded up, so that few
graphs serve all steps: capturing one takes as long as several steps.

B sentences  W hypotheses of a sentence  S source positions  M source positions, rounded up  N slots of the cache
D model width  K width of a head  L layers  X sentences times heads  V vocabulary
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.inference.frozen import FrozenState, FrozenTransformer
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.models.interface import DecoderState, Seq2Seq


class Memory:
    """A fixed place for a tensor of each step: `held` is all of it, `shown` is without the rows added by rounding.

    Rows are along the axis `of_rows`. When it is first used, it gets room for at least `least` numbers.
    """

    def __init__(self, padding: float = 0.0, of_rows: int = 0) -> None:
        self.padding, self.of_rows, self.least = padding, of_rows, 0
        self.all = self.held = self.shown = torch.empty(0)

    def hold(self, x: Tensor, *shape: int) -> bool:
        """Copy x into the first corner of a tensor of that shape, with padding elsewhere, unless x is there already.

        Returns True if the memory was too small, so that the tensor has moved.
        """
        if x is self.shown and self.held.shape == shape:
            return False
        size = math.prod(shape)
        moves = size > len(self.all)
        if moves:
            with torch.inference_mode(False):  # so that both inference mode and other code can write to it
                self.all = x.new_empty(max(size, self.least))
        elif x is self.shown:
            x = x.clone()  # x is in the memory that is about to be overwritten
        self.held = self.all[:size].view(shape)
        if x.shape != shape:
            self.held.fill_(self.padding)
        self.held[tuple(map(slice, x.shape))].copy_(x)
        self.shown = self.held.narrow(self.of_rows, 0, x.shape[self.of_rows])
        return moves


LEAST = 64  # the fewest slots, and source positions, of a graph
# The fewest sentences of a step, if the search began with as many: a step of fewer reads the same weights anyway.
LEAST_SENTENCES = 32
MOST_GRAPHS = 128  # if there would be more, all are discarded, so that seldom used ones do not accumulate

Step = Callable[[], Tensor]
Capture = Callable[[Step], tuple[Tensor, Step]]
"""Runs a step. Returns its result, and a function that replays it on the new content of the same memory."""


def with_cuda_graphs(model: Seq2Seq, capturing: Callable[[], Capture]) -> Seq2Seq:
    """The frozen model with captured steps. If the model is not frozen, returns it unchanged.

    `capturing` makes a new Capture (on a GPU a `CudaCapture`) at first, and whenever the graphs were discarded.
    """
    match model:
        case FrozenTransformer():
            return CudaGraphTransformer(model, capturing).eval()
        case Ensemble():
            return Ensemble([with_cuda_graphs(member, capturing) for member in model.members()]).eval()
        case _:
            return model


def make_room(model: Seq2Seq, batches: Sequence[tuple[int, int]], width: int) -> None:
    """Let a captured model reserve memory for all of these searches, because all graphs are lost if memory must move.

    A batch is (its number of sentences, its longest source); `width` is the most hypotheses of a sentence.
    """
    match model:
        case CudaGraphTransformer():
            model.make_room(batches, width)
        case Ensemble():
            for member in model.members():
                make_room(member, batches, width)


class CudaCapture:
    """Captures steps, on another stream than the one that replays them.

    The graphs share memory, which PyTorch does not let new graphs use after all are deleted: make another CudaCapture.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream, self.pool = stream, torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> tuple[Tensor, Step]:
        with self._own_stream():
            result = step()  # a first call loads and sets up things, which cannot be captured
        return result, self.captured(step)

    def captured(self, step: Step) -> Step:
        """Capture a step that has run before. Returns the function that replays it."""
        with self._own_stream():
            try:
                return self._captured(step)
            except torch.OutOfMemoryError:  # during a capture, PyTorch does not free the memory that it keeps for reuse
                torch.cuda.empty_cache()
                return self._captured(step)

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    def _captured(self, step: Step) -> Step:
        """Like `torch.cuda.graph`, but without waiting for the GPU and freeing all unused memory first."""
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        try:
            result = step()
        except BaseException:
            with warnings.catch_warnings(action="ignore"):  # that the graph is empty
                graph.capture_end()
            raise
        graph.capture_end()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


def rounded_up(number: int, least: int) -> int:
    """The next power of two; at least `least`, a power of two."""
    return max(least, 1 << (number - 1).bit_length())


def _least_sentences(sentences: int) -> int:
    """The fewest sentences that a step computes, in a search that begins with so many."""
    return min(rounded_up(sentences, 1), LEAST_SENTENCES)


@dataclass(frozen=True, kw_only=True)
class CapturedState(FrozenState):
    """A state in the model's own memory, which the next step or search overwrites."""

    turn: int
    """A step may start from this state only while the model has the same turn."""
    width: int
    """The next step computes at least so many hypotheses of a sentence, even if some of them are not used."""
    least_sentences: int


class _Sizes(NamedTuple):
    """The sizes for which a graph is captured."""

    sentences: int
    width: int
    slots: int
    source_positions: int

    @staticmethod
    def of(sentences: int, width: int, slots: int, source_positions: int, least_sentences: int) -> "_Sizes":
        """Sizes with room for these. Fewer sentences get more slots at least, so that few sizes are needed."""
        B, W = rounded_up(sentences, least_sentences), 1 << (width.bit_length() - 1)
        least_slots = max(LEAST, W * min(128, max(32, 8192 // B)))
        return _Sizes(B, width, rounded_up(slots, least_slots), rounded_up(source_positions, LEAST))


class CudaGraphTransformer(Seq2Seq):
    """A FrozenTransformer with replayed steps. It serves one search at a time."""

    def __init__(self, frozen: FrozenTransformer, capturing: Callable[[], Capture]) -> None:
        super().__init__()
        self.frozen, self.capturing, self.capture = frozen, capturing, capturing()
        self.output_embedding, self.output_bias_V = frozen.output_embedding, frozen.output_bias_V
        self.faster_forms = frozen.faster_forms
        self.graphs: dict[_Sizes, Step] = {}
        self.turn, self.width = 0, 1  # width: steps compute the final width of a beam from the start
        self.token_BW, self.position_1D, self.slots_1W, self.logits_BWV = (Memory() for _ in range(4))
        layers = ("keys_LXKN", "values_LXNK", "memory_keys_LXKM", "memory_values_LXMK")
        self.of_state = {name: Memory(of_rows=1) for name in layers}
        """The places of the tensors of a FrozenState, by its fields."""
        # `start` masks the padding of sources. Rows added to the mask have 0, because a softmax of only -inf is NaN.
        self.of_state |= {"past_B1WN": Memory(-math.inf), "memory_bias_B11M": Memory()}

    def make_room(self, batches: Sequence[tuple[int, int]], width: int) -> None:
        """See the function `make_room`. It expects translations of up to 1.5 times the longest source."""
        self.width = width
        sizes = [
            _Sizes.of(sentences, width, width * positions * 3 // 2, positions, _least_sentences(sentences))
            for sentences, positions in batches
        ]
        shapes_of = [self._shapes(each) for each in sizes]
        for name, memory in self.of_state.items():
            memory.least = max(math.prod(shapes[name]) for shapes in shapes_of)
        self.token_BW.least = max(each.sentences * each.width for each in sizes)
        self.logits_BWV.least = self.token_BW.least * len(self.frozen.output_VD)

    def _shapes(self, sizes: _Sizes) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors of a FrozenState of these sizes, by its fields."""
        B, W, N, M = sizes
        L, X = len(self.frozen.decoder), B * self.frozen.num_heads
        K = self.frozen.model.d_model // self.frozen.num_heads
        return {
            **{"keys_LXKN": (L, X, K, N), "values_LXNK": (L, X, N, K), "past_B1WN": (B, 1, W, N)},
            **{"memory_keys_LXKM": (L, X, K, M), "memory_values_LXMK": (L, X, M, K), "memory_bias_B11M": (B, 1, 1, M)},
        }

    def features(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        return self.frozen.features(source_BS, decoder_input_BT)

    @torch.no_grad()
    def start(self, source_BS: Tensor, width: int) -> CapturedState:
        state = self.frozen.start(source_BS, width)
        positions = state.memory_bias_B11M.shape[3]
        room = rounded_up(positions, LEAST) - positions
        self.turn += 1
        rounded = {"memory_bias_B11M": F.pad(state.memory_bias_B11M, (0, room), value=-math.inf), "folded": ()}
        return CapturedState(
            **vars(state) | rounded,
            turn=self.turn,
            width=max(width, self.width),
            least_sentences=_least_sentences(len(source_BS)),
        )

    @torch.no_grad()
    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, CapturedState]:
        assert isinstance(state, CapturedState)
        assert state.turn == self.turn, "each state may be used once, before another search starts"
        self.turn += 1
        B, W = token_BW.shape
        sizes = self._sizes(token_BW, state)
        self._hold(token_BW, state, sizes)
        logits_BWV = self._run(sizes)[:B, :W].clone()
        shown: dict[str, Any] = {name: memory.shown for name, memory in self.of_state.items()}
        state = replace(
            state, **shown, position=state.position + 1, used=state.used + W, turn=self.turn, width=sizes.width
        )
        return logits_BWV, state

    def _sizes(self, token_BW: Tensor, state: CapturedState) -> _Sizes:
        B, W = len(token_BW), max(token_BW.shape[1], state.width)
        slots = max(state.used + W, state.past_B1WN.shape[3])
        return _Sizes.of(B, W, slots, state.memory_bias_B11M.shape[3], state.least_sentences)

    def _hold(self, token_BW: Tensor, state: CapturedState, sizes: _Sizes) -> None:
        """Copy all that a step of these sizes reads or writes to the place where its graph expects it."""
        B, W = sizes.sentences, sizes.width
        position_1D = self.frozen.model.positions.first(state.position + 1)[-1:]
        slots_1W = torch.arange(state.used, state.used + W, device=token_BW.device)[None]
        shapes = self._shapes(sizes)
        try:
            moved = [
                self.token_BW.hold(token_BW, B, W),
                self.position_1D.hold(position_1D, *position_1D.shape),
                self.slots_1W.hold(slots_1W, 1, W),
                *(self.of_state[name].hold(getattr(state, name), *shape) for name, shape in shapes.items()),
            ]
        except BaseException:  # for example, too little memory after some tensors have moved
            self._discard_graphs()
            raise
        if any(moved):
            self._discard_graphs()

    def _run(self, sizes: _Sizes) -> Tensor:
        """Logits BWV of the held tensors; the next run overwrites them."""
        if sizes in self.graphs:
            return self.graphs[sizes]()
        if len(self.graphs) == MOST_GRAPHS:
            self._discard_graphs()
        logits_BWV, self.graphs[sizes] = self.capture(self._compute)
        return logits_BWV

    def _compute(self) -> Tensor:
        """The step to capture. It may depend on shapes, but on no other number on the CPU."""
        held: dict[str, Any] = {name: memory.held for name, memory in self.of_state.items()}
        state, slots_W = FrozenState(**held, position=0, used=0), self.slots_1W.held[0]
        B, _, W, _ = state.past_B1WN.shape
        state.past_B1WN.scatter_(3, slots_W[:, None].expand(B, 1, W, 1), 0.0)  # a hypothesis sees its own slot
        logits_BWV = self.frozen.logits(self.token_BW.held, self.position_1D.held, slots_W, state)
        # All graphs write the logits to one place, because separate results would need gigabytes. The place is large
        # enough when a graph is captured, because the step has run before.
        self.logits_BWV.hold(logits_BWV, *logits_BWV.shape)
        return self.logits_BWV.held

    def _discard_graphs(self) -> None:
        self.graphs, self.capture = {}, self.capturing()
