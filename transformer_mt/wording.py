"""Words of messages."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun, as `1 line` or `1,200 lines`; `plural` is for a plural that does not only add an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
