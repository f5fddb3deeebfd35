"""Modified pairs: as often as the settings say, by seed, step and batch alone, and only if they fit."""

from itertools import product
from random import Random

import numpy as np
import pytest
from helpers import text
from helpers.text import settings
from helpers.thorough import thorough

from transformer_mt.batches.encoded import EncodedCorpus, encoded_text, sentences_of
from transformer_mt.batches.loader import Loader
from transformer_mt.batches.modifier_sampling import ModifierSampler
from transformer_mt.settings.training_settings import ModifiersConfig
from transformer_mt.text.tokenizer import Tokenizer

UNLIMITED = {"longest": 2**40, "total": (2**60, 2**60)}
MIXED = ModifiersConfig(typos=0.4, remove_end_punct=0.3)
SOURCES = [f"<2de> {line}" for line in text.ENGLISH]
TARGETS = text.GERMAN[: len(SOURCES)]


@pytest.fixture(scope="module", params=[True, *thorough(False)])
def tokenizer(request):
    return Tokenizer.train(SOURCES, TARGETS, settings(joint=request.param, vocab_size=420), ["<2de>"])


@pytest.fixture(scope="module")
def corpus(tokenizer):
    sides = tokenizer.encode_source(SOURCES), tokenizer.encode_target(TARGETS)
    return EncodedCorpus(*(encoded_text(side, np.uint16) for side in sides))


def sampler(tokenizer, spaced=(True,), **shares):
    return ModifierSampler(tokenizer, ModifiersConfig(**shares) if shares else MIXED, spaced)


def draw(sampler, corpus, pairs=None, seed=1, step=0, batch=0, **room):
    pairs = np.arange(len(corpus)) if pairs is None else pairs
    return sampler.sampled(corpus, pairs, f"{seed} {step} {batch}", **UNLIMITED | room)


def rows(corpus):
    """The ids of each pair, source and target."""
    numbers = np.arange(len(corpus))
    return list(zip(sentences_of(corpus.source, numbers), sentences_of(corpus.target, numbers), strict=True))


def texts(tokenizer, corpus):
    return [(tokenizer.source.decode(source), tokenizer.decode_target(target)) for source, target in rows(corpus)]


def test_a_share_of_one_changes_every_pair_on_both_sides(tokenizer, corpus):
    expected = [(source.rstrip("."), target.rstrip(".")) for source, target in zip(SOURCES, TARGETS, strict=True)]
    assert texts(tokenizer, draw(sampler(tokenizer, remove_end_punct=1.0), corpus)) == expected


def test_new_pieces_are_those_of_prepare(tokenizer, corpus):
    found = draw(sampler(tokenizer), corpus)
    lines = texts(tokenizer, found)
    assert lines != texts(tokenizer, corpus)
    encoded = [tokenizer.encode_source([source for source, _ in lines])]
    encoded.append(tokenizer.encode_target([target for _, target in lines]))
    assert rows(found) == list(zip(*encoded, strict=True))


def test_a_change_that_changes_nothing_leaves_the_pieces(tokenizer):
    """Also pieces into which the tokenizer would not cut the text: here, each letter is one."""
    letters = [[tokenizer.source.piece_to_id(letter) for letter in "\u2581field"] + [3]]
    assert 1 not in letters[0] and tokenizer.encode_source(["field"]) != letters
    corpus = EncodedCorpus(encoded_text(letters, np.uint16), encoded_text([[3]], np.uint16))
    assert rows(draw(sampler(tokenizer, remove_end_punct=1.0), corpus)) == rows(corpus)


@pytest.mark.thorough
def test_shares_are_those_of_the_settings(tokenizer, corpus):
    pairs = np.arange(20_000) % len(corpus)
    lines = texts(tokenizer, draw(sampler(tokenizer, typos=0.07, remove_end_punct=0.2), corpus, pairs))
    typos = [source.rstrip(".") != SOURCES[pair].rstrip(".") for pair, (source, _) in zip(pairs, lines, strict=True)]
    assert sum(typos) / 20_000 == pytest.approx(0.07, abs=0.006)
    ends = [(source.endswith("."), target.endswith(".")) for source, target in lines]
    assert {(True, True), (False, False)} == set(ends)
    assert sum(not source for source, _ in ends) / 20_000 == pytest.approx(0.2, abs=0.01)


