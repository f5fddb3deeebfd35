"""Sums up the lines that were translated, and warns of translations that the user should look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_mt.decoding.translation import BLANK, Translation
from transformer_mt.host_memory import peak_memory
from transformer_mt.wording import counted

_NAMED = 5  # lines of each kind whose numbers are shown


@dataclass
class TranslationSummary:
    """Counts lines while they are translated. Lines are numbered from 1."""

    num_lines: int = 0
    num_blank: int = 0
    num_split: int = 0
    num_parts: int = 0
    """The number of parts of the lines that were split."""
    short: list[int] = field(default_factory=list)
    """The lines whose translation is much shorter than translations in training of sources as long."""
    at_limit: list[int] = field(default_factory=list)
    """The lines whose translation was cut off at the greatest length that is allowed."""
    seconds: float = 0.0
    """The time spent on translating, without loading the model and waiting for input."""

    def add(self, line: int, best: Translation) -> None:
        """Count a line, given its best translation."""
        self.num_lines += 1
        self.num_blank += best == BLANK
        if best.num_parts > 1:
            self.num_split += 1
            self.num_parts += best.num_parts
        if best.is_short:
            self.short.append(line)
        if best.at_limit:
            self.at_limit.append(line)

    def add_counts(self, counts: Mapping[str, Any]) -> None:
        """Add the fields, by their names, of the summary of the lines that come next."""
        for name, count in counts.items():
            vars(self)[name] += count

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
        if self.short:
            said.append(
                f"the translation of {counted(len(self.short), 'line')} is much shorter than usual for such a "
                f"source, so something may be missing: look at {_named(self.short)}"
            )
        if self.at_limit:
            said.append(
                f"the translation of {counted(len(self.at_limit), 'line')} was cut off at its greatest length "
                f"(max_extra_length, model.max_positions): look at {_named(self.at_limit)}"
            )
        return said


def _named(lines: Sequence[int]) -> str:
    """The numbers of the first lines, as in `lines 3, 17`."""
    shown = ", ".join(str(line) for line in lines[:_NAMED])
    return f"line{'' if len(lines) == 1 else 's'} {shown}" + (", …" if len(lines) > _NAMED else "")
