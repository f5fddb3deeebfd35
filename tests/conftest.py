"""Tiny models, random sentences and corpora of them, shared by the tests."""

import gc
import io
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny import demo_pairs, prepared_experiment, train_tiny

from transformer_mt import average, evaluate
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.decoding.translator import Translator
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import choose_device
from transformer_mt.preparing.shards import write_encoded
from transformer_mt.settings.model_settings import ConvolutionalConfig, RnnConfig, TransformerConfig
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.storage.files import open_locked
from transformer_mt.terminal import cli
from transformer_mt.text.tokenizer import Tokenizer

torch.set_num_threads(1)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # of the processes that tests start: they run beside each other
gc.disable()  # until all tests are collected: a fifth of the time would go into looking for cycles
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in `make test &`; the processes of tests would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)

TINY = {
    "encoder_layers": 2,
    "decoder_layers": 3,
    "d_model": 16,
    "ffn_dim": 24,
    "num_heads": 2,
    "dropout": 0.0,
    "max_positions": 64,
}
TINY_RNN = {"kind": "rnn", "d_model": 12, "dropout": 0.0, "max_positions": 16}
TINY_CONVOLUTIONAL = TINY_RNN | {"kind": "convolutional", "encoder_layers": 2, "decoder_layers": 2}


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items):
    """A test with two marks `thorough`, such as that of two rare values, is slow; tests that need a GPU come last.

    A process that has used a GPU cannot fork others that use it.
    """
    for item in items:
        if len(list(item.iter_markers("thorough"))) > 1:
            item.add_marker(pytest.mark.slow)
    on_gpu = [item for item in items if item.get_closest_marker("cuda")]
    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a GPU that PyTorch can use (torch.cuda.is_available())"))
    items.sort(key=lambda item: item.get_closest_marker("cuda") is not None)


def pytest_collection_finish():
    """The half million objects of PyTorch and of the tests stay: the collector of cycles need not go through them.

    Processes that are forked share their pages then, too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # what a test leaves is little: by default a tenth of the time goes into looking
    gc.enable()


@pytest.fixture(autouse=True)
def one_worker_unless_asked(monkeypatch):
    """To fork a process that holds PyTorch and all tests takes longer than to translate what is translated here.

    Stages that a test starts as processes of their own have a worker for each core, as ever.
    """
    for engine in ("torch_engine", "ctranslate2_engine"):
        monkeypatch.setattr(f"transformer_mt.decoding.{engine}.num_cores", lambda: 1)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function that gives a directory which `make` has filled: once for all processes of the tests."""
    together = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        together = together.parent

    def get(name, make):
        directory, made = together / name, together / f"{name}.made"
        with os.fdopen(open_locked(together / f"{name}.lock", patience=3600)):
            if not made.exists():
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir()
                make(directory)
                made.touch()
        return directory

    return get


@pytest.fixture(scope="session")
def experiment(made_once):
    """The configuration of a tiny experiment, whose data are prepared; to be read only."""
    return made_once("experiment", prepared_experiment) / "tiny.yaml"


@pytest.fixture(scope="session")
def trained_once(experiment, made_once):
    """The directory of its run, trained without a break; for `trained` only."""
    return made_once("trained-once", lambda directory: train_tiny(experiment, directory))


@pytest.fixture(scope="module")
def trained(trained_once, tmp_path_factory):
    """A copy of that; to be read only."""
    return shutil.copytree(trained_once, tmp_path_factory.mktemp("trained") / "run", symlinks=True)


@pytest.fixture(scope="session")
def evaluated(trained_once, made_once):
    """A run with a model and scores; to be read only."""

    def make(directory):
        run = shutil.copytree(trained_once, directory / "one", symlinks=True)
        assert average.main([str(run), "choose=last"]) == 0
        assert evaluate.main([str(run), "--analyse", "--confidence", "min_length=6", "length_penalty=1.2"]) == 0

    return made_once("evaluated", make) / "one"


@pytest.fixture(scope="session")
def model_dir(made_once):
    """A model that has left its run, its data and its corpus behind; to be read only."""

    def make(directory):
        left = directory / "left"  # behind, at the end
        left.mkdir()
        longer = ["training.max_steps=150", "training.peak_lr=0.01", "training.validate_every=150", "model.d_model=32"]
        run = train_tiny(prepared_experiment(left), left / "run", *longer, "training.log_every=50")
        average.main([str(run), "choose=last"])
        shutil.move(run / "model", directory / "model")
        shutil.rmtree(left)

    return made_once("elsewhere", make) / "model"


@pytest.fixture(scope="session")
def translator(model_dir):
    return Translator.load(model_dir, device="cpu", workers=1)


