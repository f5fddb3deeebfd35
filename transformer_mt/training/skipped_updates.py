"""Updates that went wrong and did no harm."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from transformer_mt.errors import TrainingError
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.progress import Progress
from transformer_mt.training.update import Update
from transformer_mt.wording import counted


class SkippedUpdates:
    """Counts the updates that moved nothing and the micro-batches that were split; stops after too many of the first.

    Reading how an update went waits for a GPU to finish it; so several are read at once.
    """

    def __init__(self, limit: int, lines_of: Callable[[Tensor], list[int]], ranks: Ranks) -> None:
        self.limit, self.lines_of, self.ranks = limit, lines_of, ranks
        self.unread: list[Update] = []

    def counted(self, progress: Progress, update: Update, now: bool) -> Progress:
        """Progress that counts this update too, if it is read `now` or enough are waiting.

        Raises TrainingError with the last step and its lines.
        """
        self.unread.append(update)
        if not now and len(self.unread) < self.limit:
            return progress
        for each in self.unread:
            progress = replace(progress, split=progress.split + int(each.splits))
            if each.is_finite:
                progress = replace(progress, skipped_in_a_row=0)
                continue
            in_a_row = progress.skipped_in_a_row + 1
            progress = replace(progress, skipped=progress.skipped + 1, skipped_in_a_row=in_a_row)
            if in_a_row >= self.limit:
                raise TrainingError(self._advice(each))
        self.unread = []
        return progress

    def _advice(self, update: Update) -> str:
        lines = sorted(line for of_rank in self.ranks.gather(self.lines_of(update.pairs)) for line in of_rank)
        shown = ", ".join(map(str, lines[:20])) + (f" and {len(lines) - 20} more" if len(lines) > 20 else "")
        return (
            f"loss or gradient of {counted(self.limit, 'update')} in a row was not finite. The last one, update "
            f"{update.step}, was on lines {shown} of the training text. None of them changed the weights. Look at "
            "these lines; lower training.peak_lr, raise training.warmup_steps, set training.clip_norm=1, or take "
            "training.precision=fp32"
        )
