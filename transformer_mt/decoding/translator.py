"""Lines in, lines out: the Python API of a trained model.

B sentences  S source positions
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from transformer_mt.config import Config, DecodingConfig, load_config
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.search import Hypothesis, beam_search, greedy, max_lengths
from transformer_mt.device import Device, choose_device
from transformer_mt.errors import CheckpointError, TranslationError
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.transformer import Transformer
from transformer_mt.vocabulary import PAD
from transformer_mt.weights import load_weights, read_metadata


class Translator:
    """A model, its tokenizer and a device.

    >>> Translator.load("runs/demo_en_de/model").translate(["The dog sleeps."], beam_size=4)
    """

    def __init__(self, model: Seq2Seq, tokenizer: Tokenizer, config: Config, device: Device) -> None:
        self.model = model.to(device.torch_device).eval()
        self.tokenizer, self.config, self.device = tokenizer, config, device

    @classmethod
    def load(cls, model_dir: str | Path, device: str = "auto") -> Self:
        """Read what `average` wrote. Raises CheckpointError naming the file that is missing or damaged."""
        model_dir = Path(model_dir)
        for name in ("config.yaml", "model.safetensors"):
            if not (model_dir / name).is_file():
                raise CheckpointError(
                    f"{model_dir} holds no {name}: name the directory of a model, as runs/<name>/model"
                )
        config = load_config(model_dir / "config.yaml")
        tokenizer = Tokenizer.load(model_dir)
        model = Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
        load_weights(model, model_dir / "model.safetensors")
        if read_metadata(model_dir / "model.safetensors").get("tokenizer") != tokenizer.digest:
            raise CheckpointError(
                f"{model_dir}: the model was trained with another tokenizer than the one beside it. "
                "Average the checkpoints of its run again, or copy the whole directory again"
            )
        return cls(model, tokenizer, config, choose_device(device, precision="fp32"))

    def translate(
        self,
        lines: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        first_line: int = 1,
    ) -> list[str]:
        """One translation a line, in order; an empty or blank line gives an empty one.

        `decoding` is the model's own unless given; the next two go before either. `first_line` is the number
        that an error gives to lines[0]. Raises TypeError if `lines` is one text, and TranslationError if a line
        has more pieces than the model has positions: none is translated.
        """
        if isinstance(lines, str):
            raise TypeError("lines is one text; give a list of texts")
        decoding = decoding or self.config.decoding
        changes = {"beam_size": beam_size, "length_penalty": length_penalty}
        values = decoding.model_dump() | {key: value for key, value in changes.items() if value is not None}
        decoding = DecodingConfig.model_validate(values)

        sources = self._encode(lines, first_line)
        translations = [""] * len(lines)
        for numbers in _batches(sources, decoding):
            source_BS = _pad([sources[number] for number in numbers]).to(self.device.torch_device)
            for number, hypothesis in zip(numbers, self._search(source_BS, decoding), strict=True):
                translations[number] = self.tokenizer.decode_target(hypothesis.tokens)
        return translations

    def _encode(self, lines: Sequence[str], first_line: int) -> dict[int, list[int]]:
        """The ids of each line that is not blank, by its number from 0."""
        encoded = enumerate(self.tokenizer.encode_source(lines))
        sources = {number: ids for number, ids in encoded if len(ids) > 1}  # a blank line is EOS alone
        limit = self.config.model.max_positions
        for number, ids in sources.items():
            if len(ids) > limit:
                raise TranslationError(
                    f"line {first_line + number} has {len(ids)} subword pieces, and the model takes at most {limit} "
                    "(model.max_positions): split the line into sentences"
                )
        return sources

    def _search(self, source_BS: Tensor, decoding: DecodingConfig) -> list[Hypothesis]:
        limits = max_lengths(source_BS, decoding.max_extra_length, self.config.model.max_positions)
        alpha = decoding.length_penalty
        with self.device.autocast():
            if decoding.beam_size == 1:
                return greedy(self.model, source_BS, limits, alpha)
            found = beam_search(self.model, source_BS, decoding.beam_size, alpha, limits)
        return [hypotheses[0] for hypotheses in found]


def _batches(sources: dict[int, list[int]], decoding: DecodingConfig) -> Iterator[list[int]]:
    """Numbers of sentences of like length, longest first, as many together as the token budget allows."""
    batch: list[int] = []
    for number in sorted(sources, key=lambda number: len(sources[number]), reverse=True):
        longest = len(sources[batch[0]]) if batch else 0
        if batch and (len(batch) + 1) * longest * decoding.beam_size > decoding.tokens_per_batch:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _pad(sentences: list[list[int]]) -> Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([ids + [PAD] * (longest - len(ids)) for ids in sentences])