@pytest.fixture(scope="session")
def joint_tokenizer():
    sources, targets = zip(*demo_pairs(300), strict=True)
    return Tokenizer.train(sources, targets, TokenizerConfig(vocab_size=400))


@pytest.fixture(scope="session")
def separate_tokenizer(joint_tokenizer):
    """Of two sizes."""
    sources, targets = zip(*demo_pairs(300), strict=True)
    target = Tokenizer.train(sources, targets, TokenizerConfig(vocab_size=380, joint=False)).target
    return Tokenizer(joint_tokenizer.source, target)


@pytest.fixture
def at_once():
    """Whoever waits for a pipe is woken, and fails."""

    def woken(*_):
        pytest.fail("it waits")  # which is no Exception, so that nobody catches it

    before = signal.signal(signal.SIGALRM, woken)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run_stage(monkeypatch):
    """A function that gives a stage standard input: its exit status, and what has reached who reads its output."""

    def run(main, content, *arguments):
        reached = io.BytesIO()  # behind a buffer: gets what was flushed alone
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file, encoding="utf-8"))
            monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(reached), encoding="utf-8"))
            status = cli.run(main, [str(argument) for argument in arguments])
            return status, reached.getvalue()

    return run


@pytest.fixture
def run(trained, tmp_path):
    """A copy of that, to change."""
    return shutil.copytree(trained, tmp_path / "run", symlinks=True)


@pytest.fixture
def gpu():
    """The GPU, in bf16. PyTorch compiles a function for eight shapes at most: those of other tests are forgotten."""
    torch.compiler.reset()
    return choose_device("cuda", "bf16")


@pytest.fixture
def tiny_model():
    """A function that builds a model in evaluation mode: tiny_model(vocab_size, seed, **settings)."""

    def build(vocab_size=11, seed=1, source_vocab_size=None, **settings):
        return _moved(TransformerConfig(**TINY | settings), seed, source_vocab_size or vocab_size, vocab_size)

    return build


@pytest.fixture
def tiny_rnn():
    """Likewise of a recurrent model."""

    def build(vocab_size=11, seed=1, source_vocab_size=None, **settings):
        return _moved(RnnConfig(**TINY_RNN | settings), seed, source_vocab_size or vocab_size, vocab_size)

    return build


@pytest.fixture
def tiny_convolutional():
    """Likewise of a convolutional model."""

    def build(vocab_size=11, seed=1, source_vocab_size=None, **settings):
        config = ConvolutionalConfig(**TINY_CONVOLUTIONAL | settings)
        return _moved(config, seed, source_vocab_size or vocab_size, vocab_size)

    return build


def _moved(config, seed, source_vocab_size, target_vocab_size):
    """A model in fp64, so that what ought to be equal is equal to many digits; and not fresh, but sharpened.

    Fresh biases are 0 and fresh norms 1, which hides mistakes; fresh logits are so even that beams do not compete.
    """
    torch.manual_seed(seed)
    model = build_model(config, source_vocab_size, target_vocab_size).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture
def sources():
    """A function that draws source sentences BS of 1 to `longest` ids, the first of them the longest."""

    def draw(count, longest, vocab_size=11, seed=1):
        generator = torch.Generator().manual_seed(seed)
        ids_BS = torch.randint(EOS + 1, vocab_size, (count, longest), generator=generator)
        last_B1 = torch.randint(0, longest, (count, 1), generator=generator)
        last_B1[0] = longest - 1
        ids_BS.scatter_(1, last_B1, EOS)
        return ids_BS.masked_fill(torch.arange(longest) > last_B1, PAD)

    return draw


@pytest.fixture
def decoder_inputs(sources):
    """A function that draws decoder inputs BT, of BOS and 0 to `longest` - 1 words."""

    def draw(count, longest, vocab_size=11, seed=2):
        ids_BT = sources(count, longest, vocab_size, seed)
        shifted_BT = torch.where(ids_BT == EOS, PAD, ids_BT).roll(1, dims=1)
        shifted_BT[:, 0] = BOS
        return shifted_BT

    return draw


@pytest.fixture
def make_corpus(tmp_path: Path):
    """A function that makes a corpus of random ids with these lengths of its sources and targets, EOS included."""

    def make(sources: list[int], targets: list[int], vocab_size: int = 1000) -> EncodedCorpus:
        generator = np.random.default_rng(len(sources))

        def sentence(length: int) -> list[int]:
            return [*generator.integers(EOS + 1, vocab_size, length - 1).tolist(), EOS]

        rows = [(sentence(s), sentence(t)) for s, t in zip(sources, targets, strict=True)]
        write_encoded(tmp_path / "corpus", rows, vocab_size, vocab_size)
        return EncodedCorpus.load(tmp_path / "corpus")

    return make
