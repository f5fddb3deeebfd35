"""Every setting: its default, meaning, unit and check."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from transformer_mt.settings.bounds import (
    Count,
    Positions,
    PositiveCount,
    Seed,
    Text,
    Tokens,
)
from transformer_mt.settings.decoding import DecodingConfig, check_for_model
from transformer_mt.settings.model import ModelConfig, Section, TransformerConfig


class FilePair(Section):
    """Two files of parallel text, aligned by line."""

    source: Text
    target: Text


def _form(split: Any) -> str:
    """Which of both a split is, by what stands there. No test set can have such a name."""
    return "(two files)" if isinstance(split, dict | FilePair) else "(text)"


Split = Annotated[Annotated[Text, Tag("(text)")] | Annotated[FilePair, Tag("(two files)")], Discriminator(_form)]


class CorpusConfig(Section):
    """Which sentence pairs there are, and which of them are left out of training."""

    source_language: Text
    """Language code: the suffix of the files, the column of a hub data set."""
    target_language: Text
    """Language code, as source_language is; it also chooses the tokenisation of BLEU."""
    dataset: Text | None = None
    """Hub data set, as in datasets.load_dataset; null for local files."""
    subset: Text | None = None
    """Configuration of the hub data set, where it has several."""
    revision: Text | None = None
    """Commit or tag of the hub data set; null takes the newest."""
    train: Split
    """A split of the hub data set; or, of local files, either the common prefix of
    PREFIX.<source_language> and PREFIX.<target_language> (with .gz if gzipped), or {source, target}."""
    valid: Split
    """The validation set, on which the model is scored during training; given as corpus.train is."""
    test: dict[Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")], Split]
    """The name of each test set, and its pairs, given as corpus.train is. The name becomes a file name: it may have
    letters, digits, '.', '_' and '-'."""
    max_length: Positions = 256
    """Subword pieces; a training pair with a longer side is left out and counted."""
    max_ratio: float = Field(default=4.0, gt=0.0, le=1e6)
    """Subword pieces of the longer side by those of the shorter; above, the pair is left out and counted."""


class TokenizerConfig(Section):
    """Subword pieces, trained by sentencepiece on the training text. Byte fallback: no character is unknown."""

    from_: Text | None = Field(default=None, alias="from")
    """An existing tokenizer, which is used as it is instead of training one: a model directory, a run, a prepared
    data_dir, or a .model file of sentencepiece, which then serves both languages. vocab_size, algorithm,
    character_coverage and sample_sentences have no effect then."""
    algorithm: Literal["bpe", "unigram"] = "bpe"
    """Byte-pair encoding (Sennrich et al. 2016), or a unigram language model of pieces (Kudo 2018)."""
    vocab_size: int = Field(default=32000, gt=260, le=1_000_000)
    """Pieces of a vocabulary, the 4 special ones and 256 bytes included."""
    joint: bool = True
    """One vocabulary for both languages, or one each."""
    character_coverage: float = Field(default=0.9999, gt=0.9, le=1.0)
    """Share of the text's characters that become pieces; the rest is spelled in bytes."""
    sample_sentences: PositiveCount = 2_000_000
    """The most lines of each side that are read to train it, evenly spaced over the corpus."""


