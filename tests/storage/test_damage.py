"""Damage to any file of a model, an export, prepared data or a checkpoint: it is named, and nothing is read of it."""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from helpers.messages import message, says
from helpers.thorough import thorough
from helpers.tiny import renew_sums, status_and_error
from helpers.untrained import write_untrained
from safetensors.torch import load_file, save_file

from transformer_mt import average, export, prepare, train
from transformer_mt.base.errors import CorpusError, TokenizerError, UserError
from transformer_mt.decoding.translator import Translator
from transformer_mt.evaluation.evaluated_texts import read_test_set
from transformer_mt.settings.reading import load_config
from transformer_mt.storage.checksums import SUMS, checkpoint_path
from transformer_mt.storage.own_directory import LOCK
from transformer_mt.storage.weights import read_metadata
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.run.candidates import find_candidates

FEW, MANY = [0, 1, *thorough(2, 3, 4, 5)], range(6, 300)
KINDS = ["model", "export", "data", "checkpoint"]
SIZES = {"decoder_layers": 2, "ffn_dim": 32, "max_positions": 1024}  # with those of `untrained`, the tiny experiment's


@pytest.fixture(scope="module")
def wholes(trained, experiment, tmp_path_factory):
    """By kind, a whole one; and `other`, one of the same kind whose files would fit."""
    pytest.importorskip("ctranslate2")
    top = tmp_path_factory.mktemp("wholes")
    run = shutil.copytree(trained, top / "run", symlinks=True)
    average.main([str(run), "choose=last"])
    found = {"model": run / "model", "export": top / "export", "data": experiment.parent / "data"}
    found["checkpoint"] = checkpoint_path(run, 12)
    other = {"model": write_untrained(top / "other", Tokenizer.load(run), **SIZES), "export": top / "other_export"}
    for one in (found, other):
        export.main([str(one["model"]), str(one["export"]), "--format", "ctranslate2"])
    other["data"], other["checkpoint"] = top / "other_data", checkpoint_path(run, 10)
    prepare.main([str(experiment), f"data_dir={other['data']}", "tokenizer.vocab_size=450"])
    return found, other


def harm(path: Path, other: Path, draw: random.Random) -> None:
    """Change a file so that no reader can take it for what it was."""
    content = path.read_bytes()
    at, length = draw.randrange(len(content)), draw.randrange(1, 64)
    changed = {
        "cut": content[:at],
        "flipped": content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :],
        "swapped": content[at : at + length] + content[:at] + content[at + length :],
        "zeroed": content[:at] + bytes(len(content[at : at + length])) + content[at + length :],
        "longer": content + draw.randbytes(length),
        "exchanged": other.read_bytes() if other.is_file() else b"",
    }
    what = draw.choice([*[name for name, new in changed.items() if new != content], "gone", "pipe", "device"])
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what != "gone":
        path.write_bytes(changed[what])


def use(kind: str, directory: Path, file: str, experiment: Path, run: Path) -> None:
    """Read what would be read of it, which has to raise a UserError."""
    match kind:
        case "model":
            Translator.load(directory, "cpu", workers=1)
        case "export":
            Translator.load(directory, "cpu", engine="ctranslate2", workers=1)
        case "data" if file.startswith("test/"):
            read_test_set(directory, "tiny")
        case "data":
            train.main([str(experiment), f"data_dir={directory}", f"run_dir={run}"])
        case _:
            config = load_config(directory.parents[1] / "config.yaml")
            find_candidates(directory.parents[1], config.averaging, config.training)


def damaged(kind, seed, wholes, tmp_path):
    """A copy with one file harmed: its directory and the file."""
    draw = random.Random(seed)
    whole, other = (which[kind] for which in wholes)
    directory = tmp_path / "damaged"
    if kind == "checkpoint":
        directory = tmp_path / "run" / "checkpoints" / whole.name
        directory.parent.mkdir(parents=True)
        shutil.copy(whole.parents[1] / "config.yaml", tmp_path / "run")
    shutil.copytree(whole, directory)
    unread = ("export.json", "evaluation")  # by us
    files = [
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file() and path.name != LOCK
    ]
    file = draw.choice(sorted(file for file in files if file not in unread))
    harm(directory / file, other / file, draw)
    return directory, file


def assert_named(kind, seed, wholes, experiment, tmp_path):
    directory, file = damaged(kind, seed, wholes, tmp_path)
    with pytest.raises(UserError) as caught:
        use(kind, directory, file, experiment, tmp_path / "new")
    error = str(caught.value)
    assert f"{file} " in error or f"{file}: " in error or file in (SUMS, "prepare.json"), error
    assert str(directory) in error
    assert not (tmp_path / "new").exists(), "no training has begun"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", FEW)
def test_a_damaged_file_is_named(kind, seed, wholes, experiment, tmp_path, at_once):
    assert_named(kind, seed, wholes, experiment, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", MANY)
def test_a_damaged_file_is_named_whatever_the_damage(kind, seed, wholes, experiment, tmp_path, at_once):
    assert_named(kind, seed, wholes, experiment, tmp_path)


# --- Behind the checksums ------------------------------------------------------------------------------------


def spoil(path: Path, draw: random.Random) -> str:
    """Give a file of weights numbers that training never writes, or another header; what was done."""
    what = draw.choice(["nan", "inf", "-inf", "I32", "U32", "F64", "F16", "header"])
    if what in ("nan", "inf", "-inf"):
        weights, metadata = load_file(path), read_metadata(path)
        weight = draw.choice(list(weights.values())).view(-1)
        weight[draw.randrange(len(weight))] = float(what)
        save_file(weights, path, metadata)
    elif what in ("F64", "F16"):
        weights, metadata = load_file(path), read_metadata(path)
        name = draw.choice(list(weights))
        weights[name] = weights[name].to({"F64": torch.float64, "F16": torch.float16}[what])
        save_file(weights, path, metadata)
    else:
        content = path.read_bytes()
        size = 8 + int.from_bytes(content[:8], "little")
        if what == "header":
            at = draw.randrange(size)
            path.write_bytes(content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :])
        else:
            parts = content[:size].split(b'"F32"')
            at = draw.randrange(1, len(parts))
            header = b'"F32"'.join(parts[:at]) + f'"{what}"'.encode() + b'"F32"'.join(parts[at:])
            path.write_bytes(header + content[size:])
    return what


def assert_refused_behind_the_checksums(seed, wholes, tmp_path):
    """Or it is what was written: a bit of a header may be one of a name that tells where the model comes from."""
    draw, whole = random.Random(seed), wholes[0]["model"]
    model = shutil.copytree(whole, tmp_path / "model")
    what = spoil(model / "model.safetensors", draw)
    renew_sums(model)
    try:
        found = Translator.load(model, "cpu", workers=1)
    except UserError as error:
        assert str(model / "model.safetensors") in str(error)
        return
    assert what == "header"
    expected = load_file(whole / "model.safetensors")
    assert all(torch.equal(weight, expected[name]) for name, weight in found.engine.model.named_parameters())


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10))
def test_weights_that_training_never_writes_are_refused(seed, wholes, tmp_path):
    assert_refused_behind_the_checksums(seed, wholes, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 300))
def test_weights_that_training_never_writes_are_refused_whatever_they_are(seed, wholes, tmp_path):
    assert_refused_behind_the_checksums(seed, wholes, tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_averaged_nor_begun_with(run, experiment, tmp_path, value, capsys):
    average.main([str(run)])
    for directory in (run / "model", checkpoint_path(run, 12)):
        file = directory / "model.safetensors"
        weights, metadata = load_file(file), read_metadata(file)
        weights["target_embedding.weight"][7, 3] = value
        save_file(weights, file, metadata)
        renew_sums(directory)
    begin = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run / 'model'}"]
    for command in ([average.main, run, "checkpoints=1"], [train.main, *begin]):
        status, error = status_and_error(*command, capsys=capsys)
        assert status == 2 and says(error, "weights-damaged", "model.safetensors:", "target_embedding.weight", " 1 of ")


def test_a_damaged_model_is_not_begun_with(run, experiment, tmp_path, capsys):
    average.main([str(run)])
    config = run / "model" / "config.yaml"
    config.write_text(config.read_text().replace("num_heads: 2", "num_heads: 4"))
    begin = [experiment, f"run_dir={tmp_path / 'new'}", f"training.initialise_from={run / 'model'}"]
    status, error = status_and_error(train.main, *begin, capsys=capsys)
    assert status == 2 and says(error, "file-differs-from-sum", str(config))
    assert says(error, "advice-give-settings") and "sha256sum config.yaml tokenizer.model" in error


