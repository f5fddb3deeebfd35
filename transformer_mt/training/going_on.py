"""The settings that a run may change when it goes on."""

from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.optimization import depends_on_end

# These do not change what a run has done so far. Directories and tokenizers may have been moved: what counts of the
# data is in `corpus`, in the filters and in the tokenizer's digest.
FREE_TO_CHANGE = {
    "data_dir",
    "run_dir",
    "filters.on_bad_line",
    "tokenizer.from",
    "training.device",
    "training.num_threads",
    "training.sharding",
    "training.compile",
    "training.keep_best",
    "training.accept_changed_data",
    "training.tensorboard",
    "training.max_steps",
    "training.patience",
    "training.keep_last",
    "training.log_every",
    "training.save_every",
    "training.validate_every",
}
FREE_SECTIONS = ("decoding.", "averaging.")


def may_change(key: str, settings: TrainingConfig) -> bool:
    """Whether a run may go on with another value of this key, such as training.max_steps."""
    if key == "training.max_steps" and depends_on_end(settings):
        return False
    return key in FREE_TO_CHANGE or key.startswith(FREE_SECTIONS)
