"""Each pair as often as its corpus' weight says, epoch by epoch; with one corpus, the order of version 0.1.0."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice, pairwise

import numpy as np
import pytest
from helpers.corpora import MakeCorpus, lognormal
from helpers.messages import message, says
from pydantic import ValidationError

from transformer_mt.base.errors import ConfigError
from transformer_mt.batches import batching
from transformer_mt.batches.batching import (
    Stage,
    epoch_batches,
    epoch_pairs,
    epoch_random,
    share,
    stages_of,
)
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.batches.loader import Loader, Position
from transformer_mt.settings.corpus_settings import CorpusConfig

SIZES = (7, 1, 40, 0, 13)
WEIGHTS = tuple(map(Fraction, ("1", "3", "0.25", "1", "2.6")))


def drawn(epoch: int, seed: int = 1) -> list[int]:
    return epoch_pairs(SIZES, WEIGHTS, seed, epoch, epoch_random(seed, epoch)).tolist()


def corpus_of(pair: int) -> int:
    return int(np.searchsorted(np.cumsum(SIZES), pair, side="right"))


def config(*weights: float | None, temperature: float | None = None) -> CorpusConfig:
    train = [{"name": f"c{number}", "path": "p", "weight": weight} for number, weight in enumerate(weights)]
    languages = {"source_language": "en", "target_language": "de"}
    content = {**languages, "train": train, "valid": "v", "test": {}, "temperature": temperature}
    return CorpusConfig.model_validate(content)


def sized(corpus: EncodedCorpus, *sizes: int) -> EncodedCorpus:
    """The same pairs, as those of several corpora."""

    assert sum(sizes) == len(corpus)
    return replace(corpus, sizes=sizes)


@pytest.mark.parametrize("size", [1, 2, 1000, 70_001])
def test_the_order_of_one_corpus_is_that_of_version_0_1_0(size: int) -> None:
    for seed, epoch in ((1, 0), (1, 1), (7, 3)):
        before, now = epoch_random(seed, epoch), epoch_random(seed, epoch)
        expected = before.permutation(size)
        for weights in ((), (Fraction(1),)):
            now = epoch_random(seed, epoch)
            order = epoch_pairs((size,), weights, seed, epoch, now)
            assert order.dtype == np.int32
            assert np.array_equal(order, expected)
        assert np.array_equal(now.permutation(50), before.permutation(50)), "batches are shuffled by what comes next"


def test_every_epoch_has_the_whole_part_of_a_weight_and_every_pair_at_most_once_more() -> None:
    for epoch in range(12):
        counts = Counter(drawn(epoch))
        for pair in range(sum(SIZES)):
            weight = WEIGHTS[corpus_of(pair)]
            assert counts[pair] in (int(weight), -int(-weight // 1)), (epoch, pair)
        for number, (size, weight) in enumerate(zip(SIZES, WEIGHTS, strict=True)):
            total = sum(count for pair, count in counts.items() if corpus_of(pair) == number)
            assert abs(total - size * weight) < 1


def test_over_the_epochs_that_a_fraction_needs_every_pair_is_seen_equally_often() -> None:
    for first in (0, 20, 40):
        counts = Counter(pair for epoch in range(first, first + 20) for pair in drawn(epoch))
        assert [counts[pair] for pair in range(sum(SIZES))] == [
            int(20 * WEIGHTS[corpus_of(pair)]) for pair in range(sum(SIZES))
        ]


def test_the_part_of_an_epoch_is_the_next_one_of_the_shuffle() -> None:
    size, weight = 40, Fraction("0.3")
    begins = [share(size, weight, epoch) for epoch in range(10)]
    for (_, start, number), (_, following, _) in pairwise(begins):
        assert number == 12 and following == (start + number) % size


def test_pairs_of_all_corpora_are_mixed_and_each_epoch_mixes_them_anew() -> None:
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(3, seed=2)
    assert sorted(drawn(3)) != sorted(drawn(4))
    sizes, weights = (4000, 1000), (Fraction(1), Fraction(2))
    order = epoch_pairs(sizes, weights, 1, 0, epoch_random(1, 0))
    for part in np.split(order, 6):
        assert 0.25 < (part >= 4000).mean() < 0.42


def test_a_part_of_a_corpus_is_from_everywhere_in_it() -> None:
    order = epoch_pairs((10_000,), (Fraction("0.1"),), 1, 0, epoch_random(1, 0))
    assert len(order) == len(set(order.tolist())) == 1000
    assert all(60 < count < 140 for count in np.histogram(order, bins=10, range=(0, 10_000))[0])


def test_numbers_that_need_64_bits_get_them() -> None:
    weights = (Fraction(1, 10**9), Fraction(1))
    assert epoch_pairs((3, 2), weights, 1, 0, epoch_random(1, 0)).dtype == np.int32
    assert epoch_pairs((2**31, 0), (Fraction(0), Fraction(1)), 1, 0, epoch_random(1, 0)).dtype == np.int64


def weights_of(corpus: CorpusConfig, sizes: tuple[int, ...]) -> tuple[Fraction, ...]:
    [stage] = stages_of(corpus, sizes)
    return stage.weights


class TestWeightsOf:
    def test_they_are_those_of_the_configuration_by_their_digits(self) -> None:
        assert weights_of(config(None, 0.1, 2.5, 3), (10, 20, 30, 40)) == (1, Fraction(1, 10), Fraction(5, 2), 3)

    def test_one_corpus_without_a_list_has_weight_1(self) -> None:
        content = {"source_language": "en", "target_language": "de", "train": "p", "valid": "v", "test": {}}
        assert weights_of(CorpusConfig.model_validate(content), (10,)) == (1,)

    @pytest.mark.parametrize(("temperature", "expected"), [(1.0, [1, 1, 1]), (2.0, [10, 2, 1]), (1e6, [100, 4, 1])])
    def test_a_temperature_draws_in_proportion_to_a_root_of_the_sizes(
        self, temperature: float, expected: list[float]
    ) -> None:
        sizes = (100, 2500, 10_000)
        weights = weights_of(config(None, None, None, temperature=temperature), sizes)
        assert list(map(float, weights)) == pytest.approx(expected, rel=1e-4)
        drawn = [size * float(weight) for size, weight in zip(sizes, weights, strict=True)]
        powers = [size ** (1 / temperature) for size in sizes]
        assert [number / sum(drawn) for number in drawn] == pytest.approx([p / sum(powers) for p in powers], rel=1e-4)

    @pytest.mark.parametrize(("weight", "cure"), [(1e-6, "raise"), (1e6, "lower")])
    def test_an_epoch_of_nothing_or_of_far_too_much_is_refused(self, weight: float, cure: str) -> None:
        with pytest.raises(ConfigError, match=message("epoch-size-impossible", cure)):
            weights_of(config(weight, weight), (10_000, 2_000_000) if weight > 1 else (10, 20))

    def test_an_order_that_memory_has_no_room_for_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batching, "free_memory", lambda: 8000)
        assert weights_of(config(1.0, 2.0), (2, 499)) == (1, 2)
        with pytest.raises(ConfigError, match=message("epoch-size-impossible", "lower")):
            weights_of(config(1.0, 2.0), (3, 499))


@pytest.mark.parametrize("layout", ["padded", "packed"])
class TestLoader:
    def loader(self, make_corpus: MakeCorpus, layout: str) -> Loader:
        corpus = sized(make_corpus(*lognormal(300, seed=1)), 100, 40, 160)
        weights = (Fraction("0.4"), Fraction(2), Fraction("1.25"))
        return Loader(corpus, 600, 1100, seed=1, layout=layout, stages=(Stage(weights),))  # type: ignore[arg-type]

    def test_its_epochs_have_the_pairs_of_the_weights(self, make_corpus: MakeCorpus, layout: str) -> None:
        loader = self.loader(make_corpus, layout)
        for epoch in range(3):
            batches = loader.order(epoch)
            expected = epoch_pairs(loader.corpus.sizes, loader.stages[0].weights, 1, epoch, epoch_random(1, epoch))
            assert sorted(np.concatenate(list(batches)).tolist()) == sorted(expected.tolist())
            assert all(batch.dtype == np.int64 for batch in batches)

    def test_going_on_within_an_epoch_is_going_on(self, make_corpus: MakeCorpus, layout: str) -> None:
        loader = self.loader(make_corpus, layout)
        unbroken = list(islice(loader.updates(Position()), 25))
        assert unbroken[-1][1].epoch > 1
        for done, (_, position) in enumerate(unbroken[:-3], start=1):
            for (update, after), (expected, reached) in zip(
                islice(loader.updates(position), 3), unbroken[done : done + 3], strict=True
            ):
                assert [pairs.tolist() for pairs in update] == [pairs.tolist() for pairs in expected]
                assert after == reached


def test_an_epoch_without_any_pair_is_passed_over(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus([5] * 3, [5] * 3)
    assert [len(epoch_batches(corpus, 100, 1, epoch, (Fraction(1, 4),))) for epoch in range(4)] == [0, 1, 1, 1]
    update, position = next(Loader(corpus, 100, 0, seed=1, stages=(Stage((Fraction(1, 4),)),)).updates(Position()))
    assert len(update) == 1 and position == Position(2, 0)


def staged(*stages: dict[str, object], weight: float | None = None, **more: object) -> CorpusConfig:
    train = [{"name": name, "path": "p", "weight": weight} for name in ("web", "captions")]
    languages = {"source_language": "en", "target_language": "de"}
    return CorpusConfig.model_validate(
        {**languages, "train": train, "valid": "v", "test": {}, "stages": stages, **more}
    )


def corpus_of_two(pair: int) -> int:
    return int(pair >= 200)


WEB = {"weights": {"web": 1}, "updates": 9}


def test_stages_have_their_weights_and_ends() -> None:
    last = {"weights": {"captions": 2, "web": 0.1}}
    expected = (Stage((Fraction(1), Fraction(0)), None, 9), Stage((Fraction(1, 10), Fraction(2))))
    assert stages_of(staged(WEB, last), (100, 40)) == expected
    assert staged(WEB, last).without_weights == staged(last).without_weights
    assert stages_of(config(1.0, 2.0), (2, 499)) == (Stage((Fraction(1), Fraction(2))),)
    with pytest.raises(ConfigError, match=message("epoch-size-impossible", "raise")):
        stages_of(staged(WEB, {"weights": {"captions": 0}}), (100, 40))


@pytest.mark.parametrize(
    ("stages", "more", "code"),
    [
        ([], {}, "stages-empty"),
        ([WEB], {}, "last-stage-with-end"),
        ([{"weights": {"web": 1}}, {"weights": {"web": 1}}], {}, "stage-end-wrong"),
        ([{**WEB, "epochs": 1}, {"weights": {"web": 1}}], {}, "stage-end-wrong"),
        ([{"weights": {"news": 1}}], {}, "stage-of-unknown-corpus"),
        ([{"weights": {"web": 1}}], {"train": "p"}, "stage-of-unknown-corpus"),
        ([{"weights": {"web": 1}}], {"temperature": 2}, "stages-and-weights"),
        ([{"weights": {"web": 1}}], {"weight": 2}, "stages-and-weights"),
    ],
)
def test_stages_that_contradict_are_refused(
    stages: list[dict[str, object]], more: dict[str, object], code: str
) -> None:
    with pytest.raises(ValidationError) as error:
        staged(*stages, **more)  # type: ignore[arg-type]
    assert says(str(error.value), code)


@pytest.mark.parametrize("tokens_per_update", [0, 1100])
@pytest.mark.parametrize(
    "first", [Stage((Fraction("0.4"), Fraction(0)), epochs=3), Stage((Fraction("0.4"),) * 2, updates=5)]
)
def test_stages_follow_each_other_and_a_run_can_resume_in_each(
    make_corpus: MakeCorpus, first: Stage, tokens_per_update: int
) -> None:
    corpus = sized(make_corpus(*lognormal(300, seed=1)), 200, 100)
    stages = first, Stage((Fraction(0), Fraction("1.5")), updates=2), Stage((Fraction(1), Fraction(1)))
    loader = Loader(corpus, 600, tokens_per_update, seed=1, stages=stages)
    unbroken = list(islice(loader.updates(Position()), 40))
    per_stage = Counter(before.stage for _, before in [([], Position()), *unbroken[:-1]])
    assert per_stage[1] == 2 and (per_stage[0] == 5 or first.epochs)

    # Each stage has the micro-batches of its own epochs, from the beginning of one.
    befores, epoch = [Position(), *(position for _, position in unbroken)], 0
    for number, stage in enumerate(stages):
        found = [
            pairs.tolist()
            for (update, _), before in zip(unbroken, befores, strict=False)
            for pairs in update
            if before.stage == number
        ]
        begins = next(before for before in befores if before.stage == number)
        assert begins == Position(max(epoch, begins.epoch), 0, number)
        expected, epoch = list[list[int]](), begins.epoch
        while len(expected) < len(found):
            expected += [pairs.tolist() for pairs in loader.order(epoch, number)]
            epoch += 1
        assert found == (expected if stage.epochs else expected[: len(found)])
        assert {corpus_of_two(pair) for pairs in found for pair in pairs} == {
            corpus for corpus, weight in enumerate(stage.weights) if weight
        }
    assert unbroken[-1][1].stage == 2

    for done, (_, position) in enumerate(unbroken[:-3], start=1):
        again = islice(loader.updates(position), 3)
        for (update, after), (expected, reached) in zip(again, unbroken[done : done + 3], strict=True):
            assert [pairs.tolist() for pairs in update] == [pairs.tolist() for pairs in expected]
            assert after == reached
