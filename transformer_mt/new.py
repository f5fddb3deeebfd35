"""The stage `new`: measures a text and this machine, and writes a configuration with numbers that suit both."""

import math
import os
import re
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import ValidationError

from transformer_mt.base.errors import ConfigError, UserError
from transformer_mt.base.wording import duration
from transformer_mt.preparing.fill_data_dir import open_texts
from transformer_mt.preparing.measured_text import SideMeasures, TextMeasures, measure, table
from transformer_mt.preparing.text_warnings import check_text, corpus_warnings, text_warnings
from transformer_mt.settings.choosing import Chosen, Size, Text, candidates, choose
from transformer_mt.settings.corpus_settings import CorpusConfig, FiltersConfig, PairedText, TokenizerConfig
from transformer_mt.settings.reading import load_config, parse_yaml
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.storage.files import write_whole
from transformer_mt.terminal import cli

HELD_OUT = 1000  # pairs of the validation set, and of the test set, if the text has enough
LARGEST_SHARE = 0.05
NO_SHARE = 1e-9  # while the text is measured, because its share depends on the measures
SECONDS = 20.0  # in which the speeds of all sizes are measured, with a few more for their beginnings
SAMPLE = 10_000  # sentences
PIECES = 130  # for 100 words, about
LONGEST = 256  # tokens; longer sentences are left out of training

