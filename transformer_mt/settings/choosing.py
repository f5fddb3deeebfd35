"""Chooses the settings of an experiment by the amount of text, the speed of the machine and the time there is.

It writes them into a configuration, each with its reason. docs/recipes.md has the measurements behind these rules, and
says which of them are only the literature's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from transformer_mt.base.wording import counted
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import Writer
from transformer_mt.settings.section import Section

START_UP = 12.0  # seconds of all stages together: imports, reading of data and models, checkpoints
PREPARING = 2.5  # seconds of `prepare` for each second in which the text was measured
LIKELIHOOD, VALIDATING, EVALUATING = 3.0, 0.2, 0.5
"""The speeds of scoring pairs and of translating them, in a validation and by beam search, for a training speed of 1.

Measured on short and long sentences, with models that have learnt little."""
ON_VALIDATIONS = 0.1  # of the time, at most, if they have at least 200 sentences
MOST_VALIDATIONS, FEWEST_VALIDATED = 10, 200
AHEAD = 1.3  # times as many updates as expected: training.max_minutes ends those that take too long


@dataclass(frozen=True)
class Text:
    """The training text, as far as settings depend on it."""

    num_pairs: int
    num_words: int
    """The words of the target side; in a language without spaces, half of its characters."""
    num_characters: int = 100
    """The different characters of both sides."""
    num_merges: int = 10**6
    """So many pieces of several characters can be made of this text, or more."""

    @property
    def num_tokens(self) -> int:
        """Target tokens of an epoch, about: pieces, and one end for each sentence."""
        return round(1.15 * self.num_words) + self.num_pairs


@dataclass(frozen=True)
class Size:
    """The size of a Transformer with as many layers in the encoder as in the decoder."""

    layers: int
    d_model: int
    ffn_dim: int
    num_heads: int
    fewest_tokens: float
    """It needs so many trained target tokens for each of its weights; with fewer, the size before is better."""
    fewest_words: int
    """It needs at least so many words of text; otherwise it learns the text by heart."""
    peak_rate: float
    """Its learning rate, with training.optimizer=muon."""

    @property
    def num_weights(self) -> int:
        """The weights of the matrices inside the layers: 4 D² of each attention, 2 D F of each feed-forward layer."""
        attention, feed_forward = 4 * self.d_model**2, 2 * self.d_model * self.ffn_dim
        return self.layers * (3 * attention + 2 * feed_forward)

    def __str__(self) -> str:
        return f"{self.layers}+{self.layers} layers, width {self.d_model}"


SIZES = (
    Size(4, 128, 256, 4, fewest_tokens=0, fewest_words=0, peak_rate=6e-3),
    Size(4, 256, 1024, 4, fewest_tokens=1.0, fewest_words=300_000, peak_rate=4e-3),
    Size(6, 512, 2048, 8, fewest_tokens=2.0, fewest_words=5_000_000, peak_rate=2e-3),
)
"""From small to large: that of Wu et al. 2021 for Multi30k, one between, and the paper's base model."""

VOCABULARIES = {20_000: 4000, 70_000: 6000, 200_000: 8000, 2_000_000: 10_000, 20_000_000: 16_000, math.inf: 32_000}
"""The size of the vocabulary for a text of fewer words than this."""

REACHED = {
    55_000: "5,000 captions of pictures (Multi30k): BLEU 21 after 7 minutes",
    87_000: "13,400 short sentences (Tatoeba): BLEU 19 after 8 minutes",
    320_000: "29,000 captions of pictures (Multi30k): BLEU 37 after 46 minutes",
    1_070_000: "165,000 short sentences (Tatoeba): BLEU 28 after 9 minutes",
}
"""What models of our own reached, by the words of their text: of width 128, on one core, beside other programs."""

DROPOUTS = {4: 0.0, 20: 0.1, 30: 0.2, math.inf: 0.3}
"""The dropout for fewer epochs than this: a text that is read often is learnt by heart."""

BOTH_DIRECTIONS = 30  # epochs: from here on, it may help to learn both directions first

SHRINKING = 4.5  # the weight decay of all updates makes a weight that nothing else changes exp(-4.5) times as large
MOST_DECAY = 1.0  # the more updates there are, the lower it is (Wang and Aitchison 2025), but this is the highest

