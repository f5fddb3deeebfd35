"""Numbers that are not finite: each line has the translation that it has alone, or an error names the line."""

import itertools
import random

import pytest
import torch
from helpers.messages import message, says
from helpers.plain_search import beam_search
from helpers.thorough import thorough
from helpers.tiny import demo_pairs
from helpers.untrained import LONG_LINES

from transformer_mt import export
from transformer_mt.base.errors import NotFiniteError, UserError
from transformer_mt.base.languages import PAD
from transformer_mt.decoding.ctranslate2_engine import CTranslate2Engine
from transformer_mt.decoding.scorer import Scorer
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.decoding.translator import Translator
from transformer_mt.exporting.trained_model import read_trained
from transformer_mt.inference.fast import build_model
from transformer_mt.kernels.device import choose_device
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.search_settings import DecodingConfig

PAIRS = demo_pairs(7)
LINES = [source for source, _ in PAIRS]
LINES.insert(4, "")
SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "n_best": 2, "max_extra_length": 10},
    "long beam": {"beam_size": 4, "patience": 0.0, "max_extra_length": 10, "no_repeat_ngram": 2, "min_length": 3},
    "coverage": {"beam_size": 2, "coverage_penalty": 0.2},
}
SAMPLING = {"sampling": True, "n_best": 2, "top_k": 30, "max_extra_length": 10}  # depends on the place of a line
all_searches = pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES.keys())
BAD = [float("nan"), float("inf"), -float("inf"), 1e30, -1e38]
NAN = float("nan")


def loaded(model_dir):
    return Translator.load(model_dir, "cpu", workers=1)


def weights_of(translator):
    return dict(translator.engine.model.named_parameters())


def spoil(translator, seed):
    """Write numbers into a row of some weight that make others infinite, or no numbers."""
    choose = random.Random(seed)
    weights = weights_of(translator)
    # Half of them into an embedding, which concerns some lines only.
    name = choose.choice([*weights, *[name for name in weights if "embedding" in name] * len(weights)])
    with torch.no_grad():
        # Not into that of padding, which no sentence holds, and which would reach those of a batch that are padded.
        weights[name][choose.randrange(PAD + 1, len(weights[name]))] = choose.choice(BAD)


def with_a_broken_piece(tokenizer, line, dtype="fp32", quantize="none", workers=1):
    """A translator by an untrained model, whose embedding of a piece of this line only is no number."""
    torch.manual_seed(1)
    sizes = {"d_model": 32, "ffn_dim": 64, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    settings = TransformerConfig(tied_embeddings="target", max_positions=64, **sizes)
    model = build_model(settings, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    ids = tokenizer.encode_source(LINES)
    others = {piece for number, pieces in enumerate(ids) for piece in pieces if number != line}
    with torch.no_grad():
        model.source_embedding.weight[next(piece for piece in ids[line] if piece not in others)] = NAN
    engine = TorchEngine(model, 64, choose_device("cpu", dtype, 1), quantize, workers)
    return Translator(engine, tokenizer, DecodingConfig(), LONG_LINES)


def alone(translator, decoding, line, **options):
    """The texts that a line has where it is translated alone; None if its numbers are not finite."""
    try:
        (found,) = translator.translations([line], decoding, **options)
    except NotFiniteError as error:
        assert says(str(error), "not-finite-numbers", "1")
        return None
    return [translation.text for translation in found]


def check_every_line(model_dir, settings, seed):
    translator, decoding = loaded(model_dir), DecodingConfig(**settings)
    spoil(translator, seed)
    options = {"alignment": True} if seed % 2 else {"scores": False}
    expected = [alone(translator, decoding, line, **options) for line in LINES]
    if None in expected:
        with pytest.raises(NotFiniteError, match=message("not-finite-numbers", str(101 + expected.index(None)))):
            translator.translations(LINES, decoding, first_line=101, **options)
    else:
        found = translator.translations(LINES, decoding, **options)
        assert [[each.text for each in of_line] for of_line in found] == expected


@pytest.mark.thorough
@all_searches
@pytest.mark.parametrize("seed", [0, *thorough(1)])
def test_every_line_has_its_own_translation_or_is_named(seed, settings, model_dir):
    check_every_line(model_dir, settings, seed)


@pytest.mark.slow
@all_searches
@pytest.mark.parametrize("seed", range(2, 40))
def test_so_it_is_with_many_other_weights(seed, settings, model_dir):
    check_every_line(model_dir, settings, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [*SEARCHES.values(), SAMPLING], ids=[*SEARCHES, "sampling"])
def test_a_line_that_holds_a_broken_piece_is_named(settings, joint_tokenizer):
    translator = with_a_broken_piece(joint_tokenizer, line=6)
    decoding = DecodingConfig(**settings | {"max_extra_length": 2})
    assert len(translator.translations(LINES[:6], decoding)) == 6
    with pytest.raises(NotFiniteError, match=message("not-finite-numbers", "7")):
        translator.translations(LINES, decoding)


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"dtype": "bf16"}, {"workers": 2}], ids=str)
def test_so_it_is_in_other_precisions_and_by_workers(options, joint_tokenizer):
    translator = with_a_broken_piece(joint_tokenizer, line=6, **options)
    for settings in SEARCHES.values():
        with pytest.raises(NotFiniteError, match=message("not-finite-numbers", "7")):
            translator.translations(LINES, DecodingConfig(**settings | {"max_extra_length": 2}))
    translator.engine.translators.close()


