"""Tests whether one system translates a test set better than another, or whether the difference may be chance.

Every system is compared with the first one, the baseline. The test of two runs is that of sacreBLEU, paired bootstrap
resampling (Koehn 2004). Runs that differ only by the seed are one system, whose test also takes in chance in training.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.significance import _compute_p_value, estimate_ci

from transformer_mt.base.errors import EvaluationError
from transformer_mt.base.wording import counted
from transformer_mt.corpora.text_files import read_lines
from transformer_mt.evaluation import evaluated_texts
from transformer_mt.evaluation.metrics import ALL_METRICS, METRICS, MetricName, check_aligned, check_words, resampled
from transformer_mt.evaluation.scores_json import TestSetScores, checksums_of, read_scores
from transformer_mt.preparing.prepared import data_digests
from transformer_mt.settings.experiment import Config
from transformer_mt.settings.reading import flat_settings, load_config
from transformer_mt.storage.checksums import weights_sha256
from transformer_mt.storage.files import read_json

LEVEL = 0.05  # a difference is significant if chance alone causes one as large in fewer than 5 of 100 cases
LOWER_IS_BETTER = ("TER",)


@dataclass(frozen=True)
class ComparedTest:
    """A test set and its translations by several systems; the first is the baseline."""

    name: str
    references: Sequence[Sequence[str]]
    systems: Sequence[tuple[str, list[list[str]]]]
    """Names and translations: of each seed a text."""
    target_language: str = ""
    notes: list[str] = field(default_factory=list)
    """Lines for the user about other differences between the systems, such as settings of decoding."""

    def is_same(self, number: int) -> bool:
        """Whether a system has the same translations as the baseline."""
        return self.systems[number][1] == self.systems[0][1]


@dataclass(frozen=True)
class Compared:
    system: str
    value: float
    """The score; of several seeds, their mean."""
    interval: float
    """Half of the 95 % confidence interval, from 1,000 bootstrap samples of the sentences."""
    p_value: float | None
    """The probability that chance alone causes a difference from the baseline as large as this one. None for the
    baseline and for the same text, for which sacreBLEU would give the smallest possible p-value."""
    scores: Sequence[float] = ()
    """The score of each seed, if there are several."""


@dataclass(frozen=True)
class MetricTable:
    """The scores of all systems by one metric; the first is the baseline."""

    metric: str
    signature: str
    systems: list[Compared]


def compare(test: ComparedTest, metrics: Sequence[MetricName] = METRICS) -> list[MetricTable]:
    """Compare each system with the first one by each metric. Raises EvaluationError if a metric cannot be computed."""
    names = [name for name, texts in test.systems for _ in texts]
    names += [f"reference {number}" for number in range(1, len(test.references) + 1)]
    texts = [*(text for _, of_seeds in test.systems for text in of_seeds), *test.references]
    check_aligned(texts, names)
    check_words(texts, names)
    return [_by_metric(test, name) for name in metrics]


def _by_metric(test: ComparedTest, metric_name: MetricName) -> MetricTable:
    metric, rows, first_SR = ALL_METRICS[metric_name](test.target_language), list[Compared](), np.empty(0)
    for number, (name, texts) in enumerate(test.systems):
        found = [resampled(metric, text, test.references) for text in texts]
        scores_SR = np.array([each_R for *_, each_R in found])
        p_value = p_value_of(scores_SR, first_SR) if number and not test.is_same(number) else None
        first_SR = first_SR if number else scores_SR
        value, *samples = scores_SR.mean(axis=0).tolist()
        several = scores_SR[:, 0].tolist() if len(texts) > 1 else []
        rows.append(Compared(name, value, float(estimate_ci(np.array(samples))[1]), p_value, several))
    return MetricTable(*found[0][:2], rows)


def p_value_of(ours_SR: NDArray[np.float64], theirs_SR: NDArray[np.float64]) -> float:
    """The probability that chance alone causes a difference of the mean scores as large as this one.

    Each row has the score of a seed, then those of the bootstrap samples of sentences (Koehn 2004). For two runs, this
    is sacreBLEU's test. With more, chance is also in the seeds: to the error of a sample, add the error of a mean of
    seeds, by Student's t distribution, with the common variance of the seeds of both systems.
    """
    systems = ours_SR, theirs_SR
    difference, *sampled = ours_SR.mean(axis=0) - theirs_SR.mean(axis=0)
    sampled_R = np.array(sampled)
    if freedom := sum(len(each_SR) - 1 for each_SR in systems):
        variance = sum(len(each_SR) * each_SR[:, 0].var() for each_SR in systems) / freedom
        error = (variance * sum(1 / len(each_SR) for each_SR in systems)) ** 0.5
        of_seeds_DR = error * np.random.default_rng(1).standard_t(freedom, (10, len(sampled)))
        errors_N = np.abs(sampled_R - sampled_R.mean() + of_seeds_DR).ravel()
    else:
        errors_N = np.abs(sampled_R) - np.abs(sampled_R).mean()
    return _compute_p_value(errors_N, abs(difference))


def conclusions(test: ComparedTest, tables: Sequence[MetricTable]) -> list[str]:
    """Sentences that say what the tests show about each system and the baseline."""
    baseline, found = test.systems[0][0], list[str]()
    if len(test.systems) == 1:
        return ["These runs differ only by the seed: there is nothing to compare."]
    for number, (name, _) in enumerate(test.systems[1:], start=1):
        if test.is_same(number):
            found.append(f"{name} has the same translations as {baseline}: there is nothing to compare.")
        else:
            found += [conclusion(table.metric, table.systems[0], table.systems[number]) for table in tables]
    if (others := len(test.systems) - 1) > 1:
        chance = 1 - (1 - LEVEL) ** others
        found.append(
            f"note: with {others} comparisons, chance alone makes at least one look significant in {chance * 100:.0f} "
            f"of 100 cases. To be as sure as with a single comparison, require p < {LEVEL / others:.3f} for each"
        )
    return found


def conclusion(metric: str, baseline: Compared, system: Compared) -> str:
    """A sentence that says what the tests show about two systems with different translations."""
    difference = system.value - baseline.value
    both, size = f"{system.system} and {baseline.system}", f"{abs(difference):.1f} {metric}"
    if difference == 0:
        return f"{both} have the same {metric}: this shows no difference."
    if system.p_value is None or system.p_value >= LEVEL:
        shown_by = "sentences and seeds" if system.scores or baseline.scores else "sentences"
        return f"{both} differ by {size}, which may be chance: these {shown_by} do not show that one is better."
    word = "better" if (difference > 0) != (metric in LOWER_IS_BETTER) else "worse"
    return (
        f"{system.system} is {word} than {baseline.system} by {size}: chance alone causes such a difference in fewer "
        f"than {LEVEL * 100:.0f} of 100 cases."
    )


@dataclass(frozen=True)
class _Run:
    name: str
    config: Config
    scored: dict[str, TestSetScores]


@dataclass(frozen=True)
class Translated:
    """A run's translations of a test set, and what scores.json has about them."""

    run: str
    config: Config
    text: evaluated_texts.TestSet
    scored: TestSetScores | None
    lines: list[str]

    @property
    def setting(self) -> str:
        """What makes the translations, without the seeds: equal for runs that differ only by the seed.

        Of what `--tune` has chosen, the values that it has tried. Of the data, the checksum, wherever they are.
        """
        scored = self.scored or TestSetScores.model_construct()
        tried = [] if scored.tuning is None else [trial.settings for trial in scored.tuning.trials]
        ignored = {f"decoding.{each.partition('=')[0].rpartition('.')[2]}" for trial in tried for each in trial}
        config = self.config.model_copy(update={"decoding": scored.decoding or self.config.decoding})
        settings = {key: value for key, value in flat_settings(config).items() if key not in ignored | _NOT_SETTINGS}
        with suppress(OSError, ValueError, LookupError):
            settings["data_dir"] = data_digests(Path(config.data_dir))["train"]
        return repr((settings, tried, scored.quantize, scored.ensemble))


