"""The configuration of an experiment: each setting with its default, its meaning and its unit, and their checks."""

from typing import Literal, Self

from pydantic import Field, model_validator

from transformer_mt.settings.bounds import (
    Count,
    PositiveCount,
    Seed,
    Symbol,
    Text,
    Tokens,
)
from transformer_mt.settings.corpus import CorpusConfig
from transformer_mt.settings.decoding import DecodingConfig, check_for_model
from transformer_mt.settings.filters import FiltersConfig
from transformer_mt.settings.model import Kernels, ModelConfig, Section, TransformerConfig


class TokenizerConfig(Section):
    """How text is cut into subword pieces. sentencepiece learns them from the training text. A character that is not a
    piece is spelled in bytes, so no character is unknown."""

    from_: Text | None = Field(default=None, alias="from")
    """An existing tokenizer to use instead of training one: a model directory, a run, a prepared data_dir, or a .model
    file of sentencepiece, which then serves both languages. vocab_size, algorithm, character_coverage, sample_sentences
    and sample_bytes then have no effect. It must have user_symbols and the tags of the corpora among its pieces."""
    algorithm: Literal["bpe", "unigram", "character"] = "bpe"
    """bpe: byte-pair encoding (Sennrich et al. 2016); unigram: a unigram language model of pieces (Kudo 2018);
    character: each character is a piece."""
    vocab_size: int = Field(default=32000, gt=260, le=1_000_000)
    """The number of pieces in a vocabulary, including the 4 special pieces, the 256 bytes, user_symbols and tags. With
    algorithm=character it is the most pieces: the rarest characters beyond it are spelled in bytes."""
    user_symbols: tuple[Symbol, ...] = Field(default=(), max_length=10_000, strict=False)
    """Texts that are one piece wherever they stand, such as <name>, and that are translated as a whole. The tags of the
    corpora are such pieces without being named here."""
    joint: bool = True
    """true: both languages share one vocabulary; false: each language has its own."""
    character_coverage: float = Field(default=0.9999, gt=0.9, le=1.0)
    """The share of the text's characters that become pieces. The rarest characters are spelled in bytes instead."""
    sample_sentences: PositiveCount = 2_000_000
    """The most lines of each language from which the tokenizer is trained. They are spread evenly over a corpus. Of
    several corpora, large ones give equal numbers of lines, and small ones all that they have."""
    sample_bytes: PositiveCount | Literal["auto"] = "auto"
    """The most bytes, in UTF-8, of each language in these lines: it limits the memory that `prepare` needs.
    With bpe that is 5 times, and with unigram 21 times the bytes of both languages. auto: 100 MB, and 30 MB with
    unigram, for which 1.3 GB of memory are enough."""

    @property
    def most_sample_bytes(self) -> int:
        """The most bytes of each language; see sample_bytes."""
        if self.sample_bytes != "auto":
            return self.sample_bytes
        return 30_000_000 if self.algorithm == "unigram" else 100_000_000


