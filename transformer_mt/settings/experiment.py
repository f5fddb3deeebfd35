"""The configuration of an experiment: its sections, and the checks that involve several of them."""

from typing import Self

from pydantic import model_validator

from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.model_settings import ModelConfig, TransformerConfig
from transformer_mt.settings.search_settings import DecodingConfig, check_for_model
from transformer_mt.settings.section import Section, Text
from transformer_mt.settings.text_settings import FiltersConfig, TokenizerConfig
from transformer_mt.settings.training_settings import AveragingConfig, TrainingConfig


class Config(Section):
    """The configuration of one experiment."""

    data_dir: Text
    """The directory that `prepare` writes and `train` reads."""
    run_dir: Text
    """The directory of the run: `train` writes it, and the later stages read it and add their results."""
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
    def _check_training_and_use(self) -> Self:
        of_batch, of_update = self.training.tokens_per_batch, self.training.tokens_per_update
        if of_batch < self.corpus.max_length:
            raise ValueError(
                f"training.tokens_per_batch={of_batch} is less than corpus.max_length={self.corpus.max_length}, so the "
                "longest sentences would not fit into a batch: raise the first, or lower the second"
            )
        if 0 < of_update < of_batch:
            raise ValueError(
                f"training.tokens_per_update={of_update} is less than training.tokens_per_batch={of_batch}, but an "
                "update has at least one micro-batch: raise the first, or lower the second"
            )
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
        # An existing tokenizer has its own vocabulary size, and with `character` the size depends on the text.
        is_known = not (self.tokenizer.from_ or self.tokenizer.extend_from) and self.tokenizer.algorithm != "character"
        check_for_model(self.decoding, self.model, self.tokenizer.vocab_size if is_known else None)
        return self
