"""Reads translation memories: TMX 1.4b, https://www.gala-global.org/tmx-14b. The files may come from strangers."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from transformer_mt.base.errors import CorpusError
from transformer_mt.base.remote import Place
from transformer_mt.base.wording import cut
from transformer_mt.corpora import corpus
from transformer_mt.corpora.text_files import needed, opened, same_text
from transformer_mt.settings.corpus_settings import PairedText

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_MARKUP = {"bpt", "ept", "it", "ph", "ut"}  # elements with code of the original document
_BLANKS = re.compile(r"[ \t\r\n]{2,}|[\t\r\n]")


def open_tmx(text: PairedText) -> corpus.Corpus:
    """Open translation memories. Raises CorpusError if one cannot be read, or has no unit in both languages."""
    return corpus.open_files(text, partial(_blocks, text))


def _blocks(text: PairedText, path: Place, digest: str) -> Iterator[corpus.Block]:
    languages: Counter[str] = Counter()
    found = False
    for block in corpus.blocks_of_file(str(path), _pairs(text, path, digest, languages), "unit"):
        found = found or any(getattr(pair, "reason", None) != corpus.OTHER_LANGUAGES for pair in block.pairs)
        yield block
    if not found:
        there = ", ".join(f"{language} ({number:,})" for language, number in languages.most_common(10)) or "none"
        raise CorpusError(
            f"{path}: no unit has both {text.source} and {text.target}; languages found: {there}. Set source and target"
        )


def _pairs(
    text: PairedText, path: Place, digest: str, languages: Counter[str]
) -> Iterator[tuple[str, str] | corpus.BadPair]:
    etree = needed("lxml.etree", f"{path} is TMX", "write it as another form, such as TSV")
    with opened(path) as text_file, same_text(text_file, digest, str(path)) as file:
        try:
            # The parser expands no entities, a few lines of which could fill the memory, and loads no other files.
            units = etree.iterparse(
                file, tag="{*}tu", resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False
            )
            for _, unit in units:
                yield _pair(unit, str(text.source), str(text.target), languages)
                unit.clear()  # this and the loop free the memory of all units so far
                while unit.getprevious() is not None:
                    del unit.getparent()[0]
        except etree.XMLSyntaxError as error:
            line, reason = error.lineno, error.msg
            if not line and (found := units.error_log.filter_from_errors()):  # for example, an undeclared entity
                line, reason = found[0].line, found[0].message
            raise CorpusError(
                f"{path}:{line}: is not well-formed XML ({reason}); correct it, or export the memory again"
            ) from None
    if _name(units.root) != "tmx":
        raise CorpusError(f"{path}: is XML, but no translation memory: its root is <{_name(units.root)}>, not <tmx>")


def _name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _pair(unit: Any, source: str, target: str, languages: Counter[str]) -> tuple[str, str] | corpus.BadPair:
    variants = [(_language(variant), variant) for variant in unit if _name(variant) == "tuv"]
    of_source = _first(variants, source)
    of_target = _first([one for one in variants if one[1] is not of_source], target)
    if of_source is None or of_target is None:
        there = [language or "no language" for language, _ in variants]
        languages.update(there)
        missing = source if of_source is None else target
        return corpus.BadPair(f"has no {missing}, but {cut(', '.join(there)) or 'nothing'}", corpus.OTHER_LANGUAGES)
    try:
        return corpus.pair_of_texts(_text(of_source), _text(of_target))
    except ValueError as error:
        return corpus.BadPair(str(error))


def _language(variant: Any) -> str:
    return str(variant.get(_LANGUAGE) or variant.get("lang") or "")


def _first(variants: list[tuple[str, Any]], language: str) -> Any:
    """Return the first variant in a language: en also finds en-GB and EN_us, but en-GB does not find en."""
    return next((variant for found, variant in variants if _is_of(found, language)), None)


@lru_cache(1000)
def _is_of(found: str, language: str) -> bool:
    codes = (f"{code.lower().replace('_', '-')}-" for code in (found, language))
    return next(codes).startswith(next(codes))


def _text(variant: Any) -> str:
    """Return the text of a variant without inline tags. Raises ValueError if it has none, or has an entity."""
    segment = next((child for child in variant if _name(child) == "seg"), None)
    if segment is None:
        raise ValueError(f"has a variant ({_language(variant)}) without <seg>; add it")
    text = "".join(_pieces(segment)) if len(segment) else segment.text or ""
    return _BLANKS.sub(" ", text).strip(" ")


def _pieces(element: Any) -> Iterator[str]:
    """Yield the texts in an element. In elements of code, only a sub-flow (<sub>), such as a footnote, is text."""
    if not isinstance(element.tag, str):  # an entity, a comment or an instruction
        if element.tag.__name__ == "Entity":
            raise ValueError(f"uses the entity {element.text}; write the character itself")
        return
    name = _name(element)
    is_code, between = name in _MARKUP, " " if name == "sub" else ""
    yield between + ("" if is_code else element.text or "")
    for child in element:
        yield from _pieces(child)
        yield "" if is_code else child.tail or ""
    yield between