FIXED: dict[str, tuple[Any, str]] = {
    "optimizer": ("muon", "needs fewer updates than Adam"),
    "schedule": ("linear", "falls to 0 at the end: best if updates are few"),
    "clip_norm": (1.0, "makes an odd batch harmless"),
}
"""Settings of training that do not depend on the text, each with its reason."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the text and the machine, and write a configuration."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not arguments.minutes >= 1:
        parser.error("--minutes must be at least 1")
    corpus = corpus_of(arguments.corpus, arguments.source, arguments.target)
    output = arguments.output or Path(f"{name_of(corpus)}.yaml")
    if os.path.lexists(output):
        raise UserError(f"{output} exists already; delete it, or choose another name with --output")
    if not output.parent.is_dir():
        raise UserError(f"{output.parent} is no directory: make it, or choose another place with --output")
    measures = measured(corpus)
    share, num_held = share_for(measures)
    print(f"held out: about {num_held:,} pairs for validation, and as many for the test", flush=True)
    num_pairs = round(measures.num_usable * (1 - 2 * share))
    text = Text(num_pairs, round(num_pairs * measures.target.mean_words), num_characters(measures))
    speeds = measured_speeds(candidates(text), measures)
    chosen = choose(text, arguments.minutes, speeds)
    write_whole(output, configuration(corpus, measures, text, chosen, output.stem))
    load_config(output)
    print(f"wrote {output}: {chosen.size}, {chosen.max_steps:,} updates, about {duration(chosen.seconds)} of training")
    print(f"next: {shlex.join(cli.command('train', str(output), '--all'))}")
    return 0


def measured(corpus: CorpusConfig) -> TextMeasures:
    """Measure the text, and print the measures and the warnings. Raises CorpusError if it cannot teach a model."""
    opened = open_texts(corpus)
    measures = measure(corpus, FiltersConfig(), opened)
    print(table(measures), flush=True)
    check_text(measures)
    for warning in [*corpus_warnings(corpus, opened), *text_warnings(measures)]:
        print(f"warning: {warning}", file=sys.stderr)
    return measures


def _parser() -> ArgumentParser:
    parser = cli.parser(
        "new",
        "Measures a text and this machine, and writes a configuration for them: the sizes of vocabulary and model,\n"
        "the number of updates and other numbers, each with its reason. It holds out a validation and a test set.\n"
        "CORPUS is a file with both sides (.tsv, .csv, .jsonl, .parquet, .tmx, .zip, also compressed); or two files\n"
        "of lines, the source first; or the beginning of their names (my/train for my/train.en and my/train.de); or\n"
        "keys as in a configuration, such as '{path: my/pairs.csv, source: english, target: german}'.",
        "python -m transformer_mt.new my/pairs.tsv --from en --to de --minutes 30",
    )
    parser.add_argument("corpus", metavar="CORPUS", nargs="+", help="the text")
    parser.add_argument("--from", dest="source", metavar="CODE", required=True, help="the language of the source")
    parser.add_argument("--to", dest="target", metavar="CODE", required=True, help="the language of the target")
    minutes = "how long all stages may take together on this machine (default: 60)"
    parser.add_argument("--minutes", type=float, default=60.0, help=minutes)
    output = "the configuration (default: <CORPUS>.yaml)"
    parser.add_argument("--output", metavar="FILE", type=Path, help=output)
    return parser


def name_of(corpus: CorpusConfig) -> str:
    """Return a name for a text: that of its first file, without endings."""
    first = corpus.training_corpora[0]
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", Path(first.path or first.hub or str(first.source)).name.split(".")[0])
    return name.strip("_") if name.strip("_") not in ("", corpus.source_language) else "mine"


def corpus_of(paths: Sequence[str], source_language: str, target_language: str) -> CorpusConfig:
    """Return the settings of a corpus at these places, with held-out shares of nearly nothing. Raises ConfigError."""
    texts = [parse_yaml(path, path)[0] if path.startswith("{") else {"path": path} for path in paths]
    train: Any = paths[0] if texts == [{"path": paths[0]}] else texts[0]
    if len(paths) == 2 and all(path and path[0] != "{" and PairedText(path=path).form == "prefix" for path in paths):
        train = {"source": paths[0], "target": paths[1]}
    elif len(paths) > 1:
        train = [{"name": f"corpus{number}"} | text for number, text in enumerate(texts, start=1)]
    share = {"share": NO_SHARE}
    values = {"source_language": source_language, "target_language": target_language, "train": train}
    try:
        return CorpusConfig.model_validate({**values, "valid": share, "test": {"own": share}})
    except ValidationError as error:
        first = error.errors()[0]
        keys = "".join(f"{key}: " for key in first["loc"] if not str(key).startswith("("))
        raise ConfigError(f"{' '.join(paths)}: {keys}{first['msg'].removeprefix('Value error, ')}") from None


def num_characters(measures: TextMeasures) -> int:
    """Return how many characters of both sides need pieces of their own: the most frequent 99.99 %."""
    counts = np.sort([*(measures.source.characters + measures.target.characters).values()])[::-1].cumsum()
    return int(np.searchsorted(counts, TokenizerConfig().character_coverage * counts[-1])) + 1


def measured_speeds(sizes: Sequence[Size], measures: TextMeasures) -> dict[Size, float]:
    """Return the target tokens a second of each size on this machine, on random sentences of lengths as in the text."""
    # Imported here, because it imports PyTorch: mistakes in the text are told at once.
    from transformer_mt.settings.model_settings import TransformerConfig
    from transformer_mt.training.run.estimate import trial

    found: dict[Size, float] = {}
    lengths = random_lengths(measures.source), random_lengths(measures.target)
    training = TrainingConfig(tokens_per_batch=1024, **{key: value for key, (value, _) in FIXED.items()})
    for size in sizes:
        model = TransformerConfig(**model_settings(size))
        speed = trial(model, training, 4000, lengths, SECONDS / 4).tokens_per_second
        print(f"{size}: {speed:,.0f} target tokens a second on this machine", flush=True)
        found[size] = speed
    return found


def random_lengths(side: SideMeasures) -> NDArray[np.int64]:
    """Return the numbers of tokens of 10,000 sentences, ascending, distributed as those of the text."""
    units = np.array(sorted(side.lengths))
    shares = np.array([side.lengths[unit] for unit in units]) / side.num_lines
    drawn = np.random.default_rng(1).choice(units, SAMPLE, p=shares)
    return np.sort(np.minimum(drawn * PIECES // 100 + 1, LONGEST))


def model_settings(size: Size) -> dict[str, Any]:
    """Return the settings of the model that the size decides."""
    layers = {"encoder_layers": size.layers, "decoder_layers": size.layers}
    return layers | {"d_model": size.d_model, "ffn_dim": size.ffn_dim, "num_heads": size.num_heads, "norm": "pre"}


def share_for(measures: TextMeasures) -> tuple[float, int]:
    """Return the share of the text for the validation set, and for the test set, and about how many pairs it has."""
    num_sources = measures.source.num_different  # a set has a source only once
    share = float(f"{min(LARGEST_SHARE, HELD_OUT / max(1, num_sources)):.1g}")
    return share, round(share * num_sources)


def configuration(corpus: CorpusConfig, measures: TextMeasures, text: Text, chosen: Chosen, name: str) -> str:
    """Return the text of the configuration, with a reason beside each number."""
    share, num_held = share_for(measures)
    held_out = f"about {num_held:,} pairs, chosen by a hash of the source"
    values: dict[str, dict[str, tuple[Any, str]]] = {
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
    lines = [f"# For {text.num_pairs:,} pairs. `python -m transformer_mt settings` explains each setting."]
    lines += [f"data_dir: {_yaml(f'data/{name}')}", f"run_dir: {_yaml(f'runs/{name}')}"]
    for section, settings in values.items():
        lines.append(f"{section}:")
        for key, (value, reason) in settings.items():
            line = f"  {key}: {_yaml(value)}"
            lines.append(f"{line}  # {reason}" if reason else line)
    return "\n".join(lines) + "\n"


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


def _yaml(value: Any) -> str:
    """Return a value as YAML on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return str(written).strip().removesuffix("...").strip()


if __name__ == "__main__":
    sys.exit(cli.run(main))
