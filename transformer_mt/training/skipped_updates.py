"""Counts skipped updates and split micro-batches."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from transformer_mt.data.batching import Pairs
from transformer_mt.errors import TrainingError
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import Update
from transformer_mt.training.progress import Progress
from transformer_mt.wording import counted

MOST_IN_A_ROW = 10  # then training stops


class SkippedUpdates:
    """Counts skipped updates and split micro-batches; stops training after `limit` skipped updates in a row.

    An update is skipped if its loss or gradient is not finite: no weight moves. `lines_of` says where pairs stand in
    the text.
    """

    def __init__(self, limit: int, lines_of: Callable[[Pairs], str], ranks: Ranks) -> None:
        self.limit, self.lines_of, self.ranks = limit, lines_of, ranks

    def count(self, progress: Progress, update: Update) -> Progress:
        """Progress with the counts of this update, whose numbers are on the host.

        Raises TrainingError after `limit` skipped updates in a row, with the last one's step and lines.
        """
        progress = replace(progress, split=progress.split + update.splits)
        if update.numbers.is_finite:
            return replace(progress, skipped_in_a_row=0)
        in_a_row = progress.skipped_in_a_row + 1
        if in_a_row >= self.limit:
            raise TrainingError(self._too_many(update))
        return replace(progress, skipped=progress.skipped + 1, skipped_in_a_row=in_a_row)

    def _too_many(self, update: Update) -> str:
        pairs = np.concatenate(self.ranks.gather(update.pairs.numpy()))
        return (
            f"loss or gradient of {counted(self.limit, 'update')} in a row was not finite. The last one, update "
            f"{update.step}, was on {self.lines_of(pairs)}. None of them changed the weights. Look at "
            "these lines; lower training.peak_lr, raise training.warmup_steps, set training.clip_norm=1, or take "
            "training.precision=fp32"
        )
