"""Writes configurations in which each chosen number has its reason beside it."""

import math
from pathlib import Path
from typing import Any

import yaml

from transformer_mt.base.wording import duration
from transformer_mt.settings.choosing import Chosen, Size, Text, Tuning
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import Writer
from transformer_mt.settings.section import Section

Sections = dict[str, dict[str, tuple[Any, str]]]
"""Settings by section and key: each value, and the reason for it, which may be empty."""

FIXED: dict[str, tuple[Any, str]] = {
    "optimizer": ("muon", "needs fewer updates than Adam"),
    "schedule": ("linear", "falls to 0 at the end: best if updates are few"),
    "clip_norm": (1.0, "makes an odd batch harmless"),
}
"""Settings of training that do not depend on the text, each with its reason."""

TEXT_REASONS = {
    "train": "an epoch has each new pair, and as many tokens of old text",
    "valid": "the first set decides; the others must not fall by more than 1 BLEU",
    "test": "train neither with these nor by their scores",
}


def model_settings(size: Size) -> dict[str, Any]:
    """Return the settings of the model that the size decides."""
    layers = {"encoder_layers": size.layers, "decoder_layers": size.layers}
    return layers | {"d_model": size.d_model, "ffn_dim": size.ffn_dim, "num_heads": size.num_heads, "norm": "pre"}


def new_configuration(corpus: CorpusConfig, text: Text, share: float, num_held: int, chosen: Chosen, name: str) -> str:
    """Return a configuration for a new model. `share` of the text, `num_held` pairs, are a validation or test set."""
    held_out = f"about {num_held:,} pairs, chosen by a hash of the source"
    values: Sections = {
        "corpus": {
            "source_language": (corpus.source_language, ""),
            "target_language": (corpus.target_language, ""),
            "train": (corpus.model_dump()["train"], ""),
            "valid": ({"share": share}, held_out),
            "test": ({"own": {"share": share}}, "as many others; train neither with these nor by their scores"),
        },
        "tokenizer": {
            "vocab_size": (chosen.vocab_size, f"pieces, for {text.num_words:,} words: rarer pieces are learnt badly"),
        },
        "model": {key: (value, "") for key, value in model_settings(chosen.size).items()}
        | {"dropout": (chosen.dropout, f"training reads the text {chosen.num_epochs:,.0f} times")},
        "training": _training_settings(chosen),
        "averaging": {"checkpoints": (1, "with schedule=linear, the last weights are as good as a mean")},
    }
    return _written(f"For {text.num_pairs:,} pairs", name, values)


def tuned_configuration(old: Config, model: Path, corpus: dict[str, Any], chosen: Tuning, name: str) -> str:
    """Return a configuration that fine-tunes `model`, which has the configuration `old`, on the text of `corpus`."""
    every = max(1, chosen.max_steps // 5)
    values: Sections = {
        "corpus": {key: (value, TEXT_REASONS.get(key, "")) for key, value in corpus.items()}
        | {"max_length": (old.corpus.max_length, "")},
        "filters": _changed(old.filters),
        "tokenizer": {"from": (str(model), "the weights belong to its pieces"), "joint": (old.tokenizer.joint, "")},
        "model": _changed(old.model),
        "training": {
            "initialise_from": (str(model), ""),
            "max_steps": (chosen.max_steps, f"updates: about {duration(chosen.seconds)}, without validations"),
            "tokens_per_batch": (chosen.tokens_per_batch, ""),
            **{key: FIXED[key] for key in ("schedule", "clip_norm")},
            "peak_lr": (chosen.peak_lr, f"for Adam and width {old.model.d_model}: about a third of that from scratch"),
            "warmup_steps": (chosen.max_steps // 6, ""),
            "validate_every": (every, "on the new and on the old text"),
            "save_every": (every, ""),
        },
        "averaging": {"checkpoints": (1, "then mixed with the old weights, as the validation sets say")},
    }
    return _written(f"Fine-tunes {model}", name, values)


def _changed(section: Section) -> dict[str, tuple[Any, str]]:
    """Return the settings of a section that differ from their defaults, without reasons."""
    default = {key: field.default for key, field in type(section).model_fields.items()}
    return {key: (value, "") for key, value in section.model_dump().items() if value != default[key]}


def _training_settings(chosen: Chosen) -> dict[str, tuple[Any, str]]:
    """Return the settings of training, each with its reason."""
    every = 50 * math.ceil(chosen.max_steps / 500)
    return {
        "max_steps": (chosen.max_steps, f"updates: about {duration(chosen.seconds)}, without validations"),
        "tokens_per_batch": (chosen.tokens_per_batch, "small enough for many updates"),
        **FIXED,
        "peak_lr": (chosen.peak_lr, f"for Muon and width {chosen.size.d_model}"),
        "warmup_steps": (chosen.warmup_steps, "a tenth of the updates, at most 500"),
        "validate_every": (every, "ten times or so"),
        "save_every": (every, ""),
    }


def _written(about: str, name: str, sections: Sections) -> str:
    """Return the YAML of a configuration: one line for each setting, with its reason beside it."""
    lines = [f"# {about}. `python -m transformer_mt settings` explains each setting."]
    lines += [f"data_dir: {_yaml(f'data/{name}')}", f"run_dir: {_yaml(f'runs/{name}')}"]
    for section, settings in sections.items():
        if settings:
            lines.append(f"{section}:")
        for key, (value, reason) in settings.items():
            line = f"  {key}: {_yaml(value)}"
            lines.append(f"{line}  # {reason}" if reason else line)
    return "\n".join(lines) + "\n"


def _yaml(value: Any) -> str:
    """Return a value as YAML on one line."""
    written = yaml.dump(value, Dumper=Writer, default_flow_style=True, allow_unicode=True, width=10_000)
    return str(written).strip().removesuffix("...").strip()
