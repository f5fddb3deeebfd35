"""The clock of a training loop in the training benchmark: it prints the speed of the updates."""

import time

import torch


class Pace:
    """Prints a line after the first update, after the warm-up and after the last one."""

    def __init__(self, warm_up: int, updates: int, device: torch.device) -> None:
        self.reported = {1, warm_up, warm_up + updates}
        self.on_gpu = device.type == "cuda"
        self.update, self.tokens, self.since = 0, 0, time.perf_counter()

    def updated(self, target_tokens: int) -> None:
        """Count one more update, of `target_tokens` real target tokens."""
        self.update += 1
        self.tokens += target_tokens
        if self.update not in self.reported:
            return
        if self.on_gpu:
            torch.cuda.synchronize()
        now = time.perf_counter()
        print(f"update {self.update}: {self.tokens / (now - self.since):.1f} target tokens/s", flush=True)
        self.tokens, self.since = 0, time.perf_counter()

    def finish(self, first_loss: float) -> None:
        """Print the first loss, and on a GPU the memory."""
        if self.on_gpu:
            print(f"GPU megabytes: {torch.cuda.max_memory_allocated() / 1e6:.0f}")
        print(f"first loss: {first_loss:.6f}", flush=True)
