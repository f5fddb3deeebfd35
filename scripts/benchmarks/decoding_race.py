"""The decoding benchmark: ours and its peers translate the same text with the same weights, each as a process.

Contenders read and write text, by their own tokenizers. The clock starts when a model is loaded and has translated some
lines. Before the rounds each contender tries several batch sizes for each beam size and keeps the fastest, and its
greedy translations are compared with ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.contenders.decoding import Decoder, line_up
from benchmarks.decoding_process import (
    Conditions,
    Outcome,
    Pass,
    run_passes,
    seconds_to_first_line,
    seconds_to_import_torch,
)
from benchmarks.environment import PeerError
from transformer_mt.base.wording import counted
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.evaluation.metrics import check_aligned, score_corpus
from transformer_mt.settings.reading import load_config
from transformer_mt.text.tokenizer import Tokenizer

ALONE = 50  # sentences that are translated one at a time
SAME_LINES = 0.97  # share of equal greedy translations; with fewer, a peer computes something else
GREEDY = 1

Report = dict[str, dict[str, Any]]  # of each contender


@dataclass(frozen=True)
class Texts:
    """The text that is translated, its reference and our tokenizer."""

    source: list[str]
    reference: list[str]
    tokenizer: Tokenizer
    target_language: str


@dataclass
class Record:
    """What a contender has shown so far."""

    passes: list[Pass]
    """One for each beam size, with the best batch size."""
    lines: list[list[str]]
    """The translations of each pass."""
    megabytes: float
    outcomes: list[list[Outcome]] = field(default_factory=list)
    """For each round, the outcome of each pass."""
    seconds_to_first_line: list[float] = field(default_factory=list)
    """For each round."""


def measure_decoding(
    model_dir: Path,
    text: Sequence[Path],
    directory: Path,
    pythons: Mapping[str, str],
    beams: Sequence[int],
    threads: int,
    rounds: int,
    device: str = "cpu",
    precisions: Sequence[str] = (),
) -> dict[str, Any]:
    """Run the race: print a line for each run, then the tables, and return the results.

    Without `precisions` those are taken that are usual on the device.

    Raises PeerError if a contender fails or translates otherwise than ours, CorpusError or EvaluationError.
    """
    texts = read_texts(model_dir, text)
    conditions = write_texts(model_dir, texts, directory, threads)
    job = conditions.job
    print(
        f"  {counted(len(texts.source), 'sentence')} of {text[0]}; {counted(threads, 'thread')}; length penalty "
        f"{job['length_penalty']} as ((5 + length) / 6) ^ alpha, or {job['length_exponent']:.2f} as length ^ alpha"
    )
    contenders = line_up(model_dir.resolve(), directory, pythons, threads, device, precisions)
    for contender in contenders:  # what cannot run shall say so before anything is timed
        seconds_to_first_line(contender, conditions, GREEDY, contender.sizes[0])
    records: dict[Decoder, Record] = {}
    for contender in contenders:
        records[contender] = _record(contender, conditions, texts, beams)
        check_translations(contender, records[contender], next(iter(records.values())))
    torch_seconds = compete(records, conditions, rounds)
    report = {
        "import_torch_seconds": torch_seconds,
        "contenders": summary(records, texts),
    }
    print_tables(report)
    return report


def read_texts(model_dir: Path, text: Sequence[Path]) -> Texts:
    source, reference = (list(read_lines(path)) for path in text)
    check_aligned([source, reference], [str(path) for path in text])
    corpus = load_config(model_dir / "config.yaml").corpus
    return Texts(source, reference, Tokenizer.load(model_dir), corpus.target_language)


def write_texts(model_dir: Path, texts: Texts, directory: Path, threads: int) -> Conditions:
    """Write the texts, and collect what all contenders are told.

    We divide a score by ((5 + length) / 6) ** alpha, most others by length ** exponent. The exponent is chosen so that
    both grow at the same rate at the mean length of the references.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = load_config(model_dir / "config.yaml")
    (directory / "source.txt").write_text("".join(f"{line}\n" for line in texts.source), encoding="utf-8")
    alpha, length = config.decoding.length_penalty, mean(map(len, texts.tokenizer.encode_target(texts.reference)))
    job = {
        "max_extra_length": config.decoding.max_extra_length,
        "length_penalty": alpha,
        "length_exponent": alpha * length / (5 + length),
    }
    return Conditions(directory, threads, directory / "source.txt", job)


def _record(contender: Decoder, conditions: Conditions, texts: Texts, beams: Sequence[int]) -> Record:
    """Find its best batch sizes, then its translations and its memory with these."""
    tried = [Pass(beam, size) for beam in beams for size in contender.sizes]
    outcomes, _ = run_passes(contender, conditions, tried)
    best = fastest(dict(zip(tried, outcomes, strict=True)))
    checked, megabytes = run_passes(contender, conditions, best, watch=True)
    chosen = ", ".join(f"{one.size} at beam {one.beam}" for one in best)
    print(f"  {contender.title:26} batches of {chosen}", flush=True)
    return Record(best, [one_spaced(outcome.lines) for outcome in checked], megabytes)


def fastest(tried: Mapping[Pass, Outcome]) -> list[Pass]:
    """The fastest pass of each beam size, in order."""
    widths = sorted({one.beam for one in tried})
    return [min((one for one in tried if one.beam == beam), key=lambda one: tried[one].seconds) for beam in widths]


def one_spaced(lines: Sequence[str]) -> list[str]:
    """The lines with one space between words, as ours writes them."""
    return [" ".join(line.split()) for line in lines]


def check_translations(contender: Decoder, record: Record, ours: Record) -> None:
    """Raises PeerError if a contender in fp32 finds other greedy translations than ours: it computes something else."""
    same = _same_lines(record, ours, GREEDY)
    if contender.precision == "fp32" and same < SAME_LINES:
        raise PeerError(
            f"{contender.title}: of its greedy translations {same:.1%} are those of ours, less than {SAME_LINES:.0%}: "
            "it does not compute the same, and to compare its speed would mean nothing"
        )


def _same_lines(record: Record, ours: Record, beam: int) -> float:
    """The share of lines that both translate equally."""
    found, expected = (r.lines[[one.beam for one in r.passes].index(beam)] for r in (record, ours))
    return mean(a == b for a, b in zip(found, expected, strict=True))


def compete(records: Mapping[Decoder, Record], conditions: Conditions, rounds: int) -> float:
    """Run all contenders in every round, every other round backwards.

    Returns the seconds that our Python takes only to import PyTorch.
    """
    importing = []
    for number in range(rounds):
        for contender in records if number % 2 == 0 else reversed(records):
            record = records[contender]
            outcomes, _ = run_passes(contender, conditions, record.passes, alone=ALONE)
            last = record.passes[-1]
            seconds = seconds_to_first_line(contender, conditions, last.beam, last.size)
            speeds = ", ".join(f"{len(outcome.lines) / outcome.seconds:,.1f}" for outcome in outcomes)
            print(f"  round {number + 1}: {contender.title:26} {speeds} sentences/s", flush=True)
            record.outcomes.append(outcomes)
            record.seconds_to_first_line.append(seconds)
        importing.append(seconds_to_import_torch(next(iter(records)), conditions))
    return median(importing)


def summary(records: Mapping[Decoder, Record], texts: Texts) -> Report:
    """The results by title and beam size: medians over the rounds, and how many times as fast ours was in each."""
    first = next(iter(records.values()))
    ours = {contender.precision: record for contender, record in records.items() if contender.name == "ours"}
    report: Report = {}
    for contender, record in records.items():
        rows = {}
        for number, one in enumerate(record.passes):
            outcomes = [outcomes[number] for outcomes in record.outcomes]
            row = _row(record.lines[number], outcomes, texts)
            row |= {"batch": one.size, "same_lines": _same_lines(record, first, one.beam)}
            rival = ours.get(contender.precision)
            if rival is not None and contender.name != "ours":
                row |= _ratios([outcomes[number] for outcomes in rival.outcomes], outcomes)
            rows[one.beam] = row
        report[contender.title] = {
            "megabytes": record.megabytes,
            "seconds_to_first_line": median(record.seconds_to_first_line),
            "beams": rows,
        }
    return report


def _row(lines: list[str], outcomes: Sequence[Outcome], texts: Texts) -> dict[str, Any]:
    """The numbers of one pass. Output tokens are the pieces that our tokenizer cuts the translations into."""
    seconds = median(outcome.seconds for outcome in outcomes)
    tokens = sum(len(ids) - 1 for ids in texts.tokenizer.encode_target(lines))
    bleu = score_corpus(lines, [texts.reference], texts.target_language)["BLEU"]
    return {
        "seconds": [outcome.seconds for outcome in outcomes],
        "sentences_per_second": len(lines) / seconds,
        "tokens_per_second": tokens / seconds,
        "milliseconds_alone": 1000 * median(outcome.seconds_alone or 0.0 for outcome in outcomes),
        "bleu": bleu.value,
        "signature": bleu.signature,
    }


def _ratios(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> dict[str, Any]:
    ratios = [their.seconds / our.seconds for our, their in zip(ours, theirs, strict=True)]
    return {"ratios": ratios, "ratio": median(ratios)}


def print_tables(report: Mapping[str, Any]) -> None:
    contenders: Report = report["contenders"]
    for beam in next(iter(contenders.values()))["beams"]:
        print(f"  {f'beam {beam}' if beam > GREEDY else 'greedy':30} {'sentences':>9} {'output':>9}", end="")
        print(f"  {'ours is':18} {'alone':>7} {'batch':>6} {'BLEU':>6} {'lines':>6}")
        print(f"  {'':30} {'/s':>9} {'tokens/s':>9}  {'times as fast':18} {'ms':>7} {'':6} {'':6} {'as ours':>6}")
        for title, contender in contenders.items():
            row = contender["beams"][beam]
            ratio = f"{row['ratio']:.2f} ({min(row['ratios']):.2f}–{max(row['ratios']):.2f})" if "ratio" in row else ""
            print(
                f"  {title:30} {row['sentences_per_second']:>9,.1f} {row['tokens_per_second']:>9,.0f}  {ratio:18} "
                f"{row['milliseconds_alone']:>7.1f} {row['batch']:>6} {row['bleu']:>6.2f} {row['same_lines']:>6.1%}"
            )
    print(f"  {'':30} {'s to the first line':>20} {'MB':>8}")
    for title, contender in contenders.items():
        print(f"  {title:30} {contender['seconds_to_first_line']:>20.2f} {contender['megabytes']:>8,.0f}")
    print(f"  {'import torch, alone':30} {report['import_torch_seconds']:>20.2f}")
    print(f"  {next(iter(contenders.values()))['beams'][GREEDY]['signature']}")
