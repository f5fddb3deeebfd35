"""Searches on a GPU find in fp32 what they find on the CPU."""

import pytest
import torch
from helpers.plain_search import CAPS, VOCAB_SIZE, assert_same, beam_search, greedy

from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.engine import Sentence
from transformer_mt.decoding.sampling import sample
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.inference.cuda_graphs import CudaGraphTransformer
from transformer_mt.inference.frozen import frozen
from transformer_mt.kernels.device import choose_device
from transformer_mt.kernels.matmul import Matmul
from transformer_mt.settings.search_settings import DecodingConfig

pytestmark = pytest.mark.cuda

SIZES = {"d_model": 64, "num_heads": 4, "ffn_dim": 128, "max_positions": 128}
WORDS = 200


def drawn(model, source_BS):
    sampling = DecodingConfig(sampling=True, n_best=3, seed=5)
    return sample(model, source_BS, list(range(len(source_BS))), Constraints(CAPS), sampling)


SEARCHES = {
    "greedy": lambda model, source_BS: [[found] for found in greedy(model, source_BS, CAPS, 0.6)],
    "beam": lambda model, source_BS: beam_search(model, source_BS, 4, 0.6, CAPS),
    "best": lambda model, source_BS: beam_search(model, source_BS, 5, 1.0, CAPS, n_best=1, patience=1.0),
    "samples": drawn,
}


@pytest.mark.parametrize("search", SEARCHES)
def test_searches_of_a_model_in_fp64_find_the_same(search, tiny_model, sources):
    """Where hardly a rounding can make one translation better than another."""
    model, find = tiny_model(VOCAB_SIZE), SEARCHES[search]
    source_BS = sources(len(CAPS), 6, VOCAB_SIZE)
    expected = find(frozen(model, Matmul()), source_BS)
    ours = TorchEngine(model, 64, choose_device("cuda", "fp32")).searched
    assert isinstance(ours, CudaGraphTransformer)
    for _ in range(3):
        for found, theirs in zip(find(ours, source_BS.cuda()), expected, strict=True):
            assert_same(found, theirs)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "decoding",
    [
        {"beam_size": 1},
        {"beam_size": 4},
        {"beam_size": 4, "n_best": 4, "length_penalty": 1.0},
        {"beam_size": 5, "no_repeat_ngram": 3, "min_length": 4},
    ],
    ids=str,
)
def test_translations_in_fp32_are_those_of_the_cpu(decoding, tiny_model):
    """Of 200 sentences in batches of many shapes. Where two beginnings are equally good, to rounding, the search may
    keep the other one, and then all that follows is another: in at most four sentences. (A change of all weights by
    2e-6 does the same on the CPU: in up to three sentences, with scores up to 5 % lower.)
    """
    model = tiny_model(WORDS, **SIZES).float()
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 40, (200,), generator=generator).tolist()
    sentences = [
        Sentence([*torch.randint(4, WORDS, (length,), generator=generator).tolist(), 3], number=number)
        for number, length in enumerate(lengths)
    ]
    settings = DecodingConfig.model_validate({"max_extra_length": 10, "tokens_per_batch": 2000} | decoding)

    def translations(device):
        engine = TorchEngine(model, 128, choose_device(device, "fp32"))
        found = {
            number: hypotheses
            for numbers, together in engine.translate_unordered(sentences, settings)
            for number, hypotheses in zip(numbers, together, strict=True)
        }
        engine.close()
        return [found[number] for number in range(len(sentences))]

    ours, theirs = translations("cuda"), translations("cpu")
    same = 0
    for found, expected in zip(ours, theirs, strict=True):
        assert len(found) == len(expected)
        assert found[0].score >= 1.1 * expected[0].score  # a logarithm, below 0
        same += [each.tokens for each in found] == [each.tokens for each in expected]
        for one, other in zip(found, expected, strict=True):
            if one.tokens == other.tokens:
                assert one.score == pytest.approx(other.score, rel=1e-4, abs=1e-4)
    assert same >= 196
