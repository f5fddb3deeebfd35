"""Finds in corpora and in the measures of their text what would make training fail, or its result worse."""

from collections.abc import Iterable, Iterator, Mapping

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.languages import short_code
from transformer_mt.base.wording import counted
from transformer_mt.corpora.corpus import BAD_LINE, Corpus
from transformer_mt.corpora.text_traits import TOKENISED_SHARE, name_columns, script_of
from transformer_mt.preparing.fill_data_dir import splits_of
from transformer_mt.preparing.measured_text import SideMeasures, TextMeasures
from transformer_mt.preparing.prepared import is_training
from transformer_mt.settings.corpus_settings import CorpusConfig, PairedText

FEWEST_PAIRS, FEWEST_TO_TUNE = 500, 100  # for a new model; for fine-tuning
FEWEST_LINES = 0.4  # different ones of a side, for each of these pairs
_MANY_REPEATS = 0.3  # share of the pairs; if each pair occurs twice, it is 0.5
_MOST_RATIO = 4.0  # of the words of both sides; the default of corpus.max_ratio, of pieces
_MANY_EQUAL = 0.1  # share of the pairs
_FEW_DIFFERENT = 0.1  # different lines of a side for each different pair
_FEWEST_WORDS = 200  # of which most must be of one language; a text of 500 pairs has more
_CLEAR = 4  # times as many
_FEWEST_LETTERS = 0.5  # share of the letters that belong to the script of the language
_CASED = ("Latin", "Cyrillic", "Greek", "Armenian")  # not Georgian, which writes no sentence with capital letters
_FEWEST_CAPITALS = 0.002  # share of the letters; in Multi30k, with one in each sentence, it is 0.02
_MANY_MARKS = 1  # percent of the lines
_LONG_WORDS, _LONG_CHARACTERS, _SHORT_WORDS = 100, 250, 1.5  # of a line, on average
_RELATED = 0.3  # correlation of lengths; it is 0.89 in Tatoeba and Multi30k, and -0.21 if a side of one is shifted
_VARIED = 3.0  # words of a line, on average; lengths of shorter lines say little


def corpus_warnings(corpus: CorpusConfig, opened: Mapping[str, Corpus]) -> list[str]:
    """Return a warning for each probable mistake in the settings. `opened` has the text of each split by its name."""
    splits = splits_of(corpus)
    digests = {name: opened[name].digest() for name in filter(is_training, opened)}
    headers = header_warnings(corpus, [(splits[name], pairs) for name, pairs in opened.items()])
    return [*tag_warnings(corpus), *twice_warnings({name: splits[name] for name in digests}, digests), *headers]


def tag_warnings(corpus: CorpusConfig) -> Iterator[str]:
    """Yield a warning for each validation or test set with another tag than every training corpus."""
    trained = list(dict.fromkeys(text.tag for text in corpus.training_corpora))
    named = ", ".join(tag for tag in trained if tag)
    for name, split in corpus.held_out.items():
        tag, key = corpus.text_of(split).tag, name.replace("/", ".")
        if tag is None and None not in trained:
            yield (
                f"corpus.{key} has no tag, but every training corpus has one ({named}). Unless its sources already "
                f"begin with a tag, set one: {{path: …, tag: {trained[0]}}}"
            )
        if tag is not None and tag not in trained:
            has = f"whose tags are {named}" if named else "which have no tags"
            yield f"corpus.{key} has the tag {tag}, which is not a tag of the training corpora, {has}"


def header_warnings(corpus: CorpusConfig, opened_texts: Iterable[tuple[PairedText, Corpus]]) -> Iterator[str]:
    """Yield a warning for each TSV without names of columns in the settings whose first line seems to have names."""
    for text, pairs in opened_texts:
        block = next(pairs.blocks(), None) if text.form == "tsv" and not isinstance(text.source, str) else None
        first = block.pairs[0] if block else None
        if block and isinstance(first, tuple) and name_columns(first, corpus.languages_of(text)):
            yield (
                f"{block.place(0)}: is read as a pair, but seems to name the columns ({first[0]}, {first[1]}). If it "
                f"does, set the names of the two columns: {{path: {text.place}, source: NAME, target: NAME}}"
            )


