"""The part learn: training on a text for two minutes, and what it has learnt then."""

import shutil
import time
from functools import partial
from pathlib import Path

from benchmarks.gpu_parts import own_process
from benchmarks.gpu_parts.report import Measurement, Part
from benchmarks.gpu_parts.settings import Figures, Settings
from benchmarks.gpu_parts.text import Prepared, prepared
from benchmarks.gpu_parts.trainee import Trainee, new_trainee
from transformer_mt.kernels.device import Device, choose_device
from transformer_mt.settings.reading import dump_config
from transformer_mt.storage.checksums import write_sums
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.weights import model_weights, save_weights
from transformer_mt.text.training_lines import TrainingLines
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.run.validation import validate

SECONDS, SECONDS_FOR_DECODING, SECONDS_OF_TRIAL = 120.0, 45.0, 4.0
FOR_DECODING = "a model to decode with"
VALIDATIONS = 3  # evenly over the time
COMPILING = 3  # updates before the clock starts
EVERY = 20  # updates between two looks at the clock; on a GPU it waits for the queue then


def part(settings: Settings) -> Part:
    name = "two minutes"
    measure = partial(own_process.in_own_process, "learning", name, settings)
    return Part("learn", [Measurement(name, name, 240.0, measure)])


def measure(name: str, settings: Settings) -> Figures:
    """Learn, and leave the model where the part decode finds it."""
    seconds = SECONDS_FOR_DECODING if name == FOR_DECODING else SECONDS
    return learn(settings, SECONDS_OF_TRIAL if settings.is_trial else seconds)


def model_directory(settings: Settings) -> Path:
    return settings.work / "model"


def learn(settings: Settings, seconds: float) -> Figures:
    """Train for these seconds, without those of compilation and validation, and write the model."""
    text = prepared(settings)
    device = choose_device(settings.device, settings.training_precision, settings.threads)
    vocab_size = text.tokenizer.target_vocab_size
    trainee = new_trainee(text.model, vocab_size, text.corpus, text.config.training, device)
    report: Figures = {
        "text": [str(path) for path in settings.text] or "the demo corpus",
        "pairs": len(text.corpus),
        "pairs_of_validation": len(text.validation[0].references),
        "vocabulary": vocab_size,
        "model": str(text.config.model),
        "device": device.description,
        "layout": trainee.loader.layout,
    }
    report |= train(trainee, text, device, seconds)
    write_model(trainee, text, model_directory(settings))
    return report


def train(trainee: Trainee, text: Prepared, device: Device, seconds: float) -> Figures:
    """Update for these seconds. The loss is in nats a target token, unsmoothed, of the last update before a point."""
    updates, began = trainee.updates(), time.perf_counter()
    for _ in range(COMPILING):
        next(updates)
    device.synchronize()
    report: Figures = {"seconds_to_compile": time.perf_counter() - began, "curve": [], "validations": []}
    spent, tokens, began = 0.0, 0, time.perf_counter()
    while spent < seconds:
        for _ in range(EVERY):
            update = next(updates)
            tokens += update.num_labels
        loss = update.numbers.nll.item() / update.num_labels
        now = spent + time.perf_counter() - began
        report["curve"].append({"seconds": now, "updates": update.step, "loss": loss})
        if now >= seconds * (len(report["validations"]) + 1) / VALIDATIONS:
            report["validations"].append({"seconds": now, "updates": update.step, **scores(trainee, text)})
        spent, began = now, time.perf_counter()
    return report | {
        "updates": update.step,
        "seconds_of_updates": spent,
        "tokens_per_second": tokens / spent,
        "loss": loss,
        "validation": report["validations"][-1],
    }


def scores(trainee: Trainee, text: Prepared) -> Figures:
    found = validate(trainee.learner, text.validation, Ranks())
    return {**found.values, "seconds_of_validation": found.seconds}


def write_model(trainee: Trainee, text: Prepared, directory: Path) -> None:
    """Write what `average` would write of a run."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    text.tokenizer.save(directory)
    write_whole(directory / "config.yaml", dump_config(text.config))
    TrainingLines.load(Path(text.config.data_dir)).save(directory)
    weights = model_weights(trainee.learner.model)
    save_weights(weights, directory / "model.safetensors", {"tokenizer": text.tokenizer.digest})
    write_sums(directory, sorted(path.name for path in directory.iterdir()))


if __name__ == "__main__":
    own_process.answer(measure)
