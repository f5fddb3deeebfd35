"""What all sections of the configuration share: their base, the types of settings, and the fingerprint.

The bounds are wider than any sensible experiment, and keep numbers from overflowing.
"""

import hashlib
import json
import re
import unicodedata
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Kernels = Literal["fast", "plain"]
"""Which code computes: that of `models/`, as it is read; or faster forms of its parts."""


class Section(BaseModel):
    """A section of the configuration. It cannot be changed, and unknown keys or values of a wrong type are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        serialize_by_alias=True,  # the field of tokenizer.from is from_, because from is a keyword of Python
    )


def keys_of(section: type[BaseModel]) -> list[str]:
    """Return the keys of a section, as a configuration file names them."""
    return [field.alias or name for name, field in section.model_fields.items()]


def fingerprint(*parts: BaseModel | str) -> str:
    """Return a hash of settings and texts. The same parts give the same 64 hexadecimal digits."""
    content = [part if isinstance(part, str) else part.model_dump() for part in parts]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _without_control_characters(text: str) -> str:
    # The system refuses NUL in a path, and line breaks would break a line of an error message or of a log.
    if found := re.search(r"[\x00-\x1f\x7f]", text):
        raise ValueError(
            f"it holds the control character U+{ord(found[0]):04X} at position {found.start() + 1}; "
            "write it without line breaks and other control characters"
        )
    return text


Text = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_without_control_characters)]
"""A name or a path. On Linux a path has at most 4,096 bytes."""


def _visible_name(text: str) -> str:
    if hidden := [character for character in text if not character.isprintable()]:
        raise ValueError(f"it holds U+{ord(hidden[0]):04X}, which cannot be seen; write it without that")
    if not any(character.isalnum() for character in text):
        raise ValueError(
            f"'{text}' has neither a letter nor a digit, so it names nothing; write one, as in <2de> or en"
        )
    return text


Language = Annotated[Text, AfterValidator(_visible_name)]
"""The code of a language, which is also the end of the names of files or the name of a column."""


def _usable_symbol(symbol: str) -> str:
    if any(character.isspace() for character in symbol) or "\u2581" in symbol:
        raise ValueError(
            f"'{symbol}': text is cut at white space, so none may be in it; nor U+2581, with which a space is written"
        )
    if unicodedata.normalize("NFC", symbol) != symbol:
        raise ValueError(f"'{symbol}' is not in Unicode's form NFC, in which all text is read; write it in that form")
    if re.fullmatch(r"<pad>|<unk>|<s>|</s>|<0x[0-9A-F]{2}>", symbol):
        raise ValueError(f"the tokenizer has the piece '{symbol}' for itself; choose another, such as <name>")
    if symbol.isalnum():
        raise ValueError(f"'{symbol}' is kept whole inside words, too; add signs that no word has, as in <{symbol}>")
    return symbol


Symbol = Annotated[Text, Field(max_length=100), AfterValidator(_usable_symbol)]
"""A text that is one piece wherever it stands."""


def _usable_tag(tag: str) -> str:
    for symbol in tag.split(" "):
        if not symbol:
            raise ValueError("there is white space too much; write one space between two tags, as in <bt> <2de>")
        _usable_symbol(_visible_name(symbol))
    return tag


Tag = Annotated[Text, Field(max_length=1000), AfterValidator(_usable_tag)]
"""A symbol before a source; or several with a space between them."""

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
