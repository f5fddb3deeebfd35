"""Prints the number of parameters of a configuration's model.

It assumes that the vocabulary has tokenizer.vocab_size pieces.

    python scripts/count_parameters.py CONFIG [key=value …]
"""

import argparse
import sys
from collections.abc import Sequence

from check_requirements import stop

try:
    import torch

    from transformer_mt.inference.fast import build_model
    from transformer_mt.settings.reading import load_config
    from transformer_mt.terminal import cli
except ModuleNotFoundError as error:
    stop(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the number of parameters and return 0. Raises ConfigError."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG", help="a configuration, such as configs/demo_en_de.yaml")
    parser.add_argument("overrides", metavar="key=value", nargs="*", help="change a setting, as in model.d_model=256")
    arguments = parser.parse_args(argv)
    config = load_config(arguments.config, arguments.overrides)
    with torch.device("meta"):  # makes only shapes, without memory for numbers
        model = build_model(config.model, config.tokenizer.vocab_size, config.tokenizer.vocab_size)
    print(sum(parameter.numel() for parameter in model.parameters()))
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
