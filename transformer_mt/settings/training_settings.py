"""The settings of training: batches, learning rate, checkpoints, and which checkpoints become the model."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from transformer_mt.settings.section import Count, Kernels, PositiveCount, Section, Seed, Text, Tokens

ValidationMetric = Literal["bleu", "chrf", "nll"]


class ShownMetric(NamedTuple):
    """How a metric of the validation is shown, and how models are compared by it."""

    name: str
    """In the lines that `train` and `average` print."""
    title: str
    """In pictures."""
    digits: int
    """The printed digits after the point. A smaller difference is chance, and does not make a model better."""
    sign: int = 1
    """-1 if lower is better."""


VALIDATION_METRICS: dict[ValidationMetric, ShownMetric] = {
    "nll": ShownMetric("perplexity", "negative log-likelihood of the validation set (nats per target token)", 2, -1),
    "bleu": ShownMetric("BLEU", "BLEU of the validation set (percent)", 1),
    "chrf": ShownMetric("chrF", "chrF2 of the validation set (percent)", 1),
}
"""What a validation measures, in this order. All but nll are metrics of evaluation/metrics.py, under the same name."""


Optimizer = Literal["adam", "muon"]


Share = Annotated[float, Field(ge=0.0, le=1.0)]


class ModifiersConfig(Section):
    """Changes of the training text, each in a share of the pairs, so that the model also translates text as people
    write it. The pairs are chosen anew each time training reads them. The examples of typos and remove_end_punct are
    Mozilla's values for the models of Firefox. Tags and tokenizer.user_symbols never change."""

    protect: Share = 0.0
    """One to three words that are equal on both sides become pieces <keep1> to <keep9>, for example 0.2. `prepare` adds
    these pieces to the tokenizer. The model learns to copy them, and decoding.protect uses them."""
    typos: Share = 0.0
    """Typos in a tenth of the words of the source, and at least in one (OpusTrainer's Typos), for example 0.05: two
    letters swapped, a letter missing, doubled or replaced, or a space missing. Languages without spaces between words,
    such as Chinese, have none."""
    remove_end_punct: Share = 0.0
    """No full stop or other end of a sentence on either side, if both have one (Mozilla's RemoveEndPunct), for example
    0.2."""


