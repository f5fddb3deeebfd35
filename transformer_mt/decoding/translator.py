"""Lines in, lines out: the Python API of a trained model. Imports no PyTorch before a model is loaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from transformer_mt.config import Config, DecodingConfig, load_config
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.engine import Engine, Sentence
from transformer_mt.errors import CheckpointError, TranslationError


class Translator:
    """A tokenizer, and an engine that translates its ids.

    >>> Translator.load("runs/demo_en_de/model").translate(["The dog sleeps."], beam_size=4)
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, decoding: DecodingConfig) -> None:
        self.engine, self.tokenizer, self.decoding = engine, tokenizer, decoding

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
        return cls(_torch_engine(model_dir, config, tokenizer, device), tokenizer, config.decoding)

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
        decoding = decoding or self.decoding
        changes = {"beam_size": beam_size, "length_penalty": length_penalty}
        values = decoding.model_dump() | {key: value for key, value in changes.items() if value is not None}
        decoding = DecodingConfig.model_validate(values)

        sources = self._encode(lines, first_line)
        translations = [""] * len(lines)
        found = self.engine.translate(list(sources.values()), decoding)
        for number, hypotheses in zip(sources, found, strict=True):
            translations[number] = self.tokenizer.decode_target(hypotheses[0].tokens)
        return translations

    def _encode(self, lines: Sequence[str], first_line: int) -> dict[int, Sentence]:
        """Each line that is not blank, by its number from 0."""
        sources = {}
        for number, ids in enumerate(self.tokenizer.encode_source(lines)):
            if len(ids) == 1:  # a blank line is EOS alone
                continue
            if len(ids) > self.engine.max_positions:
                raise TranslationError(
                    f"line {first_line + number} has {len(ids)} subword pieces, and the model takes at most "
                    f"{self.engine.max_positions} (model.max_positions): split the line into sentences"
                )
            sources[number] = Sentence(ids, number=first_line + number)
        return sources


def _torch_engine(model_dir: Path, config: Config, tokenizer: Tokenizer, device: str) -> Engine:
    # Here, because they import PyTorch, which takes longer than to translate a page.
    from transformer_mt.decoding.torch_engine import TorchEngine
    from transformer_mt.device import choose_device
    from transformer_mt.models.transformer import Transformer
    from transformer_mt.weights import load_weights, read_metadata

    model = Transformer(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    load_weights(model, model_dir / "model.safetensors")
    if read_metadata(model_dir / "model.safetensors").get("tokenizer") != tokenizer.digest:
        raise CheckpointError(
            f"{model_dir}: the model was trained with another tokenizer than the one beside it. "
            "Average the checkpoints of its run again, or copy the whole directory again"
        )
    return TorchEngine(model, config.model.max_positions, choose_device(device, precision="fp32"))
