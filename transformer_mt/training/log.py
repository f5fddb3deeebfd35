"""The numbers of a run: a line of log.jsonl each, a progress bar on a terminal, plain lines elsewhere."""

import json
import math
import sys
from pathlib import Path
from typing import Self

from tqdm import tqdm

from transformer_mt.config import TrainingConfig
from transformer_mt.files import write_whole
from transformer_mt.training.checkpoint import Progress
from transformer_mt.training.update import Update
from transformer_mt.training.validation import ValidationScores


class RunLog:
    """Writes what happens after `progress`; records of later steps, from before a crash, are dropped."""

    def __init__(self, run_dir: Path, settings: TrainingConfig, progress: Progress) -> None:
        self._path = run_dir / "log.jsonl"
        self._every = settings.log_every
        _drop_later_records(self._path, progress.step)
        self._bar = tqdm(
            total=settings.max_steps,
            initial=progress.step,
            unit=" updates",
            disable=None,  # off where standard error is no terminal
            dynamic_ncols=True,
        )
        self._updates: list[Update] = []
        self._logged = progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, progress: Progress, update: Update) -> None:
        """Note one update; every so many, write their means."""
        self._bar.update()
        self._updates.append(update)
        if progress.step % self._every:
            return
        tokens = sum(each.num_labels for each in self._updates)
        nll = sum(each.nll.item() for each in self._updates) / tokens
        record = {
            "step": progress.step,
            "epoch": progress.position.epoch,
            "loss": sum(each.smoothed.item() for each in self._updates) / tokens,
            "nll": nll,
            "perplexity": math.exp(min(nll, 700.0)),
            "learning_rate": update.learning_rate,
            "gradient_norm": update.gradient_norm.item(),
            "tokens_per_second": tokens / (progress.seconds - self._logged.seconds),
            "padding": 1 - tokens / sum(each.num_positions for each in self._updates),
            "tokens": progress.tokens,
            "seconds": progress.seconds,
        }
        self._write(record)
        self._bar.set_postfix_str(f"loss {record['loss']:.3f}, {record['tokens_per_second']:,.0f} tokens/s")
        if self._bar.disable:
            self._say(
                f"update {progress.step}/{self._bar.total or '?'}  loss {record['loss']:.3f}  "
                f"perplexity {record['perplexity']:.2f}  {record['tokens_per_second']:,.0f} tokens/s"
            )
        self._updates, self._logged = [], progress

    def validation(self, progress: Progress, scores: ValidationScores) -> None:
        """Write and say how good the model is now."""
        best = progress.best_step == progress.step
        self._write(
            {
                "step": progress.step,
                "valid_nll": scores.nll,
                "valid_perplexity": scores.perplexity,
                "valid_bleu": scores.bleu,
                "valid_seconds": scores.seconds,
                "best": best,
            }
        )
        self._say(
            f"update {progress.step}: validation perplexity {scores.perplexity:.2f}, BLEU {scores.bleu:.2f}"
            f"{', the best so far' if best else ''} ({scores.seconds:.0f} s)"
        )

    def _write(self, record: dict[str, float | int | bool]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def _say(self, text: str) -> None:
        tqdm.write(text, file=sys.stderr)


def _drop_later_records(path: Path, step: int) -> None:
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")  # which a crash may have cut off
        except (ValueError, KeyError, TypeError):
            continue  # half a line, cut off by a crash
    write_whole(path, "".join(kept))