def test_the_command_that_the_error_names_makes_a_changed_model_readable(run, capsys):
    average.main([str(run)])
    model = run / "model"
    (model / "config.yaml").write_text((model / "config.yaml").read_text().replace("beam_size: 2", "beam_size: 3"))
    with pytest.raises(UserError, match=message("advice-sum-again", "config.yaml")) as caught:
        Translator.load(model, "cpu", workers=1)
    command = re.search(r"`(\(cd .*\))`", str(caught.value))[1]
    subprocess.run(["bash", "-c", command], check=True)
    assert Translator.load(model, "cpu", workers=1).decoding.beam_size == 3


@pytest.mark.parametrize("file", ["tokenizer.model", "training_lines.json"])
def test_a_damaged_copy_in_a_run_does_not_come_into_its_model(run, file, capsys):
    content = (run / file).read_bytes()
    (run / file).write_bytes(content.replace(b"1", b"2", 1))
    status, error = status_and_error(average.main, run, capsys=capsys)
    assert status == 2 and says(error, "file-differs-from-sum", str(run / file))
    assert not (run / "model").exists()


@pytest.mark.parametrize("name", ["model", "data", "run"])
def test_a_damaged_tokenizer_is_not_used_for_other_data(wholes, experiment, trained, tmp_path, name, capsys):
    whole = trained if name == "run" else wholes[0][name]
    directory = shutil.copytree(whole, tmp_path / name, symlinks=True)
    (directory / "tokenizer.model").write_bytes(b"")
    new = [experiment, f"data_dir={tmp_path / 'new'}", f"tokenizer.from={directory}"]
    status, error = status_and_error(prepare.main, *new, capsys=capsys)
    assert status == 2 and says(error, "file-differs-from-sum", str(directory / "tokenizer.model"))


def test_damaged_validation_data_are_not_averaged_with(run, experiment, tmp_path, capsys):
    data = shutil.copytree(experiment.parent / "data", tmp_path / "data")
    (data / "valid.target.txt").write_text("Nein.\n" * 20)
    status, error = status_and_error(average.main, run, f"data_dir={data}", capsys=capsys)
    assert status == 2 and says(error, "file-differs-from-sum", f"{data}/valid.target.txt")


@pytest.mark.parametrize("kind", ["pipe", "device", "empty", "random", "no UTF-8"])
def test_a_tokenizer_without_checksums_that_cannot_be_read_is_named(joint_tokenizer, tmp_path, at_once, kind):
    joint_tokenizer.save(tmp_path)
    file = tmp_path / "tokenizer.model"
    content = file.read_bytes()
    file.unlink()
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "empty":
            file.touch()
        case "random":
            file.write_bytes(random.Random(1).randbytes(2000))
        case _:
            at = content.index("ü".encode())
            file.write_bytes(content[: at + 1] + b"(" + content[at + 2 :])
    code = "tokenizer-cannot-be-read" if kind in ("pipe", "device") else "not-sentencepiece-model"
    for load in (lambda: Tokenizer.load(tmp_path), lambda: Tokenizer.load_file(file)):
        with pytest.raises(TokenizerError, match=message(code, str(file))):
            load()


@pytest.mark.parametrize("file", ["prepare.json", "training_lines.json"])
def test_a_pipe_in_place_of_a_file_holds_nobody_up(experiment, tmp_path, at_once, file, capsys):
    data = shutil.copytree(experiment.parent / "data", tmp_path / "data")
    (data / file).unlink()
    os.mkfifo(data / file)
    arguments = [experiment, f"data_dir={data}", f"run_dir={tmp_path / 'run'}"]
    status, error = status_and_error(train.main, *arguments, capsys=capsys)
    assert status == 2 and str(data) in error


@pytest.mark.parametrize("file", ["test/tiny.source.txt", "train/train/00000/source.ids", "tokenizer.model"])
def test_data_that_are_damaged_are_not_taken_for_prepared(experiment, tmp_path, file, capsys):
    data = shutil.copytree(experiment.parent / "data", tmp_path / "data")
    content = bytearray((data / file).read_bytes())
    content[100] ^= 1
    (data / file).write_bytes(content)
    status, error = status_and_error(prepare.main, experiment, f"data_dir={data}", capsys=capsys)
    assert status == 2 and says(error, "file-differs-from-sum", str(data / file))
    if file.startswith("test/"):
        with pytest.raises(CorpusError, match=message("file-differs-from-sum", str(data / file))):
            read_test_set(data, "tiny")
