"""scripts/compare_architectures.sh: what it calls, in what order, and what it leaves alone."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from count_parameters import main as count_parameters
from helpers.processes import python_path
from helpers.tiny import ROOT

from transformer_mt.inference.fast import build_model
from transformer_mt.settings.reading import load_config

CONFIGS = sorted((ROOT / "configs").glob("compare_*.yaml"))
SCRIPT = "scripts/compare_architectures.sh"
NAMES = re.findall(r"^(\S+) +(?:rnn|transformer|convolutional) +model", (ROOT / SCRIPT).read_text(), re.MULTILINE)
TINY = (
    "tokenizer.vocab_size=600 model.d_model=16 training.max_steps=4 training.save_every=2 training.warmup_steps=2 "
    "training.valid_sentences=4 training.validate_every=4 training.log_every=2 decoding.beam_size=1 "
    "decoding.max_extra_length=0"
)


def run(directory, *arguments, **environment):
    return subprocess.run(
        ["bash", SCRIPT, *arguments],
        cwd=directory,
        env=os.environ
        | {"PYTHON": sys.executable, "PYTHONPATH": python_path(ROOT), "MULTI30K": "", "SET": ""}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    """A folder like the repository, where the script may write."""
    for folder in ("configs", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def test_there_are_ten_architectures():
    assert len(NAMES) == 10 == len(set(NAMES)) and len(CONFIGS) == 6


def test_counted_are_the_parameters_of_the_model_that_is_trained(capsys):
    path = str(ROOT / "configs" / "compare_demo_transformer.yaml")
    count_parameters([path, "model.d_model=64", "tokenizer.vocab_size=300"])
    config = load_config(path, ["model.d_model=64", "tokenizer.vocab_size=300"])
    model = build_model(config.model, 300, 300)
    assert int(capsys.readouterr().out) == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("corpus", ["demo", "multi30k"])
def test_the_kinds_differ_in_the_model_and_in_the_peak_of_the_learning_rate_alone(corpus):
    *others, one = (load_config(path).model_dump() for path in CONFIGS if corpus in path.name)
    assert one["model"]["kind"] == "transformer" and len(others) == 2
    for other in others:
        for section in ("corpus", "tokenizer", "averaging", "decoding", "data_dir"):
            assert one[section] == other[section]
        assert one["model"]["dropout"] == other["model"]["dropout"]
        assert {key for key in one["training"] if one["training"][key] != other["training"][key]} == {"peak_lr"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["news"], "news: name demo, multi30k or both"), (["one", "demo", "gru"], "gru is none of: rnn-none ")],
)
def test_mistakes_are_named(copy, arguments, message):
    found = run(copy, *arguments)
    assert found.returncode == 2 and message in found.stderr


@pytest.mark.slow
def test_too_different_numbers_of_parameters_are_refused(copy):
    script = copy / SCRIPT
    script.write_text(script.read_text().replace("model.attention=dot", "model.attention=dot model.d_model=400"))
    found = run(copy, "demo")
    assert found.returncode == 2 and "more than 10 % apart" in found.stderr
    assert not (copy / "data/compare_demo").exists()


@pytest.mark.slow
def test_goes_all_the_way_and_does_nothing_twice(copy):
    script, three = copy / SCRIPT, ["rnn-none", "rnn-bahdanau", "transformer-learned"]
    text = script.read_text().replace("--join 4 --train 30000 --test 1000", "--train 500 --valid 20 --test 20")
    for name in set(NAMES) - set(three):
        text = re.sub(rf"^{name} .*\n", "", text, flags=re.MULTILINE)
    # At this width the numbers of parameters are further apart.
    script.write_text(text.replace("1.1 * least", "9 * least").replace(" model.d_model=176", ""))
    found = run(copy, "demo", SET=TINY, JOBS="2")
    assert found.returncode == 0, found.stderr
    assert [line.split("|")[1].strip() for line in found.stdout.splitlines()[-3:]] == three
    results = copy / "runs" / "compare_demo"
    before = (results / "rnn-none.log").read_bytes()
    again = run(copy, "demo", SET=TINY)
    assert again.returncode == 0 and again.stdout.count("is done") == 3
    assert (results / "rnn-none.log").read_bytes() == before
    speed = run(copy, "speed", "demo", SET=TINY)
    assert speed.returncode == 0, speed.stderr
    assert "–" not in (results / "table.md").read_text() and (results / "by_length.png").exists()
