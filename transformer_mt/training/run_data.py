"""What a run keeps of its data, and whether it goes on with the data that it was trained on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.data.training_lines import TrainingLines
from transformer_mt.errors import CheckpointError
from transformer_mt.storage.checksums import sums_of, write_sums
from transformer_mt.storage.run_directory import COPIED_FROM_DATA
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.progress import Progress

_NAMES = {"train": "training data", "valid": "validation data"}


def on_data(
    progress: Progress, data: Mapping[str, str], data_dir: str, is_accepted: bool
) -> tuple[Progress, list[str]]:
    """The progress of a run that goes on with these data, and which of `train` and `valid` have changed.

    `data` are the digests of what lies in data_dir. Raises CheckpointError if they differ and that is not accepted.
    """
    changed = [name for name, digest in data.items() if progress.data.get(name, digest) != digest]
    if changed and not is_accepted:
        raise CheckpointError(
            f"until update {progress.step}, this run had other {_described(changed)} than {data_dir} holds now: the "
            "text was changed, or prepared in another way. Put the former data back, choose another run_dir, or go on "
            "with the new data: training.accept_changed_data=true"
        )
    return replace(progress, data=dict(data)), changed


def say_of_data(changed: list[str], ranks: Ranks) -> None:
    """Warn that a run goes on with other data."""
    if changed:
        ranks.say(
            f"the {_described(changed)} are other ones from now on, as training.accept_changed_data=true allows: what "
            "was measured before cannot be compared with what comes",
            warning=True,
        )


def copy_from_data(data_dir: Path, tokenizer: Tokenizer, run_dir: Path) -> None:
    """Copy into the run what `average` puts into a model besides its weights."""
    tokenizer.save(run_dir)
    TrainingLines.load(data_dir).save(run_dir)
    write_sums(run_dir, sums_of(run_dir, [name for name in COPIED_FROM_DATA if (run_dir / name).exists()]))


def _described(changed: list[str]) -> str:
    return " and ".join(_NAMES[name] for name in changed)
