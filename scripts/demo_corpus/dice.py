"""Makes random choices that are the same for a seed on every machine."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Makes random choices only from random(), because Python keeps its numbers for a seed the same in all versions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.random() * len(items))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability
