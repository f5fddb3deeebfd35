"""Runs all stages from prepare to evaluate, one after another, on the demo corpus."""

import bz2
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from transformer_mt.base.errors import UserError
from transformer_mt.storage.files import write_whole, writing_to
from transformer_mt.terminal import cli

CONFIG = Path("configs/demo_en_de.yaml")
OUTPUT = Path("data/demo_corpus")  # the place that CONFIG names
SIZES = {"test": 500, "valid": 500, "train": 20000}
CORPUS = Path(__file__).with_name("demo_corpus.tsv.bz2")  # what scripts/make_demo_corpus.py makes by default


def main(argv: Sequence[str] | None = None) -> int:
    """Run all stages. Returns the exit status of the first that was stopped, or 0. Raises UserError."""
    parser = cli.parser(
        "demo",
        "Makes a small English-German corpus (data/demo_corpus), prepares it, trains a small Transformer on it,\n"
        "averages its checkpoints, and evaluates the model. All files are written below the working directory.\n"
        f"The configuration is {CONFIG}; if this file does not exist, the demo copies it from the package.\n"
        "The demo takes some minutes on a CPU. If you stop it, the same command resumes.",
        "python -m transformer_mt.demo training.max_steps=300",
    )
    cli.add_settings(parser, "change a setting, for example training.max_steps=300")
    overrides = parser.parse_args(argv).overrides
    copy_config(CONFIG.name, CONFIG.parent)
    write_corpus(OUTPUT, packaged_corpus(), SIZES)
    from transformer_mt.train import run_all_stages  # here, because it imports PyTorch

    status = run_all_stages(str(CONFIG), overrides, cli.command("demo", *overrides))
    if not status:
        print(f"Settings: {CONFIG}; python -m transformer_mt settings explains each")
    return status


def shipped_configs() -> Path:
    """Return the directory of the configurations: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).parent
    in_wheel = package / "shipped_configs"
    return in_wheel if in_wheel.is_dir() else package.parent / "configs"


def copy_config(name: str, directory: Path) -> bool:
    """Copy a configuration unless it is there already. Returns whether it was copied. Raises UserError if it fails."""
    path = directory / name
    if os.path.lexists(path):  # true for a broken link, too
        return False
    with writing_to(directory):
        directory.mkdir(parents=True, exist_ok=True)
    write_whole(path, (shipped_configs() / name).read_bytes())
    return True


def packaged_corpus() -> list[tuple[str, str]]:
    """Return the English-German pairs that come with the package: first test, then validation, then training pairs."""
    with bz2.open(CORPUS, "rt", encoding="utf-8", newline="\n") as file:
        return [(english, german) for english, german in (line.removesuffix("\n").split("\t") for line in file)]


def write_corpus(output: Path, pairs: Sequence[tuple[str, str]], sizes: Mapping[str, int]) -> None:
    """Write the pairs into files such as train.en and train.de in the directory `output`, unless they exist already.

    `sizes` gives the number of pairs of each part, in the order of the pairs. Raises UserError if the files cannot be
    written, or if other files have these names.
    """
    described = f"{sizes['train']} train, {sizes['valid']} valid and {sizes['test']} test pairs"
    paths, left = {}, iter(pairs)
    for part, size in sizes.items():
        chosen = list(islice(left, size))
        for column, language in enumerate(("en", "de")):
            lines = "".join(pair[column] + "\n" for pair in chosen)
            paths[output / f"{part}.{language}"] = lines.encode()
    for path, content in paths.items():
        if os.path.lexists(path) and not (path.is_file() and path.read_bytes() == content):
            raise UserError(
                f"{path} exists, but is not the file of a corpus of {described}; nothing was changed. Move it "
                "away, or choose another directory"
            )
    output.mkdir(parents=True, exist_ok=True)
    for path in [path for path in paths if not path.exists()]:
        write_whole(path, paths[path])
    print(f"{output}: {described} of synthetic English and German", flush=True)


if __name__ == "__main__":
    sys.exit(cli.run(main))