_NOT_SETTINGS = {"run_dir", "training.seed", "decoding.seed"}


def compared_test(name: str, runs: Sequence[Translated]) -> ComparedTest:
    """Make one system of the runs that differ only by the seed.

    Runs of a setting that all have the same seed are systems of their own; else the first run of each seed counts.
    """
    groups: dict[str, dict[int, Translated]] = {}
    for run in runs:
        groups.setdefault(run.setting, {}).setdefault(run.config.training.seed, run)
    systems, notes = [], []
    for run in runs:
        seeds = groups[run.setting]
        same, members = seeds[run.config.training.seed], [*seeds.values()]
        if len(members) == 1:
            systems.append((run.run, [run.lines]))
        elif run is members[0]:
            begin = re.sub(r"\A(.*[/._-]|).*(\n\1.*)*\Z", r"\1", "\n".join(each.run for each in members), count=1)
            short = ",".join(each.run.removeprefix(begin) for each in members)
            systems.append((f"{begin}{{{short}}}", [each.lines for each in members]))
        elif run is not same:
            notes.append(f"note: {run.run} has the same settings and seed as {same.run}: it is left out")
    language = runs[0].config.corpus.languages_of_test(name)[1]
    return ComparedTest(name, [runs[0].text.references], systems, language, notes)


