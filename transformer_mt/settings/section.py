"""The base class of all sections of the configuration, the types of settings, and the fingerprint.

The bounds allow more than any sensible experiment needs, and keep numbers from overflowing.
"""

import hashlib
import json
import re
import unicodedata
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Kernels = Literal["fast", "plain"]
"""Which code computes: plain, the simple code of `models/`; or fast, with quicker versions of its slow parts."""


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
    # The system allows no NUL in a path, and a line break would split a line of an error message or of a log.
    if found := re.search(r"[\x00-\x1f\x7f]", text):
        raise ValueError(
            f"it contains the control character U+{ord(found[0]):04X} at position {found.start() + 1}; "
            "write it without line breaks and other control characters"
        )
    return text


Text = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_without_control_characters)]
"""A name or a path. On Linux a path has at most 4,096 bytes."""


def _visible_name(text: str) -> str:
    if hidden := [character for character in text if not character.isprintable()]:
        raise ValueError(f"it contains the invisible character U+{ord(hidden[0]):04X}; write it without this character")
    if not any(character.isalnum() for character in text):
        raise ValueError(f"'{text}' has no letter and no digit; write at least one, as in <2de> or en")
    return text


Language = Annotated[Text, AfterValidator(_visible_name)]
"""The code of a language. File names can end in it, and a column can have it as its name."""


def _usable_symbol(symbol: str) -> str:
    if any(character.isspace() for character in symbol) or "\u2581" in symbol:
        raise ValueError(
            f"'{symbol}' contains white space, where the tokenizer cuts text, or U+2581, which stands for a space in "
            "pieces; write it without these"
        )
    if unicodedata.normalize("NFC", symbol) != symbol:
        raise ValueError(f"'{symbol}' is not in the Unicode form NFC, to which all text is converted; write it in NFC")
    if re.fullmatch(r"<pad>|<unk>|<s>|</s>|<0x[0-9A-F]{2}>", symbol):
        raise ValueError(f"'{symbol}' is a special piece of the tokenizer itself; choose another, such as <name>")
    if symbol.isalnum():
        raise ValueError(
            f"'{symbol}' would be cut out of longer words, too; add signs that no word has, as in <{symbol}>"
        )
    return symbol


Symbol = Annotated[Text, Field(max_length=100), AfterValidator(_usable_symbol)]
"""A text that the tokenizer always keeps as one piece."""


def _usable_tag(tag: str) -> str:
    for symbol in tag.split(" "):
        if not symbol:
            raise ValueError("it has too much white space; write one space between two tags, as in <bt> <2de>")
        _usable_symbol(_visible_name(symbol))
    return tag


Tag = Annotated[Text, Field(max_length=1000), AfterValidator(_usable_tag)]
"""A symbol that is put before a source, or several with a space between them."""

Layers = Annotated[int, Field(gt=0, le=1000)]
"""A number of layers."""
Width = Annotated[int, Field(gt=0, le=65_536)]
"""The number of elements of a vector."""
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
