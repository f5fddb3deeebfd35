"""Validation, against the sums and the translations that it stands for."""

import copy
import errno
import math
import multiprocessing
import os
import signal
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import NUM_VALID, new_learner, prepared_experiment
from helpers.untrained import LONG_LINES
from torch.nn import functional as F

from transformer_mt.base.cores import crowd
from transformer_mt.base.languages import BOS, EOS
from transformer_mt.base.system import CAN_FORK
from transformer_mt.base.wording import beginning
from transformer_mt.batches.encoded import EncodedCorpus, encoded_text, sentences_of
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.decoding.translator import Translator
from transformer_mt.evaluation.metrics import corpus_score
from transformer_mt.inference.fast import build_model
from transformer_mt.inference.frozen import FrozenTransformer
from transformer_mt.kernels.device import Device, choose_device
from transformer_mt.settings.model_settings import RnnConfig
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.training_settings import VALIDATION_METRICS, TrainingConfig
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learning import BatchLoss, Learner, MovingAverage
from transformer_mt.training.optimization import build_optimizer
from transformer_mt.training.run import validation as run_validation
from transformer_mt.training.run.validation import EXAMPLE, FEW, ValidationSet, load_validation, perplexity, validate

DEVICE = choose_device("cpu", "fp32")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return load_config(prepared_experiment(tmp_path_factory.mktemp("experiment")), ["model.dropout=0.5"])


@pytest.fixture(scope="module")
def directory(config, tmp_path_factory):
    return tmp_path_factory.getbasetemp() / config.data_dir


@pytest.fixture(scope="module")
def validation(config, directory):
    return ValidationSet(
        "",
        EncodedCorpus.load(directory / "valid"),
        next(iter(read_lines(directory / "valid.source.txt"))),
        list(read_lines(directory / "valid.target.txt")),
        Tokenizer.load(directory),
        "de",
        config.decoding.max_extra_length,
        config.model.max_positions,
        config.training.tokens_per_batch,
        NUM_VALID,
    )


@pytest.fixture(scope="module")
def model(config, validation):
    """Untrained, but with opinions: its translations are long, and none is like another."""
    torch.manual_seed(4)
    vocab_size = validation.tokenizer.target_vocab_size
    model = build_model(config.model, vocab_size, vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0).add_(0.1 * torch.randn_like(parameter))
    return model


def our_translator(model, validation, config):
    tokenizer = validation.tokenizer
    pieces = tokenizer.target_pieces(range(tokenizer.target_vocab_size))
    engine = TorchEngine(model, config.model.max_positions, DEVICE, target_pieces=pieces)
    return Translator(engine, validation.tokenizer, config.decoding, LONG_LINES)


@pytest.fixture(scope="module")
def translations(model, config, validation, directory):
    """What the model's greedy translator makes of the sources' text."""
    sources = list(read_lines(directory.parent / "valid.en"))
    translations = our_translator(model, validation, config).translate(sources, beam_size=1)
    assert len(set(translations)) == len(sources) == len(validation.references)
    return translations


def scores(model, validation, config, smoothing=0.1, device=DEVICE):
    loss = BatchLoss(model, device, smoothing, False).train()
    learner = Learner(loss, build_optimizer(model, config.training), MovingAverage(model, 0), config.training)
    return validate(learner, [validation])


@pytest.mark.thorough
@pytest.mark.parametrize("tokens_per_batch", [60, *thorough(400, 100_000)])
def test_nll_is_the_mean_over_all_target_tokens_whatever_the_batches(model, validation, config, tokens_per_batch):
    corpus, total, tokens = validation.corpus, 0.0, 0
    model.eval()
    for pair in range(len(corpus)):
        source, target = (
            torch.from_numpy(text.ids[text.offsets[pair] : text.offsets[pair + 1]].astype("int64"))
            for text in (corpus.source, corpus.target)
        )
        assert target[-1] == EOS
        decoder_input = torch.cat([torch.tensor([BOS]), target[:-1]])
        with torch.no_grad():
            logits_TV = model.project(model.features(source[None], decoder_input[None]))[0]
        total += F.cross_entropy(logits_TV.double(), target, reduction="sum").item()
        tokens += len(target)
    validation = replace(validation, tokens_per_batch=tokens_per_batch)
    found = scores(model.train(), validation, config, smoothing=0.3)
    assert found["nll"] == pytest.approx(total / tokens, rel=1e-5)
    assert perplexity(found["nll"]) == pytest.approx(math.exp(total / tokens), rel=1e-4)
    assert found.seconds > 0


