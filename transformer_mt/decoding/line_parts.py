"""Cuts lines into the parts that are translated separately: tags, sentences, parts of long sentences."""

import logging
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise

from transformer_mt.base.errors import TranslationError
from transformer_mt.base.languages import EOS, KEEP, UNK, has_spaces, short_code, split_units
from transformer_mt.decoding.engine import Sentence, Wanted
from transformer_mt.decoding.translation import Translation
from transformer_mt.decoding.word_pieces import CONTINUES, WORD, units_of
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.search_settings import DecodingConfig, SplitSentences
from transformer_mt.text.protection import knows_pieces
from transformer_mt.text.sentences import MARKS, WIDE_MARKS, split_sentences, writes_ordinals_with_stops
from transformer_mt.text.terms import NO_SPACES, Terms
from transformer_mt.text.tokenizer import Tokenizer, clean
from transformer_mt.text.training_lines import TrainingLines


@dataclass(frozen=True)
class Tags:
    """The tags at the beginning of the sources of a model's corpora."""

    tokens: tuple[str, ...] = ()
    """Every token of a tag, such as <bt> and <2de>."""
    trained: tuple[str, ...] = ()
    """The tags of the training corpora, such as <bt> <2de>."""
    always: bool = False
    """Whether every training corpus has a tag."""
    languages: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The codes of the source and target language of lines with a tag."""

    @classmethod
    def of(cls, corpus: CorpusConfig) -> "Tags":
        texts = corpus.training_corpora
        trained = tuple(dict.fromkeys(text.tag for text in texts if text.tag is not None))
        # Of several corpora with the same tag, the first decides.
        languages = {text.tag: corpus.languages_of(text) for text in reversed(texts) if text.tag is not None}
        return cls(corpus.tags, trained, all(text.tag is not None for text in texts), languages)

    def parted(self, line: str) -> tuple[str, str]:
        """Split a line into its tag, with one space between tokens, or "" if there is none, and the rest."""
        found = self._at_the_beginning.match(line) if self.tokens else None
        if found is None:
            return "", line
        return " ".join(self._token.findall(found[0])), line[found.end() :]

    def like_training(self, line: str) -> str:
        """Return a line with one space after each token of its tag, as sources had in training."""
        tag, text = self.parted(line)
        return f"{tag} {text}" if tag else line

    def check(self, tag: str | None) -> None:
        """Raises TranslationError if the tag of an option --tag has a token that the model does not have."""
        if tag is not None and (unknown := [token for token in tag.split() if token not in self.tokens]):
            raise TranslationError(f"--tag {tag}: the model does not know {unknown[0]}; {self._known}")

    def warning(self, lines: Sequence[str], line_numbers: Iterable[int]) -> str | None:
        """Return a warning about the first line with an unknown tag of a language, or without a tag that all had."""
        for number, line in zip(line_numbers, lines, strict=False):
            tag, text = self.parted(line)
            if unknown := _LANGUAGE_TAG.match(text):
                wrong = f"has the tag {unknown[1]}, which the model reads as text ({self._known})"
            elif self.always and line.strip() and tag not in self.trained:
                wrong = f"does not begin with {' or '.join(self.trained)}, but every line did in training"
            else:
                continue
            return (
                f"warning: line {number} {wrong}: its translation is a matter of chance. This warning comes only once, "
                "but there may be more such lines"
            )
        return None

    @property
    def _known(self) -> str:
        return f"its tags are {', '.join(self.tokens)}" if self.tokens else "it was trained without tags"

    @cached_property
    def _token(self) -> re.Pattern[str]:
        # The longest first, because one token may begin with another.
        return re.compile("|".join(map(re.escape, sorted(self.tokens, key=len, reverse=True))))

    @cached_property
    def _at_the_beginning(self) -> re.Pattern[str]:
        return re.compile(rf"\s*(?:(?:{self._token.pattern})\s*)+")


NO_TAGS = Tags()
_LANGUAGE_TAG = re.compile(r"\s*(<2[^\W\d_][\w-]+>)")  # as in <2de> and <2zh-TW>


def together(lengths: Sequence[int], most_sentences: int, most_pieces: int) -> Iterator[tuple[int, int]]:
    """Group neighbouring sentences; yields the first sentence of each group and the one after its last.

    `lengths` are numbers of pieces. A group takes as many sentences as fit, and a longer sentence is its own group.
    """
    start, num_pieces = 0, 0
    for number, length in enumerate(lengths):
        if number > start and (number - start == most_sentences or num_pieces + length > most_pieces):
            yield start, number
            start, num_pieces = number, 0
        num_pieces += length
    yield start, len(lengths)


def cut_pieces(pieces: Sequence[str], longest: int) -> Iterator[tuple[int, int]]:
    """Cut a sentence into parts of at most `longest` pieces; yields the first piece of each and the one after its last.

    A part ends after a word; if it holds no complete word, after a character; if it holds none, anywhere.
    """
    start = 0
    while len(pieces) - start > longest:
        window = range(start + longest, start, -1)
        words = (i for i in window if pieces[i].startswith(WORD))
        characters = (i for i in window if not CONTINUES.fullmatch(pieces[i]))
        cut = next(words, next(characters, start + longest))
        yield start, cut
        start = cut
    yield start, len(pieces)


_log = logging.getLogger(__name__)

_NO_SPACE_BETWEEN_SENTENCES = ("zh", "ja")
# Bullets of lists, dashes of dialogues, marks of quoted mail and of headings, as often as they follow one another.
_SPACE = r"[^\S\n\r\v\f\x1c-\x1f\x85\u2028\u2029]"
_BULLETS = re.compile(rf"(?:(?:[-–—*+•·‣◦▪>]|#{{1,6}}|[a-zA-Z]\)|\d{{1,3}}[.)]){_SPACE}+)+(?=\S)")
_BULLETS_BUT_ORDINALS = re.compile(_BULLETS.pattern.replace("[.)]", r"\)"))
_PUNCTUATION = re.compile(rf"[{MARKS}{WIDE_MARKS},;:、，；：\s]+")  # noqa: RUF001
_NOT_IN_A_LINE = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029\ud800-\udfff]")
_LINES = 2**32  # more lines than any text has: part i of line n gets the number n + i * _LINES


@dataclass(frozen=True)
class Part:
    """A line, or a part of one."""

    line: int
    """The number of the line, from 0."""
    sentence: Sentence
    first_unit: int = 0
    """The number, in the line without its tag, of the word (or character) of its first piece after the tag."""
    space: str = ""
    """The white space between the translation of the part before it and its own translation."""
    num_tag_pieces: int = 0
    """How many of its first pieces belong to the tag of its line."""
    languages: tuple[str, str] = ("", "")
    """The codes of the source and target languages."""
    frame: tuple[str, str] = ("", "")
    """What the translation of its line begins with (white space and bullets), and ends with (white space)."""
    kept: str = ""
    """Its translation, if it has nothing to translate: its text."""

    @property
    def is_asked(self) -> bool:
        """Whether the model translates it. Chinese and Japanese have punctuation of their own."""
        is_wide = not {*map(short_code, self.languages)}.isdisjoint(_NO_SPACE_BETWEEN_SENTENCES)
        return not self.kept or (is_wide and _PUNCTUATION.fullmatch(self.kept) is not None)


@dataclass(frozen=True)
class LineCutter:
    """Cuts lines that a model cannot translate whole into parts. Each part begins with the tag of its line."""

    tokenizer: Tokenizer
    max_positions: int
    """The number of positions of the model: no part has more pieces, EOS included."""
    longest: int
    """The most pieces in each part of a sentence that has more than max_positions."""
    trained: TrainingLines
    """The usual numbers of sentences and pieces in training, without tags."""
    languages: tuple[str, str] = ("", "")
    """The codes of the source and target languages."""
    tags: Tags = NO_TAGS

    def parts(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None,
        split: SplitSentences,
        numbers: Sequence[int],
        terms: Terms | None,
        is_wordless: Callable[[str], bool],
    ) -> list[Part]:
        """The parts of all lines that are not blank, in order. A prefix belongs to the first part of its line.

        `is_wordless` says whether a text, a line or a sentence, has nothing to translate.
        Raises TranslationError for a prefix that is too long, and for a term that the model cannot write.
        """
        found: list[Part] = []
        firsts = prefixes or [""] * len(lines)
        framed = [self._framed(line, first, split) for line, first in zip(lines, firsts, strict=True)]
        tags, texts, frames = zip(*framed, strict=True) if lines else ((), (), ())
        sources = self.tokenizer.encode_source(texts)
        targets = self.tokenizer.encode_target(prefixes) if prefixes else [[EOS]] * len(lines)
        for line, (number, source, [*prefix, _]) in enumerate(zip(numbers, sources, targets, strict=True)):
            if source == [EOS]:
                continue
            if len(prefix) >= self.max_positions:
                raise TranslationError(
                    f"the prefix of line {number} has {len(prefix)} subword pieces, but a translation has at most "
                    f"{self.max_positions} (model.max_positions): shorten it"
                )
            languages = self.tags.languages.get(tags[line], self.languages)
            how = "never" if is_wordless(texts[line]) else split
            sentences = self._sentences(texts[line], source, firsts[line], how, languages)
            tag_ids = self._tag_ids(tags[line])
            parts: list[Part] = []
            first_units = self._first_units(sentences, frames[line][0], languages[0])
            for (text, ids, space), first_unit in zip(sentences, first_units, strict=True):
                sentence = Sentence(ids, [] if parts else prefix, number)
                space = space_between(space, languages[1])
                kept = text if not sentence.prefix and is_wordless(text) else ""
                part = Part(line, sentence, first_unit, space, len(tag_ids), languages, frames[line], kept)
                parts += [part] if kept or len(tag_ids) + len(ids) <= self.max_positions else self._cut(part)
            # Parts with different numbers draw different random numbers; part 0 keeps the number of its line.
            found += [self._searched(part, number + index * _LINES, tag_ids, terms) for index, part in enumerate(parts)]
        return found

    def _searched(self, part: Part, number: int, tag_ids: list[int], terms: Terms | None) -> Part:
        """The part with its tag, this number, and what its translation must have."""
        source = [*tag_ids, *part.sentence.source]
        once = [self._kept[i] for i in source if i in self._kept]
        required = terms.required(self.tokenizer.source.decode(part.sentence.source)) if terms else []
        wanted = [[self._ids_of_term(term) for term in of_one] for of_one in required]
        return replace(part, sentence=replace(part.sentence, source=source, number=number, once=once, terms=wanted))

    def source_units(self, part: Part) -> list[range]:
        """For each piece of a part, the numbers, in the line, of the words or characters to which it belongs."""
        pieces, spaced = self.tokenizer.source_pieces(part.sentence.source[:-1]), has_spaces(part.languages[0])
        of_tag = units_of(pieces[: part.num_tag_pieces], spaced)
        shift = part.first_unit + (of_tag[-1].stop if of_tag else 0)
        rest = units_of(pieces[part.num_tag_pieces :], spaced)
        return [*of_tag, *(range(units.start + shift, units.stop + shift) for units in rest)]

    def as_it_is(self, part: Part, decoding: DecodingConfig, wanted: Wanted) -> list[Translation]:
        """`n_best` times the text of a part that has nothing to translate, each word aligned with itself."""
        text, pairs = clean(part.kept) if _NOT_IN_A_LINE.search(part.kept) else part.kept, None
        if wanted.alignment:
            first = self.source_units(part)[part.num_tag_pieces].start
            units = (split_units(text, has_spaces(language)) for language in part.languages)
            of_letters = ([number for number, unit in enumerate(each) for _ in unit] for each in units)
            pairs = sorted({(first + source, target) for source, target in zip(*of_letters, strict=True)})
        # With mbr_candidates, the score is in percent, and all candidates would be equal.
        score = 100.0 * (decoding.mbr_candidates > 0)
        return [Translation(text, score, 0.0, [], pairs, num_parts=0)] * decoding.n_best

    @cached_property
    def _kept(self) -> dict[int, int]:
        """The ids in both vocabularies of the pieces that stand for protected texts; none if the model has no such."""
        if not knows_pieces(self.tokenizer):
            return {}
        source, target = self.tokenizer.source, self.tokenizer.target
        return dict(zip(source.piece_to_id(list(KEEP)), target.piece_to_id(list(KEEP)), strict=True))

    def _first_units(self, sentences: list[tuple[str, list[int], str]], before: str, language: str) -> Iterator[int]:
        """For each sentence of a line, the number of its first word or character; `before` are the line's bullets."""
        spaced = has_spaces(language)
        lengths = [
            units_of(self.tokenizer.source_pieces(ids[:-1]), spaced)[-1].stop - (spaced and not space)
            for (_, ids, _), (_, _, space) in pairwise(sentences)  # without a space, two sentences share a word
        ]
        return accumulate(lengths, initial=len(split_units(before, spaced)))

    def _framed(self, line: str, prefix: str, split: SplitSentences) -> tuple[str, str, tuple[str, str]]:
        """Take the tag of a line, and what stands around its text, off. Returns the tag, the text, and its frame.

        A prefix of the translation stands for what the line begins with, and without splitting, bullets stay.
        """
        tag, rest = self.tags.parted(line)
        head = line[: len(line) - len(rest)]
        text = rest.strip()
        end = in_one_line(rest[len(rest.rstrip()) :])
        if prefix.strip():
            return tag, text, ("", end)
        # One of the spaces after a tag belongs to the tag.
        before_text = head[len(head.rstrip()) + 1 :] if tag else rest[: len(rest) - len(rest.lstrip())]
        start = in_one_line(line[: len(head) - len(head.lstrip())] + before_text)
        language = self.tags.languages.get(tag, self.languages)[0]
        pattern = _BULLETS_BUT_ORDINALS if writes_ordinals_with_stops(language) else _BULLETS
        if split != "never" and (bullets := pattern.match(text)):
            start, text = start + bullets[0], text[bullets.end() :]
        return tag, text, (start, end)

    def _ids_of_term(self, term: str) -> list[int]:
        """The ids of a target term inside a text: in a script without spaces between words, no space precedes it."""
        [[*ids, _]] = self.tokenizer.encode_target([term])
        if UNK in ids:
            raise TranslationError(
                f"the term {term} has a character that is not in the target vocabulary: leave it out"
            )
        if not re.match(f"[{NO_SPACES}]", term):
            return ids
        first = self.tokenizer.target_pieces(ids)[0].removeprefix(WORD)
        for pieces in ([first] if first else [], list(first)):
            inner: list[int] = self.tokenizer.target.piece_to_id(pieces)
            if UNK not in inner:
                return [*inner, *ids[1:]]
        return ids

    def _tag_ids(self, tag: str) -> list[int]:
        """The pieces of a tag, without EOS. Before a text, it has the same pieces: it never merges with words."""
        if not tag:
            return []
        [[*ids, _]] = self.tokenizer.encode_source([tag])
        if len(ids) >= self.max_positions - 1:
            raise TranslationError(
                f"the tag {tag} has {len(ids)} subword pieces, but the model takes {self.max_positions} in total "
                "(model.max_positions): begin lines with fewer tags"
            )
        return ids

    def _sentences(
        self, line: str, source: list[int], prefix: str, split: SplitSentences, languages: tuple[str, str]
    ) -> list[tuple[str, list[int], str]]:
        """Each sentence or group of sentences, with its pieces and the white space before it in the line.

        If the prefix has several sentences, the same number of sentences at the beginning of the line stay together.
        """
        if split == "never":
            return [(line, source, "")]
        sentences = split_sentences(line, languages[0])
        if split == "auto":
            sentences = self._as_in_training(sentences, len(source) - 1)
        num_begun = len(split_sentences(prefix, languages[1])) if prefix else 1
        sentences = [_joined(sentences[:num_begun]), *sentences[num_begun:]]
        if len(sentences) == 1:
            return [(line, source, "")]
        texts, spaces = zip(*sentences, strict=True)
        found = zip(texts, self.tokenizer.encode_source(texts), ["", *spaces[:-1]], strict=True)
        return [(text, pieces, space) for text, pieces, space in found if pieces != [EOS]]

    def _as_in_training(self, sentences: list[tuple[str, str]], num_pieces: int) -> list[tuple[str, str]]:
        """Group sentences, as many as were usual in training. Returns each group with the white space after it."""
        trained = self.trained
        if len(sentences) <= trained.usual_sentences and num_pieces <= trained.usual_pieces:
            return [_joined(sentences)]
        lengths = [len(ids) - 1 for ids in self.tokenizer.encode_source([text for text, _ in sentences])]
        groups = together(lengths, trained.usual_sentences, trained.usual_pieces)
        return [_joined(sentences[start:stop]) for start, stop in groups]

    def _cut(self, part: Part) -> Iterator[Part]:
        """Cut a part that has too many pieces, and warn about it."""
        *ids, end = part.sentence.source
        pieces = self.tokenizer.source_pieces(ids)
        units = units_of(pieces, has_spaces(part.languages[0]))
        found = list(cut_pieces(pieces, min(self.longest, self.max_positions - 1 - part.num_tag_pieces)))
        _log.warning(
            "warning: line %d: %s subword pieces would be translated together, but the model takes at most %s "
            "(model.max_positions): they are translated in %d parts",
            part.sentence.number,
            f"{len(part.sentence.source) + part.num_tag_pieces:,}",
            f"{self.max_positions:,}",
            len(found),
        )
        for start, stop in found:
            sentence = Sentence([*ids[start:stop], end], [] if start else part.sentence.prefix, part.sentence.number)
            space = space_between("", part.languages[1]) if start else part.space
            yield replace(part, sentence=sentence, first_unit=part.first_unit + units[start].start, space=space)


def space_between(space: str, target_language: str) -> str:
    """The line's own white space. A plain space replaces tabs, which separate columns of output, and other signs."""
    if short_code(target_language) in _NO_SPACE_BETWEEN_SENTENCES:
        return ""
    return "".join(sign if unicodedata.category(sign) == "Zs" else " " for sign in space) or " "


def in_one_line(space: str) -> str:
    """The white space around a line's text, without what could end a line, such as a line feed."""
    return "".join(sign for sign in space if sign == "\t" or unicodedata.category(sign) == "Zs")


def _joined(sentences: list[tuple[str, str]]) -> tuple[str, str]:
    """Join neighbouring sentences into one text. Returns it with the white space after the last sentence."""
    text, space = sentences[-1]
    return "".join(text + space for text, space in sentences[:-1]) + text, space
