"""Counts skipped updates and split micro-batches."""

from collections.abc import Callable
from dataclasses import replace

from transformer_mt.data.batching import Pairs
from transformer_mt.data.encoded import Place, described
from transformer_mt.errors import TrainingError
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.progress import Progress
from transformer_mt.training.update import Update
from transformer_mt.wording import counted

MOST_IN_A_ROW = 10  # then training stops


class SkippedUpdates:
    """Counts skipped updates and split micro-batches; stops training after `limit` skipped updates in a row.

    An update is skipped if its loss or gradient is not finite: no weight moves.
    """

    def __init__(self, limit: int, places_of: Callable[[Pairs], list[Place]], ranks: Ranks) -> None:
        self.limit, self.places_of, self.ranks = limit, places_of, ranks

    def count(self, progress: Progress, update: Update) -> Progress:
        """Progress with the counts of this update, whose numbers are on the host.

        Raises TrainingError after `limit` skipped updates in a row, with the last one's step and lines.
        """
        progress = replace(progress, split=progress.split + int(update.splits))
        if update.is_finite:
            return replace(progress, skipped_in_a_row=0)
        in_a_row = progress.skipped_in_a_row + 1
        if in_a_row >= self.limit:
            raise TrainingError(self._too_many(update))
        return replace(progress, skipped=progress.skipped + 1, skipped_in_a_row=in_a_row)

    def _too_many(self, update: Update) -> str:
        places = [place for of_rank in self.ranks.gather(self.places_of(update.pairs.numpy())) for place in of_rank]
        return (
            f"loss or gradient of {counted(self.limit, 'update')} in a row was not finite. The last one, update "
            f"{update.step}, was on {described(places)}. None of them changed the weights. Look at "
            "these lines; lower training.peak_lr, raise training.warmup_steps, set training.clip_norm=1, or take "
            "training.precision=fp32"
        )
