"""Stages that read text from S3 and write it there make the same as with files here, though connections break."""

import gzip
from collections.abc import Iterator
from contextlib import chdir, nullcontext
from pathlib import Path

import pytest
from helpers.elsewhere import BUCKET, Store, store
from helpers.tiny import demo_pairs, status_and_error, write_experiment

from transformer_mt import evaluate, prepare, score, translate
from transformer_mt.base import remote
from transformer_mt.storage.files import read_json

LINES = "".join(f"{source}\n" for source, _ in demo_pairs(9)).encode()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(remote, "_WAITS", (0.01,) * 20)
    with store(monkeypatch, most_bytes=5_000) as found:
        yield found


@pytest.mark.thorough
def test_prepare_makes_the_same_of_text_in_s3(tmp_path: Path, s3: Store) -> None:
    config, made = write_experiment(tmp_path), []
    for path in tmp_path.glob("*.[ed][ne]"):
        s3.put(path.name, path.read_bytes())
    there = [f"corpus.{key}=s3://{BUCKET}/{name}" for key, name in (("train", "train"), ("valid", "valid"))]
    s3.cutter.cuts = 15
    for number, overrides in enumerate([[], [*there, f"corpus.test={{tiny: s3://{BUCKET}/test}}"]]):
        data_dir = tmp_path / f"data-{number}"
        assert prepare.main([str(config), f"data_dir={data_dir}", *overrides]) == 0
        made.append({path.relative_to(data_dir): path.read_bytes() for path in data_dir.rglob("*") if path.is_file()})
    assert s3.cutter.num_cut == 15
    # These name the files, or have the checksums of those that do.
    naming = {"prepare.json", "shard.json", "SHA256SUMS"}
    assert {path.name for path in made[0] if made[0][path] != made[1].get(path)} == naming
    assert made[0].keys() == made[1].keys()
    one, other = (read_json(tmp_path / f"data-{number}" / "prepare.json") for number in range(2))
    assert one.pop("corpus") != other.pop("corpus")
    assert one == other


def from_s3_to(output: str, model_dir: Path) -> list[object]:
    where = ["--input", f"s3://{BUCKET}/in.gz", "--output", output]
    return [model_dir, "--device", "cpu", "beam_size=1", "--buffer-lines", "3", *where]


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_translate_reads_and_writes_s3(
    tmp_path: Path, s3: Store, model_dir: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.put("in.gz", gzip.compress(LINES))
    s3.cutter.cuts = 4
    s3.cutter.most_bytes = 500
    with chdir(tmp_path):
        status, said = status_and_error(
            translate.main, *from_s3_to(f"s3://{BUCKET}/out{ending}", model_dir), capsys=capsys
        )
        assert status == 0, said
        (tmp_path / "in").write_bytes(LINES)
        here = ["--input", "in", "--output", f"here{ending}"]
        assert translate.main([str(each) for each in from_s3_to("-", model_dir)[:-4]] + here) == 0
    assert s3.get(f"out{ending}") == (tmp_path / f"here{ending}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"here{ending}", "in"]  # no parts
    assert s3.cutter.num_cut == 4


@pytest.mark.thorough
def test_an_output_that_cannot_be_sent_leaves_its_parts(
    tmp_path: Path, s3: Store, model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.put("in.gz", gzip.compress(LINES))
    command = from_s3_to("s3://later/out", model_dir)
    with chdir(tmp_path):
        status, said = status_and_error(translate.main, *command, capsys=capsys)
        assert status == 2
        assert "s3://later/out: cannot be written" in said and "out.parts keeps 3 parts" in said
        assert len(list(Path("out.parts").glob("0*"))) == 3
        s3.asked("PUT", "/later")
        status, said = status_and_error(translate.main, *command, capsys=capsys)
        assert status == 0 and "resuming: 9 of 9 lines are translated already" in said
    assert s3.asked("GET", "/later/out").count(b"\n") == 9
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_files_to_score_may_lie_in_s3(
    tmp_path: Path, s3: Store, model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_bytes(LINES)
    outputs = []
    for file in (str(tmp_path / "a"), s3.put("a", LINES)):
        assert score.main([str(model_dir), file, file, "--device", "cpu"]) == 0
        assert evaluate.main(["--hypothesis", file, "--reference", file]) == 0
        outputs.append(capsys.readouterr().out.replace(file, "FILE"))
    assert outputs[0] == outputs[1]


def test_what_cannot_be_an_output_is_an_error(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def failed(output: str) -> str:
        command = [model_dir, "--input", f"s3://{BUCKET}/in", "--output", output]
        with pytest.raises(SystemExit) if "secret" in output else nullcontext() as left:
            status, said = status_and_error(translate.main, *command, capsys=capsys)
        if left is not None:
            status, said = int(str(left.value)), capsys.readouterr().err
        assert status == 2
        return said

    assert "this command reads the file" in failed(f"s3://{BUCKET}/in")
    assert "password" in (said := failed("s3://me:secret@b/out")) and "secret@" not in said