FEW_UPDATES = 300  # up to here, a higher rate is better
MOST_EPOCHS = 150  # of a text that is read more often, only its noise is left to learn
MANY_UPDATES = 4000  # if a training has more target tokens than these updates of small batches, it has larger batches
FILLED = 0.95  # of the positions of a batch are target tokens; the others are padding
FEWEST_READ = 60_000  # pairs, those included that are read again: after fewer, models of ours were of little use

TUNING_CANDIDATES = 9  # the last and the best weights, and mixtures of the last with those before

TUNING_BATCH, TUNING_EPOCHS, FEWEST_TUNING_UPDATES, TUNING_RATE = 2048, 8, 300, 1e-3
"""Fine-tuning reads the new text so often, but makes at least so many updates; the rate is that of width 128."""


class Plan(NamedTuple):
    """How the time of all stages is divided."""

    max_minutes: float
    """The time of training, with its validations."""
    seconds: float
    """The time of its updates."""
    num_validations: int
    num_validated: int
    """How many sentences of each validation set are translated."""
    besides: float
    """Seconds of the other stages."""


@dataclass(frozen=True)
class Stages:
    """What takes the time of all stages, besides the updates."""

    minutes: float
    """There are so many for all of them."""
    num_held: int
    """The pairs of the validation sets together; the test sets have as many."""
    tokens_of_pair: float
    """Target tokens of one of them."""
    measuring: float = 0.0
    """The seconds in which the text was measured."""
    num_sets: int = 1
    """The number of validation sets."""
    num_candidates: int = 2
    """The models that `average` validates."""

    def plan(self, speed: float) -> Plan:
        """Divide the time of stages whose training has so many target tokens a second."""
        seconds, pair = 60 * self.minutes, self.tokens_of_pair / speed
        besides = START_UP + PREPARING * self.measuring + self.num_held * pair / EVALUATING
        scoring, on_validations = self.num_held * pair / LIKELIHOOD, ON_VALIDATIONS * max(0.0, seconds - besides)
        most = MOST_VALIDATIONS + self.num_candidates
        affordable = int((on_validations / most - scoring) * VALIDATING / pair / self.num_sets)
        num_validated = min(self.num_held, max(FEWEST_VALIDATED, affordable))
        validation = scoring + min(self.num_held, num_validated * self.num_sets) * pair / VALIDATING
        num_validations = min(MOST_VALIDATIONS, max(1, int(on_validations / validation) - self.num_candidates))
        besides += self.num_candidates * validation
        training = max(seconds - besides, seconds / 3)  # something is trained in any case
        updates = max(training - num_validations * validation, training / 2)
        if num_validations == 1:  # training keeps time only for validations like those that it has made
            besides, training = besides + training - updates, updates
        return Plan(round(training / 60, 2), updates, num_validations, num_validated, besides)


@dataclass(frozen=True)
class Tuning:
    """The settings of fine-tuning."""

    num_updates: int
    """So many are expected in the time."""
    max_steps: int
    tokens_per_batch: int
    peak_lr: float
    seconds: float
    """What the expected updates take, about."""
    plan: Plan


@dataclass(frozen=True)
class Chosen(Tuning):
    """The settings of a new model, and why."""

    size: Size
    vocab_size: int
    dropout: float
    weight_decay: float
    warmup_steps: int
    num_epochs: float
    num_both: int
    """In so many updates at the beginning, it may help to learn both directions; 0: in none."""


def reached(text: Text) -> str:
    """Return what a model of our own reached with the most similar amount of text."""
    return REACHED[min(REACHED, key=lambda words: abs(math.log(words / max(1, text.num_words))))]


def too_little_read(chosen: Chosen, text: Text, minutes: float) -> str:
    """Return a warning if training has no time to read enough, with the minutes that it takes; otherwise ''."""
    read, wanted = chosen.num_epochs * text.num_pairs, min(FEWEST_READ, MOST_EPOCHS * text.num_pairs)
    if read > 0.9 * wanted:
        return ""
    enough = minutes + (wanted / read - 1) * min(chosen.seconds, chosen.plan.seconds) / 60 / (1 - ON_VALIDATIONS)
    return (
        f"--minutes {minutes:g} is too short for a useful model: many translations will be wrong, or repeat words. "
        f"Training needs --minutes {math.ceil(enough)} or more to read {wanted:,} pairs, which is about the least"
    )


