"""The training set in shards: the same files whatever the number of processes, and whatever came between."""

import json
import mmap
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml
from helpers.disk import largest_file, small_disk
from helpers.messages import message
from helpers.processes import ended, said, start
from helpers.thorough import thorough
from helpers.tiny import demo_pairs

from transformer_mt import prepare
from transformer_mt.base.errors import CorpusError, UserError
from transformer_mt.base.worker_pool import Workers
from transformer_mt.batches.encoded import EncodedCorpus, places_of_pairs
from transformer_mt.corpora import corpus as corpora
from transformer_mt.preparing import training_shards
from transformer_mt.preparing.prepared import data_digests
from transformer_mt.preparing.shards import BlockEncoder, ShardWriter, Task
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.checksums import read_sums, write_sums

SMALL = {
    (corpora, "BLOCK"): 20,
    (training_shards, "ITEMS"): 100,
    (training_shards, "DONE_HERE"): 2,
}
# The same for a process of its own.
IN_A_PROCESS = """
import sys
from transformer_mt.corpora import corpus
from transformer_mt.preparing import training_shards
from transformer_mt import prepare
from transformer_mt.terminal import cli
if __name__ == "__main__":
    corpus.BLOCK, training_shards.ITEMS, training_shards.DONE_HERE = 20, 100, 2
    sys.exit(cli.run(prepare.main))
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), value in SMALL.items():
        monkeypatch.setattr(module, name, value)


def write(directory: Path, name: str, pairs: list[tuple[str, str]]) -> str:
    for language, side in (("en", 0), ("de", 1)):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (directory / f"{name}.{language}").write_text(text, encoding="utf-8")
    return str(directory / name)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A corpus of 430 pairs: five shards, the last one short. Some pairs are blank, or are there twice."""
    pairs = demo_pairs(460)
    train = [*pairs[:200], ("", "leer"), *pairs[190:400], ("blank", " "), *pairs[:18]]
    content = {
        "data_dir": str(tmp_path / "data"),
        "run_dir": str(tmp_path / "run"),
        "corpus": {
            "source_language": "en",
            "target_language": "de",
            "train": write(tmp_path, "train", train),
            "valid": write(tmp_path, "valid", pairs[420:440]),
            "test": {"tiny": write(tmp_path, "test", pairs[440:])},
        },
        "tokenizer": {"vocab_size": 400},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "config.yaml"


def run(config: Path, data: Path, *overrides: str, workers: int = 1) -> Path:
    assert prepare.main([str(config), f"data_dir={data}", "--workers", str(workers), *overrides]) == 0
    return data


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def shards(data: Path) -> list[Path]:
    return sorted(path.parent for path in data.glob("train/*/*/shard.json"))


@pytest.mark.parametrize("workers", [*thorough(2), 3])
def test_the_files_are_the_same_for_any_number_of_processes(config: Path, tmp_path: Path, workers: int) -> None:
    alone = contents(run(config, tmp_path / "alone", "filters.duplicates=true"))
    assert len(shards(tmp_path / "alone")) == 5
    assert contents(run(config, tmp_path / "several", "filters.duplicates=true", workers=workers)) == alone


def test_in_shards_the_pairs_are_those_of_a_single_one(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = EncodedCorpus.load(run(config, tmp_path / "several") / "train")
    monkeypatch.setattr(training_shards, "ITEMS", 10_000)
    one = EncodedCorpus.load(run(config, tmp_path / "one") / "train")
    assert len(shards(tmp_path / "one")) == 1
    pairs = np.arange(len(one))
    assert several.sizes == one.sizes == (428,)
    for ours, theirs in ((several.source, one.source), (several.target, one.target)):
        assert (ours.num_tokens, ours.longest) == (theirs.num_tokens, theirs.longest)
        for found, expected in zip(ours.gather(pairs), theirs.gather(pairs), strict=True):
            assert found.tolist() == expected.tolist()
    assert places_of_pairs(tmp_path / "several", pairs) == places_of_pairs(tmp_path / "one", pairs)
    text = (tmp_path / "train.en").read_text().splitlines()
    assert [text[line - 1] != "" for _, line in places_of_pairs(tmp_path / "one", pairs)] == [True] * 428
    assert data_digests(tmp_path / "one")["valid"] == data_digests(tmp_path / "several")["valid"]


def test_pairs_that_were_there_before_are_left_out_of_all_shards(config: Path, tmp_path: Path) -> None:
    data = run(config, tmp_path / "data", "filters.duplicates=true")
    corpus = EncodedCorpus.load(data / "train")
    assert corpus.sizes == (400,)
    places = places_of_pairs(data, np.arange(len(corpus)))
    assert [line for _, line in places] == [*range(1, 201), *range(212, 412)]
    ids, lengths = corpus.source.gather(np.arange(len(corpus)))
    everything = EncodedCorpus.load(run(config, tmp_path / "all") / "train")
    rows = np.array([*range(200), *range(210, 410)])
    assert ids.tolist() == everything.source.gather(rows)[0].tolist()
    assert corpus.source.num_tokens == len(ids) and corpus.source.longest == lengths.max()
    assert np.fromfile(data / "train" / "kept.rows", np.int64).tolist() == rows.tolist()


# --- Going on ------------------------------------------------------------------------------------------------


@pytest.fixture
def counted_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The lines with which the blocks begin that are encoded, in order."""
    found: list[int] = []
    encode = BlockEncoder.encode

    def counting(self: BlockEncoder, task: Task) -> object:
        found.append(task.block.first)
        return encode(self, task)

    monkeypatch.setattr(BlockEncoder, "encode", counting)
    return found


@pytest.mark.parametrize("stop", [*thorough(0, 2, 3), 1, 4])
def test_stopped_at_any_shard_a_rerun_goes_on_there_and_ends_the_same(
    config: Path, tmp_path: Path, counted_blocks: list[int], stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = contents(run(config, tmp_path / "whole"))
    finish, left = ShardWriter.finish, [stop]

    def dying(self: ShardWriter, is_last: bool) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return finish(self, is_last)

    with monkeypatch.context() as patched:
        patched.setattr(ShardWriter, "finish", dying)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "data")
    assert not (tmp_path / "data" / "prepare.json").exists()
    assert not list((tmp_path / "data").rglob("*partial*"))
    counted_blocks.clear()
    assert contents(run(config, tmp_path / "data")) == whole
    assert counted_blocks == list(range(1 + 100 * stop, 431, 20))


def test_a_shard_that_was_damaged_meanwhile_is_made_again(
    config: Path, tmp_path: Path, counted_blocks: list[int]
) -> None:
    whole = contents(run(config, tmp_path / "data"))
    (tmp_path / "data" / "prepare.json").unlink()
    os.truncate(shards(tmp_path / "data")[3] / "target.ids", 5)
    (tmp_path / "data" / "train" / "train" / "00009").mkdir()
    counted_blocks.clear()
    assert contents(run(config, tmp_path / "data")) == whole
    assert counted_blocks[0] == 301


def exchange(path: Path) -> None:
    """Let each line of a file belong to the line before it in its translation. Its size stays the same."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[1:], lines[0]]), encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_a_file_that_is_exchanged_after_its_digest_was_taken_is_not_encoded(
    config: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, text = contents(run(config, tmp_path / "whole")), tmp_path / f"{name}.de"
    before, make = text.read_bytes(), prepare.make_shards
    with monkeypatch.context() as patched:
        patched.setattr(prepare, "make_shards", lambda *given: (exchange(text), make(*given))[1])
        with pytest.raises(CorpusError, match=message("text-changed-while-read", str(text))):
            run(config, tmp_path / "data")
    text.write_bytes(before)
    assert contents(run(config, tmp_path / "data")) == whole


@pytest.mark.thorough
@pytest.mark.parametrize("digest", ["of its text", "", None])
def test_shards_of_exchanged_text_that_a_killed_process_left_are_made_again(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str | None
) -> None:
    whole, text = contents(run(config, tmp_path / "whole")), tmp_path / "train.de"
    before, make, finish = text.read_bytes(), prepare.make_shards, ShardWriter.finish

    def dying(self: ShardWriter, is_last: bool) -> object:
        if self.shard.name == "00003":
            raise KeyboardInterrupt
        return finish(self, is_last)

    with monkeypatch.context() as patched:
        patched.setattr(prepare, "make_shards", lambda *given: (exchange(text), make(*given))[1])
        patched.setattr(ShardWriter, "finish", dying)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "data")
    assert len(shards(tmp_path / "data")) == 3
    for shard in shards(tmp_path / "data"):
        if digest != "of its text":
            record = json.loads((shard / "shard.json").read_text())
            record["text"] = digest
            (shard / "shard.json").write_text(json.dumps({key: it for key, it in record.items() if it is not None}))
            write_sums(shard, read_sums(shard))
    text.write_bytes(before)
    assert contents(run(config, tmp_path / "data")) == whole


def test_shards_of_a_longer_text_do_not_stay_and_are_not_counted_as_done(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, make = contents(run(config, tmp_path / "whole")), prepare.make_shards
    texts = {path: path.read_bytes() for path in (tmp_path / "train.en", tmp_path / "train.de")}
    with monkeypatch.context() as patched:
        patched.setattr(
            prepare, "make_shards", lambda *given: (write(tmp_path, "train", demo_pairs(900)), make(*given))[1]
        )
        with pytest.raises(CorpusError, match=message("text-changed-while-read")):
            run(config, tmp_path / "data")
    assert len(shards(tmp_path / "data")) == 8
    for path, before in texts.items():
        path.write_bytes(before)
    capsys.readouterr()
    monkeypatch.setattr("transformer_mt.base.wording._EVERY", 0.0)  # a line for each block
    assert contents(run(config, tmp_path / "data")) == whole
    done = re.findall(r"^train: ([\d,]+) of 430 pairs, (.*)$", capsys.readouterr().err, re.MULTILINE)
    assert [int(number.replace(",", "")) for number, _ in done] == [*range(220, 421, 20), 430], (
        "two shards are of both texts"
    )
    assert not any("-" in rate for _, rate in done)


@pytest.mark.thorough
@pytest.mark.parametrize("other", ["filters.max_characters=70", "corpus.max_length=99", "tokenizer.vocab_size=399"])
def test_with_other_settings_shards_are_made_again(config: Path, tmp_path: Path, other: str) -> None:
    run(config, tmp_path / "data")
    (tmp_path / "data" / "prepare.json").unlink()
    run(config, tmp_path / "data", other)
    assert contents(tmp_path / "data") == contents(run(config, tmp_path / "new", other))


def process(config: Path, data: Path, number: int) -> object:
    script = config.parent / "small_prepare.py"
    script.write_text(IN_A_PROCESS)
    return start(config.parent / "out", f"run{number}", script, config, f"data_dir={data}", "--workers", 2)


@pytest.mark.slow
def test_killed_at_random_instants_it_ends_the_same(config: Path, tmp_path: Path) -> None:
    whole, draw = contents(run(config, tmp_path / "whole")), random.Random(5)
    began = time.monotonic()
    assert ended(process(config, tmp_path / "timed", 0)) == [0]
    takes = time.monotonic() - began
    assert contents(tmp_path / "timed") == whole
    kills = number = 0
    while kills < 6:  # A run that ended before its kill came is followed by one from the start.
        number += 1
        data = tmp_path / f"data{number - kills}"
        running = process(config, data, number)
        time.sleep(draw.uniform(0.3, 0.9) * takes)
        running.process.kill()
        kills += running.process.wait() != 0
    assert ended(process(config, data, number + 1)) == [0]
    for directory in tmp_path.glob("data*"):
        assert contents(directory) == whole


# --- What can go wrong ---------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.thorough
def test_the_files_do_not_depend_on_what_else_is_imported(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    without = contents(run(config, tmp_path / "without"))
    monkeypatch.setitem(sys.modules, "datasets", ModuleType("datasets"))
    assert contents(run(config, tmp_path / "with")) == without


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_that_is_killed_is_named(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, asked = Workers._submit, []

    def killing(self: Workers, task: Task) -> object:
        asked.append(task)
        found = submit(self, task)
        if len(asked) == 9:
            os.kill(children(os.getpid())[-1], signal.SIGKILL)
        return found

    resource_tracker.ensure_running()  # a process that Python starts once, and keeps
    before = set(children(os.getpid()))
    monkeypatch.setattr(Workers, "_submit", killing)
    with pytest.raises(UserError, match=message("worker-killed")):
        run(config, tmp_path / "data", workers=2)
    assert set(children(os.getpid())) <= before
    monkeypatch.undo()
    assert run(config, tmp_path / "data")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.thorough
def test_ctrl_c_ends_all_processes_and_says_how_to_go_on(config: Path, tmp_path: Path) -> None:
    script = IN_A_PROCESS.replace("sys.exit(", "import os, signal, time\n    sys.exit(").replace(
        "    sys.exit(",
        "    finish = training_shards.shards.ShardWriter.finish\n"
        "    def waiting(self, is_last):\n"
        "        open(sys.argv[0] + '.reached', 'w').close()\n"
        "        time.sleep(60)\n"
        "    training_shards.shards.ShardWriter.finish = waiting\n"
        "    sys.exit(",
    )
    (tmp_path / "waiting.py").write_text(script)
    running = start(tmp_path / "out", "run", tmp_path / "waiting.py", config, "--workers", 2)
    until = time.monotonic() + 60
    while not (tmp_path / "waiting.py.reached").exists() and time.monotonic() < until:
        time.sleep(0.01)
    workers = children(running.process.pid)
    assert len(workers) >= 2
    running.process.send_signal(signal.SIGINT)
    assert ended(running) == [130], said(running)
    assert "Finished parts are kept. To resume: " in said(running) and f"prepare {config}" in said(running)
    until = time.monotonic() + 10
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.01)
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]
    assert not list((tmp_path / "data").rglob("*partial*"))


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a process")
def test_a_full_disk_is_named_and_leaves_nothing_that_looks_whole(config: Path, tmp_path: Path) -> None:
    run(config, tmp_path / "whole")
    tokenizer = f"tokenizer.from={tmp_path / 'whole'}"
    largest = max(path.stat().st_size for path in shards(tmp_path / "whole")[0].iterdir())
    shutil.copytree(tmp_path / "whole", tmp_path / "data")
    (tmp_path / "data" / "prepare.json").unlink()
    shutil.rmtree(tmp_path / "data" / "train")
    expected = message("file-cannot-be-written", "train/train/00000", "File too large", "room", "keeps the parts")
    with largest_file(largest - 100), pytest.raises(CorpusError, match=expected):
        run(config, tmp_path / "data", "tokenizer.vocab_size=400", tokenizer)
    assert not shards(tmp_path / "data") and not list((tmp_path / "data").rglob("*partial*"))


def test_rows_that_stay_are_all_written_or_the_full_disk_is_named(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(config, tmp_path / "data", "filters.duplicates=true")
    (tmp_path / "data" / "prepare.json").unlink()
    listed = training_shards._write_lists

    def with_little_room(*given: object) -> object:
        with largest_file(100):
            return listed(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(training_shards, "_write_lists", with_little_room)
    with pytest.raises(CorpusError, match=message("file-cannot-be-written", "keeps the parts")):
        run(config, tmp_path / "data", "filters.duplicates=true")


@pytest.mark.slow
def test_wherever_the_disk_is_full_it_is_named_and_with_more_room_it_ends_the_same(
    config: Path, tmp_path: Path
) -> None:
    settings = ("filters.duplicates=true", "tokenizer.vocab_size=399")
    whole, names = contents(run(config, tmp_path / "whole", *settings)), set()
    with small_disk(tmp_path / "disk") as disk:
        data = disk.path / "data"
        for room in range(0, 2**20, mmap.PAGESIZE):
            disk.fill(but=room)
            try:
                run(config, data, *settings)
                break
            except UserError as error:
                found = re.search(r"^(\S+): cannot be written \(No space left on device\); make room", str(error))
                assert found, error
                names.add(Path(found[1]).name)
            assert not (data / "prepare.json").exists()
            disk.make_room()
            assert contents(run(config, data, *settings)) == whole
            shutil.rmtree(data)
    assert names >= {"data", "tiny", "tokenizer.model", "00000", "kept.rows", "valid"}


# --- Several corpora -----------------------------------------------------------------------------------------


def several(config: Path, *names: str) -> Path:
    """The configuration with a list of corpora; the second one has a tag and the languages the other way round."""
    content = yaml.safe_load(config.read_text())
    pairs = demo_pairs(700)
    known = {
        "first": {"name": "first", "path": write(config.parent, "first", pairs[460:610])},
        "back": {
            "name": "back",
            "source": str(config.parent / "first.de"),
            "target": str(config.parent / "first.en"),
            "tag": "<back>",
        },
        "third": {"name": "third", "path": write(config.parent, "third", pairs[600:640])},
    }
    content["corpus"]["train"] = [known[name] for name in names]
    path = config.parent / f"{'_'.join(names)}.yaml"
    path.write_text(yaml.safe_dump(content))
    assert load_config(path)
    return path


@pytest.mark.thorough
def test_several_corpora_lie_in_their_order(config: Path, tmp_path: Path) -> None:
    data = run(several(config, "first", "back", "third"), tmp_path / "data", "filters.duplicates=true", workers=2)
    corpus = EncodedCorpus.load(data / "train")
    assert corpus.sizes == (150, 150, 30)  # ten of the third are also in the first
    places = places_of_pairs(data, np.array([0, 149, 150, 299, 300, 329]))
    files = [(Path(file).name, line) for file, line in places]
    assert files == [
        ("first.en", 1),
        ("first.en", 150),
        ("first.de", 1),
        ("first.de", 150),
        *[("third.en", 11), ("third.en", 40)],
    ]
    summary = prepare.read_prepared(data)
    assert summary is not None and {"train/first", "train/back", "train/third"} < summary.digests.keys()
    assert contents(data) == contents(
        run(several(config, "first", "back", "third"), tmp_path / "again", "filters.duplicates=true")
    )


def test_a_tag_is_encoded_before_each_source(config: Path, tmp_path: Path) -> None:
    data = run(several(config, "first", "back"), tmp_path / "data")
    corpus, tokenizer = EncodedCorpus.load(data / "train"), prepare.Tokenizer.load(data)
    first = (tmp_path / "first.de").read_text().splitlines()[0]
    assert corpus.source.gather(np.array([150]))[0].tolist() == tokenizer.encode_source([f"<back> {first}"])[0]


def test_a_corpus_is_added_without_touching_the_others(
    config: Path, tmp_path: Path, counted_blocks: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    data, all_three = (
        run(several(config, "first", "back"), tmp_path / "data"),
        several(config, "first", "back", "third"),
    )
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for shard in shards(data) for path in shard.iterdir()}
    tokenizer = (data / "tokenizer.model").read_bytes()
    counted_blocks.clear()
    capsys.readouterr()
    run(all_three, data)
    assert counted_blocks == [1, 21]
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    assert (data / "tokenizer.model").read_bytes() == tokenizer
    assert EncodedCorpus.load(data / "train").sizes == (150, 150, 40)
    said = capsys.readouterr().out
    assert f"adding to {data}: third\n" in said and "trained without the added text" in said
    run(all_three, data)
    assert capsys.readouterr().out == f"already prepared: {data}\n"
    summary = json.loads((data / "prepare.json").read_text())
    assert summary["tokenizer_trained_on"] == ["train/first", "train/back"]
    with pytest.raises(CorpusError, match=message("data-dir-unfit", "corpus.train")):
        run(several(config, "first", "third"), data)


def test_stopped_while_a_corpus_is_added_the_tokenizer_stays(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, three = several(config, "first", "back"), several(config, "first", "back", "third")
    whole = contents(run(three, run(two, tmp_path / "whole")))
    data = run(two, tmp_path / "data")
    with monkeypatch.context() as patched:
        patched.setattr(ShardWriter, "finish", lambda self, is_last: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(three, data)
    assert contents(run(three, data)) == whole


def test_a_corpus_whose_tag_the_tokenizer_does_not_know_is_not_added(config: Path, tmp_path: Path) -> None:
    data = run(several(config, "first"), tmp_path / "data")
    with pytest.raises(CorpusError, match=message("tag-not-in-tokenizer", "<back>", "back")):
        run(several(config, "first", "back"), data)
    assert (data / "prepare.json").exists()
