"""Opens a split of a corpus, as prepare does."""

from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.opening import corpus_digest, open_corpus
from transformer_mt.settings.corpus_settings import CorpusConfig, Split


def opened(corpus: CorpusConfig, split: Split) -> Corpus:
    return open_corpus(corpus.text_of(split))


def read(corpus: CorpusConfig, split: Split) -> list[tuple[str, str]]:
    return list(opened(corpus, split).pairs())


def digest(corpus: CorpusConfig, split: Split) -> str:
    return corpus_digest(corpus.text_of(split))
