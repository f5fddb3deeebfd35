"""Looks for weaknesses of a system: long sentences, repetitions, untranslated text, wrong numbers.

Lines are ranked by chrF2, because BLEU of a single sentence says little.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import ConfigDict
from sacrebleu.metrics.chrf import CHRF

from transformer_mt.base.doubts import DOUBTS, doubts, numbers
from transformer_mt.base.languages import has_spaces, split_units
from transformer_mt.base.wording import counted, visible
from transformer_mt.evaluation.metrics import check_aligned, corpus_score

GROUPS = 4
WORST = 5  # the number of worst lines that are shown


@dataclass(frozen=True)
class Group:
    """The scores of a group of lines whose sources have `least` to `most` units."""

    least: int
    most: int
    num_lines: int
    bleu: float
    chrf: float


@dataclass(frozen=True)
class WorstLine:
    line: int
    """From 1."""
    chrf: float
    source: str
    hypothesis: str
    reference: str


@dataclass(frozen=True)
class Analysis:
    """The weaknesses of a system on one test set."""

    __pydantic_config__ = ConfigDict(extra="ignore")

    unit: str
    """The unit of source lengths: word, or character in a language without spaces."""
    by_length: list[Group]
    """Groups by the number of units of the source."""
    length_ratio: float
    """Number of words of all translations divided by that of the references."""
    suspicious: dict[str, list[int]]
    """The numbers (from 1) of lines with odd translations, for each key of DOUBTS."""
    worst: list[WorstLine]
    with_numbers: int = 0
    """The number of lines whose source has numbers, as `doubts.numbers` counts them."""
    same_numbers: int = 0
    """How many of these have the same numbers in the translation as in the source or the reference."""


def analyse(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], languages: tuple[str, str] = ("", "")
) -> Analysis:
    """Look for weaknesses. `languages` are the codes of source and target; there must be at least one line."""
    check_aligned([sources, hypotheses, references], ["source", "hypothesis", "reference"])
    source_spaced, target_spaced = (has_spaces(language) for language in languages)
    lengths = [len(split_units(source, source_spaced)) for source in sources]
    reference_units = sum(len(split_units(reference, target_spaced)) for reference in references)
    hypothesis_units = sum(len(split_units(hypothesis, target_spaced)) for hypothesis in hypotheses)
    both = zip(hypotheses, references, strict=True)
    scores = [float(CHRF().sentence_score(found, [reference]).score) for found, reference in both]
    worst = sorted(range(len(scores)), key=lambda line: (scores[line], line))[:WORST]
    suspicious: dict[str, list[int]] = {kind: [] for kind in DOUBTS}
    for line, texts in enumerate(zip(sources, hypotheses, references, strict=True), start=1):
        for kind in doubts(*texts):
            suspicious[kind].append(line)
    with_numbers = {line for line, source in enumerate(sources, start=1) if numbers(source)}
    return Analysis(
        "word" if source_spaced else "character",
        groups_of(lengths, hypotheses, references, languages[1]),
        hypothesis_units / max(reference_units, 1),
        suspicious,
        [WorstLine(at + 1, scores[at], sources[at], hypotheses[at], references[at]) for at in worst],
        len(with_numbers),
        len(with_numbers.difference(suspicious["numbers"])),
    )


def text_of_analysis(found: Analysis) -> str:
    lines = [f"{'BLEU':>7}  {'chrF2':>5}  {'lines':>6}  {found.unit}s of the source"]
    lines += [
        f"{each.bleu:7.1f}  {each.chrf:5.1f}  {each.num_lines:6,}  {each.least:,} to {each.most:,}"
        for each in found.by_length
    ]
    lines.append(f"length of the translations: {found.length_ratio:.3f} of the references'")
    for kind, meaning in DOUBTS.items():
        if doubtful := found.suspicious.get(kind):
            shown = ", ".join(str(line) for line in doubtful[:WORST]) + (", …" if len(doubtful) > WORST else "")
            lines.append(f"the translation of {counted(len(doubtful), 'line')} {meaning}: {shown}")
    if found.with_numbers:
        share, of = found.same_numbers / found.with_numbers, counted(found.with_numbers, "line")
        lines.append(f"numbers: {share:.1%} of {of} with numbers have the same numbers".replace("%", " %"))
    lines.append("the worst lines, by chrF2")
    for worst in found.worst:
        lines.append(f"{worst.chrf:7.1f}  line {worst.line:,}")
        texts = {"source": worst.source, "reference": worst.reference, "hypothesis": worst.hypothesis}
        lines += [f"           {side:10}  {visible(text)}" for side, text in texts.items()]
    return "\n".join(lines)


def groups_of(
    values: Sequence[int], hypotheses: Sequence[str], references: Sequence[str], target_language: str = ""
) -> list[Group]:
    """Sort the lines by their values, divide them into groups of about the same size, and score each group.

    Lines with equal values are always in the same group, so there may be fewer than GROUPS groups.
    """
    bounds = np.unique(np.quantile(values, np.linspace(0, 1, GROUPS + 1)[1:], method="inverted_cdf"))
    number_of = np.searchsorted(bounds, values)
    groups = []
    for number in range(len(bounds)):
        lines = np.flatnonzero(number_of == number).tolist()
        own = [values[line] for line in lines]
        texts = [hypotheses[line] for line in lines], [references[line] for line in lines]
        bleu, chrf = corpus_score("bleu", *texts, target_language), corpus_score("chrf", *texts)
        groups.append(Group(min(own), max(own), len(own), bleu, chrf))
    return groups
