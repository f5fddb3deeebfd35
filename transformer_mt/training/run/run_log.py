"""Writes log.jsonl and shows the progress of a run; records its starts in run.json, and checks that its data stay."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from transformer_mt.base.cores import OtherPrograms, num_cores, own_cores
from transformer_mt.base.errors import CheckpointError, TrainingError, UserError
from transformer_mt.base.system import command_line, peak_memory
from transformer_mt.base.wording import counted, duration, two_decimals
from transformer_mt.kernels.device import Device
from transformer_mt.storage.checksums import COPIED_FROM_DATA, write_sums
from transformer_mt.storage.files import cure, parse_json, read_json, write_json, write_whole
from transformer_mt.storage.records import processor, versions
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.training_lines import TrainingLines
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import Learner
from transformer_mt.training.progress import Progress, expected_end, is_due, is_trained
from transformer_mt.training.run.validation import ValidationScores, diverges, perplexity
from transformer_mt.training.update import Update

_LONGEST_SILENCE = 60.0  # seconds of training without a line in a log
_LEAST_UPDATES, _LEAST_SECONDS = 20, 10.0  # then training tells of other programs
_SOME = 0.1  # of the cores that training uses: less is nothing to tell
CALMER = "lower training.peak_lr, raise training.warmup_steps, set training.clip_norm=1, or set training.precision=fp32"


class RunLog(AbstractContextManager["RunLog"]):
    """Logs on the first rank what happens after `progress`. Deletes later records, which are from before a crash.

    Raises TrainingError if TensorBoard is requested but not installed, or if a file cannot be written.
    """

    def __init__(self, run_dir: Path, learner: Learner, progress: Progress, num_pieces: int) -> None:
        settings, ranks, device = learner.settings, learner.ranks, learner.device.torch_device
        self._path = run_dir / "log.jsonl"
        self._settings, self._is_first, self._device = settings, ranks.is_first, device
        if self._is_first:
            _drop_later_records(self._path, progress)
        self._board = _tensorboard(run_dir, progress.step) if settings.tensorboard and self._is_first else None
        self._bar = tqdm(
            total=settings.max_steps,
            initial=progress.step,
            unit=" updates",
            disable=None if self._is_first else True,  # None: off if standard error is not a terminal
            dynamic_ncols=True,
        )
        self._updates: list[Update] = []
        self._begun = self._logged = self._printed = progress
        self._validated = 0.0  # seconds of all validations
        self._num_pieces, self._diverged = num_pieces, False
        # Other ranks on this machine would seem to be other programs.
        self._others = OtherPrograms() if ranks.size == 1 and device.type == "cpu" else None

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        if self._board is not None:
            self._board.close()

    def update(self, progress: Progress, update: Update) -> None:
        """Add one update, whose numbers are on the host. After `log_every` updates, and the last, write their means."""
        self._bar.update()
        self._updates.append(update)
        made, seconds = progress.step - self._begun.step, progress.seconds - self._begun.seconds
        if self._others is not None and (made >= _LEAST_UPDATES or seconds >= _LEAST_SECONDS):
            if told := beside_others(self._others.cores()):
                self._say(f"warning: {told}")
            self._others = None
        if is_due(self._settings.log_every, progress, self._settings):
            self._write_means(progress)
        elif progress.seconds - self._printed.seconds >= _LONGEST_SILENCE:
            self._print_progress(progress, "")

    def end(self, progress: Progress) -> None:
        """Write the means that are left, if training is over; a resumed run writes its own. Warn in any case."""
        if self._updates and is_trained(progress, self._settings):
            self._write_means(progress)
        else:
            self._warn(progress)

    def _write_means(self, progress: Progress) -> None:
        self._warn(progress)
        updates, before = [update for update in self._updates if update.numbers.is_finite], self._logged
        self._updates, self._logged = [], progress
        if not updates or not self._is_first:
            return
        tokens = sum(update.num_labels for update in updates)
        nll = sum(update.numbers.nll.item() for update in updates) / tokens
        record = {
            "step": progress.step,
            "epoch": progress.position.epoch,
            "stage": progress.position.stage + 1,
            "loss": sum(update.numbers.smoothed.item() for update in updates) / tokens,
            "nll": nll,
            "perplexity": perplexity(nll),
            "learning_rate": updates[-1].learning_rate,
            "gradient_norm": updates[-1].numbers.gradient_norm.item(),
            "tokens_per_second": (progress.tokens - before.tokens) / (progress.seconds - before.seconds),
            "padding": 1 - tokens / sum(update.num_positions for update in updates),
            "memory_megabytes": peak_memory_on(self._device) / 1e6,
            "skipped": progress.skipped,
            "split": progress.split,
            "tokens": progress.tokens,
            "seconds": progress.seconds,
        }
        self._write(record)
        self._diverges(progress, nll)
        self._bar.set_postfix_str(f"loss {record['loss']:.3f}, {record['tokens_per_second']:,.0f} tokens/s")
        self._print_progress(
            progress,
            f"  loss {record['loss']:.3f}  perplexity {two_decimals(record['perplexity'])}  "
            f"{record['tokens_per_second']:,.0f} tokens/s",
        )

    def _print_progress(self, progress: Progress, numbers: str) -> None:
        """If no bar shows it, print how many updates are done, and how long the rest takes at the speed so far."""
        end = self._bar.total = expected_end(progress, self._settings)
        if not self._is_first or not self._bar.disable:
            return
        self._printed = progress
        made, left = progress.step - self._begun.step, end - progress.step
        seconds = progress.seconds - self._begun.seconds + self._validated
        time_left = f"  {duration(left * seconds / made)} left" if left > 0 else ""
        self._say(f"update {progress.step}/{end}{numbers}{time_left}")

    def _warn(self, progress: Progress) -> None:
        if skipped := progress.skipped - self._logged.skipped:
            self._say(f"warning: {counted(skipped, 'update')} skipped, because loss or gradient was not finite")
        if split := progress.split - self._logged.split:
            self._say(
                f"warning: {counted(split, 'micro-batch', 'micro-batches')} did not fit into memory and were split in "
                "two: this is slower, but the updates are the same. Set a lower training.tokens_per_batch in a new "
                "run"
            )

    def validation(self, progress: Progress, scores: ValidationScores) -> None:
        """Write and print the scores of a validation."""
        self._validated += scores.seconds
        if not self._is_first:
            return
        best = progress.best_steps[:1] == [progress.step]
        self._write({"step": progress.step} | scores.record() | {"best": best})
        but = ", but training diverges" if self._diverges(progress, scores["nll"]) else ""
        self._say(
            f"update {progress.step}: validation {scores.said(self._settings.metric)}"
            f"{', the best so far' if best else ''}{but} ({scores.seconds:.0f} s)\n  {scores.example}"
        )

    def _diverges(self, progress: Progress, nll: float) -> bool:
        """Whether a loss says that training diverges. The first time, a warning says what to change."""
        found = diverges(nll, self._num_pieces)
        if found and not self._diverged:
            self._diverged = True
            self._say(
                f"warning: training diverges: at update {progress.step}, the loss is {nll:.1f} nats per token, more "
                f"than twice that of a uniform guess among the {self._num_pieces:,} target pieces, "
                f"{math.log(self._num_pieces):.1f}. Train again in another run_dir: {CALMER}"
            )
        return found

    def _write(self, record: dict[str, float | int | bool]) -> None:
        finite = {key: number if math.isfinite(number) else None for key, number in record.items()}  # JSON has no NaN
        size = self._path.stat().st_size if self._path.exists() else 0
        try:
            with self._path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(finite) + "\n")
        except OSError as error:
            if self._path.exists():
                os.truncate(self._path, size)  # a part of the line may have been written
            advice = f"{cure(error)} and run the same command again"
            raise TrainingError(f"{self._path}: cannot be written ({error.strerror}): {advice}") from None
        if self._board is not None:
            for name, number in record.items():
                if name != "step":
                    self._board.add_scalar(name, number, record["step"])
            self._board.flush()  # so that both have the same records after a kill

    def _say(self, text: str) -> None:
        if self._is_first:
            tqdm.write(text, file=sys.stderr)


def beside_others(cores: float | None) -> str:
    """Say that other programs use so many cores, and what it costs; '' if they use next to none, or it is unknown."""
    num_threads, most = torch.get_num_threads(), len(own_cores())  # also those that we leave to others
    left = 1.0 if cores is None else (most - cores) / num_threads
    if left > 1 - _SOME:
        return ""
    return (
        f"other programs use {cores:.1f} of {counted(most, 'core')}: while they run, training has about "
        f"{100 * max(0.1, left):.0f} % of the speed that it has alone, or less"
    )


def _tensorboard(run_dir: Path, step: int) -> Any:
    """A writer of the same numbers for TensorBoard. It drops those of later steps, which are from before a crash."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrainingError(
            "training.tensorboard=true needs the package tensorboard: pip install tensorboard, or set it to false"
        ) from None
    return SummaryWriter(str(run_dir / "tensorboard"), purge_step=step + 1)


