"""Chooses the lines from which a tokenizer is trained, and records from which corpora it was trained.

A rerun of `prepare` keeps the tokenizer. Training it again on the same text would give the same one, but takes time.
With one corpus more, it would give another one, and `prepare` would have to encode all corpora again.
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
    """Every `step`-th pair of a corpus, beginning with the first."""

    step: int
    pairs: list[Line] = field(default_factory=list)
    num_bytes: int = 0
    """The sum over all pairs of the bytes of the longer side."""

    def add(self, pair: Line) -> None:
        self.pairs.append(pair)
        self.num_bytes += _num_bytes(pair)

    def thin_out(self) -> None:
        """Keep only every second of these pairs, and of all that follow."""
        self.step *= 2
        del self.pairs[1::2]
        self.num_bytes = sum(map(_num_bytes, self.pairs))


def sample_of(
    corpora: Sequence[tuple[Iterable[Line], int | None]],
    most_lines: int,
    most_bytes: int,
    stays: Callable[[int, Line], bool] = lambda corpus, pair: True,
) -> tuple[list[str], list[str]]:
    """Return sources and targets: at most `most_lines` pairs, and at most `most_bytes` of UTF-8 in each language.

    Each corpus comes with its number of pairs, or None if that is unknown. It is read once. Every k-th pair is taken,
    so that the pairs are spread over the corpus, if `stays` is true for the number of the corpus, from 0, and the pair.
    If there are too many pairs, the function drops every second pair of the corpus with the most. So large corpora
    contribute about the same number of pairs, and small ones contribute all of theirs.
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
                # Prefer samples of more than one pair, which can be thinned out.
                largest = max(samples, key=lambda s: (len(s.pairs) > 1, len(s.pairs) if too_many else s.num_bytes))
                if len(largest.pairs) == 1:  # even one line of each corpus is too much: keep one
                    break
                largest.thin_out()
    sampled = [pair for sample in samples for pair in sample.pairs]
    return [source for source, _ in sampled], [target for _, target in sampled]


def _num_bytes(pair: Line) -> int:
    return max(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in pair)


ORIGIN = "tokenizer_origin.json"


class TokenizerOrigin(BaseModel):
    """The corpora on which a tokenizer was trained, and those that it encodes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    settings: str
    """A hash of the settings with which it was trained."""
    trained_on: tuple[str, ...]
    """The names of the corpora."""
    used_for: dict[str, str]
    """The digests of the corpora that it encodes, by name."""
    digest: str
    """The digest of the tokenizer."""

    @classmethod
    def load(cls, data_dir: Path) -> "TokenizerOrigin | None":
        """Read the file that `save` wrote; None if it is missing or unreadable."""
        try:
            return cls.model_validate(read_json(data_dir / ORIGIN))
        except (OSError, ValueError):
            return None

    def save(self, data_dir: Path) -> None:
        """Write tokenizer_origin.json."""
        write_whole(data_dir / ORIGIN, self.model_dump_json(indent=2) + "\n")


def kept_tokenizer(data_dir: Path, settings: str, corpora: Mapping[str, str]) -> Tokenizer | None:
    """Return the tokenizer that an earlier start has trained for these corpora; None if there is none."""
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
    if missing := [token for token in (text.tag or "").split() if tokenizer.source.piece_to_id(token) == UNK]:
        raise CorpusError(
            f"the tag {missing[0]} of the corpus {text.name} is no piece of the tokenizer, which was trained without "
            "this corpus; set another data_dir, so that `prepare` trains a tokenizer on all corpora"
        )