def test_what_int8_cannot_multiply_is_named(joint_tokenizer):
    """It makes some numbers of those that are none, and refuses others: weights are checked where they are read."""
    translator = with_a_broken_piece(joint_tokenizer, line=6, quantize="int8")
    with torch.no_grad():
        translator.engine.model.source_embedding.weight.fill_(NAN)
    for settings in SEARCHES.values():
        with pytest.raises(NotFiniteError, match=message("not-finite-numbers", "2")):
            translator.translations(["", *LINES], DecodingConfig(**settings))


def test_a_pair_without_a_score_is_named(joint_tokenizer):
    translator = with_a_broken_piece(joint_tokenizer, line=6)
    scorer, sources = Scorer(translator.engine, translator.tokenizer), LINES
    targets = ["Ein Satz."] * len(sources)
    assert len(scorer.score(sources[:6], targets[:6])) == 6
    with pytest.raises(NotFiniteError, match=message("not-finite-numbers", "17")):
        scorer.score(sources, targets, line_numbers=range(11, 11 + len(sources)))


@pytest.fixture(scope="module")
def broken_export(model_dir, tmp_path_factory):
    """An export of which each number is no number."""
    pytest.importorskip("ctranslate2")
    directory, trained = tmp_path_factory.mktemp("broken") / "export", read_trained(model_dir, [])
    directory.mkdir()
    trained.weights.update({name: weight * NAN for name, weight in trained.weights.items()})
    from transformer_mt.exporting import ctranslate2_format  # here, because it imports the package

    ctranslate2_format.write(trained, directory, "float32")
    return directory


def test_a_broken_export_is_not_kept(model_dir, translator, broken_export):
    trained = read_trained(model_dir, [])
    with pytest.raises(UserError, match=message("not-finite-at-export")):
        export.compare(translator.engine, CTranslate2Engine(broken_export, 64, 0, device="cpu"), trained, "float32")


@pytest.mark.parametrize("settings", [*SEARCHES.values(), SAMPLING], ids=[*SEARCHES, "sampling"])
def test_ctranslate2_loses_no_line_either(settings, translator, broken_export):
    engine = CTranslate2Engine(broken_export, max_positions=64, alignment_layer=0, device="cpu", workers=1)
    broken = Translator(engine, translator.tokenizer, DecodingConfig(**settings), LONG_LINES)
    with pytest.raises(NotFiniteError, match=message("not-finite-numbers", "2")):
        broken.translations(["", *LINES])
    with pytest.raises(NotFiniteError, match=message("not-finite-numbers", "1")):
        Scorer(engine, translator.tokenizer).score(LINES[:1], ["Ein Satz."])


def break_after(model, piece, monkeypatch):
    """Let the numbers after this piece of a translation be none; the list of whether it was met, step by step."""
    met = []

    def step(token_BW, state, step=model.step):
        logits_BWV, state = step(token_BW, state)
        met.append(bool((token_BW == piece).any()))
        return logits_BWV.masked_fill((token_BW == piece)[..., None], NAN), state

    monkeypatch.setattr(model, "step", step)
    return met


@pytest.mark.thorough
@torch.inference_mode()
def test_of_a_beam_a_single_hypothesis_is_enough(tiny_model, sources, monkeypatch):
    """Some sentences have finished hypotheses already, some never meet the piece: none depends on the others."""
    num_broken = num_whole = 0
    for seed, piece in itertools.product(range(4), (5, 8)):
        model, source_BS = tiny_model(seed=seed), sources(8, 6, seed=seed)
        met = break_after(model, piece, monkeypatch)
        found = beam_search(model, source_BS, 4, 0.6, [9] * 8, 1)
        for hypotheses, source_S in zip(found, source_BS, strict=True):
            met.clear()
            (alone,) = beam_search(model, source_S[None, source_S != PAD], 4, 0.6, [9], 1)
            assert (alone == []) == any(met)
            assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in alone]
            num_broken, num_whole = num_broken + any(met), num_whole + (not any(met))
    assert min(num_broken, num_whole) >= 10
