"""Puts what was gathered into the template: one page that loads nothing from elsewhere."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from transformer_mt.corpora.filters import REASONS
from transformer_mt.evaluation.analysis import SUSPICIOUS
from transformer_mt.reporting import charts
from transformer_mt.reporting.charts import BarChart, LineChart, Map
from transformer_mt.reporting.gathered import CorpusReport, Curve, Log, Missing, Run, Shown, TestReport
from transformer_mt.reporting.sentences import N_BEST
from transformer_mt.storage.records import CURVES
from transformer_mt.version import __version__
from transformer_mt.wording import counted

MARK = '<meta name="generator" content="transformer_mt report">'
"""By which a page of this command is told from other files."""


@dataclass(frozen=True)
class Report:
    """All that the page says."""

    runs: list[Run]
    logs: dict[str, Log | Missing]
    """By the name of the run."""
    tests: list[TestReport]
    not_evaluated: dict[str, Missing]
    sentences: list[Shown] | Missing
    sentence_notes: list[str]
    corpora: list[CorpusReport]
    corpus_notes: list[str]
    positions: list[tuple[str, Map, LineChart] | Missing]
    """For each different kind, its name, the encodings, and the dot products of one with all."""


def page_of(report: Report) -> str:
    """The page. The same report always gives the same text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    environment.filters |= {"duration": duration, "number": number, "with_code": with_code}
    room = files("transformer_mt.reporting")
    style, script, template = ((room / name).read_text("utf-8") for name in ("style.css", "script.js", "template.html"))
    numbers = {run.name: number for number, run in enumerate(report.runs)}
    curves = curve_charts(report, numbers)
    weaknesses = {test.name: weakness_charts(test, numbers) for test in report.tests}
    lengths = [_length_chart(number, corpus) for number, corpus in enumerate(report.corpora)]
    with_lines = [
        *curves,
        *(chart for chart in lengths if chart),
        *(p[2] for p in report.positions if isinstance(p, tuple)),
    ]
    return environment.from_string(template).render(
        report=report,
        title=" and ".join(numbers) if len(numbers) < 3 else f"{len(numbers)} runs",
        version=__version__,
        mark=Markup(MARK),
        style=Markup(style),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        numbers=numbers,
        headlines={run.name: headline(run, report.tests) for run in report.runs},
        missing=lambda part: isinstance(part, Missing),
        curves=curves,
        weaknesses=weaknesses,
        lengths=lengths,
        settings=settings_table(report.runs),
        reasons=REASONS,
        suspicious=SUSPICIOUS,
        counted=counted,
        n_best=N_BEST,
        embedded={
            "charts": {chart.key: chart.numbers for chart in with_lines},
            "sentences": _embedded(report.sentences),
        },
    )


def headline(run: Run, tests: Sequence[TestReport]) -> str:
    """What matters most of a run: its scores, its size, when it was started, and what it was trained on."""
    corpus = run.config.corpus
    parts = [
        f"{metric} {score['value']:.1f} on {test.name}"
        for test in tests
        for each in test.scored
        if each.run == run.name
        for metric, score in list(each.scores.items())[:1]
    ] or ["not evaluated yet"]
    if not isinstance(run.num_parameters, Missing):
        parts.append(f"{run.num_parameters:,} parameters")
    first, *others = (text.place for text in corpus.training_corpora)
    more = f" and {counted(len(others), 'other corpus', 'other corpora')}" if others else ""
    parts.append(f"{corpus.source_language} to {corpus.target_language}, trained on {first}{more}")
    if not isinstance(run.starts, Missing) and run.starts[-1].time:
        parts.append(f"started on {run.starts[-1].time[:10]}")
    return "; ".join(parts)


def with_code(text: str) -> Markup:
    """A sentence as HTML, in which what stands between backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick too many
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def number(value: object) -> str:
    """A number with commas between thousands; whatever else a file holds in its place as it is."""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def duration(seconds: float) -> str:
    """A time for people: 12.3 s, 5 min 7 s, or 41 h 40 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def settings_table(runs: Sequence[Run]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """The settings in which runs differ, and all the others: the key, and the value of each run."""
    flat = [_flat(run.config.model_dump()) for run in runs]
    keys = list(dict.fromkeys(key for each in flat for key in each))
    rows = [(key, [each.get(key, "–") for each in flat]) for key in keys]
    return [row for row in rows if len(set(row[1])) > 1], [row for row in rows if len(set(row[1])) == 1]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + str(key)] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return found


def curve_charts(report: Report, numbers: dict[str, int]) -> list[LineChart]:
    """A chart for each field of the logs; what counts mishaps only if there was one."""
    logs = {name: log for name, log in report.logs.items() if isinstance(log, Log)}
    marks = [
        (start.from_update, numbers[run.name])
        for run in report.runs
        if run.name in logs and not isinstance(run.starts, Missing)
        for start in run.starts
        if start.from_update
    ]
    found = list[LineChart]()
    for key, title in CURVES.items():
        curves = {name: (numbers[name], log.curves[key]) for name, log in logs.items() if key in log.curves}
        values = [value for _, curve in curves.values() for value in curve.values if value is not None]
        if values and not (key in ("skipped", "split") and not any(values)):
            found.append(charts.lines(f"curve-{key}", title, curves, marks=marks))
    return found


def weakness_charts(test: TestReport, numbers: dict[str, int]) -> list[BarChart]:
    """BLEU by length and by the rarest piece."""
    units = {each.details["analysis"]["unit"] for each in test.scored if "analysis" in each.details}
    unit = f"{' or '.join(sorted(units))}s"
    return [
        *_group_charts(test, numbers, "by_length", f"BLEU by {unit} of the source", unit),
        *_group_charts(test, numbers, "by_rarest_piece", "BLEU by how often the rarest piece was in training", "times"),
    ]


def _group_charts(test: TestReport, numbers: dict[str, int], kind: str, title: str, unit: str) -> list[BarChart]:
    """Charts of one kind of groups. Runs with the same groups of lines are drawn together."""
    groups: dict[tuple[tuple[int, int, int], ...], list[tuple[str, list[float]]]] = {}
    for each in test.scored:
        if rows := each.details.get("analysis", {}).get(kind):
            bounds = tuple((row["least"], row["most"], row["num_lines"]) for row in rows)
            groups.setdefault(bounds, []).append((each.run, [row["bleu"] for row in rows]))
    found = []
    for bounds, runs in groups.items():
        bars = [
            (f"{least:,} to {most:,} {unit} ({lines:,} lines)", [(run, numbers[run], bleu[at]) for run, bleu in runs])
            for at, (least, most, lines) in enumerate(bounds)
        ]
        found.append(charts.bars(title, bars))
    return found


def _length_chart(number: int, corpus: CorpusReport) -> LineChart | None:
    if isinstance(corpus.lengths, Missing):
        return None
    curves = {
        side: (at, Curve([length for length, _ in counts], [float(count) for _, count in counts]))
        for at, (side, counts) in enumerate(corpus.lengths.items())
    }
    return charts.lines(f"lengths-{number}", "training sentences of each length", curves, "pieces")


def _embedded(sentences: list[Shown] | Missing) -> list[dict[str, Any]]:
    """What the script needs of each sentence whose attention is known."""
    if isinstance(sentences, Missing):
        return []
    return [
        {"run": shown.run, "source": shown.source, **shown.attention}
        for shown in sentences
        if not isinstance(shown.attention, Missing)
    ]