def compared_runs(paths: Sequence[Path], test: str | None) -> list[ComparedTest]:
    """Read the translations of all test sets that these runs or models have in common, or only of `test`.

    Raises EvaluationError if `evaluate` has not translated one, if it has changed since, or if the references differ.
    """
    runs = [_read(path) for path in paths]
    common = [name for name in runs[0].config.corpus.test if all(name in run.config.corpus.test for run in runs)]
    if not common:
        raise EvaluationError(
            f"{' and '.join(run.name for run in runs)} have no test set in common: compare files of translations"
        )
    return [_compared(name, runs) for name in evaluated_texts.chosen_test_sets(common, test)]


def _read(path: Path) -> _Run:
    model = evaluated_texts.model_in(path)
    if not (model / "config.yaml").is_file():
        raise EvaluationError(
            f"{path}: is neither a run with a model, nor a model, nor a file of translations; give one of these"
        )
    scored = read_scores(evaluated_texts.results_dir(model) / "scores.json")
    return _Run(str(path), load_config(model / "config.yaml"), scored)


def _compared(name: str, runs: Sequence[_Run]) -> ComparedTest:
    found = list[Translated]()
    for run in runs:
        text = evaluated_texts.read_test_set(Path(run.config.data_dir), name)
        if found and text.references != found[0].text.references:
            raise EvaluationError(
                f"{found[0].run} and {run.name} have different references for the test set {name}, so their scores "
                "cannot be compared: prepare both with the same test set, or compare files of translations"
            )
        found.append(read_translations(run.name, run.config, name, text, run.scored.get(name)))
    test = compared_test(name, found)
    return replace(test, notes=[note for each in found for note in _notes(found[0], each)] + test.notes)


def read_translations(
    run: str, config: Config, name: str, text: evaluated_texts.TestSet, scored: TestSetScores | None
) -> Translated:
    """Return the translations of a test set that `evaluate` wrote for a run or a model.

    Raises EvaluationError if there are none, or if they or the test set have changed since `scored` was computed.
    """
    file = evaluated_texts.hypotheses_file(evaluated_texts.model_in(Path(run)), name)
    again = f"python -m transformer_mt.evaluate {run} --test {name}"
    if not file.is_file():  # true also for a pipe: reading it might never end
        raise EvaluationError(f"{file}: is missing. Translate the test set first: {again}")
    lines = list(read_lines(file))
    if scored is not None and scored.checksums != checksums_of(text.sources, [text.references], lines):
        raise EvaluationError(
            f"{file}: these translations or the sentences of the test set have changed since scores.json in the same "
            f"directory was written. Translate the test set again: {again}; or compare files of translations"
        )
    return Translated(run, config, text, scored, lines)


