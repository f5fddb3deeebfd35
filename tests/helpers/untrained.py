"""Model directories of every architecture, untrained."""

from pathlib import Path

import torch

from transformer_mt.inference.fast import build_model
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import dump_config
from transformer_mt.storage.checksums import write_sums
from transformer_mt.storage.weights import model_weights, save_weights
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.training_lines import TrainingLines

CORPUS = {"source_language": "en", "target_language": "de", "train": "-", "valid": "-", "test": {}}
LONG_LINES = TrainingLines(
    pairs=1, usual_sentences=99, most_sentences=99, usual_pieces=999, most_pieces=999, least_ratio=0.0
)
"""Of lines so long that no other is split."""


def write_untrained(directory: Path, tokenizer: Tokenizer, **settings: object) -> Path:
    """What `average` would write of a model that has not been trained, but moved.

    Fresh biases are 0 and fresh norms 1, which would hide that one is exported in place of another.
    """
    sizes: dict[str, object] = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 16}
    if settings.get("kind", "transformer") == "transformer":
        sizes |= {"ffn_dim": 24, "num_heads": 2}
    values = {
        "data_dir": "data",
        "run_dir": "run",
        "corpus": CORPUS | {"max_length": 64},
        "tokenizer": {"joint": tokenizer.joint},
        "model": sizes | {"max_positions": 64} | settings,
        "decoding": {"beam_size": 2, "max_extra_length": 10},
    }
    config = Config.model_validate(values)
    torch.manual_seed(1)
    model = build_model(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    directory.mkdir(parents=True)
    tokenizer.save(directory)
    LONG_LINES.save(directory)
    (directory / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    save_weights(model_weights(model), directory / "model.safetensors", {"tokenizer": tokenizer.digest})
    write_sums(directory, [path.name for path in directory.iterdir()])
    return directory
