"""The text that is learnt and translated: the one given, or the demo corpus; prepared as the stage prepare does."""

from dataclasses import dataclass
from pathlib import Path

from demo_corpus.corpus import corpus as demo_corpus

from benchmarks.gpu_parts.settings import Settings
from transformer_mt import prepare
from transformer_mt.base.errors import TokenizerError
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.evaluation.metrics import check_aligned
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.storage.files import write_whole
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.run.validation import ValidationSet, load_validation

DEMO_PAIRS, TRIAL_PAIRS = 24_000, 600
HELD_OUT, SHARE = 1000, 10  # pairs for validation, and of how many pairs one at most
VOCABULARIES = (8000, 4000, 2000, 1000, 500)  # the largest is taken that the text has pieces for
FEW_PAIRS = 100_000  # fewer are learnt by heart without more dropout

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Prepared:
    """A text that is ready to be learnt."""

    config: Config
    corpus: EncodedCorpus
    tokenizer: Tokenizer
    validation: list[ValidationSet]

    @property
    def model(self) -> TransformerConfig:
        assert isinstance(self.config.model, TransformerConfig), "all shapes are Transformers"
        return self.config.model


def prepared(settings: Settings) -> Prepared:
    """Prepare the text, unless that was done. Raises UserError."""
    directory = settings.work / "text"
    path = directory / "text.yaml"
    if not path.is_file():
        directory.mkdir(parents=True, exist_ok=True)
        pairs = pairs_of(settings)
        write_split(directory, pairs)
        config = prepare_largest(directory, settings, len(pairs))
        write_whole(path, dump_config(config))
    config = load_config(path)
    data = Path(config.data_dir)
    tokenizer = Tokenizer.load(data)
    validation = load_validation(data, tokenizer, config.corpus, config.model, config.training, config.decoding)
    return Prepared(config, EncodedCorpus.load(data / "train"), tokenizer, validation)


def pairs_of(settings: Settings) -> Pairs:
    """All pairs of which neither side is blank. Raises CorpusError or EvaluationError."""
    if not settings.text:
        return demo_corpus(TRIAL_PAIRS if settings.is_trial else DEMO_PAIRS, seed=1)
    sides = [list(read_lines(path)) for path in settings.text]
    check_aligned(sides, [str(path) for path in settings.text])
    return [(source, target) for source, target in zip(*sides, strict=True) if source.strip() and target.strip()]


def lines_to_translate(settings: Settings, number: int) -> tuple[list[str], list[str]]:
    """Sources and their references: first those held out, then others. With a model of its own, those of the text.

    A text with fewer lines is repeated.
    """
    if settings.model and settings.text:
        sources, references = ([line for line in read_lines(path)] for path in settings.text)
    else:
        prepared(settings)
        sources, references = (
            [line for name in ("valid", "train") for line in read_lines(settings.work / "text" / f"{name}.{side}")]
            for side in ("source", "target")
        )
    times = -(-number // len(sources))
    return (sources * times)[:number], (references * times)[:number]


def write_split(directory: Path, pairs: Pairs) -> None:
    """Write the pairs for validation, taken evenly from all, and for training those whose source is not among them."""
    every = max(SHARE, len(pairs) // HELD_OUT)
    valid = pairs[::every][:HELD_OUT]
    seen = {source for source, _ in valid}
    for name, chosen in (("valid", valid), ("train", [pair for pair in pairs if pair[0] not in seen])):
        for side, column in (("source", 0), ("target", 1)):
            write_whole(directory / f"{name}.{side}", "".join(f"{pair[column]}\n" for pair in chosen))


def prepare_largest(directory: Path, settings: Settings, num_pairs: int) -> Config:
    """Prepare with the largest vocabulary that the text has pieces for. Raises UserError."""
    for vocab_size in VOCABULARIES[-1:] if settings.is_trial else VOCABULARIES:
        config = config_of(directory, settings, vocab_size, num_pairs)
        path = directory / f"{vocab_size}.yaml"
        write_whole(path, dump_config(config))
        try:
            prepare.main([str(path)])
            return config
        except TokenizerError:
            if vocab_size == VOCABULARIES[-1]:
                raise
    raise AssertionError("the last vocabulary returns or raises")


def config_of(directory: Path, settings: Settings, vocab_size: int, num_pairs: int) -> Config:
    model, _ = settings.shape_or("base")
    if num_pairs < FEW_PAIRS and not settings.is_trial:
        model = model.model_copy(update={"dropout": 0.3})
    languages = [path.suffix.lstrip(".") for path in settings.text] or ["en", "de"]
    files = {name: {side: str(directory / f"{name}.{side}") for side in ("source", "target")} for name in SPLITS}
    names = dict(zip(("source_language", "target_language"), languages, strict=True))
    return Config.model_validate(
        {
            "data_dir": str(directory / f"data_{vocab_size}"),
            "run_dir": str(directory / "run"),
            "corpus": {**{key: value or "und" for key, value in names.items()}, **files, "test": {}},
            "tokenizer": {"vocab_size": vocab_size},
            "model": model,
            "training": {
                "device": settings.device,
                "precision": settings.training_precision,
                "num_threads": settings.threads,
                "tokens_per_batch": settings.tokens_per_batch,
                "peak_lr": 0.01 if settings.is_trial else 7e-4,
                "warmup_steps": 20 if settings.is_trial else 1000,
            },
        }
    )


SPLITS = ("train", "valid")
