"""Words of messages."""


def counted(number: int, noun: str) -> str:
    """The number before the noun, which is in the plural unless there is one: `1 line`, `1,200 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
