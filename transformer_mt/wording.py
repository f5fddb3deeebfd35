"""Words of messages."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun, as `1 line` or `1,200 lines`; `plural` is for a plural that does not only add an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def cut(text: str, longest: int = 80) -> str:
    """The beginning of a text, for a message; characters that move the cursor are written as \\x1b is."""
    shown = text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in shown)
