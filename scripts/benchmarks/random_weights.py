"""The decoding benchmark that needs no trained model: random sentences, random weights, against nn.Transformer.

B sentences  S source positions  T target positions  D model width  V vocabulary
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.contenders.train_plain import NnTransformer
from benchmarks.training_text import nn_transformer_weights
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.sampling import greedy
from transformer_mt.decoding.search import beam_search
from transformer_mt.decoding.torch_engine import TorchEngine
from transformer_mt.kernels.device import Device
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.search_settings import DecodingConfig

Work = Callable[[], dict[str, int]]  # runs once; returns the counts of what was done, by unit
Works = dict[str, Work]  # by name; `ours, x` is compared with `peer, x`

BEAM_SIZE, MAX_EXTRA_LENGTH = 4, 10


@torch.inference_mode()
def peer_greedy(peer: NnTransformer, source_BS: Tensor, max_length: list[int]) -> list[list[int]]:
    """Greedy translations, EOS included, of a hand-written search without a cache: each step reads the prefix again."""
    memory_BSD = peer.encode(source_BS)
    last_B = torch.tensor(max_length, device=source_BS.device)
    tokens_BT = torch.full((len(max_length), 1), BOS, device=source_BS.device)
    for length in range(1, max(max_length) + 1):
        features_BD = peer.decode(tokens_BT, memory_BSD, source_BS)[:, -1]
        logits_BV = F.linear(features_BD, peer.embedding.weight)
        logits_BV[:, [PAD, BOS]] = -torch.inf
        token_B = logits_BV.argmax(dim=-1).masked_fill(last_B == length, EOS)
        tokens_BT = torch.cat([tokens_BT, token_B[:, None]], dim=1)
        if (tokens_BT == EOS).any(dim=1).all():
            break
    return [tokens[1 : tokens.index(EOS) + 1] for tokens in tokens_BT.tolist()]


def random_decoding(config: TransformerConfig, vocab_size: int, num_sentences: int, device: Device) -> Works:
    """The searches of one batch of random sentences. In fp32 both find the same words; else it prints how many do."""
    torch.manual_seed(1)
    ours = Transformer(config, vocab_size, vocab_size).to(device.torch_device).eval()
    # Tied embeddings make a fresh model repeat itself, whatever its source; a last norm of random signs does not.
    nn.init.normal_(ours.get_parameter(f"decoder.{config.decoder_layers - 1}.around_feed_forward.norm.weight"))
    peer = NnTransformer(config.model_dump(), vocab_size)
    peer.load_state_dict(nn_transformer_weights(ours, config, vocab_size))
    peer.to(device.torch_device, device.dtype).eval()
    last_B1 = torch.randint(9, 20, (num_sentences, 1))
    source_BS = torch.randint(EOS + 1, vocab_size, (num_sentences, 20)).scatter(1, last_B1, EOS)
    source_BS = source_BS.masked_fill(torch.arange(20) > last_B1, PAD).to(device.torch_device)
    limits = [min(last + 1 + MAX_EXTRA_LENGTH, config.max_positions) for last in last_B1[:, 0].tolist()]

    searched, constraints = TorchEngine(ours, config.max_positions, device).searched, Constraints(limits)
    one, several = DecodingConfig(beam_size=1), DecodingConfig(beam_size=BEAM_SIZE)

    def our_greedy() -> list[list[int]]:
        return [found.tokens for found in greedy(searched, source_BS, constraints, one, scores=False)]

    def our_beam() -> list[list[int]]:
        return [best.tokens for best, *_ in beam_search(searched, source_BS, constraints, several)]

    def work(search: Callable[[], list[list[int]]]) -> dict[str, int]:
        found = search()
        return {"sentences": len(found), "output tokens": sum(map(len, found))}

    their_greedy = partial(peer_greedy, peer, source_BS, limits)
    both = list(zip(our_greedy(), their_greedy(), strict=True))
    same = sum(found == theirs for found, theirs in both)
    print(f"  the peer finds the words of ours in {same} of {len(both)} sentences")
    assert device.dtype != torch.float32 or same == len(both), "the peer finds other words"
    searches: dict[str, Callable[[], list[list[int]]]]
    searches = {"ours, greedy": our_greedy, "peer, greedy": their_greedy, f"ours, beam {BEAM_SIZE}": our_beam}
    return {name: partial(work, search) for name, search in searches.items()}
