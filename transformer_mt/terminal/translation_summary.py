"""Sums up the lines that were translated, and warns of translations that the user should look at."""

from dataclasses import asdict, dataclass, field
from typing import Any

from transformer_mt.decoding.translation import BLANK, Translation
from transformer_mt.host_memory import peak_memory
from transformer_mt.wording import counted

_NAMED = 5  # lines of each kind whose numbers are shown


@dataclass
class Noticed:
    """Lines of one kind that should be looked at."""

    number: int = 0
    first: list[int] = field(default_factory=list)
    """The numbers of the first of them, and of one more than are shown."""

    def add(self, number: int, first: list[int]) -> None:
        """Count further lines, with the numbers of the first of them."""
        self.number += number
        self.first = [*self.first, *first][: _NAMED + 1]


@dataclass
class TranslationSummary:
    """Counts lines while they are translated. Lines are numbered from 1."""

    num_lines: int = 0
    num_blank: int = 0
    num_split: int = 0
    num_parts: int = 0
    """The number of parts of the lines that were split."""
    short: Noticed = field(default_factory=Noticed)
    """Lines whose translation is much shorter than translations in training of sources as long."""
    at_limit: Noticed = field(default_factory=Noticed)
    """Lines whose translation was cut off at the greatest length that is allowed."""
    odd_tag: Noticed = field(default_factory=Noticed)
    """Lines that begin otherwise than training sources did: without a tag, or with another."""
    seconds: float = 0.0
    """The time spent on translating, without loading the model and waiting for input."""

    def add(self, line: int, best: Translation, has_odd_tag: bool = False) -> None:
        """Count a line, given its best translation, and whether it begins otherwise than training sources did."""
        self.num_lines += 1
        self.num_blank += best == BLANK
        if best.num_parts > 1:
            self.num_split += 1
            self.num_parts += best.num_parts
        if best.is_short:
            self.short.add(1, [line])
        if best.at_limit:
            self.at_limit.add(1, [line])
        if has_odd_tag:
            self.odd_tag.add(1, [line])

    def counts(self) -> dict[str, Any]:
        """Return all numbers except the time, as values of JSON."""
        numbers = asdict(self)
        del numbers["seconds"]
        return numbers

    def add_counts(self, counts: dict[str, Any]) -> None:
        """Add what `counts` returned about the lines that come next.

        Raises KeyError or TypeError if it is something else.
        """
        self.num_lines += counts["num_lines"]
        self.num_blank += counts["num_blank"]
        self.num_split += counts["num_split"]
        self.num_parts += counts["num_parts"]
        self.short.add(**counts["short"])
        self.at_limit.add(**counts["at_limit"])
        self.odd_tag.add(**counts["odd_tag"])

    def text(self, num_before: int = 0) -> str:
        """Return a line of numbers, and a warning for each kind of translation that should be looked at.

        `num_before` of the lines were translated by earlier commands, in a time that is not counted.
        """
        now = self.num_lines - num_before
        rate = f"in {self.seconds:.1f} s, {now / max(self.seconds, 1e-9):,.1f} a second"
        begun = f"{counted(self.num_lines, 'line')} {rate}"
        if num_before:
            begun = f"{counted(self.num_lines, 'line')}, {num_before:,} of them before"
            begun += f"; the others {rate}" if now else ""
        numbers = (
            f"{begun}; {self.num_blank:,} blank; {self.num_split:,} split into {counted(self.num_parts, 'part')}; "
            f"peak memory {peak_memory() / 1e6:,.0f} MB"
        )
        return "\n".join([numbers, *(f"warning: {warning}" for warning in self.warnings())])

    def warnings(self) -> list[str]:
        """Return a sentence for each kind of translation that should be looked at, with the reason."""
        said = []
        if self.short.number:
            said.append(
                f"the translation of {counted(self.short.number, 'line')} is much shorter than usual for such a "
                f"source, so something may be missing: look at {shown_numbers(self.short.first)}"
            )
        if self.at_limit.number:
            said.append(
                f"the translation of {counted(self.at_limit.number, 'line')} was cut off at its greatest length "
                f"(max_extra_length, model.max_positions): look at {shown_numbers(self.at_limit.first)}"
            )
        if self.odd_tag.number:
            said.append(
                f"{counted(self.odd_tag.number, 'line')} had no tag at the beginning, or not one as in training (an "
                f"earlier warning names the tags): look at {shown_numbers(self.odd_tag.first)}"
            )
        return said


def shown_numbers(lines: list[int]) -> str:
    """Return the numbers of the first lines, as in `lines 3, 17`; `lines` is that of Noticed."""
    shown = ", ".join(str(line) for line in lines[:_NAMED])
    return f"line{'' if len(lines) == 1 else 's'} {shown}" + (", …" if len(lines) > _NAMED else "")
