"""A trained Transformer arranged for decoding: it computes what `Transformer.start` and `step` do, in half the time.

Weights and keys are in memory in the order in which matrix products read them. Rows of scores have a multiple of 16
numbers. The layers are not modules, because calling a module takes as long as a small product.

Attention to the source (Vaswani et al. 2017, sec. 3.2.2) is softmax(x W_Q K^T) V W_O, without scale and biases. The
products W_Q K^T and V W_O are the same at every step: for one sentence, they are computed once and replace the memory.
For a short source they are smaller than W_Q and W_O. So each step reads less, and needs two products instead of four.

B sentences  W hypotheses of a sentence  S source positions  M source positions, rounded up  N slots of the cache
R rows  D model width  H heads  K width of a head  V vocabulary  L layers  X sentences times heads  F inner width
In folded memories, X is layers times heads, and F is heads times source positions.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import PAD
from transformer_mt.inference.fast import FASTER_FUNCTIONS
from transformer_mt.kernels.device import best_matmul
from transformer_mt.kernels.matmul import Matmul
from transformer_mt.models.ensemble import Ensemble
from transformer_mt.models.interface import DecoderState, Seq2Seq
from transformer_mt.models.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual, Transformer
from transformer_mt.models.variants import ACTIVATIONS, VariedFeedForward

FEW_HEADS = 100  # heads of all sentences together: if there are fewer, or one hypothesis, MKL multiplies faster
MOST_POSITIONS = 64  # of a source, with padding; above the width of a head, folded memory is larger than the weights


class FoldedMemory(NamedTuple):
    """One layer's memory. Scores are x key^T + bias, and their softmax times value is the output without its bias."""

    key_FD: Tensor
    bias_F: Tensor
    """-inf at padding."""
    value_FD: Tensor


