"""Real agents of torchrun, each of them a machine as far as the others know: some are killed, and some join."""

import fcntl
import json
import os
import random
import signal
import subprocess
import time

import pytest
from helpers.messages import message
from helpers.processes import ended, kill, said, start, wait_until
from helpers.tiny import train_tiny
from safetensors.torch import load_file
from torch.distributed import TCPStore
from torch.testing import assert_close

from transformer_mt.base.errors import DirectoryError
from transformer_mt.storage import files
from transformer_mt.training.run.checkpoint import checkpoint_path, saved_steps

SAVE_EVERY = 5
RUN = [
    "model.dropout=0.0",
    "training.adam_epsilon=0.001",  # as in test_distributed.py
    f"training.save_every={SAVE_EVERY}",
    "training.keep_last=100000",
    "training.validate_every=100000",
]


def trained_by_recorded(experiment, run_dir, max_steps):
    settings = [*RUN, f"training.max_steps={max_steps}"]
    return ["-m", "helpers.recorded_training", experiment, f"run_dir={run_dir}", *settings]


class Machines:
    """The agents of one run, and what is seen of it."""

    def __init__(self, experiment, directory):
        self.run, self._directory = directory / "run", directory
        self._training = trained_by_recorded(experiment, self.run, 100_000)
        # The meeting point is none of the agents, so that each may be killed.
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.pairs = directory / "pairs.jsonl"
        self.agents = []

    def start(self, num_ranks):
        """A further agent with as many ranks."""
        launch = ["--nnodes=1:3", f"--nproc-per-node={num_ranks}", "--max-restarts=9", "--rdzv-backend=c10d"]
        launch += [f"--rdzv-endpoint=127.0.0.1:{self._store.port}", "--rdzv-conf=is_host=0,last_call_timeout=3"]
        environment = {"PAIRS": str(self.pairs), "PAUSE": "0.1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        agent = start(
            self._directory,
            f"agent{len(self.agents)}",
            *["-m", "torch.distributed.run", *launch, *self._training],
            environment=environment,
        )
        self.agents.append(agent)
        return agent

    def sizes(self):
        """The number of ranks of each start."""
        path = self.run / "run.json"
        return [each["num_ranks"] for each in json.loads(path.read_text())] if path.exists() else []

    def records(self):
        """The update and its pairs, of all starts, in the order in which they were made."""
        lines = self.pairs.read_text().splitlines(keepends=True) if self.pairs.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait_for(self, num_ranks, starts, *agents):
        """Until updates are made by as many ranks after so many starts, and a checkpoint is saved; then a bit more."""

        def trains():
            sizes = self.sizes()
            return len(sizes) > starts and sizes[-1] == num_ranks and len(self.records()) > made + SAVE_EVERY

        made = len(self.records())
        wait_until(trains, *agents)
        time.sleep(random.uniform(0.0, 1.0))


def workers(agent):
    """The processes of an agent's ranks."""
    found = subprocess.run(["pgrep", "-P", str(agent.process.pid)], capture_output=True, text=True, check=False)
    return [int(number) for number in found.stdout.split()]


@pytest.mark.slow
def test_ranks_and_machines_that_are_killed_or_join_leave_the_updates_as_they_are(experiment, tmp_path):
    machines = Machines(experiment, tmp_path)
    first = machines.start(1)
    try:
        second = machines.start(2)
        machines.wait_for(3, 0, first, second)

        os.kill(random.choice([*workers(first), *workers(second)]), signal.SIGKILL)
        machines.wait_for(3, 1, first, second)

        victim, other, num_left = random.choice([(first, second, 2), (second, first, 1)])
        victims = workers(victim)
        kill(victim)
        for worker in victims:
            os.kill(worker, signal.SIGKILL)
        machines.wait_for(num_left, 2, other)

        third = machines.start(1)
        machines.wait_for(num_left + 1, 3, other, third)
        for agent in (other, third):
            agent.process.terminate()
        ended(other, third)
        assert "\nTo resume: " in said(other, third)
    finally:
        for agent in machines.agents:
            if agent.process.poll() is None:
                for worker in workers(agent):
                    os.kill(worker, signal.SIGKILL)
            kill(agent)

    stopped = saved_steps(machines.run)[-1]
    assert machines.records()[-1][0] == stopped, "the signal saves what was made"
    assert_equals_unbroken(experiment, tmp_path / "unbroken", machines, stopped)


@pytest.mark.thorough
def test_a_restart_waits_for_a_rank_that_is_still_ending(experiment, tmp_path, monkeypatch):
    once = ["training.max_steps=1", "training.warmup_steps=1"]
    train_tiny(experiment, tmp_path, *once)
    held = [os.open(tmp_path / "lock", os.O_RDWR)]
    fcntl.flock(held[0], fcntl.LOCK_EX)
    monkeypatch.delenv("TORCHELASTIC_MAX_RESTARTS", raising=False)
    with pytest.raises(DirectoryError, match=message("directory-in-use", str(tmp_path))):
        train_tiny(experiment, tmp_path, *once)

    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")
    monkeypatch.setattr(files.time, "sleep", lambda _: held and os.close(held.pop()))
    train_tiny(experiment, tmp_path, *once)
    assert not held, "it has waited"


def assert_equals_unbroken(experiment, directory, machines, stopped):
    """Each update has the pairs of an unbroken run, and no start repeats more of them than lie between checkpoints."""
    alone = {"PAIRS": str(directory / "pairs.jsonl"), "PAUSE": "0"}
    process = start(directory, "run", *trained_by_recorded(experiment, directory / "run", stopped), environment=alone)
    assert ended(process) == [0], said(process)
    expected = dict(json.loads(line) for line in (directory / "pairs.jsonl").read_text().splitlines())
    before = 0
    for step, pairs in machines.records():
        assert before - SAVE_EVERY < step <= before + 1
        assert pairs == expected[step], step
        before = step
    assert len(expected) == stopped
    weights = load_file(checkpoint_path(machines.run, stopped) / "model.safetensors")
    unbroken = load_file(checkpoint_path(directory / "run", stopped) / "model.safetensors")
    # Other numbers of ranks add up in another order: 1e-5 after 128 updates. A single update moves weights by 1e-3.
    assert_close(weights, unbroken, rtol=1e-4, atol=1e-4)