@pytest.mark.parametrize("tokens_per_batch", [60, *thorough(400)])
def test_bleu_and_chrf_are_those_of_the_greedy_translations(model, validation, config, translations, tokens_per_batch):
    half_right = [*translations[: NUM_VALID // 2], *validation.references[NUM_VALID // 2 :]]
    validation = replace(validation, tokens_per_batch=tokens_per_batch)
    found = scores(model, replace(validation, references=half_right), config)
    assert 10 < found["bleu"] == corpus_score("bleu", translations, half_right, "de") < 90
    assert found["chrf"] == corpus_score("chrf", translations, half_right) not in (found["bleu"], 100)
    perfect = scores(model, replace(validation, references=translations), config)
    assert (perfect["bleu"], perfect["chrf"]) == pytest.approx((100, 100))
    source, translation = found.example.split(" → ")
    assert source == beginning(validation.first_source, EXAMPLE)
    assert translation == beginning(translations[0], EXAMPLE)
    cut = scores(model, replace(validation, first_source="a dog and " * 20), config).example.split(" → ")[0]
    assert cut.endswith("a dog …") and len(cut) <= 100


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("wanted", "decoded"),
    [(0, NUM_VALID), (5, 5), *thorough_rows((1, 1), (NUM_VALID, NUM_VALID), (5000, NUM_VALID))],
)
def test_only_the_first_sentences_are_translated_but_all_are_scored(
    model, validation, config, directory, translations, wanted, decoded
):
    references = [*translations[:decoded], *["ganz anders"] * (NUM_VALID - decoded)]

    def scores_of(valid_sentences):
        training = config.training.model_copy(update={"valid_sentences": valid_sentences})
        sections = (config.corpus, config.model, training, config.decoding)
        (loaded,) = load_validation(directory, validation.tokenizer, *sections)
        return scores(model, replace(loaded, references=references), config)

    assert scores_of(wanted)["bleu"] == pytest.approx(100)
    assert scores_of(wanted)["nll"] == pytest.approx(scores(model, validation, config)["nll"])
    if decoded < NUM_VALID:
        assert scores_of(decoded + 1)["bleu"] < 99


@pytest.mark.thorough
def test_translations_are_no_longer_than_the_settings_let_them_be(model, validation, config, directory):
    sources = list(read_lines(directory.parent / "valid.en"))
    tight = config.model_copy(update={"decoding": config.decoding.model_copy(update={"max_extra_length": 0})})
    short = our_translator(model, validation, tight).translate(sources, beam_size=1)
    found = scores(model, replace(validation, references=short, max_extra_length=0), config)
    assert found["bleu"] == pytest.approx(100)
    assert scores(model, replace(validation, references=short), config)["bleu"] < 100


@pytest.mark.thorough
def test_the_language_chooses_the_tokeniser_of_bleu(model, validation, config):
    class Polyglot(Tokenizer):
        def decode_target(self, ids):
            return "我今天喜欢吃苹果和香蕉"

    polyglot = Polyglot(validation.tokenizer.source, validation.tokenizer.target)
    # Of nine characters alike, and of no word.
    strange = replace(validation, tokenizer=polyglot, references=["我今天喜欢吃苹果和梨子"] * NUM_VALID)
    assert scores(model, replace(strange, target_language="zh"), config)["bleu"] > 50
    assert scores(model, strange, config)["bleu"] < 1


def test_training_goes_on_as_if_there_had_been_no_validation(model, validation, config):
    model.train()
    before = torch.get_rng_state()
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    graphs = []
    hook = model.decoder[0].register_forward_hook(lambda *_: graphs.append(torch.is_grad_enabled()))
    scores(model, validation, config)
    hook.remove()
    assert graphs and not any(graphs), "no graph is built"
    assert torch.equal(torch.get_rng_state(), before)
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(old, new) for old, new in zip(weights, model.parameters(), strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_the_moving_average_is_validated_where_there_is_one_and_the_weights_are_back_afterwards(
    model, validation, config, decay
):
    averaging = config.training.model_copy(update={"average_decay": decay})
    learner = new_learner(config.model_copy(update={"training": averaging}))
    for name, average in learner.average.averages.items():
        average.copy_(model.get_parameter(name).detach())
    ours, others = ([weight.detach().clone() for weight in each.parameters()] for each in (learner.model, model))
    found = validate(learner, [validation])
    of_the_model, of_the_weights = scores(model, validation, config), scores(learner.model, validation, config)
    assert found["nll"] == (of_the_model if decay else of_the_weights)["nll"]
    assert of_the_model["nll"] != of_the_weights["nll"]
    assert all(torch.equal(old, new) for old, new in zip(ours, learner.model.parameters(), strict=True))
    averages = zip(others, learner.average.averages.values(), strict=bool(decay))
    assert all(torch.equal(old, new) for old, new in averages)


@pytest.mark.thorough
def test_a_batch_that_does_not_fit_into_memory_is_split_and_the_scores_stay_the_same(
    model, validation, config, monkeypatch, capsys
):
    whole, sizes, losses = scores(model, validation, config), [], BatchLoss.forward

    def searched_within_memory(self, task):
        sizes.append(len(task[0]))
        if len(task[0]) > 3:
            raise MemoryError
        return search(self, task)

    def loss_within_memory(self, batch):
        if len(batch.pairs_B) > 3:
            raise MemoryError
        return losses(self, batch)

    search = TorchEngine._translate_batch
    monkeypatch.setattr(TorchEngine, "_translate_batch", searched_within_memory)
    monkeypatch.setattr(BatchLoss, "forward", loss_within_memory)
    split = scores(model, validation, config)
    assert max(sizes) > 3 and min(sizes) <= 3
    assert split.values == pytest.approx(whole.values, rel=1e-5)
    assert split.example == whole.example
    said = capsys.readouterr().err
    assert "there is too little memory: the validation set is translated again" in said and "micro-batch" in said


def test_where_onednn_got_no_memory_for_its_code_the_validation_does_without_it(model, validation, config, monkeypatch):
    whole, search = scores(model, validation, config), TorchEngine._translate_batch

    def refused(self, task):
        if torch.backends.mkldnn.enabled:
            raise RuntimeError("could not create a primitive")
        return search(self, task)

    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)  # this also puts it back after the test
    monkeypatch.setattr(TorchEngine, "_translate_batch", refused)
    assert scores(model, validation, config).values == pytest.approx(whole.values, rel=1e-5)


@pytest.fixture
def searched(monkeypatch):
    """The models that were searched in this process."""
    found, search = [], TorchEngine._search

    def noted(self, *arguments):
        found.append(self.searched)
        return search(self, *arguments)

    monkeypatch.setattr(TorchEngine, "_search", noted)
    return found


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_search_is_that_of_translate_whatever_the_precision_of_training(
    model, validation, config, translations, searched, precision
):
    perfect = replace(validation, references=translations)
    found = scores(model, perfect, config, device=choose_device("cpu", precision))
    assert found["bleu"] == pytest.approx(100)
    assert searched and all(isinstance(each, FrozenTransformer) for each in searched)
    assert (found["nll"] == scores(model, perfect, config)["nll"]) == (precision == "fp32")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["plain", "rnn"])
