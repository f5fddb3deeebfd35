"""Print how many parameters a configuration's model has: python scripts/count_parameters.py CONFIG [key=value …]"""

import sys
from collections.abc import Sequence

import torch

from transformer_mt.errors import UserError
from transformer_mt.models.build import build_model
from transformer_mt.settings.reading import load_config
from transformer_mt.terminal import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status; raises UserError. The vocabulary is taken to be as large as it is asked for."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments:
        raise UserError("name a configuration, as configs/demo_en_de.yaml")
    config = load_config(arguments[0], arguments[1:])
    with torch.device("meta"):  # shapes alone
        model = build_model(config.model, config.tokenizer.vocab_size, config.tokenizer.vocab_size)
    print(sum(parameter.numel() for parameter in model.parameters()))
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
