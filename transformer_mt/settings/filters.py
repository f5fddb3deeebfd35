"""The settings of the filters: which training pairs are left out."""

from typing import Literal, Self

from pydantic import Field, model_validator

from transformer_mt.settings.bounds import Count, Section


class FiltersConfig(Section):
    """Which training pairs are left out, besides blank ones and those that corpus.max_length and corpus.max_ratio
    leave out. They are counted by reason and by corpus. `prepare CONFIG --look` shows what the filters find, without
    writing anything."""

    held_out: bool = True
    """Whether pairs are left out if one of their sentences is also in the validation set or in a test set, on either
    side. Differences of spaces and of Unicode forms (NFC) do not count; those of upper and lower case do."""
    duplicates: bool = False
    """Whether pairs are left out that were there before, in the same corpus or in an earlier one, with the same
    tag."""
    identical: bool = False
    """Whether pairs are left out whose source and target are the same text."""
    min_characters: Count = 0
    """The fewest characters on either side. 0: off."""
    max_characters: Count = 0
    """The most characters on either side. 0: off."""
    control_characters: bool = False
    """Whether pairs are left out that hold control characters, U+FFFD (which stands for bytes that were no text),
    U+FEFF or characters for private use. Tabs and other white space become spaces before, and do not count."""
    min_script_share: float = Field(default=0.0, ge=0.0, le=1.0)
    """The least share of the letters of a side that are of the script of its language, for example 0.5. A side without
    letters is not judged. The code of a language can name the script, as in sr-Latn. 0: off."""
    max_digit_share: float = Field(default=1.0, ge=0.0, le=1.0)
    """The largest share of digits among the characters of a side that are no spaces, for example 0.5. 1: off."""
    max_punctuation_share: float = Field(default=1.0, ge=0.0, le=1.0)
    """The largest share of punctuation marks and symbols among the characters of a side that are no spaces, for example
    0.5. 1: off."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What happens at a line, row or unit of a training corpus from which no pair can be read. stop: `prepare` stops
    and names it; skip: it is left out and counted. In validation and test sets such a line always stops `prepare`."""

    @property
    def look_at_text(self) -> bool:
        """Whether a filter is switched on that looks at the text of one pair alone."""
        shares = self.min_script_share, self.max_digit_share, self.max_punctuation_share
        lengths = self.min_characters > 0 or self.max_characters > 0
        return self.identical or self.control_characters or lengths or shares != (0.0, 1.0, 1.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 0 < self.max_characters < self.min_characters:
            raise ValueError(
                f"min_characters={self.min_characters} is more than max_characters={self.max_characters}, so no pair "
                "would be left: lower the first, or raise the second"
            )
        return self
