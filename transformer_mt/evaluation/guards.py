"""Warns of texts that should not be scored against each other: lower-cased or tokenised."""

import re
from collections.abc import Sequence

from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.metrics import check_words
from transformer_mt.wording import counted

# French writes a space before ? ! : ; but only a tokeniser writes one before . or , - the rest is from Moses.
_TOKENISED = re.compile(r"\s[.,](?=\s|$)|&apos;|&quot;|\s@-@\s")
_TOKENISED_SHARE = 0.1
_CASED_SHARE, _LOWER_SHARE = 0.5, 0.02  # of lines with a capital letter: in cased text, and in lower-cased text


def tokenised_warning(name: str, lines: Sequence[str]) -> str | None:
    """A warning about lines that look tokenised, since BLEU tokenises by itself; None if they do not."""
    found = [number for number, line in enumerate(lines, start=1) if _TOKENISED.search(line)]
    if len(found) <= _TOKENISED_SHARE * len(lines):
        return None
    look = "looks" if len(found) == 1 else "look"
    return (
        f"{len(found):,} of {counted(len(lines), 'line')} of the {name} {look} tokenised (a space before a full stop "
        f"or a comma, &apos; or @-@), such as line {found[0]}. Only scores of detokenised text can be compared with "
        "those of others."
    )


def cut_warning(name: str, lines: Sequence[str]) -> str | None:
    """A warning about a line that is in subword pieces, since `prepare` cuts text by itself; None if none is."""
    try:
        check_words([lines], [name])
    except EvaluationError as error:
        return str(error)
    return None


def case_warning(names: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """A warning if only one of both texts has capital letters, since BLEU is cased; None if both or neither have."""
    said, wanted = (sum(line != line.lower() for line in lines) for lines in (hypotheses, references))
    size = len(references)
    for name, few, other, many in ((names[0], said, names[1], wanted), (names[1], wanted, names[0], said)):
        if few <= _LOWER_SHARE * size and many >= _CASED_SHARE * size:
            return (
                f"{name} looks lower-cased ({few:,} of {counted(size, 'line')} with a capital letter), and {other} "
                f"does not ({many:,}): each capital letter counts as an error. Score text with its capitals"
            )
    return None
