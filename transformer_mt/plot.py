"""Draws pictures: of the attention of a model and, by their names, what else books draw. They are in pictures/."""

import sys
from collections.abc import Sequence

from transformer_mt.pictures import attention, lengths, lines, positions_and_masks, self_attention
from transformer_mt.terminal import cli

PICTURES = {
    "attention": attention.ATTENTION,
    "self-attention": self_attention.SELF_ATTENTION,
    "positions": positions_and_masks.POSITIONS,
    "masks": positions_and_masks.MASKS,
    "schedule": lines.SCHEDULE,
    "curves": lines.CURVES_OF_RUNS,
    "lengths": lengths.LENGTHS,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture that the first word names; attention, if it names none."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words.pop(0) if words and words[0] in PICTURES else "attention"
    return PICTURES[name].run(name, words)


if __name__ == "__main__":
    sys.exit(cli.run(main))