class TrainingConfig(Section):
    """How the model is trained: batches, learning rate, regularisation, checkpoints and validation."""

    seed: Seed = 1
    """The seed of everything random: initial weights, order of the pairs, dropout, subword sampling."""
    device: Text = "auto"
    """Where training runs: cpu, cuda or cuda:N. auto: CUDA if there is a GPU, otherwise the CPU."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """The number format of matrix multiplications. Weights and optimizer state are always fp32. auto: bf16 if the
    hardware multiplies it directly, as recent GPUs and server CPUs do, otherwise fp32."""
    sharding: Literal["none", "full"] = "none"
    """What each of several devices holds. none: all parameters, gradients and optimizer states; full: a part of each
    of them (FSDP), for a model that does not fit on one device."""
    num_threads: int = Field(default=0, ge=0, le=1024)
    """The number of CPU threads. 0: one per core."""
    max_steps: PositiveCount = 100_000
    """The number of updates after which training ends."""
    tokens_per_batch: Tokens | Literal["auto"] = 25_000
    """The most token positions in a micro-batch, padding and ends of sentences included, on its source or its target
    side, whichever has more. Larger micro-batches need more memory. auto: as many as fit into memory, up to
    tokens_per_update."""
    tokens_per_update: Count = 0
    """The most target tokens in an update, ends of sentences included but not padding, on all devices together. The
    gradients of as many micro-batches as fit into that number are summed before the weights change. 0: one micro-batch
    per update, shared among the devices."""
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    """The share of each label's probability that is spread evenly over the vocabulary (Szegedy et al. 2016). 0: off."""
    kernels: Kernels = "fast"
    """Which code computes. plain: the short code of `models/` and `training/loss.py`, which is made to be read, with
    padded sentences; fast: the same, with its slow parts exchanged. Both give the same numbers, to rounding, except for
    the random numbers of dropout."""
    layout: Literal["auto", "padded", "packed"] = "auto"
    """How the sentences of a micro-batch lie in memory. padded: each in a row of its own, filled up with padding;
    packed: end to end, without padding. auto: packed on a GPU that supports it with bf16, if
    model.attention_score=scaled_dot and model.attention_dropout=0; otherwise padded. Only
    model.kind=transformer can be packed."""
    compile: bool | Literal["auto"] = "auto"
    """Whether torch.compile compiles the model. auto: on CUDA with packed sentences, because their shapes stay the
    same."""
    subword_sampling: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Cut the training text into different pieces each time it is read. bpe: the probability of leaving out a merge,
    for example 0.1 (Provilkov et al. 2020); unigram: the exponent of a segmentation's probability, for example 0.2,
    where lower values vary the pieces more (Kudo 2018). 0: off."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant", "cooldown"] = "inverse_sqrt"
    """The learning rate after warm-up. inverse_sqrt: falls with 1/sqrt(step), as in the paper; linear: falls in a
    straight line to 0 at max_steps; cosine: falls along half a cosine to 0 at max_steps; constant: stays at peak_lr;
    cooldown: stays at peak_lr, then falls in a straight line to 0 over the last cooldown_steps."""
    peak_lr: float = Field(default=7e-4, gt=0.0, le=100.0)
    """The highest learning rate, reached at the end of warm-up. The paper's is (d_model * warmup_steps) ** -0.5."""
    warmup_steps: PositiveCount = 4000
    """The number of updates over which the learning rate rises to peak_lr. 1: no warm-up."""
    cooldown_steps: Count = 0
    """The number of updates at the end over which the learning rate falls to 0. It is only for schedule=cooldown, and
    0 with the others."""
    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """The decay rate of Adam's moving average of gradients (Kingma and Ba 2015)."""
    adam_beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    """The decay rate of Adam's moving average of squared gradients."""
    adam_epsilon: float = Field(default=1e-9, ge=1e-30, le=1.0)
    """A small number that Adam adds to the denominator of each update, so that it never divides by 0."""
    clip_norm: float = Field(default=0.0, ge=0.0, le=1e9)
    """The largest norm of the whole gradient; a longer one is scaled down to it. 0: off, as in the paper."""
    max_bad_updates: PositiveCount = 10
    """Training stops after this many updates in a row whose loss or gradient is infinite or not a number. Such an
    update changes no weight."""
    average_decay: float = Field(default=0.0, ge=0.0, lt=1.0)
    """The decay rate of an exponential moving average of the weights, for example 0.999. Validation then uses the
    average instead of the weights. 0: off."""
    r_drop: float = Field(default=0.0, ge=0.0, le=1e6)
    """alpha of R-Drop (Liang et al. 2021; 5 there for translation): each sentence passes the model twice with different
    dropout, and the divergence between the two outputs is added to the loss with this weight. 0: off."""
    initialise_from: Text | None = None
    """A model directory or a checkpoint whose weights training starts from, for fine-tuning. It must have the same
    tokenizer (see tokenizer.from), and the same settings of model except dropout, attention_dropout and max_positions.
    null: start from random weights."""
    log_every: PositiveCount = 50
    """The number of updates between two lines of log.jsonl."""
    validate_every: PositiveCount = 1000
    """The number of updates between two validations."""
    save_every: PositiveCount = 1000
    """The number of updates between two checkpoints."""
    keep_last: PositiveCount = 5
    """How many of the newest checkpoints are kept."""
    keep_best: PositiveCount = 1
    """How many of the best checkpoints, by training.metric, are kept besides the newest ones."""
    accept_changed_data: bool = False
    """Whether a run may go on although the data in data_dir have changed since it was trained on them."""
    on_failed_save: Literal["stop", "go_on"] = "stop"
    """What happens when a checkpoint cannot be written, for example because the disk is full. stop: training stops;
    go_on: training goes on with a warning. Older checkpoints are kept."""
    metric: Literal["bleu", "chrf", "nll"] = "bleu"
    """The score on the validation set that decides which checkpoints are best. nll: the negative log-likelihood."""
    patience: Count = 0
    """Training stops early after this many validations in a row without a better metric. 0: never."""
    valid_sentences: Count = 0
    """How many sentences of the validation set are translated, by greedy search, to compute BLEU and chrF. 0: all."""
    tensorboard: bool = False
    """Whether the numbers of log.jsonl are also written for TensorBoard, to <run_dir>/tensorboard."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.schedule == "cooldown" and not self.cooldown_steps:
            raise ValueError("schedule=cooldown needs cooldown_steps; a fifth of max_steps is a good first choice")
        if self.schedule != "cooldown" and self.cooldown_steps:
            raise ValueError(
                f"cooldown_steps={self.cooldown_steps} has no effect with schedule={self.schedule}: "
                "set schedule=cooldown, or leave it out"
            )
        if self.cooldown_steps and self.warmup_steps + self.cooldown_steps > self.max_steps:
            raise ValueError(
                f"warmup_steps={self.warmup_steps} and cooldown_steps={self.cooldown_steps} are together more than "
                f"max_steps={self.max_steps}: lower one of them, or raise max_steps"
            )
        return self

    def schedule_warning(self) -> str:
        """Return a warning if warm-up lasts until the end of training, which is rarely intended; else an empty text."""
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
    """The most checkpoints that are averaged. training.keep_last and training.keep_best limit how many there are."""
    choose: Literal["auto", "last", "best", "moving_average"] = "auto"
    """Which weights become the model. last: the mean of the last checkpoints; best: the mean of the best checkpoints;
    moving_average: the moving average of the weights in the newest checkpoint (needs training.average_decay). auto:
    whichever has the best training.metric on the validation set, among the mean of the last checkpoints, means of fewer
    of them, the single best checkpoint and, with training.average_decay, a moving average."""


class Config(Section):
    """The configuration of one experiment."""

    data_dir: Text
    """The directory that `prepare` writes and `train` reads."""
    run_dir: Text
    """The directory that `train` writes, and that the later stages read and write."""
    corpus: CorpusConfig
    filters: FiltersConfig = FiltersConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()
    averaging: AveragingConfig = AveragingConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model.tied_embeddings == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.tied_embeddings=all needs one vocabulary for both languages: "
                "set tokenizer.joint=true, or model.tied_embeddings=target"
            )
        if self.corpus.max_length > self.model.max_positions:
            raise ValueError(
                f"corpus.max_length={self.corpus.max_length} is more than "
                f"model.max_positions={self.model.max_positions}: lower the first, or raise the second"
            )
        if self.training.layout == "packed" and (reason := self.model.why_not_packed()):
            raise ValueError(f"training.layout=packed {reason}; set training.layout=padded, or change the model")
        return self

    @model_validator(mode="after")
    def _check_sampling(self) -> Self:
        if self.training.subword_sampling and self.tokenizer.algorithm == "character":
            raise ValueError(
                f"training.subword_sampling={self.training.subword_sampling} has no effect with "
                "tokenizer.algorithm=character, because text can be cut into characters in one way only: set "
                "training.subword_sampling=0, or tokenizer.algorithm=bpe or unigram"
            )
        return self

    @model_validator(mode="after")
    def _check_batches(self) -> Self:
        of_batch, of_update = self.training.tokens_per_batch, self.training.tokens_per_update
        if of_batch == "auto" and not of_update:
            raise ValueError(
                "training.tokens_per_batch=auto depends on the memory of the machine, but the size of an update should "
                "not: set training.tokens_per_update, for example to 25000"
            )
        if of_batch != "auto" and of_batch < self.corpus.max_length:
            raise ValueError(
                f"training.tokens_per_batch={of_batch} has no room for a sentence of "
                f"corpus.max_length={self.corpus.max_length}: raise the first, or lower the second"
            )
        if of_batch != "auto" and 0 < of_update < of_batch:
            raise ValueError(
                f"training.tokens_per_update={of_update} is less than training.tokens_per_batch={of_batch}: an update "
                "has at least one micro-batch, so raise the first, or lower the second"
            )
        return self

    @model_validator(mode="after")
    def _check_averaging(self) -> Self:
        if self.averaging.choose in ("auto", "last") and self.averaging.checkpoints > self.training.keep_last:
            raise ValueError(
                f"averaging.checkpoints={self.averaging.checkpoints} is more than "
                f"training.keep_last={self.training.keep_last}, the number of checkpoints that are kept: lower the "
                "first, or raise the second"
            )
        if self.averaging.choose == "moving_average" and not self.training.average_decay:
            raise ValueError(
                "averaging.choose=moving_average needs training.average_decay, for example training.average_decay=0.999"
            )
        return self

    @model_validator(mode="after")
    def _check_decoding(self) -> Self:
        # An existing tokenizer, or the characters of the text, decide the size of the vocabulary themselves.
        is_known = not self.tokenizer.from_ and self.tokenizer.algorithm != "character"
        vocab_size = self.tokenizer.vocab_size if is_known else None
        check_for_model(self.decoding, self.model, vocab_size)
        return self
