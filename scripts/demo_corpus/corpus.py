"""Makes the corpus, with as many different sentence pairs as asked for."""

from demo_corpus.dice import Dice
from demo_corpus.sentences import SENTENCES, joined


def corpus(num_pairs: int, seed: int, most: int = 1) -> list[tuple[str, str]]:
    """Return pairs of an English sentence and its German translation. No sentence of either language comes twice.

    A longer corpus begins with the shorter one of the same seed. With `most` above 1, sentences are longer: each has up
    to `most` statements.
    """
    dice = Dice(seed)
    german_of: dict[str, str] = {}
    seen: set[str] = set()
    while len(german_of) < num_pairs:
        pair = joined(dice, most) if most > 1 else dice.pick(SENTENCES)(dice)
        known = german_of.get(pair.english)
        assert known in (None, pair.german), f"{pair.english} is both {known} and {pair.german}"
        if pair.german not in seen:
            german_of[pair.english] = pair.german
            seen.add(pair.german)
    return list(german_of.items())
