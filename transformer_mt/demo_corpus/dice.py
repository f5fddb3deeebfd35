"""Random choices, the same for a seed on every machine."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Random choices made of random() alone, whose numbers Python keeps the same for a seed in all versions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.random() * len(items))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability
