"""The Python API for translating: `Translator` turns lines into lines. Imports no PyTorch."""

import math
from collections import Counter
from collections.abc import Callable, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, groupby, islice
from typing import TYPE_CHECKING, Self

from transformer_mt.base.errors import NotFiniteError, TranslationError
from transformer_mt.base.languages import BOS, has_spaces, split_units
from transformer_mt.decoding.engine import Engine, Sentence, Wanted
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.decoding.line_parts import NO_TAGS, LineCutter, Part, Tags
from transformer_mt.decoding.loading import LoadedModel, ModelOfText
from transformer_mt.decoding.protected_lines import translate_protected
from transformer_mt.decoding.together import Together
from transformer_mt.decoding.translation import BLANK, Translation, joined
from transformer_mt.decoding.word_pieces import written_together
from transformer_mt.settings.model_settings import ModelConfig
from transformer_mt.settings.search_settings import DecodingConfig, changed, check_for_model
from transformer_mt.text.modifiers import Casing
from transformer_mt.text.protection import Protection, knows_pieces
from transformer_mt.text.terms import Terms
from transformer_mt.text.tokenizer import Tokenizer, tagged
from transformer_mt.text.training_lines import TrainingLines

if TYPE_CHECKING:
    from transformer_mt.documents.document import DocumentForm
    from transformer_mt.models.attention_weights import FloatArray


def check_texts(name: str, texts: Sequence[object]) -> None:
    """Raises TypeError unless an argument is a list of texts. A single text or an iterator is not one."""
    is_list = isinstance(texts, Sized) and not isinstance(texts, str | bytes)
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name}: give a list of texts, each a str")


@dataclass(frozen=True)
class PairAttention:
    """The attention weights between the pieces of a sentence and of its translation, by layer and head.

    L layers, the lowest first; H heads; S source pieces; T target pieces. Each row (the last axis) sums to 1, or with
    model.local_attention=predictive to less. A recurrent or a convolutional model has no self-attention: there
    encoder_LHSS and decoder_LHTT have no layers, and H is 1. An ensemble gives the mean of its models' attention to the
    source in the last layer but one, as one layer of one head.
    """

    text: str
    """The translation."""
    source: list[str]
    """S subword pieces; the last is the end of the sentence."""
    target: list[str]
    """T subword pieces; the last is the end of the sentence."""
    target_before: list[str]
    """T pieces: the piece that the decoder read before it wrote each piece of `target`. The first is BOS."""
    encoder_LHSS: "FloatArray"
    """The encoder's weights from each piece of `source` to each piece of `source`."""
    decoder_LHTT: "FloatArray"
    """The decoder's weights to each piece of `target_before` while it wrote each piece of `target`."""
    cross_LHTS: "FloatArray"
    """The decoder's weights to each piece of `source` while it wrote each piece of `target`."""