def test_a_model_without_a_form_for_search_is_searched_itself(model, validation, config, searched, precision, kind):
    settings = config.model if kind == "plain" else RnnConfig(kind="rnn", d_model=8)
    vocab_size = validation.tokenizer.target_vocab_size
    other = build_model(settings, vocab_size, vocab_size, "plain" if kind == "plain" else "fast")
    scores(other, replace(validation, num_decoded=2), config, device=choose_device("cpu", precision))
    assert searched and all(each is other for each in searched)


def test_a_model_without_a_form_in_bf16_is_searched_itself_on_a_gpu(validation, monkeypatch):
    """Nothing here needs a GPU: a device that holds no numbers stands for it, and no sentence is translated."""
    made, begin = [], TorchEngine.__init__

    def noted(self, *arguments, **options):
        made.append(self)
        begin(self, *arguments, **options)

    monkeypatch.setattr(TorchEngine, "__init__", noted)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(Device, "autocast", lambda self: nullcontext())
    monkeypatch.setattr(Tokenizer, "target_pieces", lambda self, ids: ["a"] * 9)
    rnn = build_model(RnnConfig(kind="rnn", d_model=8), 9, 9)
    device = Device(torch.device("meta"), torch.bfloat16, "")
    assert run_validation._greedy(rnn, device, validation, [], 1, 100) == []
    assert [engine.plain for engine in made] == [False, True] and made[1].searched is rnn


