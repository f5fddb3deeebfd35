"""Runs `transformer-mt <command> …`: the stages, the demo, and two commands about configurations."""

import difflib
import importlib
import sys

from transformer_mt import __version__
from transformer_mt.terminal import cli

STAGES = {
    "prepare": "text becomes token ids on disk",
    "train": "token ids become checkpoints",
    "average": "checkpoints become a model",
    "translate": "lines become translations",
    "score": "pairs become log-probabilities",
    "rerank": "n-best lists and several models' scores become translations",
    "export": "a model becomes a directory for another program",
    "evaluate": "translations become scores",
    "report": "runs become a page of HTML: curves, scores, translations, attention",
    "plot": "attention, and what else books draw, becomes a picture",
    "demo": "all stages from prepare to evaluate, on a small synthetic corpus",
}
# Commands whose module has another name than the command: the module, and what it does.
OTHERS = {
    "configs": ("copy_configs", "copies the configurations that come with the package"),
    "settings": ("show_settings", "shows every setting: its default, the values it can have, and what it means"),
}


def main() -> int:
    """Run the command that the first argument names, with the arguments after it. Returns the exit status."""
    name, *others = sys.argv[1:] or [""]
    if name not in STAGES | OTHERS:
        return cli.run(lambda _: _list_commands(sys.argv[1:]))
    # Imported before `run`, so that Ctrl-C ends this at once.
    module = importlib.import_module(f"transformer_mt.{OTHERS[name][0] if name in OTHERS else name}")
    return cli.run(lambda _: module.main(others))


def _list_commands(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"transformer-mt {__version__}")
        return 0
    is_help = arguments in ([], ["-h"], ["--help"])
    purposes = STAGES | {name: purpose for name, (_, purpose) in OTHERS.items()}
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
