"""Processes that share one work, some of which are killed or stopped at random moments, and started again."""

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from helpers.processes import PATIENCE


class Crowd:
    """`number` processes, forks of this one, each of which does `work` and ends with its exit status."""

    def __init__(self, work: Callable[[], int], number: int, said: Path) -> None:
        self.work, self.number, self.said = work, number, said
        self._waking: dict[int, float] = {}  # when each process goes on; 0 if it runs

    def __enter__(self) -> "Crowd":
        self.fill()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._waking:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)

    def fill(self) -> None:
        """Start processes in place of those that have ended."""
        while len(self._waking) < self.number:
            process = os.fork()
            if not process:
                status = 3
                try:
                    descriptor = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                    os.dup2(descriptor, 1)
                    os.dup2(descriptor, 2)
                    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
                    status = self.work()
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(status)
            self._waking[process] = 0.0

    def disturb(self, dice: random.Random, within: float, pause: float) -> None:
        """Kill one of them after a random time, or stop it for longer than `pause`; and start those that are missing.

        All times are in seconds.
        """
        until = time.monotonic() + dice.uniform(0.0, within)
        while time.monotonic() < until:
            self._look()
            time.sleep(0.002)
        self.fill()
        victim = dice.choice(sorted(self._waking))
        if dice.random() < 0.3:
            os.kill(victim, signal.SIGSTOP)
            self._waking[victim] = time.monotonic() + pause * dice.uniform(1.0, 1.5)
        else:
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            del self._waking[victim]

    def end(self) -> None:
        """Wait until all have ended."""
        until = time.monotonic() + PATIENCE
        while self._waking:
            assert time.monotonic() < until, f"{len(self._waking)} hang, having said: {self.said.read_text()}"
            self._look()
            time.sleep(0.01)

    def _look(self) -> None:
        """Let those go on whose time has come, and forget those that have ended; none fails."""
        for process, waking in list(self._waking.items()):
            if waking and time.monotonic() >= waking:
                os.kill(process, signal.SIGCONT)
                self._waking[process] = 0.0
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del self._waking[process]
                assert status == 0, f"status {os.waitstatus_to_exitcode(status)}: {self.said.read_text()}"