@pytest.fixture
def two_threads(monkeypatch):
    """Two threads, as training would have on two cores."""
    monkeypatch.setattr(run_validation, "num_cores", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def many(validation, translations):
    """More sentences than one process translates alone, with the translations as their references."""
    times, corpus = math.ceil(FEW / NUM_VALID), validation.corpus
    pairs = np.tile(np.arange(NUM_VALID), times)
    sides = (encoded_text(sentences_of(text, pairs), np.uint16) for text in (corpus.source, corpus.target))
    references = list(translations) * times
    return replace(validation, corpus=EncodedCorpus(*sides), references=references, num_decoded=len(pairs))


@pytest.mark.skipif(not CAN_FORK, reason="without forks, this process translates")
def test_many_sentences_are_shared_by_as_many_processes_as_training_has_threads(
    model, many, config, searched, two_threads
):
    found = scores(model, many, config)
    assert found["bleu"] == pytest.approx(100)
    assert not searched, "this process only waits"
    assert not multiprocessing.active_children(), "the weights of the next validation are others"
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not CAN_FORK, reason="without forks, this process translates")
def test_processes_start_while_threads_wait_asleep_beside_other_programs(model, many, config, two_threads):
    torch.ones(1 << 16).add(1)  # both threads have begun
    is_over = threading.Event()
    threading.Thread(target=crowd, args=(is_over,)).start()
    try:
        assert scores(model, many, config)["bleu"] == pytest.approx(100)
    finally:
        is_over.set()


def test_the_ranks_of_a_machine_share_its_cores(model, many, searched, two_threads):
    found = run_validation._translate_share(model.eval(), DEVICE, many, Ranks(0, 1, 0, 2))
    assert list(found.values()) == many.references and searched, "one process, one core"
    shares = [run_validation._translate_share(model, DEVICE, many, Ranks(rank, 3)) for rank in range(3)]
    assert sorted(pair for share in shares for pair in share) == list(range(many.num_decoded))


@pytest.mark.thorough
@pytest.mark.skipif(not CAN_FORK, reason="without forks, no process is killed")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_when_a_process_is_killed_this_one_translates(model, many, config, two_threads, monkeypatch, capsys, signum):
    """SIGTERM comes to all processes of a job: then training ends after this validation, which the processes finish."""
    search, here = TorchEngine._search, os.getpid()

    def killed_elsewhere(self, *arguments):
        if os.getpid() != here:
            os.kill(os.getpid(), signum)
        return search(self, *arguments)

    monkeypatch.setattr(TorchEngine, "_search", killed_elsewhere)
    assert scores(model, many, config)["bleu"] == pytest.approx(100)
    said = "cannot start, or was killed: the validation set is translated again in this process alone"
    assert (said in capsys.readouterr().err) == (signum == signal.SIGKILL)


@pytest.mark.skipif(not CAN_FORK, reason="without forks, no process starts")
def test_when_no_process_can_start_this_one_translates(model, many, config, two_threads, monkeypatch, capsys):
    def fork():
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os, "fork", fork)
    assert scores(model, many, config)["bleu"] == pytest.approx(100)
    assert "a process for it cannot start" in capsys.readouterr().err


def test_perplexity_never_overflows():
    assert math.isfinite(perplexity(1e6))


def test_every_metric_that_can_be_chosen_is_measured_and_no_other(model, validation, config):
    names = get_args(TrainingConfig.model_fields["metric"].annotation)
    assert sorted(names) == sorted(VALIDATION_METRICS) == sorted(scores(model, validation, config).values)


@pytest.mark.thorough
def test_a_model_without_finite_numbers_has_a_bleu_of_zero(model, validation, config):
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.target_embedding.weight.fill_(math.nan)
    found = scores(broken, validation, config)
    assert math.isnan(found["nll"])
    assert (found["bleu"], found["chrf"]) == (0.0, 0.0)
