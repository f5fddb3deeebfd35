"""Writes a parallel text of any size for `benchmark.py prepare`: sentences of invented words, the same at each call.

python -m benchmarks.generated_text PAIRS PREFIX        (in scripts/; writes PREFIX.source and PREFIX.target)

Words are made of syllables, and frequent words are shorter. The probability of the word of rank r is proportional to
1 / (r + 2.7) (Mandelbrot's form of Zipf's law, 1953). The target has a word for each word of the source, in another
order. A side has 3 to 80 words, 15 on average, and about 92 characters.
"""

import math
import random
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

_NUM_WORDS = 100_000
_AT_ONCE = 20_000  # pairs
_SEED = 1
_ONSETS = ["", "b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "w", "z", "st", "tr", "sch", "pl"]
_VOWELS = ["a", "e", "i", "o", "u", "ei", "ä", "ou"]
_ENDS = ["", "", "n", "r", "s", "t"]


def words(number: int, draw: random.Random) -> list[str]:
    """Different words, the most frequent first: one syllable, then two and more."""
    found: dict[str, None] = {}
    while len(found) < number:
        syllables = 1 + int(math.log10(1 + len(found)) * draw.uniform(0.2, 0.6))
        parts = [draw.choice(sounds) for _ in range(syllables) for sounds in (_ONSETS, _VOWELS, _ENDS)]
        found.setdefault("".join(parts))
    return list(found)


def write_pairs(number: int, prefix: Path) -> None:
    """Write `number` pairs to PREFIX.source and PREFIX.target."""
    draw = np.random.default_rng(_SEED)
    source_words, target_words = (words(_NUM_WORDS, random.Random(seed)) for seed in (_SEED, _SEED + 1))
    share = np.cumsum(1 / (np.arange(_NUM_WORDS) + 2.7))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    source_path, target_path = (prefix.with_name(f"{prefix.name}.{side}") for side in ("source", "target"))
    with source_path.open("w", encoding="utf-8") as source, target_path.open("w", encoding="utf-8") as target:
        for start in tqdm(range(0, number, _AT_ONCE), disable=None):
            lengths = np.clip(draw.lognormal(2.55, 0.55, min(_AT_ONCE, number - start)), 3, 80).astype(int)
            drawn = np.searchsorted(share, draw.random(lengths.sum()) * share[-1]).tolist()
            end = 0
            for length in lengths.tolist():
                ranks = drawn[end : end + length]
                end += length
                source.write(" ".join([source_words[rank] for rank in ranks]).capitalize() + ".\n")
                ranks = ranks[length // 2 :] + ranks[: length // 2]
                target.write(" ".join([target_words[rank] for rank in ranks]).capitalize() + ".\n")


if __name__ == "__main__":
    write_pairs(int(sys.argv[1]), Path(sys.argv[2]))
