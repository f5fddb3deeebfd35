"""Fills the template with the gathered content: one page that loads no other file and runs no script."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from transformer_mt.base.wording import duration
from transformer_mt.reporting import charts
from transformer_mt.reporting.charts import Chart
from transformer_mt.reporting.gathered import N_BEST, SECTIONS, Notes, Run, Shown, TestReport
from transformer_mt.reporting.plot_textbook import CURVES, lines_of
from transformer_mt.settings.reading import flat_settings
from transformer_mt.version import __version__

MARK = '<meta name="generator" content="transformer_mt report">'
"""Marks a page of this command, so that `report` replaces no other file."""


@dataclass(frozen=True)
class Report:
    """The content of the page."""

    runs: list[Run]
    tests: list[TestReport]
    sentences: list[Shown]
    notes: Notes


def page_of(report: Report) -> str:
    """Return the page. The same report always gives the same text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"duration": duration, "number": number, "with_code": with_code}
    style, template = ((files(__package__) / name).read_text("utf-8") for name in ("style.css", "template.html"))
    numbers = {run.name: number for number, run in enumerate(report.runs)}
    attention = [chart for shown in report.sentences for chart in shown.attention]
    return environment.from_string(template).render(
        report=report,
        title=" and ".join(numbers) if len(numbers) < 3 else f"{len(numbers)} runs",
        version=__version__,
        mark=Markup(MARK),
        style=Markup(style),
        numbers=numbers,
        curves=curve_charts(report.runs),
        settings=settings_table(report.runs),
        n_best=N_BEST,
        num_colours=charts.NUM_COLOURS,
        sections=SECTIONS,
        most_layers=max((chart.num_layers for chart in attention), default=0),
        most_heads=max((chart.num_heads for chart in attention), default=0),
    )


def with_code(text: str) -> Markup:
    """Return a sentence as HTML; text between backticks becomes code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one backtick has no partner
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def number(value: object) -> str:
    """Return a number with commas between thousands, or any other value of a file as plain text."""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def settings_table(runs: Sequence[Run]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """Return the settings in which the runs differ, and the other settings: key, and the value of each run."""
    flat = [{key: _shown(value) for key, value in flat_settings(run.config).items()} for run in runs]
    keys = list(dict.fromkeys(key for each in flat for key in each))
    rows = [(key, [each.get(key, "–") for each in flat]) for key in keys]
    return [row for row in rows if len(set(row[1])) > 1], [row for row in rows if len(set(row[1])) == 1]


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def curve_charts(runs: Sequence[Run]) -> list[Chart]:
    """Draw a chart for each field of the logs that has numbers; for `skipped` and `split` only if one is not 0."""
    marks = [(start.from_update, at) for at, run in enumerate(runs) for start in run.starts if start.from_update]
    logs = {run.name: (at, lines_of(run.log, CURVES)) for at, run in enumerate(runs)}
    found = list[Chart]()
    for field, title in CURVES.items():
        curves = {name: (at, lines[field]) for name, (at, lines) in logs.items() if field in lines}
        values = [value for _, (_, values) in curves.values() for value in values if value is not None]
        if values and (field not in ("skipped", "split") or any(values)):
            found.append(charts.lines(f"curve-{field.replace('_', '-')}", title, curves, marks=marks))
    return found
