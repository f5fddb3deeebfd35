"""Words of messages."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """The number and the noun, which has an s more unless it is one, or the plural given: `1 line`, `1,200 lines`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
