"""Steps of random hypotheses, as a search makes them."""

import torch

from transformer_mt.base.languages import BOS, EOS

VOCAB_SIZE = 11
WIDER_AND_NARROWER = [1, 3, 3, 5, 5, 2, 4, 1, 1, 6, 3, 3]


def assert_close(ours, theirs):
    """Models in fp64 differ in the last digits only."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def logits_along(model, source_BS, widths, leaving=()):
    """What a model says of random hypotheses, so many of each sentence at each step; one array a step.

    They go on from random ones whenever their number changes, and at every third step besides. At steps in
    `leaving` a third of the sentences leave, and the others change places.
    """
    generator, device = torch.Generator().manual_seed(3), source_BS.device

    def draw(largest, *shape):
        return torch.randint(0, largest, shape, generator=generator).to(device)

    state, num_sentences, logits = model.start(source_BS, widths[0]), len(source_BS), []
    for position, width in enumerate(widths):
        before = widths[max(position - 1, 0)]
        if width != before or position % 3 == 2:
            state = state.follow(draw(before, num_sentences, width))
        if position in leaving:
            staying = torch.randperm(num_sentences, generator=generator)[: -(-num_sentences * 2 // 3)]
            state, num_sentences = state.keep(staying.to(device)), len(staying)
        token_BW = draw(VOCAB_SIZE, num_sentences, width).clamp_min(EOS)
        if position == 0:
            token_BW.fill_(BOS)
        logits_BWV, state = model.step(token_BW, state)
        logits.append(logits_BWV)
    return logits
