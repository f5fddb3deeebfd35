"""Looks for what a system is weak at: long sentences, rare words, repetitions, text that is not translated.

BLEU of a single sentence says little, so lines are ranked by chrF2.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from transformer_mt.base.languages import has_spaces, split_units
from transformer_mt.base.wording import counted, visible
from transformer_mt.batches.encoded import EncodedCorpus, piece_counts
from transformer_mt.evaluation.metrics import check_aligned, corpus_score
from transformer_mt.preparing.prepared import check_data, trained_on
from transformer_mt.text.tokenizer import Tokenizer

GROUPS = 4
WORST = 5  # lines that are listed
# One to four words three times in a row, or two to four letters four times, as in "strestrestrestre".
_REPEATED = re.compile(r"(?<!\S)(\S++(?: \S++){0,3})(?: \1){2,}(?!\S)|(\S{2,4})\2{3,}")
SUSPICIOUS = {
    "empty": "without a translation",
    "copied": "where the translation is the source",
    "untranslated": "where most words of the translation are words of the source",
    "repeated": "where the same words or letters come again and again",
}


@dataclass(frozen=True)
class Group:
    """The scores, in percent, of about equally many lines with alike values of something."""

    least: int
    most: int
    num_lines: int
    bleu: float
    chrf: float


@dataclass(frozen=True)
class WorstLine:
    """A line whose translation is far from the reference."""

    line: int
    """From 1."""
    chrf: float
    source: str
    hypothesis: str
    reference: str


@dataclass(frozen=True)
class Analysis:
    """What is known about the weaknesses of a system on one test set."""

    unit: str
    """What sources are counted in: word, or character in a language without spaces."""
    by_length: list[Group]
    """By the number of units of the source."""
    by_rarest_piece: list[Group]
    """By how often the rarest piece of the source stands in the training text; empty if that is not known."""
    length_ratio: float
    """Words of all translations divided by words of the references."""
    suspicious: dict[str, list[int]]
    """The numbers of lines, from 1, by what is odd about their translations: empty, copied, untranslated, repeated."""
    worst: list[WorstLine]


def analyse(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    languages: tuple[str, str] = ("", ""),
    rarest: Sequence[int] | None = None,
) -> Analysis:
    """Look for weaknesses. `languages` are the codes of source and target; there must be at least one line.

    `rarest` says for each line how often the rarest piece of its source stands in the training text.
    """
    check_aligned([sources, hypotheses, references], ["source", "hypothesis", "reference"])
    source_spaced, target_spaced = (has_spaces(language) for language in languages)
    lengths = [len(split_units(source, source_spaced)) for source in sources]
    wanted = sum(len(split_units(reference, target_spaced)) for reference in references)
    written = sum(len(split_units(hypothesis, target_spaced)) for hypothesis in hypotheses)
    scores = [_chrf_of_line(said, right) for said, right in zip(hypotheses, references, strict=True)]
    worst = sorted(range(len(scores)), key=lambda line: (scores[line], line))[:WORST]
    return Analysis(
        "word" if source_spaced else "character",
        groups_of(lengths, hypotheses, references, languages[1]),
        [] if rarest is None else groups_of(rarest, hypotheses, references, languages[1]),
        written / max(wanted, 1),
        suspicious_lines(sources, hypotheses, references),
        [WorstLine(at + 1, scores[at], sources[at], hypotheses[at], references[at]) for at in worst],
    )


def rarest_pieces(data_dir: Path, tokenizer: Tokenizer, lines: Sequence[str]) -> list[int] | None:
    """Return for each line how often its rarest piece stands in the source side of the training text.

    None if the training text is not in data_dir any more, as where only a model was copied. Raises CorpusError if its
    files are not as they were written.
    """
    if not (data_dir / "train").is_dir():
        return None
    check_data(data_dir, [name for name in trained_on(data_dir) if name.startswith("train/")])
    text = EncodedCorpus.load(data_dir / "train").source
    counts = piece_counts(text, tokenizer.source_vocab_size)
    return [int(counts[ids].min()) for ids in tokenizer.encode_source(lines)]


def text_of_analysis(found: Analysis) -> str:
    """Return an analysis as text."""
    lines = []
    for title, groups in (
        (f"{found.unit}s of the source", found.by_length),
        ("times that the rarest source piece stands in training", found.by_rarest_piece),
    ):
        if groups:
            lines.append(f"{'BLEU':>7}  {'chrF2':>5}  {'lines':>6}  {title}")
        lines += [
            f"{each.bleu:7.1f}  {each.chrf:5.1f}  {each.num_lines:6,}  {each.least:,} to {each.most:,}"
            for each in groups
        ]
    lines.append(f"length of the translations: {found.length_ratio:.3f} of the references'")
    for kind, meaning in SUSPICIOUS.items():
        if numbers := found.suspicious[kind]:
            shown = ", ".join(str(number) for number in numbers[:WORST]) + (", …" if len(numbers) > WORST else "")
            lines.append(f"{counted(len(numbers), 'line')} {meaning}: {shown}")
    lines.append("the worst lines, by chrF2")
    for worst in found.worst:
        lines.append(f"{worst.chrf:7.1f}  line {worst.line:,}")
        texts = {"source": worst.source, "reference": worst.reference, "hypothesis": worst.hypothesis}
        lines += [f"           {side:10}  {visible(text)}" for side, text in texts.items()]
    return "\n".join(lines)


def groups_of(
    values: Sequence[int], hypotheses: Sequence[str], references: Sequence[str], target_language: str = ""
) -> list[Group]:
    """Score the lines in groups of about the same size, in rising order of their values.

    Lines with equal values are always in the same group, so there may be fewer groups than `GROUPS`.
    """
    bounds = np.unique(np.quantile(values, np.linspace(0, 1, GROUPS + 1)[1:], method="inverted_cdf"))
    number_of = np.searchsorted(bounds, values)
    groups = []
    for number in range(len(bounds)):
        lines = np.flatnonzero(number_of == number).tolist()
        own = [values[line] for line in lines]
        said, wanted = [hypotheses[line] for line in lines], [references[line] for line in lines]
        bleu, chrf = corpus_score("bleu", said, wanted, target_language), corpus_score("chrf", said, wanted)
        groups.append(Group(min(own), max(own), len(own), bleu, chrf))
    return groups


def suspicious_lines(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, list[int]]:
    """Return the numbers of lines, from 1, whose translations are odd, by what is odd about them."""
    found: dict[str, list[int]] = {kind: [] for kind in SUSPICIOUS}
    for number, (source, said, wanted) in enumerate(zip(sources, hypotheses, references, strict=True), start=1):
        if source.strip() and not said.strip():
            found["empty"].append(number)
        elif said.casefold() == source.casefold() != wanted.casefold():
            found["copied"].append(number)
        elif _is_left(source, said, wanted):
            found["untranslated"].append(number)
        if any(repeated[0] not in wanted for repeated in _REPEATED.finditer(said)):
            found["repeated"].append(number)
    return found


def _chrf_of_line(hypothesis: str, reference: str) -> float:
    return float(CHRF().sentence_score(hypothesis, [reference]).score)


def _is_left(source: str, hypothesis: str, reference: str) -> bool:
    """Whether most words of a translation are words of the source that the reference does not have."""
    said = hypothesis.casefold().split()
    foreign = set(source.casefold().split()) - set(reference.casefold().split())
    return len(said) >= 3 and 2 * sum(word in foreign for word in said) > len(said)
