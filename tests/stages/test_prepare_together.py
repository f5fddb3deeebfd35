"""Several processes that prepare the same data: whoever dies or hangs, the files are those of one process."""

import os
import random
import re
import time
from pathlib import Path

import pytest
import yaml
from helpers.crowd import Crowd
from helpers.directories import tree
from helpers.tiny import demo_pairs

from transformer_mt import prepare
from transformer_mt.corpora import corpus as corpora
from transformer_mt.preparing import training_shards
from transformer_mt.preparing.shards import BlockEncoder
from transformer_mt.storage import claims
from transformer_mt.terminal import cli

LEASE = 1.0
LEFT = re.compile(r"train/\.(worker-\w+|end\.claim)\.transformer_mt-partial")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks and shards of a few pairs, and a short lease."""
    monkeypatch.setattr(corpora, "BLOCK", 20)
    monkeypatch.setattr(training_shards, "ITEMS", 100)
    for module in (claims, training_shards):
        monkeypatch.setattr(module, "POLL", 0.05)
    monkeypatch.setattr(claims, "LEASE", LEASE)


def write_config(directory, num_pairs):
    """Two corpora; in both, most pairs of the first are there again."""
    pairs = demo_pairs(num_pairs + 20)
    texts = {"one": pairs[:num_pairs], "two": pairs[: num_pairs // 3] + pairs[10:90], "valid": pairs[num_pairs:]}
    for name, found in texts.items():
        for side, language in enumerate(("en", "de")):
            (directory / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in found))
    content = {
        "data_dir": str(directory / "data"),
        "run_dir": str(directory / "run"),
        "filters": {"duplicates": True},
        "corpus": {
            "source_language": "en",
            "target_language": "de",
            "train": [{"name": name, "path": str(directory / name)} for name in ("one", "two")],
            "valid": str(directory / "valid"),
            "test": {"tiny": str(directory / "valid")},
        },
        "tokenizer": {"vocab_size": 400},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(content))
    return directory / "config.yaml"


def run(config, data, *overrides):
    return cli.run(prepare.main, [str(config), f"data_dir={data}", "--workers", "1", *overrides])


def slowly(monkeypatch, path, seconds=0.02):
    """Let each block take some time, and note which process encodes which."""
    encode = BlockEncoder.encode

    def noted(self, task):
        time.sleep(seconds)
        with path.open("a") as file:
            file.write(f"{os.getpid()} {Path(task.block.file).stem} {task.block.first}\n")
        return encode(self, task)

    monkeypatch.setattr(BlockEncoder, "encode", noted)


@pytest.mark.thorough
def test_each_shard_is_made_once(tmp_path, monkeypatch):
    config = write_config(tmp_path, 400)
    assert run(config, tmp_path / "alone") == 0
    slowly(monkeypatch, tmp_path / "noted")
    with Crowd(lambda: run(config, tmp_path / "data"), 2, tmp_path / "said") as crowd:
        crowd.end()
    assert tree(tmp_path / "data") == tree(tmp_path / "alone")
    made = [line.split() for line in (tmp_path / "noted").read_text().splitlines()]
    assert sorted((name, int(first)) for _, name, first in made) == [
        *(("one", first) for first in range(1, 401, 20)),
        *(("two", first) for first in range(1, 214, 20)),
    ]
    assert len({process for process, *_ in made}) == 2
    text = (tmp_path / "said").read_text()
    assert text.count("\nprepared: ") == 1 and text.count("already prepared: ") == 1


def disturbed(tmp_path, monkeypatch, number, disturbances):
    """All shards are there already, but of another tokenizer."""
    config = write_config(tmp_path, 1000)
    assert run(config, tmp_path / "alone") == 0
    assert run(config, tmp_path / "data", "tokenizer.vocab_size=380") == 0
    (tmp_path / "data" / "prepare.json").unlink()
    slowly(monkeypatch, tmp_path / "noted", 0.03 * number)  # so that they all take as long, however many they are
    seed = random.randrange(10**6)
    print("seed", seed)
    dice, until_done = random.Random(seed), 0
    with Crowd(lambda: run(config, tmp_path / "data"), number, tmp_path / "said") as crowd:
        for _ in range(disturbances):
            until_done += not (tmp_path / "data" / "prepare.json").exists()
            crowd.disturb(dice, within=0.4, pause=LEASE * 1.5)
        crowd.fill()
        crowd.end()
    assert until_done > 2
    # A process that is killed after the data are complete may leave its sign and its claim.
    found = {name: content for name, content in tree(tmp_path / "data").items() if not LEFT.fullmatch(name)}
    assert found == tree(tmp_path / "alone")
    assert "Traceback" not in (tmp_path / "said").read_text()


def test_corpora_that_are_not_wanted_any_more_make_room_at_the_start(tmp_path, monkeypatch):
    config, data = write_config(tmp_path, 60), tmp_path / "data"
    assert run(config, data) == 0
    (data / "prepare.json").unlink()
    (data / "train" / "old").mkdir()
    found, make = [], prepare.make_shards
    monkeypatch.setattr(prepare, "make_shards", lambda *of: found.append((data / "train/old").exists()) or make(*of))
    assert run(config, data) == 0
    assert found == [False]


@pytest.mark.thorough
def test_some_of_three_are_killed_or_stopped(tmp_path, monkeypatch):
    disturbed(tmp_path, monkeypatch, 3, 6)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 5, 9])
def test_killed_and_stopped_at_random_they_end_with_the_same_files(tmp_path, monkeypatch, number):
    disturbed(tmp_path, monkeypatch, number, 10 * number)
