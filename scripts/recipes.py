"""The measurements of docs/recipes.md: their raw results are in docs/recipes.tsv, and the tables are made from it.

    python scripts/recipes.py add TABLE RUN...   # adds the results of runs that are trained and averaged
    python scripts/recipes.py write              # writes the tables of the page again

BLEU is that of the run's model on its validation set, with the search of its configuration. A line of recipes.tsv is a
run. A line of a table is all runs with the same settings: the mean of their seeds, and the lowest and highest.
"""

import csv
import json
import re
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import sacrebleu
import yaml

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"
RESULTS = PAGE.with_suffix(".tsv")
MARK = re.compile(r"(<!-- recipes\.tsv: (.+?) -->\n).*?(<!-- end -->\n)", re.DOTALL)
TITLES = {
    "tokenizer.vocab_size": "pieces",
    "model.d_model": "width",
    "training.peak_lr": "peak rate",
    "training.max_steps": "updates",
    "training.tokens_per_batch": "positions in a batch",
    "training.r_drop": "R-Drop",
}
PLACES = ("data_dir", "run_dir", "corpus.", "training.seed", "training.num_threads", "training.save_every")


class Result(NamedTuple):
    """A line of recipes.tsv."""

    table: str
    settings: str
    """KEY=VALUE, as in the command of the run."""
    seed: str
    tokens: str
    """Millions of target tokens."""
    minutes: str
    """Of training, without validations."""
    search: str
    bleu: str
    processor: str
    commit: str


def results() -> list[Result]:
    """All lines of recipes.tsv but the first."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return [Result(*row) for row in list(csv.reader(file, delimiter="\t"))[1:]]


def result_of(table: str, run: Path) -> Result:
    """Translate the validation set with the model of the run, and return its line of recipes.tsv."""
    settings = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))[-1]
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [line for line in log if "tokens_per_second" in line][-1]
    data_dir, beam_size = Path(settings["data_dir"]), settings["decoding"]["beam_size"]
    output = run / "valid.translated.txt"
    command = [sys.executable, "-m", "transformer_mt.translate", run / "model", f"beam_size={beam_size}"]
    subprocess.run([*command, "--input", data_dir / "valid.source.txt", "--output", output], check=True)
    translations = output.read_text(encoding="utf-8").splitlines()
    references = (data_dir / "valid.target.txt").read_text(encoding="utf-8").splitlines()
    overrides = [word for word in shlex.split(record["command"]) if "=" in word and not word.startswith(PLACES)]
    return Result(
        table=table,
        settings=" ".join(overrides),
        seed=str(record["seed"]),
        tokens=f"{last['tokens'] / 1e6:.2f}",
        minutes=f"{last['seconds'] / 60:.1f}",
        search=f"beam {beam_size}" if beam_size > 1 else "greedy",
        bleu=f"{sacrebleu.corpus_bleu(translations, [references]).score:.1f}",
        processor=f"{record['processor']}, {record['num_threads']} thread(s), {record['precision']}",
        commit=record["git"]["commit"][:7] + ("+" if record["git"]["changed"] else ""),
    )


def table_of(rows: list[Result]) -> str:
    """A Markdown table with a column for each setting in which the rows differ."""
    runs: dict[str, list[Result]] = defaultdict(list)
    for row in rows:
        runs[row.settings].append(row)
    settings = [dict(pair.split("=", 1) for pair in text.split()) for text in runs]
    keys = list(dict.fromkeys(key for one in settings for key in one))
    keys = [key for key in keys if len({one.get(key) for one in settings}) > 1]
    titles = [TITLES.get(key, key.rpartition(".")[2].replace("_", " ")) for key in keys]
    has_tokens = any(row.tokens for row in rows)
    lines = [[*titles, *["target tokens"] * has_tokens, "BLEU"]]
    lines.append(["---"] * len(lines[0]))
    for one, same in zip(settings, runs.values(), strict=True):
        scores = sorted(float(row.bleu) for row in same)
        bleu = f"{statistics.fmean(scores):.1f}"
        if len(same) > 1:
            bleu += f" ({scores[0]:.1f}–{scores[-1]:.1f}, {len(same)} seeds)"
        lines.append(
            [*(one.get(key, "") for key in keys), *[same[0].tokens and f"{same[0].tokens} million"] * has_tokens, bleu]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """The text of docs/recipes.md with new tables."""
    tables = defaultdict(list)
    for row in results():
        tables[row.table].append(row)
    return MARK.sub(lambda mark: mark[1] + table_of(tables[mark[2]]) + mark[3], PAGE.read_text(encoding="utf-8"))


def add(rows: list[Result]) -> None:
    """Add lines to recipes.tsv."""
    with RESULTS.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["add", table, *runs] if runs:
            add([result_of(table, Path(run)) for run in runs])
        case ["write"]:
            PAGE.write_text(page(), encoding="utf-8")
        case _:
            sys.exit(__doc__)
