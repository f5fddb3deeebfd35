"""Makes the model of a configuration, with its faster forms.

Parts of a model are replaced by class, and functions of training and search by name. Searches also use frozen.py.

N packed tokens  B sentences  S, T positions  D model width  H heads  K width of a head
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from transformer_mt.base.errors import ConfigError
from transformer_mt.base.languages import PAD
from transformer_mt.base.system import machine_memory
from transformer_mt.kernels import top_words
from transformer_mt.kernels.cross_entropy import chunked_cross_entropy
from transformer_mt.kernels.linear import Linear, linear, parts, rows_linear
from transformer_mt.kernels.matmul import Dropout
from transformer_mt.kernels.packed_attention import HAS_TRITON, Segments, packed_self_attention
from transformer_mt.models.attention import Memory, MultiHeadAttention, Sight
from transformer_mt.models.convolutional import Convolutional
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.layouts import unpadded
from transformer_mt.models.rnn import Rnn
from transformer_mt.models.transformer import FeedForward, Residual, Transformer
from transformer_mt.models.variants import VariedAttention, VariedTransformer
from transformer_mt.settings.model_settings import ConvolutionalConfig, ModelConfig, RnnConfig, TransformerConfig
from transformer_mt.settings.section import Kernels


class Summed(NamedTuple):
    """Packed sentences on a GPU, after a sub-layer and its residual sum, in two types."""

    full_ND: Tensor
    """fp32, for the next sum."""
    rounded_ND: Tensor
    """For the next product."""
    seed_1: Tensor
    """int64: the seed of dropout in all layers of the encoder, or of the decoder."""
    number: int = 0
    """Of the next sum."""


class Apart(NamedTuple):
    """The output of a sub-layer for packed sentences on a GPU: product_ND + bias_D, which the next kernel adds."""

    product_ND: Tensor
    bias_D: Tensor


def is_packed_on_gpu(x: Tensor) -> bool:
    return x.is_cuda and x.dim() == 2


def last_product(linear: nn.Linear, x: Tensor) -> Any:
    """The output of a sub-layer that ends with this linear map: a tensor, or Apart."""
    if not is_packed_on_gpu(x):
        return linear(x)
    weight, bias, *rounded = parts(linear)
    return Apart(rows_linear(x, weight, None, *rounded[:1]), bias)


class FastResidual(Residual):
    """Computes dropout, sum and norm of packed sentences by one kernel on GPUs."""

    def forward(self, x_BTD: Tensor | Summed, sublayer: Callable[[Tensor], Tensor]) -> Any:
        """Between layers of packed sentences, a Summed takes the place of a tensor."""
        if isinstance(x_BTD, Tensor):
            if self.pre_norm or not HAS_TRITON or not is_packed_on_gpu(x_BTD):
                return super().forward(x_BTD, lambda x_BTD: _together(sublayer(x_BTD)))
            x_BTD = Summed(x_BTD.float(), x_BTD, torch.randint(2**62, (1,), device=x_BTD.device))
        from transformer_mt.kernels.residual_norm import residual_norm

        x_ND, rounded_ND, seed_1, number = x_BTD
        norm, dropout = self.norm, self.dropout.p if self.training else 0.0
        output: Tensor | Apart = sublayer(rounded_ND)
        added = Apart(output, torch.zeros_like(norm.bias)) if isinstance(output, Tensor) else output
        full_ND, rounded_ND, *_ = residual_norm(x_ND, *added, norm.weight, norm.bias, seed_1, number, norm.eps, dropout)
        return Summed(full_ND, rounded_ND, seed_1, number + 1)


def _together(output: Tensor | Apart) -> Tensor:
    return output if isinstance(output, Tensor) else output.product_ND + output.bias_D


def rounded(x: Tensor | Summed) -> Tensor:
    """The tensor, ND, after the last layer."""
    return x.rounded_ND if isinstance(x, Summed) else x


class FastFeedForward(FeedForward):
    """Computes the ReLU together with the product before it."""

    def forward(self, x_BTD: Tensor) -> Any:
        return last_product(self.outer, linear(x_BTD, *parts(self.inner), relu=True))


class FastMultiHeadAttention(MultiHeadAttention):
    """Attention by kernels for GPUs. On CPUs, a kind of `Sight` leaves out padding (models/layouts.py)."""

    def forward(self, x_BTD: Tensor, see: Sight) -> Any:
        if not isinstance(see, Segments):
            return super().forward(x_BTD, see)
        # On GPUs, the gradients of queries, keys and values are then side by side, as the product needs them.
        qkv_N3HK = self.in_projection(x_BTD).view(len(x_BTD), 3, self.num_heads, -1)
        return last_product(self.out_projection, packed_self_attention(qkv_N3HK, see).flatten(-2))

    def attend(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, see: Sight) -> Any:
        if not query_BHTK.is_cuda:  # the same, by the code that README asks a student to read
            return super().attend(query_BHTK, key_BHSK, value_BHSK, see)
        mixed_BHTK = see.attend(query_BHTK, key_BHSK, value_BHSK, self.attention)
        return last_product(self.out_projection, mixed_BHTK.transpose(-3, -2).flatten(-2))

    def project_rows(self, x_BTD: Tensor, rows: slice) -> Tensor:
        return linear(x_BTD, *parts(self.in_projection, rows))

    def attention(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor) -> Tensor:
        if not query_BHTK.is_cuda:
            return super().attention(query_BHTK, key_BHSK, value_BHSK, mask)
        return F.scaled_dot_product_attention(query_BHTK, key_BHSK, value_BHSK, attn_mask=mask)


class FastVariedAttention(VariedAttention):
    """Attention by kernels for GPUs, if the score is the paper's."""

    project_rows = FastMultiHeadAttention.project_rows

    def attention(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor) -> Tensor:
        if not query_BHTK.is_cuda or not self.is_scaled_dot:
            return super().attention(query_BHTK, key_BHSK, value_BHSK, mask)
        dropout = self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(query_BHTK, key_BHSK, value_BHSK, attn_mask=mask, dropout_p=dropout)