class Folding:
    """Folds memories with the weights of all layers' attention to the source, which it holds by head."""

    def __init__(self, layers: Sequence[DecoderLayer]) -> None:
        attentions = [layer.cross_attention for layer in layers]
        L, H, D = len(attentions), attentions[0].num_heads, attentions[0].d_model
        query_LDD = torch.stack([attention.in_projection.weight[:D] for attention in attentions]).detach()
        bias_LD = torch.stack([attention.in_projection.bias[:D] for attention in attentions]).detach()
        output_LDD = torch.stack([attention.out_projection.weight for attention in attentions]).detach()
        scale = (D // H) ** -0.5
        self.query_XKD = query_LDD.view(L * H, -1, D) * scale
        self.bias_X1K = bias_LD.view(L * H, 1, -1) * scale
        self.output_XKD = output_LDD.view(L, D, H, -1).permute(0, 2, 3, 1).flatten(0, 1).contiguous()
        self.num_layers = L

    def __call__(self, key_XKM: Tensor, value_XMK: Tensor, bias_M: Tensor) -> tuple[FoldedMemory, ...]:
        """The folded memory of each layer. `bias_M` is -inf at padding and 0 elsewhere."""
        key_XMD = torch.bmm(key_XKM.transpose(1, 2), self.query_XKD)
        bias_XM = torch.bmm(self.bias_X1K, key_XKM)[:, 0] + bias_M
        value_XMD = torch.bmm(value_XMK, self.output_XKD)
        L, D = self.num_layers, value_XMD.shape[2]
        layers = zip(key_XMD.view(L, -1, D), bias_XM.view(L, -1), value_XMD.view(L, -1, D), strict=True)
        return tuple(FoldedMemory(*layer) for layer in layers)


ROW = 16  # if rows have a multiple of this many numbers, softmax takes a tenth to a third of the time


@dataclass(frozen=True, kw_only=True)
class FrozenState(DecoderState):
    """The hypotheses of a sentence share its slots: one slot for each position of each hypothesis.

    A cached key never moves; `past_B1WN` says which slots belong to the past of a hypothesis.
    """

    keys_LXKN: Tensor
    values_LXNK: Tensor
    past_B1WN: Tensor
    """Added to scores: 0 at slots that the hypothesis may see, else -inf."""
    memory_keys_LXKM: Tensor
    memory_values_LXMK: Tensor
    memory_bias_B11M: Tensor
    """Added to scores: 0 at the source, -inf at padding."""
    position: int
    used: int
    """The number of used slots, which are the first ones."""
    folded: tuple[FoldedMemory, ...] = ()
    """One for each layer, which replaces the layer's memory; empty if the memory is used."""

    def follow(self, parent_BW: Tensor) -> "FrozenState":
        slots_B1WN = parent_BW[:, None, :, None].expand(-1, -1, -1, self.past_B1WN.shape[-1])
        return replace(self, past_B1WN=self.past_B1WN.gather(2, slots_B1WN))

    def keep(self, sentences: Tensor) -> "FrozenState":
        def kept(x_LXYZ: Tensor) -> Tensor:
            x_LBHYZ: Tensor = x_LXYZ.unflatten(1, (len(self.past_B1WN), -1))  # type: ignore[no-untyped-call]
            return x_LBHYZ.index_select(1, sentences).flatten(1, 2)

        by_head = "keys_LXKN", "values_LXNK", "memory_keys_LXKM", "memory_values_LXMK"
        found: dict[str, Any] = {name: kept(getattr(self, name)) for name in by_head}
        found |= {name: getattr(self, name).index_select(0, sentences) for name in ("past_B1WN", "memory_bias_B11M")}
        return replace(self, **found)

    def with_slots(self) -> "FrozenState":
        """The state with slots for one more position; each hypothesis sees its own new slot."""
        W, N = self.past_B1WN.shape[2:]
        state = self
        if self.used + W > N:
            room = ROW * math.ceil(W / 2)  # enough to make copies rare, and little enough to keep attention short
            state = replace(
                self,
                keys_LXKN=with_zeros(self.keys_LXKN, 3, room),
                values_LXNK=with_zeros(self.values_LXNK, 2, room),
                past_B1WN=F.pad(self.past_B1WN, (0, room), value=-math.inf),
            )
        state.past_B1WN[..., self.used : self.used + W].diagonal(dim1=2, dim2=3).zero_()
        return state


def with_zeros(x: Tensor, dim: int, number: int) -> Tensor:
    """F.pad(x) with `number` zeros at the end of one dimension. F.pad is slower: it first writes zeros everywhere."""
    length = x.shape[dim]
    longer = x.new_empty([*x.shape[:dim], length + number, *x.shape[dim + 1 :]])
    longer.narrow(dim, 0, length).copy_(x)
    longer.narrow(dim, length, number).zero_()
    return longer


def frozen(model: Seq2Seq, matmul: Matmul) -> Seq2Seq:
    """The model in its form for search, with its current weights; the same model if it has no such form.

    Raises TranslationError if `matmul` has another precision than fp32 and the model has no form for search.
    """
    match model:
        case Transformer() if model.config.score.is_scaled_dot and not model.config.attention_window:
            return FrozenTransformer(model, matmul).eval()
        case Ensemble():
            return Ensemble([frozen(member, matmul) for member in model.members()]).eval()
        case _ if matmul != Matmul():
            raise TranslationError(
                "other precisions than fp32 are for Transformers with model.attention_score=scaled_dot and without "
                "model.attention_window: leave --dtype and --quantize out"
            )
        case _:
            return model


class FrozenTransformer(Seq2Seq):
    """A Transformer for search. For teacher forcing it uses the Transformer itself."""

    def __init__(self, model: Transformer, matmul: Matmul) -> None:
        super().__init__()
        self.model, self.num_heads = model, model.config.num_heads
        self.output_embedding, self.output_bias_V = model.output_embedding, model.output_bias_V
        self.faster_forms = FASTER_FUNCTIONS
        self.encoder = [_Encoding(layer, matmul) for layer in model.encoder if isinstance(layer, EncoderLayer)]
        layers, of_memory = model.decoder_layers(), slice(model.d_model, None)
        self.decoder = [_Decoding(layer, matmul) for layer in layers]
        projections = [layer.cross_attention.in_projection for layer in layers]
        weight_FD = torch.cat([each.weight[of_memory] for each in projections])
        bias_F = torch.cat([each.bias[of_memory] for each in projections])
        self.memories = matmul.of_weight(weight_FD, bias_F, many_rows=True)
        self.output = matmul.of_weight(model.output_VD, model.output_bias_V, many_rows=True)
        on_cpu = model.output_VD.device.type == "cpu"
        self.folding = Folding(layers) if on_cpu and matmul == Matmul() else None

    def features(self, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
        return self.model.features(source_BS, decoder_input_BT)

    def start(self, source_BS: Tensor, width: int) -> FrozenState:
        source_BS = self._with_round_length(source_BS)
        B, S = source_BS.shape
        padding_BM = F.pad(source_BS, (0, -S % ROW), value=PAD) == PAD
        x_RD = self._embed(self.model.source_embedding, source_BS.flatten(), self.model.positions.first(S).repeat(B, 1))
        bias_BM = torch.zeros_like(padding_BM, dtype=x_RD.dtype).masked_fill_(padding_BM, -math.inf)
        bias_B11M = bias_BM[:, None, None]
        for layer in self.encoder:
            x_RD = layer(x_RD, bias_B11M, S)
        memories_RF = self.memories(self.model.encoder_norm(x_RD))
        memories_BSL2HK = memories_RF.view(B, S, len(self.decoder), 2, self.num_heads, -1)
        key_LBHSK, value_LBHSK = memories_BSL2HK.permute(3, 2, 0, 4, 1, 5)
        room = padding_BM.shape[1] - S
        memory_key_LXKM = with_zeros(key_LBHSK.transpose(3, 4), 4, room).flatten(1, 2)
        memory_value_LXMK = with_zeros(value_LBHSK, 3, room).flatten(1, 2)
        folded: tuple[FoldedMemory, ...] = ()
        if self.folding is not None and B == 1 and padding_BM.shape[1] <= MOST_POSITIONS:
            folded = self.folding(memory_key_LXKM.flatten(0, 1), memory_value_LXMK.flatten(0, 1), bias_BM[0])
        no_slots_LXNK = value_LBHSK[..., :0, :].flatten(1, 2)
        return FrozenState(
            keys_LXKN=no_slots_LXNK.transpose(2, 3),
            values_LXNK=no_slots_LXNK,
            past_B1WN=bias_B11M.new_empty(B, 1, width, 0),
            memory_keys_LXKM=memory_key_LXKM,
            memory_values_LXMK=memory_value_LXMK,
            memory_bias_B11M=bias_B11M,
            position=0,
            used=0,
            folded=folded,
        )

    def _with_round_length(self, source_BS: Tensor) -> Tensor:
        """Pad a single sentence to a multiple of 8 positions: for each new size, oneDNN compiles code for 2 ms."""
        room = -source_BS.shape[1] % 8
        if len(source_BS) > 1 or source_BS.shape[1] + room > len(self.model.positions.table_TD):
            return source_BS
        return F.pad(source_BS, (0, room), value=PAD)

    def step(self, token_BW: Tensor, state: DecoderState) -> tuple[Tensor, FrozenState]:
        assert isinstance(state, FrozenState)
        state, now = state.with_slots(), state.used + token_BW.shape[1]
        position_D = self.model.positions.first(state.position + 1)[-1]
        logits_BWV = self.logits(token_BW, position_D, slice(state.used, now), state)
        return logits_BWV, replace(state, position=state.position + 1, used=now)

    def logits(self, token_BW: Tensor, position_D: Tensor, slots: slice | Tensor, state: FrozenState) -> Tensor:
        """Logits BWV. Writes the words' keys and values into these slots of the state; does not read its counts."""
        B, W = token_BW.shape
        x_RD = self._embed(self.model.target_embedding, token_BW.flatten(), position_D)
        pasts = zip(state.keys_LXKN, state.values_LXNK, strict=True)
        memories: Iterable[FoldedMemory | tuple[Tensor, Tensor]] = state.folded or zip(
            state.memory_keys_LXKM, state.memory_values_LXMK, strict=True
        )
        with best_matmul(few=W == 1 or B * self.num_heads < FEW_HEADS):
            for layer, past, memory in zip(self.decoder, pasts, memories, strict=True):
                x_RD = layer.attend_to_itself(x_RD, *past, state.past_B1WN, slots)
                if isinstance(memory, FoldedMemory):
                    x_RD = layer.attend_to_folded(x_RD, memory)
                else:
                    x_RD = layer.attend_to_source(x_RD, *memory, state.memory_bias_B11M, W)
                x_RD = layer.feed_forward(x_RD)
            logits_RV = self.output(self.model.decoder_norm(x_RD))
        return logits_RV.view(B, W, -1)

    def _embed(self, embedding: nn.Embedding, token_R: Tensor, encodings: Tensor) -> Tensor:
        return F.embedding(token_R, embedding.weight).mul_(math.sqrt(self.model.d_model)).add_(encodings)


class _Residual:
    """`Residual` without dropout."""

    def __init__(self, residual: Residual) -> None:
        norm = residual.norm
        self.shape, self.gain, self.bias, self.eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        self.pre_norm = residual.pre_norm

    def before(self, x_RD: Tensor) -> Tensor:
        return self._norm(x_RD) if self.pre_norm else x_RD

    def after(self, x_RD: Tensor, y_RD: Tensor) -> Tensor:
        sum_RD = y_RD.add_(x_RD) if y_RD.dtype == x_RD.dtype else x_RD + y_RD
        return sum_RD if self.pre_norm else self._norm(sum_RD)

    def _norm(self, x_RD: Tensor) -> Tensor:
        return torch.layer_norm(x_RD, self.shape, self.gain, self.bias, self.eps, False)


class _FeedForward:
    """`FeedForward` with its residual connection."""

    def __init__(self, feed_forward: FeedForward, residual: Residual, matmul: Matmul, many_rows: bool) -> None:
        varied = feed_forward if isinstance(feed_forward, VariedFeedForward) else None
        activation = varied.activation if varied else "relu"
        relu = activation == "relu"  # computed together with the product
        self.inner = matmul.of(feed_forward.inner, many_rows, relu)
        self.outer = matmul.of(feed_forward.outer, many_rows)
        self.factor = matmul.of(varied.factor, many_rows) if varied and activation == "swiglu" else None
        self.activation = (lambda x_RF: x_RF) if relu else ACTIVATIONS[activation]
        self.residual = _Residual(residual)

    def __call__(self, x_RD: Tensor) -> Tensor:
        input_RD = self.residual.before(x_RD)
        inner_RF = self.activation(self.inner(input_RD))
        if self.factor is not None:
            inner_RF = inner_RF.mul_(self.factor(input_RD))
        return self.residual.after(x_RD, self.outer(inner_RF))


class _Encoding:
    """An `EncoderLayer` for search."""

    def __init__(self, layer: EncoderLayer, matmul: Matmul) -> None:
        self.num_heads = layer.attention.num_heads
        self.in_projection = matmul.of(layer.attention.in_projection, many_rows=True)
        self.out_projection = matmul.of(layer.attention.out_projection, many_rows=True)
        self.residual = _Residual(layer.around_attention)
        self.feed_forward = _FeedForward(layer.feed_forward, layer.around_feed_forward, matmul, many_rows=True)

    def __call__(self, x_RD: Tensor, bias_B11M: Tensor, num_positions: int) -> Tensor:
        projected_RF = self.in_projection(self.residual.before(x_RD))
        query_BHSK, key_BHSK, value_BHSK = _split(projected_RF, len(bias_B11M), num_positions, 3, self.num_heads)
        room = bias_B11M.shape[3] - num_positions
        key_XKM = with_zeros(key_BHSK, 2, room).flatten(0, 1).transpose(1, 2)
        value_XMK = with_zeros(value_BHSK, 2, room).flatten(0, 1)
        with best_matmul(few=len(key_XKM) < FEW_HEADS):
            mixed_RD = _attention(query_BHSK, key_XKM, value_XMK, bias_B11M)
        return self.feed_forward(self.residual.after(x_RD, self.out_projection(mixed_RD)))


class _Decoding:
    """A `DecoderLayer` for search."""

    def __init__(self, layer: DecoderLayer, matmul: Matmul) -> None:
        cross, D = layer.cross_attention, layer.cross_attention.d_model
        self.num_heads = cross.num_heads
        self.in_projection = matmul.of(layer.self_attention.in_projection)
        self.out_projection = matmul.of(layer.self_attention.out_projection)
        self.query_projection = matmul.of_weight(cross.in_projection.weight[:D], cross.in_projection.bias[:D])
        self.cross_out_projection = matmul.of(cross.out_projection)
        self.cross_out_bias_D = cross.out_projection.bias
        self.around_itself = _Residual(layer.around_self_attention)
        self.around_source = _Residual(layer.around_cross_attention)
        self.feed_forward = _FeedForward(layer.feed_forward, layer.around_feed_forward, matmul, many_rows=False)

    def attend_to_itself(
        self, x_RD: Tensor, key_XKN: Tensor, value_XNK: Tensor, past_B1WN: Tensor, slots: slice | Tensor
    ) -> Tensor:
        """Write keys and values of the newest position into these slots, and attend to all slots."""
        B, _, W, N = past_B1WN.shape
        projected_RF = self.in_projection(self.around_itself.before(x_RD))
        query_BHWK, key_BHWK, value_BHWK = _split(projected_RF, B, W, 3, self.num_heads)
        key_XKN.view(B, self.num_heads, -1, N)[..., slots] = key_BHWK.transpose(2, 3)
        value_XNK.view(B, self.num_heads, N, -1)[:, :, slots] = value_BHWK
        mixed_RD = _attention(query_BHWK, key_XKN, value_XNK, past_B1WN)
        return self.around_itself.after(x_RD, self.out_projection(mixed_RD))

    def attend_to_source(
        self, x_RD: Tensor, key_XKM: Tensor, value_XMK: Tensor, bias_B11M: Tensor, width: int
    ) -> Tensor:
        query_RD = self.query_projection(self.around_source.before(x_RD))
        (query_BHWK,) = _split(query_RD, bias_B11M.shape[0], width, 1, self.num_heads)
        mixed_RD = _attention(query_BHWK, key_XKM, value_XMK, bias_B11M)
        return self.around_source.after(x_RD, self.cross_out_projection(mixed_RD))

    def attend_to_folded(self, x_RD: Tensor, memory: FoldedMemory) -> Tensor:
        scores_RF = torch.addmm(memory.bias_F, self.around_source.before(x_RD), memory.key_FD.t())
        weights_RHM = scores_RF.view(x_RD.shape[0], self.num_heads, -1).softmax(dim=-1)
        mixed_RD = torch.addmm(self.cross_out_bias_D, weights_RHM.flatten(1), memory.value_FD)
        return self.around_source.after(x_RD, mixed_RD)


def _split(projected_RF: Tensor, num_sentences: int, width: int, num_parts: int, num_heads: int) -> tuple[Tensor, ...]:
    """Split a product into its parts (queries, or queries, keys and values), by sentence and head; each BHWK."""
    size = projected_RF.shape[1] // num_parts // num_heads
    parts = projected_RF.view(num_sentences, width, num_parts, num_heads, size)
    return parts.permute(2, 0, 3, 1, 4).unbind()


def _attention(query_BHWK: Tensor, key_XKN: Tensor, value_XNK: Tensor, bias_B1WN: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) V (eq. 1), heads joined, RD. All hypotheses may share one bias."""
    B, H, W, K = query_BHWK.shape
    scores_XWN = torch.bmm(query_BHWK.flatten(0, 1), key_XKN)
    scores_BHWN = scores_XWN.view(B, H, W, -1)
    torch.add(bias_B1WN, scores_BHWN, alpha=K**-0.5, out=scores_BHWN)
    weights_XWN = torch.softmax(scores_XWN, dim=-1, out=scores_XWN)
    mixed_XWK = torch.bmm(weights_XWN, value_XNK)
    return mixed_XWK.view(B, H, W, K).transpose(1, 2).reshape(B * W, H * K)
