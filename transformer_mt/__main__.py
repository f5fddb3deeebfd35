"""Runs `transformer-mt <command> …`: the stages, the demo, and two commands about configurations."""

import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.terminal import cli
from transformer_mt.version import __version__

STAGES = {
    "new": "measures a text and this machine, and writes a configuration for them",
    "prepare": "trains a tokenizer, and writes the corpus as token ids",
    "train": "trains a model on the token ids, and writes checkpoints",
    "average": "makes a model of the checkpoints",
    "translate": "translates lines of text",
    "serve": "answers requests for translations over HTTP, in the form of LibreTranslate and in its own",
    "score": "computes log-probabilities of sentence pairs",
    "rerank": "chooses the best translations of n-best lists by the scores of several models",
    "export": "writes a model in the format of another program",
    "evaluate": "scores a model on its test sets, or a file of translations",
    "report": "writes a page of HTML about runs: learning curves, scores, translations",
    "plot": "draws the attention of a model",
    "demo": "runs all stages from prepare to evaluate on a small synthetic corpus",
}
OTHERS = {
    "configs": "copies the configurations that come with the package",
    "settings": "shows every setting: its default, the values it can have, and what it means",
}


def main() -> int:
    """Run the command named by the first argument, with the arguments after it. Returns the exit status."""
    name, *others = sys.argv[1:] or [""]
    if name in OTHERS:
        command = copy_configs if name == "configs" else show_settings
        return cli.run(lambda _: command(others))
    if name not in STAGES:
        return cli.run(lambda _: _list_commands(sys.argv[1:]))
    # Imported before `run`, so that Ctrl-C ends the import at once.
    module = importlib.import_module(f"transformer_mt.{name}")
    return cli.run(lambda _: module.main(others))


def show_settings(argv: Sequence[str]) -> int:
    """Print all settings, the settings of one section, or a single setting."""
    from transformer_mt.settings.suggestions import settings_text

    parser = cli.parser(
        "settings",
        "Shows settings: key, default, [allowed values] and meaning. Set them in the configuration file, or as\n"
        "key=value after the name of that file on the command line.",
        "python -m transformer_mt settings training\n  python -m transformer_mt settings training.peak_lr",
    )
    about = "a section such as training, or a key such as training.peak_lr"
    parser.add_argument("name", metavar="SECTION", nargs="?", default="", help=about)
    print(settings_text(parser.parse_args(argv).name))
    return 0


def copy_configs(argv: Sequence[str]) -> int:
    """Copy the configurations into a directory. Existing files are not replaced."""
    from transformer_mt.demo import copy_config, shipped_configs

    parser = cli.parser(
        "configs",
        "Copies the configurations that come with the package into a directory. It also copies schema.json, with\n"
        "which editors check configurations, and constraints.txt, which lists the tested versions of other packages:\n"
        "if a newer version gives trouble, install the wheel again by `pip install -c DIR/constraints.txt WHEEL`.\n"
        "Existing files are not replaced.",
        "python -m transformer_mt configs my_configs",
    )
    about = "where to copy them (default: configs)"
    parser.add_argument("directory", metavar="DIR", type=Path, nargs="?", default=Path("configs"), help=about)
    directory = parser.parse_args(argv).directory
    shipped = sorted(shipped_configs().iterdir())
    kept = [file.name for file in shipped if not copy_config(file.name, directory)]
    print(f"{cli.shown(directory)}: {len(shipped) - len(kept)} of {len(shipped)} files copied")
    if kept:
        print(f"not copied, because they are there already: {', '.join(kept)}")
    return 0


def _list_commands(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"transformer-mt {__version__}")
        return 0
    is_help = arguments in ([], ["-h"], ["--help"])
    purposes = STAGES | OTHERS
    if not is_help:
        nearest = difflib.get_close_matches(arguments[0], purposes, n=1)
        advice = f". Did you mean '{nearest[0]}'?" if nearest else ""
        print(f"error: no such command: {arguments[0]}{advice}", file=sys.stderr)
    print("usage: python -m transformer_mt <command> …\n")
    print("Write --help after a command for its description. --version without a command shows the version.\n")
    print("\n".join(f"  {name:10} {purpose}" for name, purpose in purposes.items()))
    return 0 if is_help else 2


if __name__ == "__main__":
    sys.exit(main())
