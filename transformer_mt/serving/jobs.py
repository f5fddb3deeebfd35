"""Jobs of a server: what one request asks of a model, and the answer. Imports no PyTorch."""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NotRequired

from typing_extensions import TypedDict  # which pydantic needs before Python 3.12

from transformer_mt.base.errors import TranslationError
from transformer_mt.decoding.line_parts import space_between
from transformer_mt.decoding.translation import Translation, doubtful
from transformer_mt.decoding.translator import Translator
from transformer_mt.documents.document import DocumentForm
from transformer_mt.settings.search_settings import DecodingConfig, changed
from transformer_mt.text.sentences import split_sentences
from transformer_mt.text.terms import Terms
from transformer_mt.text.tokenizer import tagged

AT_ONCE = 64  # lines of one job that are translated together: a small job waits no longer than these take

Form = Literal["text", DocumentForm]


@dataclass
class Job:
    """Texts to translate, all in the same way."""

    texts: tuple[str, ...]
    tag: str | None = None
    """The tag of the direction, for a model of several directions."""
    form: Form = "text"
    n_best: int = 1
    prefixes: tuple[str, ...] | None = None
    """For each text, what its translation must begin with."""
    terms: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Source terms, each with the target terms of which the translation must have one."""
    protect: Literal["auto", "always", "never"] | None = None
    """See DecodingConfig.protect; None: the model's own setting."""
    beam_size: int | None = None
    """None: the model's own setting, or n_best if that is more."""
    alignment: bool = False
    until: float = math.inf
    """The time.monotonic(), which all processes of a machine share, after which nobody waits for the answer.

    A process that hears that the asker has left sets it to the past.
    """
    by_sentence: bool = False
    """Whether each sentence is translated on its own. A line that has a prefix is not cut."""

    def check_time(self, _: float = 0.0) -> None:
        """Raises TimeoutError if nobody waits for the answer any more. The translator calls it after each part."""
        if time.monotonic() > self.until:
            raise TimeoutError

    def part(self, at: int, number: int) -> "Job":
        """Part `at` of `number` parts of about equal size."""
        begin, end = (len(self.texts) * each // number for each in (at, at + 1))
        prefixes = None if self.prefixes is None else self.prefixes[begin:end]
        return replace(self, texts=self.texts[begin:end], prefixes=prefixes)


class Found(TypedDict):
    """A translation of a sentence."""

    text: str
    score: float | None
    """See Translation.score; None for a document."""
    log_prob: float | None
    alignment: NotRequired[list[tuple[int, int]]]
    """Numbers of source words and target words, from 0; of characters for a language without spaces."""
    doubts: list[str]
    """Keys of DOUBTS in base/doubts.py; of a document, those of all its texts."""
    numbers: NotRequired[dict[str, list[str]]]
    """With the doubt `numbers`: which are `missing`, and which are `invented`."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text; without `by_sentence`, a line; of a document, all of it."""

    source: str
    space: str
    """The white space before it in the text, line breaks included."""
    target_space: str
    """The white space before its translation. It differs from `space` where a language has no spaces."""
    translations: tuple[Found, ...] = ()
    """Best first. Empty until the text is translated, then at least one."""


Answer = tuple[tuple[Sentence, ...], ...]
"""For each text at least one sentence. White space at the end of a text is before a last, empty sentence."""


def text_of(sentences: Iterable[Sentence], rank: int = 0) -> str:
    """The translation of a text: of each sentence the best, or that of another rank, or the last if it has fewer."""
    return "".join(each.target_space + each.translations[: rank + 1][-1]["text"] for each in sentences)


def answer(translator: Translator, job: Job) -> Answer:
    """Do a job. Raises UserErrors, the errors of `Translator.translations`, and TimeoutError soon after `job.until`."""
    job.check_time()
    translator.tags.check(job.tag)
    decoding = _decoding(translator.decoding, job)
    if job.form != "text":
        return tuple((_document(translator, decoding, job, text),) for text in job.texts)
    if job.prefixes is not None and len(job.prefixes) != len(job.texts):
        raise TranslationError(f"{len(job.prefixes)} prefixes for {len(job.texts)} texts: give one for each text")
    prefixes = job.prefixes or [""] * len(job.texts)
    languages = translator.languages(job.tag)
    cut = [list(_cut(*each, languages, job.by_sentence)) for each in zip(job.texts, prefixes, strict=True)]
    found = _translated(translator, decoding, job, [each for sentences in cut for each in sentences])
    return tuple(tuple(next(found) for _ in sentences) for sentences in cut)


def _decoding(decoding: DecodingConfig, job: Job) -> DecodingConfig:
    """The settings of a job. Raises ConfigError for a setting that is not allowed."""
    if job.protect is not None:
        pattern = None if job.protect == "never" else decoding.protect_pattern  # together they are not allowed
        decoding = decoding.model_copy(update={"protect": job.protect, "protect_pattern": pattern})
    beam_size = job.beam_size or max(decoding.beam_size, job.n_best)
    return changed(decoding, {"n_best": job.n_best, "beam_size": beam_size})


def _document(translator: Translator, decoding: DecodingConfig, job: Job, text: str) -> Sentence:
    assert job.form != "text"
    if job.n_best > 1 or job.prefixes or job.terms or job.alignment:
        raise TranslationError(f"n_best, prefixes, terms and alignment are for plain text, not for {job.form}")
    pairs = list[tuple[str, Translation]]()
    translated = translator.translate_document(
        text, job.form, decoding, tag=job.tag, progress=job.check_time, at_once=AT_ONCE, done=pairs.extend
    )
    kinds = {kind for source, best in pairs for kind in doubtful(source, best)[0]}
    return Sentence(text, "", "", (Found(text=translated, score=None, log_prob=None, doubts=sorted(kinds)),))


def _cut(text: str, prefix: str, languages: tuple[str, str], by_sentence: bool) -> Iterator[tuple[Sentence, str]]:
    """Cut a text into its lines that are not blank, or into their sentences. The first one gets the prefix."""
    space = ""
    for line in text.splitlines(keepends=True):
        core = line.strip()
        if not core:
            space += line
            continue
        space += line[: len(line) - len(line.lstrip())]
        cuts_line = by_sentence and not prefix.strip()
        sentences = split_sentences(core, languages[0]) if cuts_line else [(core, "")]
        for number, (source, after) in enumerate(sentences):
            target_space = space_between(space, languages[1]) if number else space
            yield Sentence(source, space, target_space), prefix
            space, prefix = after, ""
        space += line[len(line.rstrip()) :]
    if space or not text:
        yield Sentence("", space, space), ""


def _translated(
    translator: Translator, decoding: DecodingConfig, job: Job, cut: list[tuple[Sentence, str]]
) -> Iterator[Sentence]:
    targets: dict[str, list[str]] = {}
    for source, of_one in job.terms:
        targets.setdefault(source, []).extend(of_one)
    terms = Terms(targets) if targets else None
    for start in range(0, len(cut), AT_ONCE):
        now = cut[start : start + AT_ONCE]
        found = translator.translations(
            [tagged(job.tag, sentence.source) for sentence, _ in now],
            decoding,
            prefixes=[prefix for _, prefix in now] if job.prefixes else None,
            alignment=job.alignment,
            progress=job.check_time,
            first_line=start + 1,
            terms=terms,
        )
        for (sentence, _), translations in zip(now, found, strict=True):
            yield replace(
                sentence, translations=tuple(_found(translator, job, sentence.source, one) for one in translations)
            )


def _found(translator: Translator, job: Job, source: str, one: Translation) -> Found:
    kinds, numbers = doubtful(source, one)
    found = Found(text=one.text, score=one.score, log_prob=one.log_prob, doubts=kinds)
    if job.alignment:
        found["alignment"] = translator.without_tag(one.alignment or [], job.tag)
    if numbers:
        found["numbers"] = numbers
    return found