class FastTransformer(VariedTransformer):
    """Computes the keys and values of packed sources for all layers in one product."""

    def encode(self, x_BSD: Tensor, see: Sight) -> Tensor:
        return rounded(super().encode(x_BSD, see))

    def decode(self, x_BTD: Tensor, sights: Sequence[Sight], memories: list[Memory]) -> Tensor:
        return rounded(super().decode(x_BTD, sights, memories))

    def memories(self, memory_BSD: Tensor, see: Sight) -> list[Memory]:
        if not isinstance(see, Segments):
            return super().memories(memory_BSD, see)
        attentions = [layer.cross_attention for layer in self.decoder_layers()]
        maps = [parts(each.in_projection, slice(self.d_model, None)) for each in attentions]
        # A GPU then reads the memory once and writes its gradient once.
        of_all_ND = linear(memory_BSD, *map(torch.cat, zip(*maps, strict=True)))
        found = []
        for attention, both_ND in zip(attentions, of_all_ND.chunk(len(maps), dim=-1), strict=True):
            key_ND, value_ND = both_ND.chunk(2, dim=-1)
            found.append(Memory(attention.heads(key_ND), attention.heads(value_ND), see))
        return found


def real_features(model: Seq2Seq, source_BS: Tensor, decoder_input_BT: Tensor) -> Tensor:
    """The features of each real target token, ND; for CPUs. It leaves out padding, if the model supports this."""
    if isinstance(model, FastTransformer) and not (model.config.why_not_packed() or model.config.attention_window):
        return model.features(unpadded(source_BS), unpadded(decoder_input_BT))
    return model.features(source_BS, decoder_input_BT)[decoder_input_BT != PAD]


FASTER: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: Linear,
    nn.Dropout: Dropout,
    Residual: FastResidual,
    FeedForward: FastFeedForward,
    MultiHeadAttention: FastMultiHeadAttention,
    VariedAttention: FastVariedAttention,
    Transformer: FastTransformer,
    VariedTransformer: FastTransformer,
}
"""The faster class for each class. Both have the same parameters."""

FASTER_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "real_features": real_features,  # training/loss.py
    "label_smoothed": chunked_cross_entropy,  # training/loss.py
    "best_continuations": top_words.best_continuations,  # decoding/search.py
    "most_probable": top_words.most_probable,  # decoding/sampling.py
}
"""The function that `Seq2Seq.faster` returns instead of one with this name."""


def fast(model: Seq2Seq) -> Seq2Seq:
    """Replace the parts of the model by faster ones, and return the model."""
    for module in model.modules():
        module.__class__ = FASTER.get(type(module), type(module))
    model.faster_forms = FASTER_FUNCTIONS
    return model


def build_model(
    config: ModelConfig, source_vocab_size: int, target_vocab_size: int, kernels: Kernels = "fast"
) -> Seq2Seq:
    """A model with random weights; `plain` runs the code in models/ itself. Raises ConfigError if it is too large."""
    check_memory(shapes(config, source_vocab_size, target_vocab_size))
    model = _plain_model(config, source_vocab_size, target_vocab_size)
    return fast(model) if kernels == "fast" else model


def shapes(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Seq2Seq:
    """The plain model, without memory for its weights."""
    with ShapesOnly():
        return _plain_model(config, source_vocab_size, target_vocab_size)


class ShapesOnly(TorchFunctionMode):
    """Weights that are made get their shapes, but neither memory nor values.

    torch.device("meta") would do this for every tensor, but there PyTorch imports its compiler, which takes a second.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        if func is torch.arange:  # sinusoidal positions, which are no weights, are left out
            return func(0, **(kwargs or {}))
        on_meta = {"device": "meta"} if func is torch.empty else {}
        return func(*args, **(kwargs or {}) | on_meta)


def check_memory(model: nn.Module, numbers_per_weight: int = 1) -> None:
    """Raises ConfigError if this machine lacks memory for so many fp32 numbers for each weight of the model."""
    num_weights = sum(weight.numel() for weight in model.parameters())
    needed, memory = 4 * numbers_per_weight * num_weights, machine_memory()
    if needed > memory:
        raise ConfigError(
            f"a model with these settings has {num_weights:,} weights and needs {needed / 1e9:,.1f} GB of memory; this "
            f"machine has {memory / 1e9:,.1f} GB. Make the model smaller, or use a larger machine"
        )


def _plain_model(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Seq2Seq:
    match config:
        case TransformerConfig():
            is_plain = config.positions == "sinusoidal" and config.activation == "relu" and not config.attention_window
            transformer = Transformer if is_plain and not config.why_not_packed() else VariedTransformer
            return transformer(config, source_vocab_size, target_vocab_size)
        case RnnConfig():
            return Rnn(config, source_vocab_size, target_vocab_size)
        case ConvolutionalConfig():
            return Convolutional(config, source_vocab_size, target_vocab_size)
