"""What is chosen for a text and a machine is allowed, and follows from the amount of text and of time."""

import re

import pytest
from helpers.thorough import pairwise

from transformer_mt.settings.choosing import (
    AHEAD,
    EVALUATING,
    FEWEST_VALIDATED,
    LIKELIHOOD,
    MOST_EPOCHS,
    SIZES,
    START_UP,
    TUNING_CANDIDATES,
    VALIDATING,
    Stages,
    Text,
    choose,
    choose_tuning,
    reached,
    too_little_read,
)

MACHINES = {"slow": (2_000, 400, 40), "fast": (20_000, 6_000, 1_000), "gpu": (400_000, 300_000, 150_000)}


def chosen(num_pairs, minutes, machine, words=10):
    text = Text(num_pairs, words * num_pairs)
    sizes = [size for size in SIZES if text.num_words >= size.fewest_words]
    stages = Stages(minutes, min(1000, num_pairs // 20), text.num_tokens / num_pairs)
    return choose(text, stages, dict(zip(sizes, MACHINES[machine], strict=False)))


@pairwise(together=3, num_pairs=[500, 15_000, 160_000, 10_000_000], minutes=[1, 60, 10_000], machine=list(MACHINES))
def test_training_takes_no_longer_than_there_is_time_and_reads_no_text_too_often(num_pairs, minutes, machine):
    found = chosen(num_pairs, minutes, machine)
    at_least = 100 * 1024 / MACHINES[machine][SIZES.index(found.size)]  # for the fewest updates
    assert found.seconds <= max(60 * minutes, at_least)
    assert found.num_epochs <= 200 or found.max_steps == 100
    assert found.warmup_steps < found.num_updates <= found.max_steps
    assert 1000 <= found.vocab_size <= 32_000


@pytest.mark.parametrize("num_pairs", [500, 15_000, 10_000_000])
@pytest.mark.parametrize("machine", MACHINES)
def test_with_more_time_there_is_no_less_training_and_no_smaller_model(num_pairs, machine):
    found = [chosen(num_pairs, minutes, machine) for minutes in (2, 5, 20, 60, 300, 3000)]
    sizes = [SIZES.index(each.size) for each in found]
    assert sizes == sorted(sizes)
    for size in set(sizes):
        epochs = [each.num_epochs for each in found if SIZES.index(each.size) == size]
        dropouts = [each.dropout for each in found if SIZES.index(each.size) == size]
        assert epochs == pytest.approx(sorted(epochs), rel=0.05)  # updates are rounded
        assert dropouts == sorted(dropouts)


def test_a_larger_model_needs_more_text_and_more_time():
    assert chosen(500_000, 60, "gpu").size == SIZES[2]
    assert chosen(5_000, 60, "gpu").size == SIZES[0]  # so little text is learnt by heart
    assert chosen(500_000, 2, "slow").size == SIZES[0]  # so slow a machine reads too little of it
    for size in SIZES:
        assert size.num_weights > 0 and size.fewest_tokens >= 0


def test_more_text_has_more_pieces():
    pieces = [chosen(num_pairs, 60, "fast").vocab_size for num_pairs in (1_000, 15_000, 50_000, 300_000, 10**7)]
    assert pieces == sorted(set(pieces))


def test_few_updates_have_a_higher_rate():
    few, many = chosen(160_000, 2, "slow"), chosen(160_000, 60, "slow")
    assert few.size == many.size and few.num_updates <= 300 < many.num_updates
    assert few.peak_lr == pytest.approx(1.5 * many.peak_lr)


@pytest.mark.parametrize("minutes", [2, 20, 300, 3000])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_whole_training_shrinks_weights_as_much_with_few_updates_as_with_many(minutes, machine):
    found = chosen(160_000, minutes, machine)
    shrinking = found.weight_decay * found.num_updates * found.peak_lr / 2  # a rate that falls from the peak to 0
    assert found.weight_decay <= 1.0
    assert 3 < shrinking < 6.5 or (found.weight_decay == 1.0 and shrinking < 4.5)  # rounded to one digit


def test_only_a_text_that_is_read_often_is_first_learnt_in_both_directions():
    often, rarely = chosen(5_000, 30, "fast"), chosen(160_000, 30, "fast")
    assert often.num_epochs >= 30 > rarely.num_epochs
    assert often.num_both == often.num_updates // 2 and rarely.num_both == 0


@pytest.mark.parametrize(("words", "said"), [(1, "5,000 captions"), (80_000, "13,400"), (10**9, "165,000")])
def test_what_a_similar_text_reached_is_told(words, said):
    assert reached(Text(1, words)).startswith(said)


def test_the_number_of_weights_is_that_of_the_matrices_of_a_model():
    torch = pytest.importorskip("torch")
    from transformer_mt.inference.fast import build_model
    from transformer_mt.settings.model_settings import TransformerConfig

    size = SIZES[0]
    layers = {"encoder_layers": size.layers, "decoder_layers": size.layers}
    shape = {"d_model": size.d_model, "ffn_dim": size.ffn_dim, "num_heads": size.num_heads}
    model = build_model(TransformerConfig(**layers, **shape), 50, 50)
    embeddings = {module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    matrices = [weight for weight in model.parameters() if weight.dim() == 2 and weight not in embeddings]
    assert size.num_weights == sum(weight.numel() for weight in matrices)


def seconds_of_validation(stages, plan, speed):
    tokens, num_decoded = stages.num_held * stages.tokens_of_pair, plan.num_validated * stages.num_sets
    decoded = min(stages.num_held, num_decoded) * stages.tokens_of_pair
    return tokens / (LIKELIHOOD * speed) + decoded / (VALIDATING * speed)


@pytest.mark.parametrize("minutes", [5, 8, 60, 600])
@pytest.mark.parametrize("tokens_of_pair", [8, 30])
@pytest.mark.parametrize(("num_sets", "num_candidates"), [(1, 2), (3, TUNING_CANDIDATES)])
def test_all_stages_together_take_the_time_that_there_is(minutes, tokens_of_pair, num_sets, num_candidates):
    speed = 8000.0
    stages = Stages(minutes, 900, tokens_of_pair, 4.0, num_sets, num_candidates)
    plan = stages.plan(speed)
    validation = seconds_of_validation(stages, plan, speed)
    assert 60 * plan.max_minutes + plan.besides == pytest.approx(60 * minutes, abs=6.1)
    validated = num_candidates + (plan.num_validations == 1)  # training does not know how long its first will be
    assert plan.besides > START_UP + 4.0 + 900 * tokens_of_pair / (EVALUATING * speed) + validated * validation
    in_training = plan.num_validations * validation if plan.num_validations > 1 else 0
    assert plan.seconds + in_training == pytest.approx(60 * plan.max_minutes, abs=6.1)
    assert 1 <= plan.num_validations <= 10 and FEWEST_VALIDATED <= plan.num_validated <= 900
    if plan.num_validations > 1:
        assert (plan.num_validations + num_candidates) * validation <= 0.1 * 60 * minutes


def test_short_trainings_validate_fewer_sentences_and_then_less_often():
    plans = [Stages(minutes, 1000, 20.0).plan(4000.0) for minutes in (2, 4, 8, 16, 60)]
    assert [plan.num_validations for plan in plans] == sorted(plan.num_validations for plan in plans)
    assert [plan.num_validated for plan in plans] == sorted(plan.num_validated for plan in plans)
    assert (plans[0].num_validations, plans[0].num_validated) == (1, 200)
    assert (plans[-1].num_validations, plans[-1].num_validated) == (10, 1000)


def test_without_time_for_the_other_stages_something_is_trained():
    plan = Stages(1, 1000, 30.0, measuring=600.0).plan(100.0)
    assert plan.seconds > 0 and 0.1 <= plan.max_minutes < 1 < plan.besides / 60


@pytest.mark.parametrize("num_pairs", [500, 100_000])
def test_more_updates_are_planned_than_expected_unless_the_text_is_read_often_enough(num_pairs):
    found = chosen(num_pairs, 30, "fast")
    if num_pairs == 500:
        assert found.max_steps == found.num_updates and found.num_epochs == pytest.approx(MOST_EPOCHS, rel=0.1)
    else:
        assert found.max_steps == pytest.approx(AHEAD * found.num_updates, abs=50)
    assert found.seconds <= 1.1 * found.plan.seconds


def test_fine_tuning_validates_all_the_mixtures_that_average_makes():
    pytest.importorskip("torch")
    from transformer_mt.training.run.candidates import INITIAL_SHARES

    assert len(INITIAL_SHARES) + 2 == TUNING_CANDIDATES
    stages = Stages(5, 400, 10.0, num_sets=2, num_candidates=TUNING_CANDIDATES)
    few, many = choose_tuning(100_000, True, 128, stages, 3000.0), choose_tuning(1000, True, 128, stages, 30_000.0)
    assert few.max_steps > few.num_updates and few.seconds == pytest.approx(few.plan.seconds, rel=0.1)
    assert many.max_steps == many.num_updates == 300


@pytest.mark.parametrize("num_pairs", [3_000, 16_000, 300_000])
@pytest.mark.parametrize("words", [7, 25])
def test_a_time_that_is_too_short_is_told_with_one_that_is_enough(num_pairs, words):
    text = Text(num_pairs, words * num_pairs)
    short = too_little_read(chosen(num_pairs, 2, "slow", words), text, 2)
    assert short.startswith("--minutes 2 is too short for a useful model")
    enough = int(re.search(r"needs --minutes (\d+) or more", short)[1])
    assert too_little_read(chosen(num_pairs, enough, "slow", words), text, enough) == ""
    assert too_little_read(chosen(num_pairs, 0.6 * enough, "slow", words), text, 0.6 * enough) != ""


def test_a_text_so_short_that_it_is_read_often_enough_is_not_told():
    assert too_little_read(chosen(300, 30, "fast"), Text(300, 3000), 30) == ""
