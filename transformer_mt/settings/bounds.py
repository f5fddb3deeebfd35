"""The types of settings, whose bounds no sound experiment meets, and behind which numbers overflow."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

# Characters below the space and DEL: line breaks and NUL among them. No path and no name needs one, the system refuses
# NUL, and the others would break a line of an error message or of a log.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _without_control_characters(text: str) -> str:
    if found := _CONTROL.search(text):
        raise ValueError(
            f"it holds the control character U+{ord(found[0]):04X} at position {found.start() + 1}; "
            "write it without line breaks and other control characters"
        )
    return text


Text = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_without_control_characters)]
"""A name or a path: on Linux a path has at most 4,096 bytes."""

Layers = Annotated[int, Field(gt=0, le=1000)]
Width = Annotated[int, Field(gt=0, le=65_536)]
"""Numbers in a vector."""
Positions = Annotated[int, Field(gt=0, le=1_000_000)]
"""Subword pieces of a sentence."""
MorePositions = Annotated[int, Field(ge=0, le=1_000_000)]
"""Likewise, or 0."""
Tokens = Annotated[int, Field(gt=0, le=1_000_000_000)]
"""Positions of a batch."""
Hypotheses = Annotated[int, Field(gt=0, le=10_000)]
"""Of one sentence at a time."""
PositiveCount = Annotated[int, Field(gt=0, le=1_000_000_000_000)]
"""Updates, lines, files."""
Count = Annotated[int, Field(ge=0, le=1_000_000_000_000)]
"""Likewise, or 0."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""PyTorch's seeds have 64 bits, one of them for the sign."""
