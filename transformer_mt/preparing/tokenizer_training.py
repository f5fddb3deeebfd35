"""Chooses the lines from which a tokenizer is trained, and remembers them.

Training it again on the same text would give the same tokenizer, but takes time. With a further corpus it would give
another one, and all that was encoded would have to be encoded again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from transformer_mt.base.errors import CorpusError, TokenizerError
from transformer_mt.base.languages import UNK
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.storage.files import read_json, write_whole
from transformer_mt.text.tokenizer import Tokenizer

Line = tuple[str, str]  # source and target


@dataclass
class _Sample:
    """Every `step`-th pair of a corpus, from the first on."""

    step: int
    pairs: list[Line] = field(default_factory=list)
    num_bytes: int = 0
    """The bytes of all pairs, of each on its longer side."""

    def add(self, pair: Line) -> None:
        self.pairs.append(pair)
        self.num_bytes += _num_bytes(pair)

    def thin_out(self) -> None:
        """Keep every second of these pairs, and of all that come."""
        self.step *= 2
        del self.pairs[1::2]
        self.num_bytes = sum(map(_num_bytes, self.pairs))


def sample_of(
    corpora: Sequence[tuple[Iterable[Line], int | None]],
    most_lines: int,
    most_bytes: int,
    stays: Callable[[int, Line], bool] = lambda corpus, pair: True,
) -> tuple[list[str], list[str]]:
    """Return sources and targets: at most `most_lines` pairs, and of each language at most `most_bytes` of UTF-8.

    Each corpus comes with its number of pairs, or None if that is not known. It is read once, and every k-th of its
    pairs is taken, so that no part of it is left out. Of these, only those stay of which `stays` says so, given the
    number of the corpus, from 0, and the pair. Whenever there are too many, every second pair goes of the corpus that
    has the most of them: large corpora end with equal shares or nearly so, and small ones stay whole.
    """
    samples: list[_Sample] = []
    for corpus, (pairs, num_pairs) in enumerate(corpora):
        sample = _Sample(step=-(-(num_pairs or 1) // most_lines))
        samples.append(sample)
        for number, pair in enumerate(pairs):
            if number % sample.step or not stays(corpus, pair):
                continue
            sample.add(pair)
            while (too_many := sum(len(each.pairs) for each in samples) > most_lines) or (
                sum(each.num_bytes for each in samples) > most_bytes
            ):
                # Of the samples that can be thinned out, if there is one.
                largest = max(samples, key=lambda s: (len(s.pairs) > 1, len(s.pairs) if too_many else s.num_bytes))
                if len(largest.pairs) == 1:  # not even one line of each corpus has room: keep that
                    break
                largest.thin_out()
    sampled = [pair for sample in samples for pair in sample.pairs]
    return [source for source, _ in sampled], [target for _, target in sampled]


def _num_bytes(pair: Line) -> int:
    return max(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in pair)


ORIGIN = "tokenizer_origin.json"


class TokenizerOrigin(BaseModel):
    """What a tokenizer was trained on, and for which text it is used."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    settings: str
    """A hash of the settings that it was trained with."""
    trained_on: tuple[str, ...]
    """The names of the corpora."""
    used_for: dict[str, str]
    """The digests of the corpora that are encoded with it, by name."""
    digest: str
    """The digest of the tokenizer."""

    @classmethod
    def load(cls, data_dir: Path) -> "TokenizerOrigin | None":
        """Read what `save` wrote; None if it is not there or cannot be read."""
        try:
            return cls.model_validate(read_json(data_dir / ORIGIN))
        except (OSError, ValueError):
            return None

    def save(self, data_dir: Path) -> None:
        """Write tokenizer_origin.json."""
        write_whole(data_dir / ORIGIN, self.model_dump_json(indent=2) + "\n")


def kept_tokenizer(data_dir: Path, settings: str, corpora: Mapping[str, str]) -> Tokenizer | None:
    """Return the tokenizer that a process which was stopped trained for these corpora; None if there is none."""
    origin = TokenizerOrigin.load(data_dir)
    if origin is None or (origin.settings, origin.used_for) != (settings, dict(corpora)):
        return None
    try:
        tokenizer = Tokenizer.load(data_dir)
    except TokenizerError:
        return None
    return tokenizer if tokenizer.digest == origin.digest else None


def check_tag(tokenizer: Tokenizer, text: PairedText) -> None:
    """Raises CorpusError if the tag of a corpus is not a piece of a tokenizer that was trained before."""
    missing = [token for token in (text.tag or "").split() if tokenizer.source.piece_to_id(token) == UNK]
    if missing:
        raise CorpusError(
            f"the tag {missing[0]} of the corpus {text.name} is no piece of the tokenizer, which was trained without "
            "this corpus; choose another data_dir, so that the tokenizer is trained on all corpora"
        )
