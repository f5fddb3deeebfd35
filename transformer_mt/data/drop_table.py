"""Shows as a table how many pairs of each corpus were left out, and for which reason."""

from collections import Counter
from collections.abc import Mapping

from transformer_mt.corpora.filters import REASONS
from transformer_mt.wording import counted

KEPT = "kept"
_WIDTH = 100  # columns
_MOST_CORPORA = 20
_TOTAL = "all corpora"


def drop_table(counts: Mapping[str, Counter[str]]) -> str:
    """Return a table of at most 100 columns of characters.

    `counts` says for each corpus, by its name, how many pairs were kept (KEPT), and how many were left out for each of
    REASONS. Corpora stand side by side, and where they do not fit, below each other. Of more than 20, only those of
    which most pairs were left out are shown.
    """
    shown = dict(counts)
    if len(counts) > _MOST_CORPORA:
        largest = sorted(counts, key=lambda name: counts[name][KEPT] - counts[name].total())[:_MOST_CORPORA]
        shown = {name: counts[name] for name in counts if name in largest}
    total: Counter[str] = Counter()
    for count in counts.values():
        total.update(count)
    if len(counts) > 1:
        shown[_TOTAL] = total
    reasons = [reason for reason in REASONS if total[reason]]
    labels = ["pairs", *(f"  {REASONS[reason]}" for reason in reasons), "left out", "kept"]
    columns = [_column(name, count, reasons) for name, count in shown.items()]
    lines = _beside_each_other(labels, columns)
    if len(counts) > _MOST_CORPORA:
        lines.append(f"({counted(len(counts) - _MOST_CORPORA, 'other corpus', 'other corpora')}: see prepare.json)")
    lines += [f"note: nothing of {name} is left" for name, count in counts.items() if not count[KEPT]]
    return "\n".join(lines)


def _column(name: str, count: Counter[str], reasons: list[str]) -> list[str]:
    """Return the cells of a corpus, of the same width: its name, and below it a number and a share for each label."""
    read = count.total()
    numbers = [*(count[reason] for reason in reasons), read - count[KEPT], count[KEPT]]
    digits = len(f"{read:,}")
    cells = [f"{read:>{digits},}{'':8}", *(f"{number:>{digits},}{_share(number, read):>8}" for number in numbers)]
    width = max(len(cells[0]), 16)
    title = name if len(name) <= width else name[: width - 1] + "…"
    return [f"{cell:>{width}}" for cell in [title, *cells]]


def _share(number: int, of: int) -> str:
    """Return a share in percent. It is 0.00 % only of nothing, and 100.0 % only of all."""
    share = 100 * number / of if of else 0.0
    if 0 < share < 0.01:
        return "<0.01 %"
    if 99.9 < share < 100:
        return ">99.9 %"
    return f"{share:.2f} %" if share < 10 else f"{share:.1f} %"


def _beside_each_other(labels: list[str], columns: list[list[str]]) -> list[str]:
    """Return the lines of as many tables as the columns need."""
    width = max(map(len, labels))
    titles = [f"{label:<{width}}" for label in ["", *labels]]
    lines: list[str] = []
    while columns:
        fitting = 1
        while fitting < len(columns) and width + sum(2 + len(each[0]) for each in columns[: fitting + 1]) <= _WIDTH:
            fitting += 1
        beside, columns = columns[:fitting], columns[fitting:]
        lines += [""] if lines else []
        lines += ["  ".join(row).rstrip() for row in zip(titles, *beside, strict=True)]
    return lines
