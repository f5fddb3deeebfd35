"""Embeddings of words, and encodings of their positions in the sentence (Vaswani et al. 2017, sec. 3.4 and 3.5).

T positions  D model width  V vocabulary
"""

import torch
from torch import Tensor, nn

from transformer_mt.models.interface import Seq2Seq
from transformer_mt.settings.model_settings import ModelConfig


def embedding(vocab_size: int, d_model: int) -> nn.Embedding:
    """Drawn with standard deviation d_model ** -0.5: inputs (times sqrt(d_model), sec. 3.4) and logits have scale 1."""
    made = nn.Embedding(vocab_size, d_model)
    nn.init.normal_(made.weight, std=d_model**-0.5)
    return made


def make_embeddings(model: Seq2Seq, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
    """Make the embeddings of target, source and output, of which tied ones are the same matrix; and a bias."""
    ties, d_model = config.tied_embeddings, config.d_model
    model.target_embedding = embedding(target_vocab_size, d_model)
    if ties == "all":
        assert source_vocab_size == target_vocab_size, "one matrix needs one vocabulary"
    model.source_embedding = model.target_embedding if ties == "all" else embedding(source_vocab_size, d_model)
    model.output_embedding = embedding(target_vocab_size, d_model) if ties == "none" else model.target_embedding
    model.output_bias_V = nn.Parameter(torch.zeros(target_vocab_size)) if config.output_bias else None


def sinusoidal(num_positions: int, d_model: int) -> Tensor:
    """Position encodings TD in fp32, from position 0.

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(the same): interleaved as in the
    paper. tensor2tensor and fairseq put all sines before all cosines, a permutation of the columns.
    """
    # In fp64, because in fp32 an angle of a thousand radians has few digits after the point.
    position_T1 = torch.arange(num_positions, dtype=torch.float64)[:, None]
    exponent_I = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angle_TI = position_T1 / 10000.0**exponent_I
    return torch.stack([angle_TI.sin(), angle_TI.cos()], dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """The paper's encodings, for sentences of any length."""

    def __init__(self, num_positions: int, d_model: int) -> None:
        """Make the encodings of the first `num_positions`, or 4,096; `first` makes more for a longer sentence."""
        super().__init__()
        self.table_TD: Tensor
        self.register_buffer("table_TD", sinusoidal(min(num_positions, 4096), d_model), persistent=False)

    def first(self, num_positions: int) -> Tensor:
        """Encodings of the first positions; TD."""
        if num_positions > len(self.table_TD):
            self.table_TD = sinusoidal(2 * num_positions, self.table_TD.shape[1]).to(self.table_TD)
        return self.table_TD[:num_positions]