def test_a_draw_depends_on_seed_step_and_batch_alone(tokenizer, corpus):
    keys = list(product((1, 11), (1, 11), (0, 1, 10)))
    one, pairs = sampler(tokenizer), np.arange(60)
    first = {key: rows(draw(one, corpus, pairs, *key)) for key in keys}
    Random(1).shuffle(keys)
    assert all(rows(draw(one, corpus, pairs, *key)) == first[key] for key in keys)
    assert all(rows(draw(sampler(tokenizer), corpus, pairs, *key)) == first[key] for key in keys)
    assert len({str(pairs) for pairs in first.values()}) == len(keys)


def test_what_has_no_room_changes_in_another_way_and_keeps_its_text_if_none_has_room(tokenizer, corpus):
    drawing = sampler(tokenizer, typos=1.0)
    free, old = rows(draw(drawing, corpus)), rows(corpus)
    longest = max(len(side) for pair in old for side in pair) - 2
    limited = rows(draw(drawing, corpus, longest=longest))
    for before, new, found in zip(old, free, limited, strict=True):
        assert found == before or max(map(len, found)) <= longest
        assert found == new or max(map(len, new)) > longest
    assert any(found not in (new, before) for before, new, found in zip(old, free, limited, strict=True))
    spare = [5, 0]
    total = corpus.source.num_tokens + spare[0], corpus.target.num_tokens + spare[1]
    limited = draw(drawing, corpus, total=total)
    assert limited.source.num_tokens <= total[0] and limited.target.num_tokens <= total[1]
    assert 0 < sum(found != before for before, found in zip(old, rows(limited), strict=True)) < len(old)
    assert rows(draw(drawing, corpus, longest=1)) == old


def test_typos_are_only_in_corpora_with_spaces(tokenizer, corpus):
    half = len(corpus) // 2
    two = EncodedCorpus(corpus.source, corpus.target, (half, len(corpus) - half))
    pairs = Random(3).sample(range(len(corpus)), len(corpus))
    found = texts(tokenizer, draw(sampler(tokenizer, (False, True), typos=1.0), two, np.array(pairs)))
    assert [found[at][0] != SOURCES[pair] for at, pair in enumerate(pairs)] == [pair >= half for pair in pairs]
    assert [target for _, target in found] == [TARGETS[pair] for pair in pairs]


def test_pairs_with_unknown_pieces_stay(tokenizer, corpus):
    unknown = EncodedCorpus(corpus.source, encoded_text([[1, *row] for _, row in rows(corpus)], np.uint16))
    assert rows(draw(sampler(tokenizer, typos=1.0), unknown)) == rows(unknown)


def test_padded_batches_grow_by_a_quarter_at_most_so_that_nearly_all_pairs_change(tokenizer, corpus):
    drawing = sampler(tokenizer, typos=0.3)
    loader = Loader(corpus, 800, 0, seed=1, sampler=drawing)
    order = loader.order(0)
    assert order.pairs.tolist() == Loader(corpus, 800, 0, seed=1).order(0).pairs.tolist()
    kept = changed = 0
    for step, pairs in enumerate(order):
        batch = loader.batch(pairs, step, 0)
        assert batch.pairs_B.tolist() == pairs.tolist()
        assert max(batch.source_BS.numel(), batch.labels_BT.numel()) <= 1000
        found = [row[row != 0].tolist() for row in batch.source_BS]
        free, old = draw(drawing, corpus, pairs, step=step), sentences_of(corpus.source, pairs)
        for ids, new, before in zip(found, sentences_of(free.source, np.arange(len(pairs))), old, strict=True):
            assert (ids != before) <= (new != before)
            kept, changed = kept + (ids == before != new), changed + (new != before)
    assert kept <= 0.01 * changed and changed > 50


def test_packed_batches_have_room_for_nearly_all_changes(tokenizer, corpus):
    drawing = sampler(tokenizer, typos=0.3)
    loader = Loader(corpus, 4000, 0, seed=1, layout="packed", sampler=drawing)
    plain = Loader(corpus, 4000, 0, seed=1, layout="packed")
    assert len(loader.order(0)) <= 1.2 * len(plain.order(0))
    kept = changed = 0
    for step, pairs in enumerate(loader.order(0)):
        batch = loader.batch(pairs, step, 0)
        tokens, old = int(batch.source_offsets[len(pairs)]), int(corpus.source.lengths(pairs).sum())
        free = draw(drawing, corpus, pairs, step=step).source.num_tokens
        kept, changed = kept + free - tokens, changed + free - old
    assert 0 <= kept <= 0.1 * changed and changed > 0
