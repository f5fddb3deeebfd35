"""What is chosen for a text and a machine is allowed, and follows from the amount of text and of time."""

import pytest
from helpers.thorough import pairwise

from transformer_mt.settings.choosing import FEWEST_TOKENS, SIZES, Text, candidates, choose, reached

MACHINES = {"slow": (2_000, 400, 40), "fast": (20_000, 6_000, 1_000), "gpu": (400_000, 300_000, 150_000)}


def chosen(num_pairs, minutes, machine, words=10):
    text = Text(num_pairs, words * num_pairs)
    sizes = candidates(text)
    return choose(text, minutes, dict(zip(sizes, MACHINES[machine], strict=False)))


@pairwise(together=3, num_pairs=[500, 15_000, 160_000, 10_000_000], minutes=[1, 60, 10_000], machine=list(MACHINES))
def test_training_takes_no_longer_than_there_is_time_and_reads_no_text_too_often(num_pairs, minutes, machine):
    found = chosen(num_pairs, minutes, machine)
    at_least = 100 * 1024 / MACHINES[machine][SIZES.index(found.size)]  # for the fewest updates
    assert found.seconds <= max(60 * minutes, at_least)
    assert found.num_epochs <= 200 or found.max_steps == 100
    assert found.warmup_steps < found.max_steps
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
    for size, tokens in zip(SIZES, FEWEST_TOKENS, strict=True):
        assert size.num_weights > 0 and tokens >= 0


def test_more_text_has_more_pieces():
    pieces = [chosen(num_pairs, 60, "fast").vocab_size for num_pairs in (1_000, 15_000, 50_000, 300_000, 10**7)]
    assert pieces == sorted(set(pieces))


def test_few_updates_have_a_higher_rate():
    few, many = chosen(160_000, 2, "slow"), chosen(160_000, 60, "slow")
    assert few.size == many.size and few.max_steps <= 300 < many.max_steps
    assert few.peak_lr == pytest.approx(1.5 * many.peak_lr)


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
