"""Draws pictures: of the attention of a model and, by their names, what else books draw. They are in pictures/."""

import sys
from collections.abc import Sequence

from transformer_mt.pictures.attention import attention
from transformer_mt.pictures.lengths import lengths
from transformer_mt.pictures.lines import curves, schedule
from transformer_mt.pictures.positions_and_masks import masks, positions
from transformer_mt.pictures.self_attention import self_attention
from transformer_mt.terminal import cli

PICTURES = {
    "attention": attention,
    "self-attention": self_attention,
    "positions": positions,
    "masks": masks,
    "schedule": schedule,
    "curves": curves,
    "lengths": lengths,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture that the first word names; attention, if it names none."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in PICTURES:
        return PICTURES[words[0]](words[1:])
    return attention(words)


if __name__ == "__main__":
    sys.exit(cli.run(main))
