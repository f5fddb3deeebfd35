"""A corpus and a configuration so small that a run takes a second."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from transformer_mt import prepare, train
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.storage.checksums import SUMS, read_sums, write_sums
from transformer_mt.terminal import cli
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.learning import BatchLoss, Learner, MovingAverage
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.training.progress import Progress
from transformer_mt.training.run.checkpoint import Tensors, checkpoint_path, save_checkpoint

ROOT = Path(__file__).parent.parent.parent
NUM_VALID = 8
"""Pairs of validation. An untrained model writes long translations: half of a tiny run goes into them."""


_pairs: list[tuple[str, str]] = []


def demo_pairs(num_pairs: int) -> list[tuple[str, str]]:
    if len(_pairs) < num_pairs:
        from demo_corpus.corpus import corpus  # here, because processes that do without it may not find scripts/

        _pairs[:] = corpus(max(2000, num_pairs), seed=5)  # a shorter corpus is the beginning of a longer one
    return _pairs[:num_pairs]


def write_experiment(directory: Path) -> Path:
    """Parallel text and a configuration that names it; the path of the configuration."""
    pairs = demo_pairs(340)
    for name, part in {"train": pairs[:300], "valid": pairs[300 : 300 + NUM_VALID], "test": pairs[320:]}.items():
        for language, side in (("en", 0), ("de", 1)):
            text = "".join(f"{pair[side]}\n" for pair in part)
            (directory / f"{name}.{language}").write_text(text, encoding="utf-8")
    config = {
        "data_dir": str(directory / "data"),
        "run_dir": str(directory / "run"),
        "corpus": {
            "source_language": "en",
            "target_language": "de",
            "train": str(directory / "train"),
            "valid": str(directory / "valid"),
            "test": {"tiny": str(directory / "test")},
        },
        "tokenizer": {"vocab_size": 500},
        "model": {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "ffn_dim": 32, "num_heads": 2},
        "training": {
            "precision": "fp32",
            "num_threads": 1,
            "device": "cpu",
            "max_steps": 12,
            "tokens_per_batch": 400,
            "tokens_per_update": 700,
            "peak_lr": 0.005,
            "warmup_steps": 4,
            "log_every": 2,
            "validate_every": 4,
            "save_every": 2,
            "keep_last": 3,
        },
        "averaging": {"checkpoints": 2},
        "decoding": {"beam_size": 2, "max_extra_length": 10},
    }
    path = directory / "tiny.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def prepared_experiment(directory: Path) -> Path:
    path = write_experiment(directory)
    assert prepare.main([str(path)]) == 0
    return path


def train_tiny(config: Path, run_dir: Path, *overrides: str) -> Path:
    assert train.main([str(config), f"run_dir={run_dir}", *overrides]) == 0
    return run_dir


def status_and_error(
    main: Callable[..., int], *arguments: object, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    capsys.readouterr()
    status = cli.run(main, [str(argument) for argument in arguments])
    return status, capsys.readouterr().err


def renew_sums(directory: Path) -> None:
    """Write the checksums of the files as they are now: of those that were named, as far as they are there.

    Those of shards below the directory come first, because their checksums are named in it.
    """
    for place in [*sorted(path.parent for path in directory.glob(f"train/*/*/{SUMS}")), directory]:
        names = [name for name in read_sums(place) if (place / name).exists()]
        write_sums(place, names)


def weights_at(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(checkpoint_path(run_dir, step) / "model.safetensors")


def log_records(run_dir: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def assert_same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def new_learner(config: Config, vocab_size: int = 500, seed: int = 3) -> Learner:
    """What training begins with, in fp32 on the CPU."""
    torch.manual_seed(seed)
    model = build_model(config.model, vocab_size, vocab_size)
    settings = config.training
    loss = BatchLoss(model, choose_device("cpu", "fp32"), settings.label_smoothing, False).train()
    return Learner(loss, build_optimizer(model, settings), MovingAverage(model, settings.average_decay), settings)


def poisoned_checkpoint(experiment: Path, run_dir: Path, piece: int) -> list[str]:
    """The overrides to start from a model in which the source embedding of one piece is infinite once it is scaled."""
    own = ["model.tied_embeddings=none"]
    config = load_config(experiment, own)
    run_dir.mkdir(exist_ok=True)
    (run_dir / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    learner = new_learner(config)
    learner.model.source_embedding.weight.data[piece] = 3e38
    digest = Tokenizer.load(experiment.parent / "data").digest
    save_checkpoint(run_dir, Tensors.of(learner), Progress(step=1), digest)
    return [*own, f"training.initialise_from={checkpoint_path(run_dir, 1)}"]
