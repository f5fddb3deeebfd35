"""What a user can mend: every error here ends a command with status 2, its message and no traceback."""


class UserError(ValueError):
    """The message says what is wrong, where, and what to do."""


class DirectoryError(UserError):
    """A directory that is somebody else's, or that another process writes."""


class ConfigError(UserError):
    """A key or a value of the configuration."""


class CorpusError(UserError):
    """Parallel text, or what `prepare` made of it."""


class TokenizerError(UserError):
    """A subword model that cannot be trained or read."""


class TrainingError(UserError):
    """A run that cannot go on."""


class RankError(TrainingError):
    """What one rank of a run has met with and the others have not, so that it has to say it itself."""


class CheckpointError(UserError):
    """A run, a checkpoint or a model directory."""


class TranslationError(UserError):
    """A line that cannot be translated."""


class CompilerFilesError(UserError):
    """A place for compiled code that is not ours alone, or cannot be written to."""


class NotFiniteError(TranslationError):
    """A line for which a model computes numbers that are not finite."""

    @classmethod
    def of_line(cls, line: int) -> "NotFiniteError":
        """Lines are numbered from 1."""
        return cls(
            f"line {line}: the model computes numbers that are not finite (infinity, not a number) for this line, so "
            "it has no translation and no score. Try fp32: leave --dtype and --quantize out. If the error stays, the "
            "model is broken: average other checkpoints. To go on without this line, make it blank in the input"
        )


class EvaluationError(UserError):
    """Hypotheses and references that cannot be scored."""


class ExportError(UserError):
    """A model that a format cannot hold, or a place where it cannot be written."""


class AttentionError(UserError):
    """Weights of attention that a model does not have."""


class PictureError(UserError):
    """A picture that cannot be drawn here."""


class TooLongError(UserError):
    """A sentence of more positions than a model has."""
