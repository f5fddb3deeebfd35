"""Decides which training pairs to leave out, and for which reason, and counts them."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import add

import regex

from transformer_mt.base.doubts import same_numbers
from transformer_mt.base.errors import ConfigError
from transformer_mt.corpora.corpus import BAD_LINE, LOW_SCORE, OTHER_LANGUAGES
from transformer_mt.corpora.opening import place_of
from transformer_mt.corpora.repeated import HeldOut
from transformer_mt.corpora.text_traits import script_of
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.text_settings import FiltersConfig

REASONS = {
    BAD_LINE: "unreadable",
    OTHER_LANGUAGES: "of other languages",
    LOW_SCORE: "with a low score",
    "blank": "with a blank side",
    "held_out": "also in validation or test",
    "identical": "identical on both sides",
    "too_short": "too short",
    "too_long": "too long",
    "bad_ratio": "with a bad length ratio",
    "control_characters": "with control characters",
    "wrong_script": "in another script",
    "digits": "with too many digits",
    "punctuation": "with too many punctuation marks",
    "number_mismatch": "with different numbers on the two sides",
    "duplicate": "duplicates",
}
"""The reasons to leave out a pair, in words that can follow a number of pairs."""

Languages = tuple[str, str]
"""The codes of the source and the target language."""

_SHORT_PAIR = 10  # pieces; if neither side of a pair has more, its ratio does not matter
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufeff\ufffd-\uffff\ue000-\uf8ff\U000f0000-\U0010ffff]")
_DIGIT = re.compile(r"\d")
_MARK = regex.compile(r"[\p{P}\p{S}]")


@dataclass(frozen=True)
class TextFilters:
    """The filters that need the text of a pair, but not its pieces."""

    settings: FiltersConfig
    held_out: Collection[str]
    """The sentences of the validation and test sets, of both sides."""
    sides: "Mapping[Languages, tuple[SideFilters, SideFilters]]"
    """The filters of source and target, by the languages of a corpus."""
    held_share: float
    """The share of the training text that is held out as validation and test sets."""
    held_languages: Collection[Languages]
    """The languages of the corpora from which it is taken."""
    look_at_text: bool
    """Whether any filter of the text is on that is off by default."""

    @classmethod
    def of(cls, settings: FiltersConfig, corpus: CorpusConfig, held_out: HeldOut) -> "TextFilters":
        """Make the filters. Raises ConfigError if filters.min_script_share needs an unknown script."""
        sides = {
            (source, target): (SideFilters(settings, source, "source"), SideFilters(settings, target, "target"))
            for source, target in map(corpus.languages_of, corpus.training_corpora)
        }
        held_share = max((end for _, end in corpus.held_shares.values()), default=0.0)
        languages = {corpus.languages_of(corpus.held_out[name]) for name in corpus.held_shares}
        texts = frozenset(held_out.sources | held_out.targets)
        return cls(settings, texts, sides, held_share, languages, settings.look_at_text)

    def reason(self, source: str, target: str, languages: Languages) -> str | None:
        """Return the reason to leave out a pair; None if it stays. The texts are results of `clean`, without a tag."""
        if not source or not target:
            return "blank"
        is_held_out = self.settings.held_out and (source in self.held_out or target in self.held_out)
        if is_held_out or self.is_of_held_share(source, target, languages):
            return "held_out"
        return self.reason_switched_on(source, target, languages) if self.look_at_text else None

    def is_of_held_share(self, source: str, target: str, languages: Languages) -> bool:
        """Whether a pair belongs to a validation or test set that is a share of the training text.

        In a corpus of the other direction, its target is the source there.
        """
        if not self.held_share:
            return False
        is_reversed = languages not in self.held_languages and languages[::-1] in self.held_languages
        return place_of(target if is_reversed else source) < self.held_share

    def reason_switched_on(self, source: str, target: str, languages: Languages) -> str | None:
        """Return the reason, as `reason` does, by the filters that are off by default; None if the pair stays."""
        settings = self.settings
        if settings.identical and source == target:
            return "identical"
        if len(source) < settings.min_characters or len(target) < settings.min_characters:
            return "too_short"
        if settings.max_characters and (len(source) > settings.max_characters or len(target) > settings.max_characters):
            return "too_long"
        if settings.control_characters and (_CONTROL.search(source) or _CONTROL.search(target)):
            return "control_characters"
        of_source, of_target = self.sides[languages]
        if reason := of_source.reason(source) or of_target.reason(target):
            return reason
        return "number_mismatch" if settings.number_mismatch and not same_numbers(source, target) else None


class SideFilters:
    """The filters that need the characters of one side."""

    def __init__(self, settings: FiltersConfig, language: str, side: str) -> None:
        """Raises ConfigError for an unknown script."""
        self.settings = settings
        if not settings.min_script_share:
            return
        key, names = f"corpus.{side}_language={language}", script_of(language)
        if names is None:
            raise ConfigError(
                f"filters.min_script_share: the script of {key} is unknown; write it after the code, as in "
                f"{language}-Latn"
            )
        own = "".join(rf"\p{{Script={name}}}" for name in names.split("+"))
        try:
            self.letters = regex.compile(rf"[\p{{L}}&&[{own}]]", regex.V1)  # of the script, or of several in a text
        except regex.error:
            raise ConfigError(
                f"{key}: '{names}' is no script of Unicode; write one such as Latin, Cyrillic, Greek, Arabic, "
                "Devanagari, Han or Hangul"
            ) from None
        others = rf"[\p{{L}}--[{own}\p{{Script=Common}}\p{{Script=Inherited}}]]"
        self.other_letters = regex.compile(others, regex.V1)  # of any other script

    def reason(self, text: str) -> str | None:
        """Return the reason to leave out a pair with this text, which is not blank, on this side; None if it stays."""
        if self.settings.min_script_share and (num_others := len(self.other_letters.findall(text))):
            num_own = len(self.letters.findall(text))
            if num_own / (num_own + num_others) < self.settings.min_script_share:
                return "wrong_script"
        num_visible = len(text) - text.count(" ")
        digits, marks = self.settings.max_digit_share, self.settings.max_punctuation_share
        if digits < 1.0 and len(_DIGIT.findall(text)) > digits * num_visible:
            return "digits"
        if marks < 1.0 and len(_MARK.findall(text)) > marks * num_visible:
            return "punctuation"
        return None


@dataclass(frozen=True)
class PieceFilters:
    """The filters that need the numbers of subword pieces of a pair."""

    max_length: int
    """The most pieces on one side, the end of the sentence included."""
    max_ratio: float

    def reason(self, num_source: int, num_target: int) -> str | None:
        """Return the reason to leave out a pair with these numbers of pieces, without EOS; None if it stays."""
        shorter, longer = (num_source, num_target) if num_source < num_target else (num_target, num_source)
        if not shorter:
            return "blank"
        if longer >= self.max_length:
            return "too_long"
        if longer > _SHORT_PAIR and longer > self.max_ratio * shorter:
            return "bad_ratio"
        return None


@dataclass
class PairCounts:
    """How many pairs of a split were kept and left out. Tokens are the pieces of the kept pairs, EOS included."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """How many pairs were left out for each of REASONS. A reason with no pairs may be missing."""
    source_tokens: int = 0
    target_tokens: int = 0

    @property
    def read(self) -> int:
        """How many pairs were read, bad pairs included."""
        return self.kept + self.dropped.total()

    def __add__(self, other: "PairCounts") -> "PairCounts":
        return PairCounts(*map(add, vars(self).values(), vars(other).values()))

    @property
    def summary(self) -> dict[str, int]:
        """All numbers, by name."""
        reasons = {reason: self.dropped[reason] for reason in REASONS}
        tokens = {"source_tokens": self.source_tokens, "target_tokens": self.target_tokens}
        return {"read": self.read, "kept": self.kept, **reasons, **tokens}

    @property
    def mean_lengths(self) -> dict[str, float]:
        """The mean number of pieces of a sentence, EOS included, in source and target. At least one pair was kept."""
        return {"source": round(self.source_tokens / self.kept, 2), "target": round(self.target_tokens / self.kept, 2)}

    @property
    def drops(self) -> str:
        """How many pairs were left out for each reason, as text."""
        reasons = [f"{self.dropped[reason]:,} {words}" for reason, words in REASONS.items() if self.dropped[reason]]
        return ", ".join(reasons) or "none"


KEPT = "kept"


def drop_table(counts: Mapping[str, Counter[str]]) -> str:
    """Return a table for each corpus, and one for all. `counts` has the pairs kept (KEPT), and left out by REASONS."""
    shown = {**counts, "all corpora": sum(counts.values(), Counter())} if len(counts) > 1 else counts
    tables = "\n\n".join(_table(name, count) for name, count in shown.items())
    notes = [f"note: no pair of {name} is left" for name, count in counts.items() if not count[KEPT]]
    return "\n".join([tables, *notes])


def _table(name: str, count: Counter[str]) -> str:
    read = count.total()
    rows = {f"  {words}": count[reason] for reason, words in REASONS.items() if count[reason]}
    rows |= {"left out": read - count[KEPT], "kept": count[KEPT]}
    width, digits = max(map(len, rows)), len(f"{read:,}")
    cells = {label: f"{number:>{digits},}{number / max(read, 1):>9.2%}" for label, number in rows.items()}
    cells = {"": name, "pairs": f"{read:>{digits},}{'':9}", **cells}
    return "\n".join(f"{label:{width}}  {cell:>16}".rstrip() for label, cell in cells.items())
