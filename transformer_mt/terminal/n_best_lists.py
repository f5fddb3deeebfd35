"""Reads n-best lists: the lines that `translate --json n_best=N` writes."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.wording import cut
from transformer_mt.storage.files import parse_json

# The fields that `translate` writes about a translation, and a setting of `rerank`. New scores need other names.
TAKEN = (
    *("translation", "score", "log_prob", "pieces", "alignment", "parts", "short", "at_limit", "doubts", "numbers"),
    "length_penalty",
)


@dataclass(frozen=True)
class NBestList:
    """The translations of a line of the source."""

    line: int
    """The number of the line, from 1."""
    place: str
    """The place of the list for messages: FILE:LINE."""
    fields: dict[str, Any]
    """The complete JSON object."""

    @property
    def translations(self) -> list[dict[str, Any]]:
        """The translations with their fields, in the order of the search: best first."""
        found: list[dict[str, Any]] = self.fields["n_best"]
        return found

    @property
    def texts(self) -> list[str]:
        """Their texts. A line break, which other programs may write, becomes a space, so that each stays one line."""
        return [" ".join(each["translation"].splitlines()) for each in self.translations]

    def number(self, rank: int, name: str) -> float:
        """Return a field of the translation with this rank, from 0. Raises CorpusError if it is not a finite number."""
        fields = self.translations[rank]
        if not is_number(fields.get(name)):
            numbers = ", ".join(key for key, value in fields.items() if is_number(value))
            raise CorpusError(
                f"{self.place}: {name} of translation {rank + 1} is {cut(json.dumps(fields.get(name)))}, but it must "
                f"be a number in every translation of every line; this translation has numbers in: {numbers}"
            )
        return float(fields[name])

    def pieces(self, rank: int) -> list[str]:
        """Return the subword pieces of a translation. Raises CorpusError if they are not a list of texts."""
        found = self.translations[rank].get("pieces")
        if not isinstance(found, list) or not all(isinstance(piece, str) for piece in found):
            raise CorpusError(
                f"{self.place}: pieces of translation {rank + 1} is {cut(json.dumps(found))}, not a list of texts"
            )
        return found

    def length(self, rank: int) -> float:
        """Return the number of pieces of the translation with this rank, counting the end of the sentence as a piece.

        Each part of a line that was translated in parts has an end. If there is no field `pieces`, only ends count.
        """
        fields = self.translations[rank]
        ends = self.number(rank, "parts") if "parts" in fields else 1.0
        return max(1.0, ends + (len(self.pieces(rank)) if "pieces" in fields else 0))


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of JSON is a number that fits into a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def n_best_lists(lines: Iterable[str], name: str, first_line: int = 1) -> Iterator[NBestList]:
    """Read a list from each line of the file `name`, from line `first_line` on. Raises CorpusError if one is wrong."""
    return (_n_best_list(text, number, f"{name}:{number}") for number, text in enumerate(lines, start=first_line))


def _n_best_list(text: str, number: int, place: str) -> NBestList:
    advice = "write n-best lists with `python -m transformer_mt.translate MODEL_DIR --json n_best=20 beam_size=20`"
    try:
        fields = parse_json(text)
        if "\\u" in text:
            json.dumps(fields, ensure_ascii=False).encode()  # raises ValueError for half of a surrogate pair
    except ValueError as error:
        raise CorpusError(f"{place}: is not a JSON object ({error}): {cut(text, 40)!r}; {advice}") from None
    found = fields.get("n_best") if isinstance(fields, dict) else None
    if not isinstance(found, list) or not found:
        raise CorpusError(f"{place}: has no field n_best, so it is not an n-best list; {advice}")
    if not all(isinstance(each, dict) and isinstance(each.get("translation"), str) for each in found):
        raise CorpusError(f"{place}: n_best is not a list of objects with the field translation; {advice}")
    if fields.get("line") != number:
        raise CorpusError(
            f"{place}: should have the translations of line {number} of the source, but has those of line "
            f"{cut(str(fields.get('line')))}: keep the lists of all lines, in their order"
        )
    return NBestList(number, place, fields)