def _drop_later_records(path: Path, progress: Progress) -> None:
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError):  # half a line, cut off by a crash
            record = parse_json(line)
            comes_again = record["step"] == progress.step and progress.validation_due and "valid_nll" in record
            if record["step"] <= progress.step and not comes_again:
                kept.append(line + "\n")  # a crash may have cut off the line's end
    write_whole(path, "".join(kept))


_NAMES = {"train": "training data", "valid": "validation data"}


def check_same_data(progress: Progress, data: Mapping[str, str], data_dir: str, advice: str) -> None:
    """Raises CheckpointError, with this advice, if a run had other data. `data` are digests of data_dir."""
    if changed := [_NAMES[name] for name, digest in data.items() if progress.data.get(name, digest) != digest]:
        raise CheckpointError(
            f"until update {progress.step}, this run had other {' and '.join(changed)} than {data_dir} holds now: the "
            f"text was changed, or prepared in another way. Restore the earlier data, {advice}"
        )


def copy_from_data(data_dir: Path, tokenizer: Tokenizer, run_dir: Path) -> None:
    """Copy into the run the files that `average` puts into a model besides its weights."""
    tokenizer.save(run_dir)
    TrainingLines.load(data_dir).save(run_dir)
    write_sums(run_dir, [name for name in COPIED_FROM_DATA if (run_dir / name).exists()])


PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic")
PACKAGE = Path(__file__).parents[2]


def record_start(run_dir: Path, progress: Progress, seed: int, device: Device, ranks: Ranks) -> None:
    """Append to run.json that training begins, or resumes from this progress, with its command, data and versions.

    Only the first rank does so. If the file cannot be read or written, a warning says so, and training continues.
    """
    if not ranks.is_first:
        return
    path = run_dir / "run.json"
    try:
        starts = read_json(path) if path.exists() else []
        if not isinstance(starts, list):
            raise ValueError("it is not a list")
        starts.append(_start(progress, seed, device, ranks))
        write_json(path, starts)
    except (OSError, ValueError) as error:
        reason = str(error) if isinstance(error, UserError) else f"{path}: cannot be read ({error})"
        tqdm.write(f"warning: {reason}. It will not record this start; training continues", file=sys.stderr)


def _start(progress: Progress, seed: int, device: Device, ranks: Ranks) -> dict[str, Any]:
    on_gpu = device.torch_device.type == "cuda"
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(sys.orig_argv),
        "from_update": progress.step,
        "data": dict(progress.data),
        "seed": seed,
        "precision": {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[device.dtype],
        "num_ranks": ranks.size,
        "num_threads": torch.get_num_threads(),
        "processor": processor(),
        "num_cores": num_cores(),
        "gpu": torch.cuda.get_device_name(device.torch_device) if on_gpu else None,
        "num_gpus": ranks.size if on_gpu else 0,
        "versions": versions(PACKAGES) | ({"cuda": torch.version.cuda} if torch.version.cuda else {}),
        "git": _git(PACKAGE.parent),
    }


def _git(checkout: Path) -> dict[str, Any] | None:
    """The commit of the package's checkout, and whether its files were changed since; None if git has none."""
    if not (checkout / ".git").exists():
        return None
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}  # of another checkout
    command = ["git", "--no-optional-locks", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(
            [*command, "--exclude=*"], env=environment, capture_output=True, encoding="utf-8", timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    commit = done.stdout.strip()
    return {"commit": commit.removesuffix("-dirty"), "changed": commit.endswith("-dirty")}


def peak_memory_on(device: torch.device) -> int:
    """The most bytes that this process has held at once: on that GPU, or for a CPU in the host's memory."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_memory()
