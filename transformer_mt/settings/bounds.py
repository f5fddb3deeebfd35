"""The types of settings. Their bounds are wider than any sensible experiment, and keep numbers from overflowing."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

# Control characters: line breaks, NUL and others. No path and no name needs one. The system refuses NUL, and the others
# would break a line of an error message or of a log.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _without_control_characters(text: str) -> str:
    if found := _CONTROL.search(text):
        raise ValueError(
            f"it holds the control character U+{ord(found[0]):04X} at position {found.start() + 1}; "
            "write it without line breaks and other control characters"
        )
    return text


Text = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_without_control_characters)]
"""A name or a path. On Linux a path has at most 4,096 bytes."""

Layers = Annotated[int, Field(gt=0, le=1000)]
"""A number of layers."""
Width = Annotated[int, Field(gt=0, le=65_536)]
"""How many numbers a vector has."""
Positions = Annotated[int, Field(gt=0, le=1_000_000)]
"""A number of subword pieces in a sentence, at least 1."""
MorePositions = Annotated[int, Field(ge=0, le=1_000_000)]
"""A number of subword pieces in a sentence; 0 is allowed."""
Tokens = Annotated[int, Field(gt=0, le=1_000_000_000)]
"""A number of token positions in a batch."""
Hypotheses = Annotated[int, Field(gt=0, le=10_000)]
"""A number of hypotheses of one sentence."""
PositiveCount = Annotated[int, Field(gt=0, le=1_000_000_000_000)]
"""A number of updates, lines or files, at least 1."""
Count = Annotated[int, Field(ge=0, le=1_000_000_000_000)]
"""A number of updates, lines or tokens; 0 is allowed."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""A seed. PyTorch's seeds have 64 bits, and one of them is the sign."""
