"""An engine that says what it is given."""

from transformer_mt.base.languages import EOS
from transformer_mt.decoding.engine import WITH_SCORES, Engine
from transformer_mt.decoding.hypothesis import Hypothesis


class Echo(Engine):
    """Translates a sentence into its own pieces after the prefix, each from itself; the n-th time backwards."""

    def __init__(self, max_positions=1000):
        super().__init__()
        self.max_positions = max_positions
        self.sentences = []

    def translate_unordered(self, sentences, decoding, wanted=WITH_SCORES):
        self.sentences += sentences
        found = [
            [
                Hypothesis(
                    [*sentence.prefix, *self.order(sentence.source[:-1], rank), EOS],
                    -float(len(sentence.source) + rank),
                    -1.0 - rank,
                    [0] * len(sentence.prefix) + self.order(range(len(sentence.source) - 1), rank)
                    if wanted.alignment
                    else None,
                )
                for rank in range(decoding.n_best)
            ]
            for sentence in sentences
        ]
        if wanted.progress is not None:
            wanted.progress(len(sentences))
        for number in reversed(range(len(sentences))):
            yield [number], [found[number]]

    @staticmethod
    def order(items, rank):
        return list(items) if rank % 2 == 0 else list(items)[::-1]

    def score(self, pairs):
        raise AssertionError("not asked for")