def choose(text: Text, stages: Stages, speeds: Mapping[Size, float]) -> Chosen:
    """Choose the settings of a training in this time; `speeds` are target tokens a second, of each candidate."""
    plans = {size: stages.plan(speed) for size, speed in speeds.items()}
    affordable = {size: plans[size].seconds * speed for size, speed in speeds.items()}
    size = max((s for s in speeds if affordable[s] >= s.fewest_tokens * s.num_weights), key=SIZES.index)
    wanted = MOST_EPOCHS * text.num_tokens
    num_tokens = min(affordable[size], wanted)
    tokens_per_batch = 2 ** min(14, max(10, round(math.log2(num_tokens / MANY_UPDATES))))
    per_update = FILLED * tokens_per_batch
    num_updates = max(100, 50 * round(num_tokens / per_update / 50))
    max_steps = max(100, 50 * round(min(AHEAD * num_tokens, wanted) / per_update / 50))
    pieces = next(pieces for words, pieces in VOCABULARIES.items() if text.num_words < words)
    # Each byte and character is a piece, and in a text of Chinese there may be thousands of them.
    single = 100 * math.ceil((260 + text.num_characters) / 100)
    pieces = min(max(pieces, single + pieces // 2), single + text.num_merges // 100 * 100)
    seconds = num_updates * per_update / speeds[size]
    num_epochs = num_updates * per_update / text.num_tokens * min(1.0, plans[size].seconds / seconds)
    peak_lr = round(size.peak_rate * (1.5 if num_updates <= FEW_UPDATES else 1), 4)
    return Chosen(
        num_updates=num_updates,
        size=size,
        vocab_size=pieces,
        dropout=next(dropout for epochs, dropout in DROPOUTS.items() if num_epochs < epochs),
        tokens_per_batch=tokens_per_batch,
        max_steps=max_steps,
        warmup_steps=min(500, max_steps // 10),
        peak_lr=peak_lr,
        weight_decay=min(MOST_DECAY, float(f"{SHRINKING / (num_updates * peak_lr / 2):.1g}")),  # the mean rate is half
        num_epochs=num_epochs,
        num_both=num_updates // 2 if num_epochs >= BOTH_DIRECTIONS else 0,
        seconds=seconds,
        plan=plans[size],
    )


def choose_tuning(new_tokens: int, mixes: bool, width: int, stages: Stages, speed: float) -> Tuning:
    """Choose the settings of fine-tuning on text of so many target tokens.

    `mixes` says that half of the tokens of an epoch are of old text. `width` is that of the model, and `speed` its
    target tokens a second. A wider model needs a lower rate.
    """
    per_update = FILLED * TUNING_BATCH
    wanted = TUNING_EPOCHS * new_tokens * (2 if mixes else 1) / per_update
    plan = stages.plan(speed)
    num_updates, max_steps = (
        max(50, round(min(max(wanted, FEWEST_TUNING_UPDATES), ahead * plan.seconds * speed / per_update) / 50) * 50)
        for ahead in (1, AHEAD)
    )
    peak_lr = float(f"{TUNING_RATE * min(1, 128 / width):.1g}")
    return Tuning(num_updates, max_steps, TUNING_BATCH, peak_lr, num_updates * per_update / speed, plan)


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
    """Return a configuration for a new model. `share` of the text, `num_held` pairs, are a validation or test set.

    If the corpus has stages, its first text is the one that is wanted, and the share is taken from it.
    """
    written = corpus.model_dump(include={"source_language", "target_language", "train", "stages"}, exclude_none=True)
    held_out = {"share": share} | ({"name": corpus.training_corpora[0].name} if corpus.stages else {})
    why = {"stages": "both directions first: this may help if the text is read so often"}
    values: Sections = {
        "corpus": {
            **{key: (value, why.get(key, "")) for key, value in written.items()},
            "valid": (held_out, f"about {num_held:,} pairs, chosen by a hash of the source"),
            "test": ({"own": held_out}, "as many others; train neither with these nor by their scores"),
        },
        "tokenizer": {
            "vocab_size": (chosen.vocab_size, f"pieces, for {text.num_words:,} words: rarer pieces are learnt badly"),
        },
        "model": {key: (value, "") for key, value in model_settings(chosen.size).items()}
        | {"dropout": (chosen.dropout, f"training reads the text {counted(round(chosen.num_epochs), 'time')}")},
        "training": {
            **_ends(chosen),
            "tokens_per_batch": (chosen.tokens_per_batch, "small enough for many updates"),
            **FIXED,
            "peak_lr": (chosen.peak_lr, f"for Muon and width {chosen.size.d_model}"),
            "weight_decay": (chosen.weight_decay, "for so many updates: the fewer, the higher"),
            "warmup_steps": (chosen.warmup_steps, "a tenth of the updates, at most 500"),
            **_validations(chosen),
            "# modifiers": ({"protect": 0.2}, "would teach it to copy addresses, and cost a little BLEU"),
        },
        "averaging": {"checkpoints": (1, "with schedule=linear, the last weights are as good as a mean")},
        "decoding": {"length_penalty": (1.0, "the default of 0.6 leaves translations too short more often")},
    }
    return _written(f"For {text.num_pairs:,} pairs", name, values)


def tuned_configuration(old: Config, model: Path, corpus: dict[str, Any], chosen: Tuning, name: str) -> str:
    """Return a configuration that fine-tunes `model`, which has the configuration `old`, on the text of `corpus`."""
    values: Sections = {
        "corpus": {key: (value, TEXT_REASONS.get(key, "")) for key, value in corpus.items()}
        | {"max_length": (old.corpus.max_length, "")},
        "filters": _changed(old.filters),
        "tokenizer": {"from": (str(model), "the weights belong to its pieces"), "joint": (old.tokenizer.joint, "")},
        "model": _changed(old.model),
        "training": {
            "initialise_from": (str(model), ""),
            **_ends(chosen),
            "tokens_per_batch": (chosen.tokens_per_batch, ""),
            **{key: FIXED[key] for key in ("schedule", "clip_norm")},
            "peak_lr": (chosen.peak_lr, f"for Adam and width {old.model.d_model}: about a third of that from scratch"),
            "warmup_steps": (chosen.max_steps // 6, ""),
            **_validations(chosen),
        },
        "averaging": {"checkpoints": (1, "then mixed with the old weights, as the validation sets say")},
        "decoding": _changed(old.decoding),
    }
    return _written(f"Fine-tunes {model}", name, values)


def _changed(section: Section) -> dict[str, tuple[Any, str]]:
    """Return the settings of a section that differ from their defaults, without reasons."""
    return {key: (value, "") for key, value in section.model_dump(exclude_defaults=True).items()}


def _ends(chosen: Tuning) -> dict[str, tuple[Any, str]]:
    """Return the settings that end training, each with its reason."""
    is_all = chosen.max_steps == chosen.num_updates and chosen.seconds < 1.2 * chosen.plan.seconds
    most = "more would teach little" if is_all else f"about {chosen.num_updates:,} at the speed that was measured"
    return {
        "max_steps": (chosen.max_steps, f"updates: {most}"),
        "max_minutes": (chosen.plan.max_minutes, "with validations: training ends then, with the rate at 0"),
    }


def _validations(chosen: Tuning) -> dict[str, tuple[Any, str]]:
    """Return how often and on how much training validates, and saves, each with its reason."""
    plan, every = chosen.plan, 10 * math.ceil(chosen.num_updates / chosen.plan.num_validations / 10)
    tenth = f"so that validations take at most {100 * ON_VALIDATIONS:.0f} % of the time"
    tenth = tenth if plan.num_validations > 1 else "the least"
    return {
        "validate_every": (every, f"updates: {counted(plan.num_validations, 'validation')} or so, {tenth}"),
        "valid_sentences": (plan.num_validated, "at most: for the same reason"),
        "save_every": (50 * math.ceil(chosen.num_updates / 500), ""),
    }


def _written(about: str, name: str, sections: Sections) -> str:
    """Return the YAML of a configuration: a line for each setting, with its reason beside it."""
    lines = [f"# {about}. `python -m transformer_mt settings` explains each setting."]
    lines += [f"data_dir: {_yaml(f'data/{name}')}", f"run_dir: {_yaml(f'runs/{name}')}"]
    for section, settings in sections.items():
        is_short = len(settings) < 2
        lines += [] if is_short else [f"{section}:"]
        for key, (value, reason) in settings.items():
            line = f"{section}: {_yaml({key: value})}" if is_short else f"  {key}: {_yaml(value)}"
            lines.append(f"{line}  # {reason}" if reason else line)
    return "\n".join(lines) + "\n"


def _yaml(value: Any) -> str:
    """Return a value as YAML on one line."""
    written = yaml.dump(
        value, Dumper=Writer, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10_000
    )
    return str(written).strip().removesuffix("...").strip()
