"""Loads model directories: their tokenizer, and an engine that runs their weights.

PyTorch is imported only when a model is loaded that needs it.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from transformer_mt.base.errors import CheckpointError, TranslationError
from transformer_mt.decoding.engine import Engine
from transformer_mt.decoding.line_parts import NO_TAGS, Tags
from transformer_mt.marian import as_model_dir
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.section import Kernels
from transformer_mt.storage.checksums import check_model, how_to_get_a_model, stale_warning
from transformer_mt.text.tokenizer import Tokenizer, pieces_of
from transformer_mt.text.training_lines import TrainingLines

if TYPE_CHECKING:
    from transformer_mt.models.interface import Seq2Seq

_log = logging.getLogger(__name__)

EngineName = Literal["torch", "ctranslate2"]
Dtype = Literal["fp32", "bf16", "fp16", "auto"]
Quantization = Literal["none", "int8"]
# One model, or an ensemble: several models with the same vocabulary.
ModelDirs = str | Path | Sequence[str | Path]

_WEIGHTS: dict[EngineName, str] = {"torch": "model.safetensors", "ctranslate2": "model.bin"}


@dataclass(frozen=True)
class EngineOptions:
    """The engine that runs a model, and its options. `Translator.load` explains them."""

    device: str = "auto"
    engine: EngineName = "torch"
    dtype: Dtype = "fp32"
    quantize: Quantization = "none"
    workers: int = 0
    plain: bool = False

    def resolved(self) -> Self:
        """The options with the dtype that `auto` means on this device. Raises TranslationError and ConfigError."""
        if self.dtype != "auto":
            return self
        if self.engine == "ctranslate2":
            raise TranslationError("--dtype auto is for the engine torch: give bf16 or fp16, or leave --dtype out")
        from transformer_mt.kernels.device import fastest_precision, usable_device  # here, as they import PyTorch

        device = usable_device(self.device)
        return replace(self, dtype=fastest_precision(device) if device.type == "cuda" else "fp32")


@dataclass(frozen=True)
class LoadedModel:
    """A loaded model, or the models of an ensemble, for translating and scoring."""

    engine: Engine
    tokenizer: Tokenizer
    config: Config
    """The configuration of the first model, to which `training_lines` belong too."""
    training_lines: TrainingLines


class ModelOfText(ABC):
    """A loaded model for lines of text: a tokenizer, and an engine that runs the model on ids.

    Several threads may share one object: one thread at a time uses the engine, and a Translator lets it translate what
    the others wait for as well. `close`, or leaving it as a context manager, ends the processes and threads that it has
    started. After that, its methods raise TranslationError.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, tags: Tags = NO_TAGS) -> None:
        self.engine, self.tokenizer, self.tags = engine, tokenizer, tags
        self._warned_of_tags = False

    @classmethod
    @abstractmethod
    def of(cls, model: LoadedModel) -> Self:
        """Return an object of this class that uses the model."""

    @classmethod
    def load(
        cls,
        model_dirs: ModelDirs,
        device: str = "auto",
        *,
        engine: EngineName = "torch",
        dtype: Dtype = "fp32",
        quantize: Quantization = "none",
        workers: int = 0,
        plain: bool = False,
    ) -> Self:
        """Load a model directory that `average` wrote, or several with the same vocabulary as an ensemble.

        The engine ctranslate2 loads a directory that `export` wrote. `workers` is the number of processes on a CPU; 0
        lets the engine choose. `plain` runs the code in models/ itself, instead of faster forms.
        Raises a UserError that names the file that is missing or damaged.
        """
        return cls.of(load_model(model_dirs, EngineOptions(device, engine, dtype, quantize, workers, plain)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and threads that the engine has started."""
        self.engine.close()

    def _warn_of_tags(self, lines: Sequence[str], line_numbers: Iterable[int]) -> None:
        """Warn once if a line lacks a tag that all lines had in training."""
        if not self._warned_of_tags and (warning := self.tags.warning(lines, line_numbers)):
            self._warned_of_tags = True
            _log.warning(warning)


def load_model(model_dirs: ModelDirs, options: EngineOptions) -> LoadedModel:
    """`ModelOfText.load`. Raises a UserError, which names the file, model or option that is wrong."""
    options = options.resolved()
    given = [model_dirs] if isinstance(model_dirs, str | Path) else model_dirs
    directories = [as_model_dir(Path(path)) for path in given]
    if not directories:
        raise TranslationError("no model directory is given: give one, or several with the same vocabulary")
    if options.workers < 0:
        raise TranslationError(f"--workers {options.workers}: give the number of processes; 0 lets the engine choose")
    if options.plain and (options.engine, options.dtype, options.quantize) != ("torch", "fp32", "none"):
        raise TranslationError("--plain uses the engine torch in fp32: leave --engine, --dtype and --quantize out")
    for directory in directories:
        check_files(directory, options.engine)
        check_model(directory)
    configs = [load_config(directory / "config.yaml") for directory in directories]
    tokenizer, *others = [Tokenizer.load(directory) for directory in directories]
    for directory, other in zip(directories[1:], others, strict=True):
        if other.digest != tokenizer.digest:
            raise CheckpointError(
                f"{directory} has another vocabulary than {directories[0]}: the models of an ensemble must be trained "
                "on the same prepared data"
            )
    load = _load_torch_engine if options.engine == "torch" else _load_ctranslate2_engine
    engine = load(directories, configs, tokenizer, options)
    return LoadedModel(engine, tokenizer, configs[0], TrainingLines.load(directories[0]))


def check_files(directory: Path, engine: EngineName) -> None:
    """Raises CheckpointError, with advice, unless the engine finds its weights and config.yaml in the directory."""
    if not directory.is_dir():
        raise CheckpointError(f"{directory}: no such directory; {how_to_get_a_model(directory)}")
    if not (directory / "config.yaml").is_file():
        raise CheckpointError(f"{directory} holds no config.yaml: {how_to_get_a_model(directory)}")
    if (directory / _WEIGHTS[engine]).is_file():
        return
    advice = how_to_get_a_model(directory)
    if engine == "torch" and (directory / _WEIGHTS["ctranslate2"]).is_file():
        advice = "it is an export, which only the engine ctranslate2 runs: add --engine ctranslate2"
    if engine == "ctranslate2" and (directory / _WEIGHTS["torch"]).is_file():
        advice = f"first run `python -m transformer_mt.export {directory} OUTPUT_DIR --format ctranslate2`"
    raise CheckpointError(f"{directory} holds no {_WEIGHTS[engine]}: {advice}")


def _load_torch_engine(
    directories: Sequence[Path], configs: Sequence[Config], tokenizer: Tokenizer, options: EngineOptions
) -> Engine:
    # Imported here because they import PyTorch, which takes longer than translating a page.
    from transformer_mt.decoding.torch_engine import TorchEngine
    from transformer_mt.kernels.device import choose_device
    from transformer_mt.models.ensemble import Ensemble

    pairs = zip(directories, configs, strict=True)
    models = [_load_torch_model(directory, config, tokenizer, options.plain) for directory, config in pairs]
    model = models[0] if len(models) == 1 else Ensemble(models)
    max_positions = min(config.model.max_positions for config in configs)
    device = choose_device(options.device, precision=options.dtype)
    on_gpu = device.torch_device.type != "cpu"
    if options.quantize == "int8" and (on_gpu or options.dtype != "fp32"):
        raise TranslationError("--quantize int8 is for CPUs and has its own precision: leave --dtype out")
    if options.dtype == "fp16" and not on_gpu:
        raise TranslationError("--dtype fp16 is for GPUs; a CPU takes fp32, bf16, or --quantize int8")
    if options.workers > 1 and on_gpu:
        raise TranslationError("--workers sets processes on a CPU; a GPU has one: leave it out")
    pieces = pieces_of(tokenizer.target)
    return TorchEngine(model, max_positions, device, options.quantize, options.workers, options.plain, pieces)


def _load_torch_model(directory: Path, config: Config, tokenizer: Tokenizer, plain: bool) -> "Seq2Seq":
    """The model in one directory. Raises CheckpointError if it was trained with another tokenizer."""
    from transformer_mt.inference.fast import build_model, shapes
    from transformer_mt.storage.weights import check_shapes, copy_weights, read_metadata, read_weights

    file = directory / "model.safetensors"
    weights, metadata = read_weights(file), read_metadata(file)
    trained_with = metadata.get("tokenizer", "")
    if trained_with != tokenizer.digest:
        raise CheckpointError(
            f"{file} was trained with another tokenizer (digest {trained_with[:8] or 'unknown'}) than the one in "
            f"{directory} ({tokenizer.digest[:8]}). Average the checkpoints of its run again, or copy the complete "
            "directory again"
        )
    kernels: Kernels = "plain" if plain else "fast"
    sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
    check_shapes(weights, shapes(config.model, *sizes), file)  # first, because settings can name sizes of any memory
    model = build_model(config.model, *sizes, kernels)
    copy_weights(weights, model, file)
    if warning := stale_warning(directory, metadata):
        _log.warning(warning)
    return model


def _load_ctranslate2_engine(
    directories: Sequence[Path], configs: Sequence[Config], tokenizer: Tokenizer, options: EngineOptions
) -> Engine:
    if len(directories) > 1:
        raise TranslationError("the engine ctranslate2 runs no ensembles: give only one export, or use --engine torch")
    from transformer_mt.decoding.ctranslate2_engine import CTranslate2Engine, compute_type

    engine = CTranslate2Engine(
        directories[0],
        configs[0].model.max_positions,
        configs[0].decoding.alignment_layer,
        device=options.device,
        workers=options.workers,
        compute_type=compute_type(options.dtype, options.quantize),
    )
    pieces = pieces_of(tokenizer.source), pieces_of(tokenizer.target)
    if pieces != (engine.vocabularies.source, engine.vocabularies.target):
        raise CheckpointError(
            f"{directories[0]} was exported with another tokenizer than it holds now: its vocabulary files have "
            "other pieces. Export the model again, or copy the complete directory again"
        )
    return engine