class Translator(ModelOfText):
    """Translates lines of text, by a tokenizer and an engine that translates its ids.

    Examples:
        >>> Translator.load("runs/demo_en_de/model").translate(["The child is sleeping."], beam_size=4)

    A line that has more sentences or more pieces than usual in training is cut at ends of sentences
    (DecodingConfig.split_sentences). A sentence with more pieces than the model has positions is cut into parts of at
    most `longest_part` pieces, and the logger of `line_parts` warns of it. The translations of a line's parts are
    joined by the line's own white space; their scores and log-probabilities are added (with minimum Bayes risk
    decoding, the score is the mean), and n-best lists are joined rank by rank. White space and bullets around a line's
    text stay. `languages` are the codes of the source and target languages. They say where sentences end, and whether
    alignments are between words or characters.

    For a model of several directions, lines begin with its `tags`, as in "<2de> Hello.". Each part of a line gets the
    line's tag, and in alignments the tag counts as a word of the source.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        trained: TrainingLines,
        longest_part: int | None = None,
        languages: tuple[str, str] = ("", ""),
        model: ModelConfig | None = None,
        tags: Tags = NO_TAGS,
    ) -> None:
        """`trained` says how long the lines of the training text usually were.

        Decoding settings are checked against the settings `model` of the engine's model, if they are given.
        """
        super().__init__(engine, tokenizer, tags)
        self.decoding, self.trained, self.model = decoding, trained, model
        longest = longest_part or engine.max_positions - 1
        self.cutter = LineCutter(tokenizer, engine.max_positions, longest, trained, languages, tags)
        self._together = Together(engine)
        self._protection, self._casing = Protection(tokenizer), Casing(tokenizer)

    @classmethod
    def of(cls, model: LoadedModel) -> Self:
        corpus, trained = model.config.corpus, model.training_lines
        # The model translates sources badly that are longer than any in training, so cut parts are not longer.
        longest = min(corpus.max_length - 1, model.engine.max_positions - 1, trained.most_pieces)
        languages = corpus.source_language, corpus.target_language
        settings = model.config.decoding, trained, max(1, longest), languages, model.config.model, Tags.of(corpus)
        return cls(model.engine, model.tokenizer, *settings)

    def translate(
        self,
        lines: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> list[str]:
        """The best translation of each line, in order; empty for a blank line. See `translations`."""
        found = self.translations(lines, decoding, beam_size=beam_size, length_penalty=length_penalty, scores=False)
        return [translations[0].text for translations in found]

    def translations(
        self,
        lines: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int | None = None,
        prefixes: Sequence[str] | None = None,
        alignment: bool = False,
        scores: bool = True,
        first_line: int = 1,
        progress: Callable[[float], None] | None = None,
        terms: Terms | None = None,
    ) -> list[list[Translation]]:
        """The translations of each line, best first: at least one, at most `n_best`; an empty one for a blank line.

        Without `decoding`, the model's own settings are used; beam_size, length_penalty and n_best replace single ones.
        Each translation begins with the text in `prefixes`, one for each line. Without `scores`, scores may be NaN,
        which can be faster. In warnings, lines[0] has the number `first_line`. `progress` is called with the number of
        further lines that are done, a fraction if a line is translated in parts. For each of the `terms` in a line, its
        translations have a target term.
        Raises TypeError unless `lines` and `prefixes` are lists of texts; ConfigError for a setting that is not
        allowed; NotFiniteError for the first line for which the model computes numbers that are not finite;
        TranslationError for a prefix that is too long, for terms without beam search, after `close`, and in a forked
        process.
        """
        check_texts("lines", lines)
        if prefixes is not None:
            check_texts("prefixes", prefixes)
        changes = {"beam_size": beam_size, "length_penalty": length_penalty, "n_best": n_best}
        decoding = changed(decoding or self.decoding, changes)
        self._warn_of_tags(lines, count(first_line))
        wanted = Wanted(alignment, scores or decoding.mbr_candidates > 0, progress)
        numbers = range(first_line, first_line + len(lines))
        return self._protected(lines, prefixes, numbers, wanted, decoding, terms)

    def _protected(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None,
        numbers: Sequence[int],
        wanted: Wanted,
        decoding: DecodingConfig,
        terms: Terms | None,
    ) -> list[list[Translation]]:
        """`translations` of lines with these numbers. Terms that the engine does not search for count as protected."""
        searched, hidden = (terms, None) if self.engine.finds_terms else (None, terms)
        if searched and (decoding.sampling or decoding.of_candidates.beam_size == 1):
            raise TranslationError(
                "the engine torch finds translations with terms by beam search only: set beam_size=2 or more and "
                "sampling=false, or translate an export with the engine ctranslate2"
            )
        protection = replace(
            self._protection, pattern=decoding.protect_pattern, terms=terms, only_terms=decoding.protect == "never"
        )
        is_wordless = protection.is_wordless if decoding.keep_wordless else lambda _: False
        translate = partial(self._translated, decoding=decoding, terms=searched, is_wordless=is_wordless)
        is_expected = knows_pieces(self.tokenizer) or decoding.protect_pattern is not None
        protects = decoding.protect == "always" or (decoding.protect == "auto" and is_expected)
        if not protects and not hidden:
            return translate(lines, prefixes or [], numbers, wanted)
        protection = replace(protection, terms=hidden, only_terms=not protects)
        return translate_protected(
            lines, prefixes or [""] * len(lines), numbers, wanted, protection, self.cutter, translate
        )

    def translate_document(
        self,
        text: str,
        form: "DocumentForm",
        decoding: DecodingConfig | None = None,
        *,
        tag: str | None = None,
        progress: Callable[[float], None] | None = None,
        at_once: int | None = None,
        done: Callable[[list[tuple[str, Translation]]], None] | None = None,
    ) -> str:
        """Translate the text of a document, or of a part of a page, and keep all else in it: see docs/real_text.md.

        `tag` is put before each text that the model reads. `progress` counts texts. `at_once` is the most texts that
        are translated together; fewer let other threads have their turn between them. `done` gets all texts with their
        translations. Here protect=auto means always, because programs may read the document. Raises TranslationError as
        `translate_document` in documents/ does, and the errors of `translations`.
        """
        from transformer_mt.documents.document import translate_document  # here, because most calls translate lines

        decoding = decoding or self.decoding
        if decoding.protect == "auto":
            decoding = decoding.model_copy(update={"protect": "always"})

        def translate(texts: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
            lines, step = [tagged(tag, text) for text in texts], at_once or max(1, len(texts))
            find = partial(self.translations, alignment=True, scores=False, progress=progress)
            slices = [lines[start : start + step] for start in range(0, len(lines), step)]
            found = [best for each in slices for best, *_ in find(each, decoding)]
            if done is not None:
                done(list(zip(texts, found, strict=True)))
            return [(best.text, self.without_tag(best.alignment or [], tag)) for best in found]

        return translate_document(text, form, translate, self.languages(tag))

    def languages(self, tag: str | None = None) -> tuple[str, str]:
        """The codes of the source and target languages of lines with this tag."""
        return self.tags.languages.get(tag or "", self.cutter.languages)

    def without_tag(self, pairs: Sequence[tuple[int, int]], tag: str | None) -> list[tuple[int, int]]:
        """The alignment of a line with this tag as that of its text alone, in which the tag is no word."""
        num_tag_words = len(split_units(tag or "", has_spaces(self.languages(tag)[0])))
        return [(source - num_tag_words, target) for source, target in pairs if source >= num_tag_words]

    def attention(
        self, source: str, target: str | None = None, decoding: DecodingConfig | None = None
    ) -> PairAttention:
        """The weights of every attention for one sentence and a target; without a target, for its best translation.

        The sentence is not cut into parts. Without `decoding`, the model's own settings are used. Raises
        TranslationError for a blank text, one with more pieces than the model has positions, a model without attention,
        the engine ctranslate2, and after `close`; TypeError, ConfigError and NotFiniteError as `translations` does.
        """
        check_texts("source and target", [source, target or ""])
        decoding = decoding or self.decoding
        self._check(decoding)
        tokenizer = self.tokenizer
        source_ids = self._whole(tokenizer.encode_source([self.tags.like_training(source)])[0], "source")
        with self.engine.turn():
            if target is None:
                [found] = self.engine.translate([Sentence(source_ids, number=1)], decoding)  # the samples of line 1
                if not found:
                    raise NotFiniteError.of_line(1)
                target_ids = found[0].tokens
            else:
                target_ids = self._whole(tokenizer.encode_target([target])[0], "target")
            weights = self.engine.attention(source_ids, target_ids)
        if not all(math.isfinite(kind.sum()) for kind in weights):
            raise NotFiniteError.of_line(1)
        return PairAttention(
            tokenizer.decode_target(target_ids),
            tokenizer.source_pieces(source_ids),
            tokenizer.target_pieces(target_ids),
            tokenizer.target_pieces([BOS, *target_ids[:-1]]),
            *weights,
        )

    def _whole(self, ids: list[int], side: str) -> list[int]:
        """The ids of a sentence. Raises TranslationError if it is blank, or too long to be translated whole."""
        if len(ids) == 1:
            raise TranslationError(f"the {side} is blank: give a sentence")
        if len(ids) > self.engine.max_positions:
            raise TranslationError(
                f"the {side} has {len(ids):,} subword pieces, but the model takes at most "
                f"{self.engine.max_positions:,} (model.max_positions): give a single, shorter sentence"
            )
        return ids

    def _translated(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str],
        numbers: Sequence[int],
        wanted: Wanted,
        decoding: DecodingConfig,
        terms: Terms | None,
        is_wordless: Callable[[str], bool],
    ) -> list[list[Translation]]:
        """`translations` of lines with these numbers, in which nothing is protected."""
        is_recased = decoding.recase and not any(prefixes)
        usual = [
            self._casing.usual(line) if is_recased and not is_wordless(self.tags.parted(line)[1]) else (line, None)
            for line in lines
        ]
        lines = [line for line, _ in usual]
        parts = self.cutter.parts(
            lines, prefixes if any(prefixes) else None, decoding.split_sentences, numbers, terms, is_wordless
        )
        if parts:
            self._check(decoding)
        share, progress = len({part.line for part in parts}) / max(1, len(parts)), wanted.progress  # lines per part
        in_lines = None if progress is None else lambda count: progress(count * share)
        found = self._search(parts, decoding, replace(wanted, progress=in_lines))
        if lost := [part.line for part, translations in zip(parts, found, strict=True) if not translations]:
            raise NotFiniteError.of_line(numbers[lost[0]])
        of_line = self._by_line(parts, found, len(lines), mean_score=decoding.mbr_candidates > 0)
        for line, (_, write) in enumerate(usual):
            if write is not None:
                of_line[line] = [replace(each, text=self._casing.written(each.text, write)) for each in of_line[line]]
        return of_line

    def _search(self, parts: Sequence[Part], decoding: DecodingConfig, wanted: Wanted) -> list[list[Translation]]:
        """The translations of each part; none if the model computed numbers that are not finite."""
        found = [self.cutter.as_it_is(part, decoding, wanted) if part.kept else [] for part in parts]
        asked = [number for number, part in enumerate(parts) if part.is_asked]
        sentences = [parts[number].sentence for number in asked]
        search = decoding.of_candidates
        if decoding.mbr_candidates:
            from transformer_mt.decoding.mbr import least_risk  # here, because it imports NumPy
        with closing(self._together.translate(sentences, search, wanted)) as batches:
            # This makes the text of some translations while the engine still searches for others.
            for numbers, hypotheses_of in batches:
                for number, hypotheses in zip((asked[n] for n in numbers), hypotheses_of, strict=True):
                    translations = [self._translation(h, parts[number], decoding) for h in hypotheses]
                    best = least_risk(translations, decoding) if decoding.mbr_candidates else translations
                    # What is only punctuation gets no words.
                    right = [each for each in best if not (parts[number].kept and any(map(str.isalnum, each.text)))]
                    found[number] = right or found[number]
        return found

    def _by_line(
        self, parts: Sequence[Part], found: Sequence[list[Translation]], num_lines: int, *, mean_score: bool
    ) -> list[list[Translation]]:
        """Join the translations of each line's parts, rank by rank, as far as all parts of the line have the rank."""
        of_line = [[BLANK] for _ in range(num_lines)]
        for line, pairs in groupby(zip(parts, found, strict=True), key=lambda pair: pair[0].line):
            own, translations = zip(*pairs, strict=True)
            spaces, is_spaced = [part.space for part in own], has_spaces(own[0].languages[1])
            num_ranks = None if any(first.num_parts for first, *_ in translations) else 1
            ranks = islice(zip(*translations, strict=False), num_ranks)
            in_text = [joined(rank, spaces, is_spaced, mean_score=mean_score) for rank in ranks]
            of_line[line] = [self._framed(translation, own[0]) for translation in in_text]
        return of_line

    def _framed(self, found: Translation, part: Part) -> Translation:
        """The translation of a line, with the white space and the bullets of the line, given its first part."""
        if part.frame == ("", ""):
            return found
        before, after = part.frame
        source_bullets, bullets = (len(split_units(before, has_spaces(language))) for language in part.languages)
        pairs = found.alignment
        if pairs is not None and bullets:
            first = self.cutter.source_units(part)[part.num_tag_pieces].start - source_bullets
            of_bullets = [(first + min(number, source_bullets - 1), number) for number in range(bullets)]
            pairs = of_bullets + [(source, target + bullets) for source, target in pairs]
        return replace(found, text=before + found.text + after, alignment=pairs)

    def _check(self, decoding: DecodingConfig) -> None:
        """Raises ConfigError for settings that the model does not support."""
        if self.model is not None:
            check_for_model(decoding, self.model, self.tokenizer.target_vocab_size)

    def _translation(self, hypothesis: Hypothesis, part: Part, decoding: DecodingConfig) -> Translation:
        words, sentence = hypothesis.tokens[:-1], part.sentence
        limit = sentence.max_length(decoding.max_extra_length, self.engine.max_positions)
        num_source = len(sentence.source) - 1 - part.num_tag_pieces
        return Translation(
            self.tokenizer.decode_target(words),
            hypothesis.score,
            hypothesis.log_prob,
            self.tokenizer.target_pieces(words),
            None if hypothesis.alignment is None else self._word_pairs(words, hypothesis.alignment, part),
            is_short=self.trained.is_short(num_source, len(words)),
            at_limit=len(hypothesis.tokens) >= limit,
        )

    def _word_pairs(self, tokens: list[int], looked_at: list[int], part: Part) -> list[tuple[int, int]]:
        """Pair each target word with the source word that most of its pieces attended to; among equals, the first.

        Without spaces, each target character is paired with the characters that its piece attended to.
        """
        source_units, spaced = self.cutter.source_units(part), has_spaces(part.languages[1])
        pairs: list[tuple[int, int]] = []
        num_units = 0
        for group in written_together(self.tokenizer.target_pieces(tokens), spaced):
            [(most, _)] = Counter(source_units[looked_at[index]] for index in group).most_common(1)
            # This may be no unit or several: a model may write only a space, or white space as bytes.
            text = self.tokenizer.decode_target([tokens[index] for index in group])
            units = range(num_units, num_units + len(split_units(text, spaced)))
            pairs += [(source, target) for target in units for source in most]
            num_units = units.stop
        return pairs