class TrainingConfig(Section):
    """One run of updates."""

    seed: Seed = 1
    """Seed of all that is random: first weights, order of the pairs, dropout, subword sampling."""
    device: Text = "auto"
    """auto (CUDA if there is one, else CPU), cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of matrix products; weights and optimizer stay fp32. auto: bf16 where the device multiplies it in
    hardware, as GPUs and the newer server CPUs do."""
    sharding: Literal["none", "full"] = "none"
    """With several devices: whole parameters on each, or a part of every parameter, gradient and optimizer
    state (FSDP), for a model that does not fit on one."""
    num_threads: int = Field(default=0, ge=0, le=1024)
    """CPU threads; 0 takes one per core."""
    max_steps: PositiveCount = 100_000
    """Updates after which training ends."""
    tokens_per_batch: Tokens | Literal["auto"] = 25_000
    """Positions of a micro-batch on its longer side, padding included: memory grows with it. auto: as many as
    fit into memory, at most tokens_per_update."""
    tokens_per_update: Count = 0
    """Target tokens of an update, at most, on all devices together: gradients of as many micro-batches are
    summed before the weights move. 0 takes one micro-batch, of which each device does a part."""
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Share of each label's probability that is given to all words of the vocabulary alike (Szegedy et al. 2016)."""
    layout: Literal["auto", "padded", "packed"] = "auto"
    """A sentence a row, or sentences end to end without padding. auto: packed on a GPU that can do it, with bf16,
    model.attention_score=scaled_dot and without model.attention_dropout; else padded, as recurrent models always."""
    compile: bool | Literal["auto"] = "auto"
    """torch.compile of the model's pass. auto: on CUDA with packed sentences, whose shapes do not change."""
    subword_sampling: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Cut training text into other pieces each time; 0: off. bpe: the probability of leaving a merge out, as
    0.1. unigram: the power of a segmentation's probability, as 0.2; the lower, the more the pieces vary."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant", "cooldown"] = "inverse_sqrt"
    """After the warm-up: the paper's 1/sqrt(step); straight, or by half a cosine, down to 0 at max_steps; the
    peak to the end; or the peak, and straight down to 0 over the last cooldown_steps."""
    peak_lr: float = Field(default=7e-4, gt=0.0, le=100.0)
    """Reached at the last warm-up update; the paper's is (d_model * warmup_steps) ** -0.5."""
    warmup_steps: PositiveCount = 4000
    """Updates; 1 means no warm-up."""
    cooldown_steps: Count = 0
    """The last updates, over which the rate of schedule 'cooldown' falls; 0 with other schedules."""
    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay of Adam's moving average of gradients (Kingma and Ba 2015)."""
    adam_beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    """Decay of Adam's moving average of squared gradients."""
    adam_epsilon: float = Field(default=1e-9, ge=1e-30, le=1.0)
    """Added in Adam to the root of the mean squared gradient, by which an update is divided."""
    clip_norm: float = Field(default=0.0, ge=0.0, le=1e9)
    """Largest norm of the whole gradient; 0 clips nothing, as in the paper."""
    max_bad_updates: PositiveCount = 10
    """An update whose loss or gradient is not finite changes no weight; after this many in a row training stops."""
    average_decay: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Decay of an exponential moving average of the weights, which is validated in their place; 0: off."""
    r_drop: float = Field(default=0.0, ge=0.0, le=1e6)
    """Weight of the divergence between two passes with different dropout (R-Drop; Liang et al. 2021); 0: off."""
    initialise_from: Text | None = None
    """For fine-tuning: a model directory or a checkpoint, whose weights training begins with. It needs the same
    tokenizer (tokenizer.from) and the same shape."""
    log_every: PositiveCount = 50
    """Updates between lines of log.jsonl."""
    validate_every: PositiveCount = 1000
    """Updates between validations."""
    save_every: PositiveCount = 1000
    """Updates between checkpoints."""
    keep_last: PositiveCount = 5
    """Newest checkpoints that stay."""
    keep_best: PositiveCount = 1
    """Best checkpoints that stay besides."""
    accept_changed_data: bool = False
    """Let a run go on although the data in data_dir are not those that it was trained on so far."""
    on_failed_save: Literal["stop", "go_on"] = "stop"
    """What to do when a checkpoint cannot be written, as on a full disk: the older ones stay."""
    metric: Literal["bleu", "chrf", "nll"] = "bleu"
    """The score on the validation set that decides which checkpoints are the best."""
    patience: Count = 0
    """Stop after this many validations without a better metric; 0: never stop early."""
    valid_sentences: Count = 0
    """Sentences of the validation set that are decoded greedily for BLEU and chrF; 0 takes all."""
    tensorboard: bool = False
    """Write what log.jsonl holds for TensorBoard too, to <run_dir>/tensorboard."""

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
                f"max_steps={self.max_steps}"
            )
        return self

    def schedule_warning(self) -> str:
        """A warning about a warm-up that never ends, which is hardly meant; empty if there is nothing to warn of."""
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
    """The most checkpoints that are averaged: the last ones, or the best ones (training.keep_best)."""
    choose: Literal["auto", "last", "best", "moving_average"] = "auto"
    """auto takes what has the best training.metric on the validation set: the mean of the last checkpoints, a mean of
    fewer of them, the best checkpoint alone or, with training.average_decay, a moving average of the weights. last
    takes the mean of the last checkpoints, best the mean of the best ones, and moving_average the moving average of
    the newest checkpoint."""


class Config(Section):
    """One experiment."""

    data_dir: Text
    """Where `prepare` writes and `train` reads."""
    run_dir: Text
    """Where `train` writes, and all stages after it."""
    corpus: CorpusConfig
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
                f"model.max_positions={self.model.max_positions}"
            )
        budget, of_update = self.training.tokens_per_batch, self.training.tokens_per_update
        if budget == "auto" and not of_update:
            raise ValueError(
                "training.tokens_per_batch=auto depends on the machine, and an update should not: set "
                "training.tokens_per_update, as 25000"
            )
        if budget != "auto" and budget < self.corpus.max_length:
            raise ValueError(
                f"training.tokens_per_batch={budget} has no room for a sentence of "
                f"corpus.max_length={self.corpus.max_length}"
            )
        if budget != "auto" and 0 < of_update < budget:
            raise ValueError(f"training.tokens_per_update={of_update} is less than training.tokens_per_batch={budget}")
        if self.training.layout == "packed" and self.model.why_not_packed():
            raise ValueError(f"training.layout=packed {self.model.why_not_packed()}; set one of them otherwise")
        if self.averaging.choose in ("auto", "last") and self.averaging.checkpoints > self.training.keep_last:
            raise ValueError(
                f"averaging.checkpoints={self.averaging.checkpoints} is more than "
                f"training.keep_last={self.training.keep_last} keeps"
            )
        if self.averaging.choose == "moving_average" and not self.training.average_decay:
            raise ValueError("averaging.choose=moving_average needs training.average_decay, as 0.999")
        return self

    @model_validator(mode="after")
    def _check_decoding(self) -> Self:
        # An existing tokenizer has a size of its own.
        vocab_size = None if self.tokenizer.from_ else self.tokenizer.vocab_size
        check_for_model(self.decoding, self.model, vocab_size)
        return self
