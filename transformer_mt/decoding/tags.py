"""Finds the tags at the beginning of lines, and lines that begin otherwise than the sources of training did."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from transformer_mt.errors import TranslationError
from transformer_mt.settings.corpus import CorpusConfig


@dataclass(frozen=True)
class Tags:
    """What stands before the sources of a model's corpora."""

    tokens: tuple[str, ...] = ()
    """Every token of a tag, such as <bt> and <2de>."""
    trained: tuple[str, ...] = ()
    """The tags of the training corpora, such as <bt> <2de>."""
    always: bool = False
    """Whether every training corpus has one."""
    languages: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The codes of the source and target language of lines with a tag."""

    @classmethod
    def of(cls, corpus: CorpusConfig) -> "Tags":
        """Return the tags of a configuration."""
        texts = corpus.training_corpora
        tags = list(dict.fromkeys(text.tag for text in texts))
        languages: dict[str, tuple[str, str]] = {}
        for text in texts:
            if text.tag is not None:
                languages.setdefault(text.tag, corpus.languages_of(text))
        trained = tuple(tag for tag in tags if tag is not None)
        return cls(corpus.tags, trained, None not in tags, languages)

    def parted(self, line: str) -> tuple[str, str]:
        """Part a line into the tag at its beginning and the rest. The tag is empty if there is none.

        Its tokens have one space between them, and no space after the last.
        """
        if not self.tokens:
            return "", line
        found = self._at_the_beginning.match(line)
        if found is None:
            return "", line
        return " ".join(self._token.findall(found[0])), line[found.end() :]

    def like_training(self, line: str) -> str:
        """Return a line with one space after each token of its tag, as sources had in training."""
        tag, text = self.parted(line)
        return f"{tag} {text}" if tag else line

    def check(self, tag: str | None) -> None:
        """Raises TranslationError if the tag of an option --tag has a token that is no tag of the model."""
        if tag is not None and (unknown := [token for token in tag.split() if token not in self.tokens]):
            has = f"its tags are {', '.join(self.tokens)}" if self.tokens else "it was trained without tags"
            raise TranslationError(f"--tag {tag}: the model does not know {unknown[0]}; {has}")

    def warning(self, lines: Sequence[str], line_numbers: Iterable[int]) -> str | None:
        """Return a warning of the first line that begins otherwise than all sources of training; None if none does.

        `line_numbers` are at least as many numbers, by which the lines are called.
        """
        if not self.always:
            return None
        for number, line in zip(line_numbers, lines, strict=False):
            if line.strip() and self.parted(line)[0] not in self.trained:
                return (
                    f"warning: line {number} does not begin with {' or '.join(self.trained)}, and every line did in "
                    "training: what the model does with it is a matter of chance. This warning comes only once, and "
                    "there may be more such lines"
                )
        return None

    @cached_property
    def _token(self) -> re.Pattern[str]:
        # The longest first: of two tokens, one may begin with the other.
        return re.compile("|".join(map(re.escape, sorted(self.tokens, key=len, reverse=True))))

    @cached_property
    def _at_the_beginning(self) -> re.Pattern[str]:
        return re.compile(rf"\s*(?:(?:{self._token.pattern})\s*)+")


NO_TAGS = Tags()
