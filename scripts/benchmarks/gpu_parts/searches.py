"""The searches of the part numerics: captured against not captured, and this device against the CPU.

B sentences  S source positions
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.gpu_parts.settings import Figures, Settings
from transformer_mt.base.languages import EOS, PAD
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.sampling import greedy
from transformer_mt.decoding.search import beam_search
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.inference.frozen import frozen
from transformer_mt.kernels.device import Device, choose_device
from transformer_mt.models.interface import Seq2Seq
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.search_settings import DecodingConfig

SENTENCES, LONGEST, MORE = 64, 30, 10  # pieces of a source, and of a translation beyond those of its source
BEAMS = (1, 4)


@dataclass(frozen=True)
class Found:
    """The best translation of a sentence, and its log-probability."""

    tokens: list[int]
    log_prob: float


def captured_search(settings: Settings) -> Figures:
    """Steps as CUDA graphs against the same steps launched one by one."""
    device = choose_device(settings.device, settings.decoding_precision, settings.threads)
    model = random_model(settings)
    engine = TorchEngine(model, LONGEST + MORE, device)
    plain = frozen(engine.model, engine.matmul)
    return compare(settings, (engine.searched, device), (plain, device))


def search_on_both(settings: Settings) -> Figures:
    """The search of this device against that of the CPU, both in fp32."""
    devices = [choose_device(name, "fp32", settings.threads) for name in ("cpu", settings.device)]
    searched = []
    for device in devices:
        model = random_model(settings)
        searched.append((TorchEngine(model, LONGEST + MORE, device).searched, device))
    return compare(settings, searched[1], searched[0])


def random_model(settings: Settings) -> Transformer:
    """Always the same, on the CPU. It says something else of each sentence, as its last norm has random signs."""
    config, vocab_size = settings.shape_or("base32k")
    torch.manual_seed(1)
    model = Transformer(config, vocab_size, vocab_size).eval()
    nn.init.normal_(model.get_parameter(f"decoder.{config.decoder_layers - 1}.around_feed_forward.norm.weight"))
    return model


def random_sources(vocab_size: int) -> Tensor:
    """BS, of several lengths."""
    torch.manual_seed(2)
    last_B1 = torch.randint(4, LONGEST, (SENTENCES, 1))
    source_BS = torch.randint(EOS + 1, vocab_size, (SENTENCES, LONGEST)).scatter(1, last_B1, EOS)
    return source_BS.masked_fill(torch.arange(LONGEST) > last_B1, PAD)


def compare(settings: Settings, ours: tuple[Seq2Seq, Device], theirs: tuple[Seq2Seq, Device]) -> Figures:
    """For each beam size, how many of the sentences are translated equally, and how the log-probabilities differ."""
    source_BS = random_sources(settings.shape_or("base32k")[1])
    report: Figures = {"precision": str(ours[1].dtype), "sentences": SENTENCES}
    for beam in BEAMS:
        found, expected = (search(*one, source_BS, beam) for one in (ours, theirs))
        both = list(zip(found, expected, strict=True))
        equal = [(one, other) for one, other in both if one.tokens == other.tokens]
        differences = [abs(one.log_prob - other.log_prob) for one, other in equal]
        report[f"beam {beam}"] = {
            "equal": len(equal),
            "different_translations": len({tuple(one.tokens) for one in expected}),
            "largest_difference_of_log_prob_where_equal": max(differences, default=None),
            "mean_tokens": sum(len(one.tokens) for one in expected) / SENTENCES,
        }
    return report


def search(model: Seq2Seq, device: Device, source_BS: Tensor, beam: int) -> list[Found]:
    limits = [length + MORE for length in (source_BS != PAD).sum(dim=1).tolist()]
    source_BS, decoding = source_BS.to(device.torch_device), DecodingConfig(beam_size=beam)
    if beam == 1:
        best = greedy(model, source_BS, Constraints(limits), decoding)
    else:
        of_each = beam_search(model, source_BS, Constraints(limits), decoding)
        best = [found[0] if found else None for found in of_each]
    return [Found(one.tokens, one.log_prob) if one else Found([], math.nan) for one in best]