def twice_warnings(corpora: Mapping[str, PairedText], digests: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each training corpus with the same text, and the same tag, as an earlier one."""
    first: dict[tuple[str, str, str | None], str] = {}
    for name, text in corpora.items():
        # The digest of two texts tells which one is the source; that of a file with both sides does not.
        reading = "" if text.form in (None, "prefix", "zip") else text.reading
        before = first.setdefault((digests[name], reading, text.tag), name)
        if before != name:
            yield (
                f"{before} and {name} are the same text, so an epoch contains its pairs twice: leave one of them out, "
                "or give a weight to one of them instead"
            )


def check_text(measures: TextMeasures, fewest: int = FEWEST_PAIRS) -> None:
    """Raise CorpusError if a model cannot be learnt from this text, because it has too few different pairs or lines."""
    if measures.num_usable >= fewest:
        for name, side in (("source", measures.source), ("target", measures.target)):
            if side.num_different < FEWEST_LINES * fewest:
                raise CorpusError(
                    f"{measures.place}: {measures.num_pairs:,} pairs have only "
                    f"{counted(side.num_different, f'different {name}')}, too few to hold some out for validation and "
                    f"test, and to learn from the others: look whether the right file or column is named as {name}"
                )
        return
    first = f" {measures.first_bad.rstrip('.')}." if measures.first_bad else ""
    if not measures.num_pairs:
        raise CorpusError(
            f"{measures.place}: no line contains a pair ({measures.reasons}).{first} Each line needs a source and its "
            "translation, in two files or in two columns"
        )
    raise CorpusError(
        f"{measures.place}: has {counted(measures.num_read, 'pair')}, of which {measures.num_usable:,} are usable and "
        f"different ({measures.num_repeated:,} repeat an earlier one; {measures.num_equal:,} have equal sides; left "
        f"out by filters: {measures.reasons}).{first} At least {fewest} are needed: add text"
        + (", or fine-tune a trained model on these pairs with --from-model" if fewest == FEWEST_PAIRS else "")
    )


def text_warnings(measures: TextMeasures) -> list[str]:
    """Return a warning for each probable mistake in the text, with what to do about it."""
    sides = [("source", measures.source), ("target", measures.target)]
    found = [*_language_warnings(measures), *_pair_warnings(measures)]
    for name, side in sides:
        found += (f"the {name} ({side.language}) {warning}" for warning in _side_warnings(side))
    return found


def _language_warnings(measures: TextMeasures) -> Iterator[str]:
    source, target = measures.source, measures.target
    seen = _language_of(source), _language_of(target)
    if seen == (target.language, source.language):
        yield (
            f"the sides seem to be swapped: the source looks like {seen[0]}, and the target like {seen[1]}. Name the "
            "other one as source, or swap the two languages"
        )
        return
    scripts = [*_script_warnings("source", source), *_script_warnings("target", target)]
    yield from scripts
    if seen[0] and seen[0] == seen[1] and source.language != target.language and not scripts:
        wrong = "target" if seen[0] == source.language else "source"
        yield f"both sides look like {seen[0]}: name the text of the other language as {wrong}"


def _script_warnings(name: str, side: SideMeasures) -> Iterator[str]:
    script = script_of(side.language)
    if script is None:
        yield (
            f"the language code {side.language} of the {name} is unknown, so its letters are not checked, and words "
            "are what stands between spaces. If the language has another code, such as en, zh or ja, give that one"
        )
    if side.scripts and script and (share := _share_in(side, script)) < _FEWEST_LETTERS:
        own, most = script.replace("+", " or "), next(iter(side.scripts))
        yield (
            f"only {100 * share:.0f} % of the letters of the {name} are {own}, the script of {side.language}; most are "
            f"{most}. Correct the language, or name another text as {name}"
        )


def _language_of(side: SideMeasures) -> str | None:
    """Return which of the two languages the lines of a side are clearly in, by letters or words; None if unclear."""
    own, other = script_of(side.language), script_of(side.other_language)
    if own and other and not {*own.split("+")} & {*other.split("+")}:
        num_own, num_other, fewest = _share_in(side, own), _share_in(side, other), _FEWEST_LETTERS
    else:
        num_own, num_other, fewest = side.num_own_words, side.num_other_words, _FEWEST_WORDS
    if max(num_own, num_other) < fewest or max(num_own, num_other) < _CLEAR * min(num_own, num_other):
        return None
    return side.language if num_own > num_other else side.other_language


def _share_in(side: SideMeasures, scripts: str) -> float:
    return sum(side.scripts.get(script, 0.0) for script in scripts.split("+"))


def _pair_warnings(measures: TextMeasures) -> Iterator[str]:
    num_pairs, num_different = measures.num_pairs, measures.num_different
    source, target = measures.source, measures.target
    if measures.first_bad and measures.texts.settings.on_bad_line == "stop":
        yield (
            f"{measures.by_reason[BAD_LINE]:,} of {counted(measures.num_read, 'line')} cannot be read as a pair, and "
            f"`prepare` would stop at the first, {measures.first_bad.rstrip('.')}. Correct them, or set "
            "filters.on_bad_line=skip"
        )
    if measures.num_repeated > _MANY_REPEATS * num_pairs:
        yield (
            f"{measures.num_repeated:,} of {counted(num_pairs, 'pair')} repeat an earlier one: look whether a text "
            "is named twice, or leave repeats out with filters.duplicates=true"
        )
    same_language = short_code(source.language) == short_code(target.language)
    if measures.num_equal > _MANY_EQUAL * num_pairs and not same_language:
        yield (
            f"{measures.num_equal:,} of {counted(num_pairs, 'pair')} have the same text on both sides, so a model "
            "learns to copy: leave them out with filters.identical=true"
        )
    for name, side in (("source", source), ("target", target)):
        if (num_lines := side.num_different) < _FEW_DIFFERENT * num_different:
            yield (
                f"the {num_different:,} different pairs have only {counted(num_lines, f'different {name}')}: look "
                f"whether the right file or column is named as {name}"
            )
    shorter, longer = sorted((max(source.mean_words, 0.1), max(target.mean_words, 0.1)))
    if longer > _MOST_RATIO * shorter:
        yield (
            f"one side has {longer / shorter:.0f} times as many words as the other, and `prepare` leaves out pairs "
            "above corpus.max_ratio: look whether the lines belong together"
        )
    if min(side.mean_length for side in (source, target)) > _VARIED and measures.correlation < _RELATED:
        yield (
            f"the lengths of source and target are not related (their correlation is {measures.correlation:.2f}), so "
            "lines are probably paired with translations of other lines: look whether one side has a line too many"
        )


def _side_warnings(side: SideMeasures) -> Iterator[str]:
    counts = side.num_in_pieces, side.num_tokenised, side.num_with_entities
    in_pieces, tokenised, with_entities = (100 * number / max(1, side.num_lines) for number in counts)
    if in_pieces > _MANY_MARKS:
        yield f"is cut into subword pieces (@@ or ▁ in {in_pieces:.0f} % of its lines): join them; `prepare` cuts text"
    if tokenised > 100 * TOKENISED_SHARE:
        yield (
            f"looks tokenised (a space before . or a comma, &apos; or @-@ in {tokenised:.0f} % of its lines), and a "
            "model learns to read or write such text: give the text as it was before, or detokenise it"
        )
    elif with_entities > _MANY_MARKS:
        yield f"has HTML entities, such as &amp;, in {with_entities:.0f} % of its lines: write the characters instead"
    if not side.spaced and side.characters[" "] > side.characters.total() / 4:
        yield "has spaces between its words, which this language does not write: remove them"
    small, capital = (
        sum(number for character, number in side.characters.items() if test(character))
        for test in (str.islower, str.isupper)
    )
    if next(iter(side.scripts), "") in _CASED and capital < _FEWEST_CAPITALS * small:
        yield "has no capital letters, so a model does not learn them: give the text as it was before lower-casing"
    if side.mean_length > (_LONG_WORDS if side.spaced else _LONG_CHARACTERS):
        yield (
            f"has long lines, of {side.mean_length:.0f} {side.units} on average. `prepare` leaves out pairs with more "
            "than corpus.max_length pieces on a side: split the lines into sentences, and align these"
        )
    if side.spaced and side.mean_length < _SHORT_WORDS:
        yield "consists of single words, from which a model cannot learn to translate sentences: add sentences"
