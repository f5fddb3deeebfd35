"""What a machine cannot hold is refused before it is begun, and nothing else is."""

from contextlib import nullcontext

import pytest
import torch
from conftest import TINY, TINY_RNN

from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.device import choose_device
from transformer_mt.errors import ConfigError
from transformer_mt.host_memory import machine_memory
from transformer_mt.inference.build import build_model
from transformer_mt.inference.ensemble import Ensemble
from transformer_mt.settings import needed_memory
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.settings.model import ConvolutionalConfig, RnnConfig, TransformerConfig
from transformer_mt.settings.needed_memory import IN_TRAINING, check_model_memory, check_search_memory, least_weights

BIG = TransformerConfig(encoder_layers=1000, decoder_layers=1000, d_model=65_536, ffn_dim=65_536)
SHAPES = [
    *(TransformerConfig(**TINY | more) for more in ({}, {"activation": "swiglu"}, {"positions": "learned"})),
    *(TransformerConfig(**TINY | {"tied_embeddings": tied}) for tied in ("target", "none")),
    TransformerConfig(d_model=64, ffn_dim=256, decoder_layers=2),
    *(RnnConfig(**TINY_RNN | more) for more in ({}, {"cell": "lstm"}, {"encoder_layers": 3}, {"decoder_layers": 3})),
    ConvolutionalConfig(kind="convolutional", d_model=64, encoder_layers=3, kernel_width=5, max_positions=64),
    RnnConfig(kind="rnn", d_model=64, attention="none", input_feeding=False, tied_embeddings="none"),
]


@pytest.mark.parametrize("model", SHAPES, ids=repr)
def test_weights_are_estimated_and_never_too_many(model):
    sizes = (300, 300) if model.tied_embeddings == "all" else (300, 200)
    built = build_model(model, *sizes)
    numbers = sum(x.numel() for x in [*built.parameters(), *built.buffers()])
    assert 0.65 * numbers < least_weights(model, *sizes) <= numbers


def test_a_model_beyond_the_machine_is_refused_before_it_is_built():
    before = torch.get_rng_state()
    with pytest.raises(ConfigError, match=r"model\.encoder_layers=1000, .* about [\d,]+ weights and needs [\d,.]+ GB"):
        build_model(BIG, 1000, 1000)
    assert torch.equal(before, torch.get_rng_state())


def test_training_needs_four_numbers_a_weight(monkeypatch):
    model = TransformerConfig()
    monkeypatch.setattr(needed_memory, "machine_memory", lambda: 3 * 4 * least_weights(model, 1000, 1000))
    check_model_memory(model, 1000, 1000)
    with pytest.raises(ConfigError, match="GB to train it; this machine has"):
        check_model_memory(model, 1000, 1000, copies=IN_TRAINING)


@pytest.mark.parametrize("settings", [{"beam_size": 10_000}, {"n_best": 10_000, "sampling": True}])
def test_a_beam_beyond_the_machine_is_refused(settings):
    [key] = settings.keys() & {"beam_size", "n_best"}
    wide = TransformerConfig(d_model=65_536, num_heads=64)
    with pytest.raises(ConfigError, match=rf"decoding\.{key}=10000 needs [\d,]+\.\d GB .* up to 1,024 pieces"):
        check_search_memory(DecodingConfig(**settings), wide, 32_000, 1024, keeps_all_pasts=False)


def test_what_researchers_do_is_not():
    check_model_memory(TransformerConfig(), 32_000, 32_000, copies=IN_TRAINING)
    decoding = DecodingConfig(beam_size=500, n_best=500)
    check_search_memory(decoding, TransformerConfig(), 32_000, 256, keeps_all_pasts=True)


def test_memory_grows_with_the_square_of_the_beam_where_no_past_moves(monkeypatch):
    monkeypatch.setattr(needed_memory, "machine_memory", lambda: 23 * 10**9)
    small = TransformerConfig(d_model=128, ffn_dim=512, num_heads=4)
    for width, is_refused in ((4000, False), (10_000, True)):
        decoding = DecodingConfig(beam_size=width)
        check_search_memory(decoding, small, 2000, 54, keeps_all_pasts=False)
        with pytest.raises(ConfigError, match=r"beam_size=10000 needs \d\d\.\d GB") if is_refused else nullcontext():
            check_search_memory(decoding, small, 2000, 54, keeps_all_pasts=True)


def test_a_window_bounds_what_is_kept_of_a_long_past(monkeypatch):
    """A plain search keeps what a hypothesis may see, and no more is asked for."""
    monkeypatch.setattr(needed_memory, "machine_memory", lambda: 10**8)
    decoding, sizes = DecodingConfig(beam_size=100), {"d_model": 128, "ffn_dim": 512, "num_heads": 4}
    check_search_memory(decoding, TransformerConfig(**sizes, attention_window=9), 2000, 1024, keeps_all_pasts=False)
    with pytest.raises(ConfigError, match=r"beam_size=100 needs 0\.6 GB"):
        check_search_memory(decoding, TransformerConfig(**sizes), 2000, 1024, keeps_all_pasts=False)


@pytest.mark.parametrize(
    ("model", "keeps"),
    [({}, True), ({"attention_score": "dot"}, False), ({"attention_window": 2}, False)],
    ids=["frozen", "dot", "window"],
)
def test_pasts_of_all_hypotheses_are_kept_together_where_the_frozen_form_is_searched(model, keeps, tiny_model):
    one = tiny_model(**model).float()
    for searched in (one, Ensemble([tiny_model(attention_score="dot").float(), one])):
        assert TorchEngine(searched, 12, choose_device("cpu", "fp32")).keeps_all_pasts is keeps


def test_memory_of_a_machine_is_more_than_this_process_has():
    assert 10**8 < machine_memory() < 10**15
