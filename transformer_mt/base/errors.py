"""Errors that a user can fix. Each ends a command with exit status 2 and its message, without a traceback."""


class UserError(ValueError):
    """A mistake that the user can fix. The message says what is wrong, where, and what to do."""


class DirectoryError(UserError):
    """A directory contains files of somebody else, or another process writes to it."""


class ConfigError(UserError):
    """A key or a value of the configuration is wrong."""


class CorpusError(UserError):
    """Parallel text, or the data that `prepare` made from it, cannot be used."""


class TokenizerError(UserError):
    """A tokenizer cannot be trained or read."""


class TrainingError(UserError):
    """A run cannot continue."""


class RankError(TrainingError):
    """An error of one rank of a run. Other ranks do not have it, so this rank has to report it."""


class CheckpointError(UserError):
    """A run, a checkpoint or a model directory cannot be used."""


class TranslationError(UserError):
    """A line cannot be translated."""


class NotFiniteError(TranslationError):
    """A model computes numbers for a line that are infinite or not a number."""

    @classmethod
    def of_line(cls, line: int) -> "NotFiniteError":
        return cls(
            f"line {line}: the model computes numbers that are not finite (infinity, not a number) for this line, so "
            "the line has no translation and no score. Try fp32: leave --dtype and --quantize out. If the error stays, "
            "the model is broken: average other checkpoints. To continue without this line, make it blank in the input"
        )


class EvaluationError(UserError):
    """Hypotheses and references cannot be scored."""
