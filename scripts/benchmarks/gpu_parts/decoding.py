"""The part decode: ours, CTranslate2 and Hugging Face translate in batches of the same numbers of sentences."""

import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.contenders.decoding import (
    COMPUTE_TYPES,
    Decoder,
    ctranslate2,
    ctranslate2_on_gpu,
    export,
    huggingface,
    ours,
    ours_on_gpu,
)
from benchmarks.decoding_process import Outcome, Pass, run_passes
from benchmarks.decoding_race import Texts, write_texts
from benchmarks.environment import own_path
from benchmarks.gpu_parts import own_process
from benchmarks.gpu_parts.learning import FOR_DECODING, model_directory
from benchmarks.gpu_parts.report import LeftOut, Measurement, Part
from benchmarks.gpu_parts.settings import Figures, Settings
from benchmarks.gpu_parts.text import lines_to_translate
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.checksums import sha256
from transformer_mt.text.tokenizer import Tokenizer

OURS = "ours"
PACKAGES = {"ours": "torch", "CTranslate2": "ctranslate2", "Hugging Face": "transformers"}
LINES = {512: 2048, 32: 512, 1: 32}  # that are translated, by the number of sentences in a batch
LINES_OF_TRIAL = {4: 12}
BEAMS = {1: "greedy", 4: "beam 4"}
DIGITS = 8  # of the digest that a report holds of each translation


def part(settings: Settings) -> Part:
    lines = LINES_OF_TRIAL if settings.is_trial else LINES
    measurements = []
    for size, num_lines in lines.items():
        for engine in PACKAGES:
            name = f"{engine}, batches of {size}"
            measure = partial(measured, engine, size, num_lines, settings)
            measurements.append(Measurement(name, name, 60.0, measure))
    return Part("decode", measurements, summary)


def measured(engine: str, size: int, num_lines: int, settings: Settings, seconds: float) -> Figures:
    """Translate each way twice: what is captured or planned for new sizes is in the first time, not in the second."""
    if find_spec(PACKAGES[engine]) is None:
        raise LeftOut(f"{PACKAGES[engine]} is not installed")
    began, directory = time.monotonic(), settings.work / "decode"
    model = model_of(settings, seconds)
    source, reference = lines_to_translate(settings, num_lines)
    config, tokenizer = load_config(model / "config.yaml"), Tokenizer.load(model)
    texts = Texts(source, reference, tokenizer, config.corpus.target_language)
    conditions = write_texts(model, texts, directory, settings.threads)
    passes = [Pass(beam, size) for beam in BEAMS for _ in range(2)]
    decoder = decoder_of(engine, model, directory, settings)
    left = seconds - (time.monotonic() - began)
    outcomes, _ = run_passes(decoder, conditions, passes, seconds=left)
    return {
        "precision": decoder.precision,
        "device": settings.device,
        "model": sha256(model / "model.safetensors"),
        "lines": len(source),
        **{BEAMS[one.beam]: figures_of(outcomes[i : i + 2], tokenizer) for i, one in enumerate(passes) if i % 2 == 0},
    }


def model_of(settings: Settings, seconds: float) -> Path:
    """The model that was asked for, or that the part learn has left, or one that is trained now."""
    directory = settings.model or model_directory(settings)
    if not (directory / "model.safetensors").is_file():
        own_process.in_own_process("learning", FOR_DECODING, settings, seconds)
    return directory


def decoder_of(engine: str, model: Path, directory: Path, settings: Settings) -> Decoder:
    """The contender, with its export. Raises PeerError."""
    precision = settings.decoding_precision
    if engine == OURS:
        decoder = ours_on_gpu(model, precision) if settings.on_gpu else ours(model, precision, 1, 1)
        return replace(decoder, settings={**decoder.settings, "in_sentences": True})
    if engine == "CTranslate2":
        kind = COMPUTE_TYPES[precision]
        exported = exported_once(model, directory / f"ctranslate2_{precision}", "ctranslate2", kind)
        if settings.on_gpu:
            return ctranslate2_on_gpu(exported, precision, directory)
        return ctranslate2(exported, precision, kind, 1, settings.threads)
    exported = exported_once(model, directory / "huggingface", "huggingface", "float32")
    decoder = huggingface(exported, precision, sys.executable, settings.device)
    return replace(decoder, pythonpath=own_path())


def exported_once(model: Path, output: Path, format: str, quantization: str) -> Path:
    return output if output.is_dir() else export(model, output, format, quantization)


def figures_of(outcomes: Sequence[Outcome], tokenizer: Tokenizer) -> Figures:
    """Of two passes; the speed is that of the second. Tokens are the pieces that our tokenizer cuts the lines into."""
    first, second = outcomes
    lines = [" ".join(line.split()) for line in second.lines]
    tokens = sum(len(ids) - 1 for ids in tokenizer.encode_target(lines))
    return {
        "seconds_of_first_pass": first.seconds,
        "seconds": second.seconds,
        "lines_per_second": len(lines) / second.seconds,
        "tokens_per_second": tokens / second.seconds,
        "tokens": tokens,
        "translations": "".join(hashlib.sha256(line.encode()).hexdigest()[:DIGITS] for line in lines),
    }


def summary(found: dict[str, Figures]) -> Figures:
    """By batch size and search: speeds, how many times as fast ours is, and how many translations are those of ours."""
    report: Figures = {}
    for name, figures in found.items():
        engine, _, batches = name.partition(", ")
        ours = found.get(f"{OURS}, {batches}")
        for search in BEAMS.values():
            row = {unit: figures[search][unit] for unit in ("lines_per_second", "tokens_per_second")}
            if ours and ours["model"] == figures["model"]:
                row |= beside(ours[search], figures[search])
            report.setdefault(batches, {}).setdefault(search, {})[engine] = row
    return report


def beside(ours: Figures, theirs: Figures) -> Figures:
    both = zip(digests(ours), digests(theirs), strict=True)
    return {
        "ours_is_times_as_fast": theirs["seconds"] / ours["seconds"],
        "lines_as_ours": sum(one == other for one, other in both),
        "lines": len(ours["translations"]) // DIGITS,
    }


def digests(figures: Figures) -> list[str]:
    text: str = figures["translations"]
    return [text[i : i + DIGITS] for i in range(0, len(text), DIGITS)]
