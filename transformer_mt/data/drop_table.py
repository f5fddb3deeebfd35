"""Shows as a table how many pairs of each corpus were left out, and for which reason."""

from collections import Counter
from collections.abc import Mapping

from transformer_mt.corpora.filters import REASONS
from transformer_mt.wording import counted

KEPT = "kept"
_MOST_CORPORA = 20


def drop_table(counts: Mapping[str, Counter[str]]) -> str:
    """Return a table for each corpus, one below the other, and for several corpora one for all of them.

    `counts` says for each corpus, by its name, how many pairs were kept (KEPT), and how many were left out for each of
    REASONS. Of more than 20 corpora, only those of which most pairs were left out are shown.
    """
    largest = sorted(counts, key=lambda name: counts[name][KEPT] - counts[name].total())[:_MOST_CORPORA]
    shown = {name: count for name, count in counts.items() if name in largest}
    if len(counts) > 1:
        shown["all corpora"] = sum(counts.values(), Counter())
    lines = "\n\n".join(_table(name, count) for name, count in shown.items()).splitlines()
    if len(counts) > len(largest):
        others = counted(len(counts) - len(largest), "other corpus", "other corpora")
        lines.append(f"({others}: see prepare.json)")
    lines += [f"note: nothing of {name} is left" for name, count in counts.items() if not count[KEPT]]
    return "\n".join(lines)


def _table(name: str, count: Counter[str]) -> str:
    read = count.total()
    rows = {f"  {words}": count[reason] for reason, words in REASONS.items() if count[reason]}
    rows |= {"left out": read - count[KEPT], "kept": count[KEPT]}
    width, digits = max(map(len, rows)), len(f"{read:,}")
    cells = {label: f"{number:>{digits},}{_share(number, read):>8}" for label, number in rows.items()}
    cells = {"": name, "pairs": f"{read:>{digits},}{'':8}", **cells}
    return "\n".join(f"{label:{width}}  {cell:>16}".rstrip() for label, cell in cells.items())


def _share(number: int, of: int) -> str:
    """Return a share in percent. It is 0.00 % only of nothing, and 100.0 % only of all."""
    share = 100 * number / of if of else 0.0
    if 0 < share < 0.01:
        return "<0.01 %"
    if 99.9 < share < 100:
        return ">99.9 %"
    return f"{share:.2f} %" if share < 10 else f"{share:.1f} %"