def _notes(first: Translated, other: Translated) -> list[str]:
    """Return lines for the user if the translations of a run are outdated, or used other settings than the first."""
    notes, ours, theirs = [], first.scored, other.scored
    if theirs and theirs.model_sha256 not in (None, weights_sha256(evaluated_texts.model_in(Path(other.run)))):
        notes.append(
            f"warning: {other.run}: the translations are from an earlier model ({theirs.made_of or 'other weights'}): "
            f"run `python -m transformer_mt.evaluate {other.run}` again"
        )
    if ours and theirs and ours.decoding and theirs.decoding and ours.decoding != theirs.decoding:
        changed = [
            f"{key}: {value} in {first.run}, {getattr(theirs.decoding, key)}"
            for key, value in ours.decoding
            if value != getattr(theirs.decoding, key)
        ]
        notes.append(f"note: {other.run} was decoded with other settings than {first.run}: {'; '.join(changed)}")
    return notes


def comparison(test: ComparedTest, metrics: Sequence[MetricName] = METRICS) -> dict[str, Any]:
    """Compare the systems on a test set, and return the content of the JSON file."""
    tables = compare(test, metrics)
    return {
        "test": test.name,
        "num_lines": len(test.references[0]),
        "num_references": len(test.references),
        "baseline": test.systems[0][0],
        "metrics": [asdict(table) for table in tables],
        "conclusions": conclusions(test, tables),
    }


def text_of(found: dict[str, Any]) -> str:
    size = f"{counted(found['num_lines'], 'sentence')}, {counted(found['num_references'], 'reference')}"
    parts = [f"{found['test']}: {size}; baseline: {found['baseline']}", *map(_table, found["metrics"])]
    return "\n\n".join([*parts, "\n".join(found["conclusions"])])


def check_comparison_file(path: Path) -> None:
    """Raises EvaluationError if the file exists and is not a comparison."""
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return
    try:
        found = read_json(path)
    except (OSError, ValueError):
        found = None
    if not (isinstance(found, list) and all(isinstance(each, dict) and "baseline" in each for each in found)):
        raise EvaluationError(
            f"{path} exists, and is not a file of `evaluate --compare --json`; nothing was changed. Move it away, or "
            "choose another name"
        )


def _table(table: dict[str, Any]) -> str:
    width = max(len(system["system"]) for system in table["systems"])
    has_seeds = any(system["scores"] for system in table["systems"])
    lines = [f"{table['metric']:{width}}  {'score':>12}  {'          p  seeds' if has_seeds else 'p bootstrap'}"]
    for number, system in enumerate(table["systems"]):
        score = f"{system['value']:5.1f} ± {system['interval']:.1f}"
        p_value = "same text" if number else ""
        if system["p_value"] is not None:
            p_value = f"{system['p_value']:.4f}"
        seeds = spread(system["scores"]) if has_seeds else ""
        lines.append(f"{system['system']:{width}}  {score:>12}  {p_value:>11}  {seeds}".rstrip())
    return "\n".join([*lines, f"  {table['signature']}"])


def spread(scores: Sequence[float]) -> str:
    """Say how many seeds a system has, and how far apart their scores are. A single run has no scores of seeds."""
    if len(scores) < 3:
        return f"2, {min(scores):.2f} to {max(scores):.2f}" if scores else "1"
    return f"{len(scores)}, standard deviation {stdev(scores):.2f}"