class TrainingConfig(Section):
    """How the model is trained: batches, learning rate, regularisation, checkpoints and validation."""

    seed: Seed = 1
    """The seed of all random choices: initial weights, order of the pairs, dropout, modifiers."""
    device: Text = "auto"
    """Where training runs: cpu, cuda or cuda:N. auto: CUDA if there is a GPU, otherwise the CPU."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """The number format of matrix multiplications. Weights and optimizer state are always fp32. auto: bf16 if the
    hardware multiplies faster in bf16, as recent GPUs and many server CPUs do; fp16 on GPUs with tensor cores but
    without bf16, such as V100 and T4; otherwise fp32. fp16 scales the loss, and is very slow on CPUs."""
    sharding: Literal["none", "full"] = "none"
    """What each device keeps if there are several. none: all parameters, gradients and optimizer states; full: only a
    part of them (FSDP), for a model that does not fit on one device."""
    message_precision: Literal["fp32", "bf16"] = "fp32"
    """The number format in which several devices send each other their gradients to add them up. bf16: half as many
    bytes, for devices without a fast connection such as NVLink, but gradients, and
    each sum of them on the way, are rounded to 8 significant bits."""
    num_threads: int = Field(default=0, ge=0, le=1024)
    """The number of CPU threads. 0: one per core that the process may use."""
    max_steps: PositiveCount = 100_000
    """The number of updates after which training ends."""
    max_minutes: float = Field(default=0.0, ge=0.0, le=1e7)
    """The minutes of training, with its validations and checkpoints, after which it ends if max_steps does not end it
    before; 0: no limit. They count on when the run resumes. The schedules linear and cosine fall to 0 at the end that
    comes first. Time for a last validation, as long as the longest before, is kept. The weights then depend on the
    speed of the machine: the same command does not make them again."""
    tokens_per_batch: Tokens = 25_000
    """The most token positions in a micro-batch, padding and ends of sentences included, on the longer of its two
    sides. Larger micro-batches need more memory."""
    tokens_per_update: Count = 0
    """The most target tokens in an update on all devices together, including ends of sentences but not padding. An
    update sums the gradients of as many micro-batches as fit into this number. 0: one micro-batch per update, divided
    among the devices."""
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    """The share of each label's probability that is spread evenly over the vocabulary (Szegedy et al. 2016). 0: off."""
    kernels: Kernels = "fast"
    """Which code computes. plain: the simple code of `models/` and `training/loss.py`, which is easy to read, with
    padded sentences; fast: the same code with quicker versions of its slow parts. Both give the same numbers up to
    rounding, except for the random numbers of dropout."""
    layout: Literal["auto", "padded", "packed"] = "auto"
    """How the sentences of a micro-batch are stored in memory. padded: each in its own row, filled up with padding;
    packed: one after the other, without padding. auto: packed on a GPU that supports it with bf16, if
    model.attention_score=scaled_dot and model.attention_dropout=0; otherwise padded. Only model.kind=transformer can
    use packed."""
    compile: bool | Literal["auto"] = "auto"
    """Whether torch.compile compiles the model. true: this takes half a minute at the start, and needs packed
    sentences. auto: like false, because a GPU replays their updates as CUDA graphs in any case."""
    modifiers: ModifiersConfig = ModifiersConfig()
    """Changes of a share of the training text, such as {typos: 0.05, remove_end_punct: 0.2}."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    """The learning rate after warm-up. inverse_sqrt: falls with 1/sqrt(step), as in the paper; linear: falls in a
    straight line to 0 at max_steps; cosine: falls along half a cosine to 0 at max_steps; constant: stays at peak_lr."""
    peak_lr: float = Field(default=7e-4, gt=0.0, le=100.0)
    """The highest learning rate, reached at the end of warm-up. The paper's is (d_model * warmup_steps) ** -0.5."""
    warmup_steps: PositiveCount = 4000
    """The number of updates over which the learning rate rises to peak_lr. 1: no warm-up."""
    optimizer: Optimizer = "adam"
    """How gradients change the weights. adam: as in the paper; muon: Muon (Jordan et al. 2024) for the matrices inside
    the layers, and Adam for everything else. Muon takes more time for an update, but needs fewer of them."""
    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """The decay rate of Adam's moving average of gradients (Kingma and Ba 2015)."""
    adam_beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    """The decay rate of Adam's moving average of squared gradients."""
    adam_epsilon: float = Field(default=1e-9, ge=1e-30, le=1.0)
    """A small number that Adam adds to the denominator of each update, so that it never divides by 0."""
    weight_decay: float = Field(default=0.0, ge=0.0, le=1.0)
    """Each update also multiplies weights by 1 - learning rate * weight_decay (Loshchilov and Hutter 2019, AdamW).
    adam: all weights; muon: only the matrices inside the layers. With Muon, 0.1 is usual where there are many updates
    (Liu et al. 2025), and up to 1.0 was better where there are few (docs/recipes.md). 0: off, as in the paper."""
    clip_norm: float = Field(default=0.0, ge=0.0, le=1e9)
    """The largest norm of the gradient of all parameters; a larger one is scaled down to it. 0: off, as in the
    paper."""
    average_decay: float = Field(default=0.0, ge=0.0, lt=1.0)
    """The decay rate of an exponential moving average of the weights, for example 0.999. Validation then uses the
    average instead of the weights. 0: off."""
    initialise_from: Text | None = None
    """For fine-tuning: a model directory or a checkpoint; training starts from its weights. It must have the same
    tokenizer (see tokenizer.from), or the one that tokenizer.extend_from has extended, and the same settings of model,
    except dropout, attention_dropout and max_positions. null: start from random weights."""
    log_every: PositiveCount = 50
    """The number of updates between two lines in log.jsonl."""
    validate_every: PositiveCount = 1000
    """The number of updates between two validations."""
    save_every: PositiveCount = 1000
    """The number of updates between two checkpoints."""
    keep_last: PositiveCount = 5
    """How many of the newest checkpoints training keeps."""
    keep_best: PositiveCount = 1
    """How many of the best checkpoints, by training.metric, training keeps in addition to the newest."""
    metric: ValidationMetric = "bleu"
    """The score on the validation set that decides which checkpoints are best. nll: the negative log-likelihood."""
    patience: Count = 0
    """Training stops early after this many validations in a row without a new best metric. 0: never."""
    valid_sentences: Count = 0
    """How many sentences of the validation set to translate, by greedy search, to compute BLEU and chrF. 0: all."""
    tensorboard: bool = False
    """Whether training also writes the numbers of log.jsonl for TensorBoard, to <run_dir>/tensorboard."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.optimizer == "muon" and self.sharding == "full":
            raise ValueError(
                "optimizer=muon needs complete matrices, but with sharding=full each device has only a part of them: "
                "set optimizer=adam or sharding=none"
            )
        return self

    def schedule_warning(self) -> str:
        """Return a warning if warm-up lasts until the end of training, which is rarely wanted; otherwise ''."""
        if self.warmup_steps == 1 or self.warmup_steps < self.max_steps:
            return ""
        reached = self.peak_lr * self.max_steps / self.warmup_steps
        return (
            f"training.warmup_steps={self.warmup_steps} is not less than training.max_steps={self.max_steps}: the "
            f"learning rate rises until the last update, where it is {reached:.2g} (training.peak_lr="
            f"{self.peak_lr:g}). A tenth of max_steps is a good first choice: training.warmup_steps="
            f"{max(1, self.max_steps // 10)}"
        )


class AveragingConfig(Section):
    """Which checkpoints become the model."""

    checkpoints: PositiveCount = 5
    """The most checkpoints to average. training.keep_last and training.keep_best limit how many there are."""
    choose: Literal["auto", "last", "best", "moving_average"] = "auto"
    """Which weights become the model. last: the mean of the last checkpoints; best: the mean of the best checkpoints;
    moving_average: the moving average of the weights in the newest checkpoint (needs training.average_decay). auto: the
    candidate with the best training.metric on the validation set. Candidates are the mean of the last checkpoints,
    means of fewer of them, the single best checkpoint, with training.average_decay a moving average, and with
    training.initialise_from means of the trained and the initial weights."""
