"""The stage `plot`: draws the attention of a model."""

import sys
from collections.abc import Sequence

from transformer_mt.reporting import plot_attention
from transformer_mt.terminal import cli

PICTURES = {"attention": plot_attention.attention, "self-attention": plot_attention.self_attention}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture named by the first word; attention, if the first word is not the name of a picture."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words.pop(0) if words and words[0] in PICTURES else "attention"
    return PICTURES[name](words)


if __name__ == "__main__":
    sys.exit(cli.run(main))
