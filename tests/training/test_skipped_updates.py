"""Updates that are not finite: none moves anything, all are counted, and too many in a row stop the run."""

from itertools import islice

import numpy as np
import pytest
import torch
from helpers.messages import message, says
from helpers.tiny import (
    assert_same_weights,
    log_records,
    poisoned_checkpoint,
    train_tiny,
    weights_at,
    write_experiment,
)

from transformer_mt import prepare, train
from transformer_mt.base.errors import TrainingError
from transformer_mt.batches.encoded import EncodedCorpus, described
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.settings.reading import load_config
from transformer_mt.terminal import cli
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.progress import Progress
from transformer_mt.training.run.checkpoint import checkpoint_path, load_progress, saved_steps
from transformer_mt.training.run.running import MOST_IN_A_ROW, count_update
from transformer_mt.training.update import Numbers, Update

BLANKS = 3  # lines before the first pair, so that lines and pairs are not numbered alike
OWN = ("model.tied_embeddings=none", "training.log_every=1")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    directory = tmp_path_factory.mktemp("experiment")
    path = write_experiment(directory)
    for language in ("en", "de"):
        file = directory / f"train.{language}"
        file.write_text("\n" * BLANKS + file.read_text())
    assert prepare.main([str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def corpus(experiment):
    return EncodedCorpus.load(experiment.parent / "data" / "train")


def with_piece(corpus, piece):
    """The pairs whose source has it."""
    bounds = zip(corpus.source.offsets[:-1], corpus.source.offsets[1:], strict=True)
    return {pair for pair, (start, end) in enumerate(bounds) if piece in corpus.source.ids[start:end]}


def bad_updates(experiment, corpus, piece, settings):
    """Of the first ten updates the pairs of those that have the piece, by step."""
    loader = Loader(corpus, settings.tokens_per_batch, settings.tokens_per_update, settings.seed)
    pairs = {
        step: set(np.concatenate(update).tolist())
        for step, (update, _) in enumerate(islice(loader.updates(Position()), 10), start=1)
    }
    return {step: found for step, found in pairs.items() if found & with_piece(corpus, piece)}


@pytest.fixture(scope="module")
def poisoned(experiment, corpus, tmp_path_factory):
    """A function that makes a checkpoint in which the source embedding of one piece is infinite once it is scaled."""

    def make(piece):
        return poisoned_checkpoint(experiment, tmp_path_factory.mktemp("poisoned"), piece)[-1]

    return make


@pytest.fixture(scope="module")
def rare(experiment, corpus):
    """A piece of a few sources of training, in two or three of the first ten updates, and of none of validation."""
    settings = load_config(experiment).training
    valid = set(EncodedCorpus.load(experiment.parent / "data" / "valid").source.ids.tolist())
    pieces = sorted(set(corpus.source.ids.tolist()) - valid)
    return next(piece for piece in pieces if len(bad_updates(experiment, corpus, piece, settings)) in (2, 3))


@pytest.mark.thorough
def test_bad_updates_are_skipped_counted_and_logged_and_the_run_goes_on(
    experiment, corpus, poisoned, rare, tmp_path, capsys
):
    settings = (*OWN, poisoned(rare), "training.max_steps=10", "training.save_every=1", "training.keep_last=10")
    run = train_tiny(experiment, tmp_path / "run", *settings)
    bad = bad_updates(experiment, corpus, rare, load_config(experiment).training)
    assert bad and max(bad) < 11
    records = {record["step"]: record for record in log_records(run) if "loss" in record}
    assert records.keys() == set(range(1, 11)) - bad.keys(), "there is nothing to say of an update that was skipped"
    for step, record in records.items():
        assert record["skipped"] == sum(each < step for each in bad)
    assert capsys.readouterr().err.count("warning: 1 update skipped") == len(bad)
    for step in range(2, 11):
        one, other = weights_at(run, step - 1), weights_at(run, step)
        moved = any(not torch.equal(weight, other[name]) for name, weight in one.items())
        assert moved == (step not in bad)
        progress = load_progress(checkpoint_path(run, step))
        assert (progress.skipped, progress.skipped_in_a_row > 0) == (sum(each <= step for each in bad), step in bad)
    assert all(weight.isfinite().all() for name, weight in weights_at(run, 10).items() if "source_emb" not in name)

    # A stop between two of them is as if there had been none.
    stop = min(bad)
    train_tiny(experiment, tmp_path / "again", *settings, f"training.max_steps={stop}")
    train_tiny(experiment, tmp_path / "again", *settings)
    assert_same_weights(weights_at(tmp_path / "again", 10), weights_at(run, 10))
    assert log_records(tmp_path / "again")[-1]["step"] == 10
    assert load_progress(checkpoint_path(tmp_path / "again", 10)).skipped == len(bad)


@pytest.mark.thorough
def test_too_many_in_a_row_stop_the_run_with_the_step_and_the_lines_of_the_text(
    experiment, corpus, poisoned, tmp_path, capsys
):
    # EOS, which every source has.
    arguments = [str(experiment), f"run_dir={tmp_path}", *OWN, poisoned(3)]
    capsys.readouterr()
    assert cli.run(train.main, arguments) == 2
    error = capsys.readouterr().err
    limit = MOST_IN_A_ROW
    pairs = bad_updates(experiment, corpus, 3, load_config(experiment).training)[limit]
    lines = ", ".join(str(pair + 1 + BLANKS) for pair in sorted(pairs))
    place = f" {lines} of {experiment.parent / 'train.en'}."
    assert says(error, "updates-not-finite", f" {limit} updates", f" {limit},", place)
    assert all(step < limit for step in saved_steps(tmp_path))


@pytest.mark.thorough
def test_with_a_rate_that_is_far_too_high_nothing_infinite_is_ever_saved(experiment, tmp_path):
    arguments = [
        f"run_dir={tmp_path}",
        "training.warmup_steps=1",
        "training.save_every=1",
    ]
    config = load_config(experiment, arguments)
    # More than a configuration may have.
    config = config.model_copy(update={"training": config.training.model_copy(update={"peak_lr": 1e30})})
    with pytest.raises(TrainingError, match=message("updates-not-finite")):
        train.train_run(config, Ranks())
    assert saved_steps(tmp_path)
    for step in saved_steps(tmp_path):
        assert all(weight.isfinite().all() for weight in weights_at(tmp_path, step).values())


def update(step, is_finite=True, splits=0, pairs=(0,)):
    zero, num_batches = torch.tensor(0.0), torch.tensor(1.0 + splits)
    numbers = Numbers(zero, zero, num_batches, zero, torch.tensor(is_finite))
    return Update(numbers, step, 0.1, 1, 1, 1, torch.tensor(pairs))


class TestCounting:
    def count(self, progress, update, limit=3):
        def lines_of(pairs):
            return described([("a.en", pair + 100) for pair in pairs.tolist()])

        return count_update(progress, update, limit, lines_of, Ranks())

    def test_skipped_updates_and_split_micro_batches_are_counted(self):
        progress = Progress()
        finite = [True, False, True, False, False, True, True, False, True, True]
        for step, is_finite in enumerate(finite, start=1):
            progress = self.count(progress, update(step, is_finite, splits=step == 4))
        assert (progress.skipped, progress.skipped_in_a_row, progress.split) == (4, 0, 1)

    def test_those_at_the_end_are_in_a_row(self):
        progress = Progress(skipped=7)
        for step, is_finite in enumerate([False, True, False, False], start=1):
            progress = self.count(progress, update(step, is_finite))
        assert (progress.skipped, progress.skipped_in_a_row) == (10, 2)

    def test_a_row_goes_on_where_a_run_was_taken_up(self):
        with pytest.raises(TrainingError, match=message("updates-not-finite", "3", "8", "105, 107 of a.en")):
            self.count(Progress(step=7, skipped_in_a_row=2), update(8, False, pairs=(7, 5)))

    def test_it_names_the_one_that_was_one_too_many(self):
        progress = Progress()
        with pytest.raises(TrainingError, match=message("updates-not-finite", "3", "5")):
            for step in range(1, 100):
                progress = self.count(progress, update(step, step < 3))

    @pytest.mark.parametrize("number", [20, 21, 300])
    def test_of_many_lines_the_first_are_shown(self, number):
        lines, more = ", ".join(map(str, range(100, 120))), f", and {number - 20} more" if number > 20 else ""
        with pytest.raises(TrainingError, match=message("updates-not-finite", f" {lines} of a.en{more}.")):
            self.count(Progress(), update(1, False, pairs=range(number)), limit=1)
