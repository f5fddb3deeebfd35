"""Translation memories come from strangers: what is text is read, what is markup is not, and nothing is expanded."""

import resource
from pathlib import Path

import pytest
from helpers.forms import opened, write
from helpers.hostile import time_limit
from helpers.messages import message, says

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.corpus import BadPair, Corpus

HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'


def memory(directory: Path, units: str, head: str = HEAD, **languages: str) -> Corpus:
    text = f'{head}<tmx version="1.4"><header segtype="sentence"/><body>{units}</body></tmx>\n'
    return opened({"path": write(directory / "a.tmx", text), **languages})


def unit(source: str, target: str, source_language: str = "en", target_language: str = "de") -> str:
    return (
        f'<tu><tuv xml:lang="{source_language}"><seg>{source}</seg></tuv>'
        f'<tuv xml:lang="{target_language}"><seg>{target}</seg></tuv></tu>'
    )


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("a &lt;b&gt; &amp; &#233;&#x1F642;", "a <b> & é🙂"),
        ("a<bpt i='1'>&lt;b></bpt> bold<ept i='1'>&lt;/b></ept> word", "a bold word"),
        ("one<ph x='1'>\\line </ph>two<it pos='begin'>{\\b</it>", "onetwo"),
        ("<hi type='term'>a <hi>b</hi></hi> c", "a b c"),
        ("Elephants<ph>{\\fn <sub>An elephant.</sub>}</ph> are big", "Elephants An elephant. are big"),
        ("<ut>{\\i</ut>old<ut>}</ut>", "old"),
        ("\n   broken\n   over lines\t", "broken over lines"),
        ("a <!-- note & more -->b<?x y?>c", "a bc"),
        ("<![CDATA[<b> & c]]>", "<b> & c"),
        ("a\u00a0b\u2028c", "a\u00a0b\u2028c"),
        ("", ""),
    ],
)
def test_inline_tags_are_dropped_and_text_is_kept(tmp_path: Path, segment: str, text: str) -> None:
    assert list(memory(tmp_path, unit(segment, "x")).pairs()) == [(text, "x")]


@pytest.mark.parametrize(
    ("of_unit", "wanted", "found"),
    [
        (("en", "de"), ("en", "de"), True),
        (("en-GB", "DE-at"), ("en", "de"), True),
        (("EN_US", "de"), ("en", "de"), True),
        (("en", "de"), ("en-GB", "de"), False),
        (("eng", "de"), ("en", "de"), False),
        (("pt-BR", "pt-PT"), ("pt-PT", "pt-BR"), True),
        (("zh-Hant-TW", "de"), ("zh-Hant", "de"), True),
    ],
)
def test_a_language_finds_its_regions(
    tmp_path: Path, of_unit: tuple[str, str], wanted: tuple[str, str], found: bool
) -> None:
    units = unit("a", "b", *of_unit)
    corpus = memory(tmp_path, units, source=wanted[0], target=wanted[1])
    if found:
        [pair] = corpus.pairs()
        assert set(pair) == {"a", "b"}
        assert pair == (("b", "a") if wanted[0] == of_unit[1] else ("a", "b"))
    else:
        with pytest.raises(CorpusError, match=message("no-unit-of-languages", *wanted, "(1)")):
            list(corpus.pairs())


def test_the_first_variant_of_a_language_is_taken(tmp_path: Path) -> None:
    variants = [("fr", "x"), ("en-US", "color"), ("en-GB", "colour"), ("de", "Farbe"), ("de", "Anstrich")]
    units = "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in variants) + "</tu>"
    assert list(memory(tmp_path, units).pairs()) == [("color", "Farbe")]
    assert list(memory(tmp_path, units, source="en-GB").pairs()) == [("colour", "Farbe")]
    # The two sides are never the same variant.
    assert list(memory(tmp_path, units, source="en-US", target="en").pairs()) == [("color", "colour")]


def test_lang_without_xml_is_a_language_too(tmp_path: Path) -> None:
    units = unit("a", "b").replace("xml:lang", "lang")
    assert list(memory(tmp_path, units).pairs()) == [("a", "b")]


def test_units_of_other_languages_are_no_mistake_but_are_counted(tmp_path: Path) -> None:
    corpus = memory(tmp_path, unit("a", "b") + unit("c", "d", "en", "fr") + "<tu/>" + unit("e", "f"))
    [block] = corpus.blocks()
    first, second, third, last = block.pairs
    assert (first, last) == (("a", "b"), ("e", "f"))
    for pair, facts in ((second, ["de", "en, fr"]), (third, ["en", "nothing"])):
        assert isinstance(pair, BadPair) and pair.reason == "other_languages"
        assert says(pair.fault, "unit-without-language", *facts)
    assert list(corpus.pairs()) == [("a", "b"), ("e", "f")]


def test_a_variant_without_text_is_a_mistake(tmp_path: Path) -> None:
    units = unit("a", "b") + '<tu><tuv xml:lang="en"/><tuv xml:lang="de"><seg>x</seg></tuv></tu>'
    with pytest.raises(CorpusError, match=message("variant-without-text", "a.tmx (unit 2)", "(en)")):
        list(memory(tmp_path, units).pairs())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "iso-8859-1", "utf-8-sig"])
def test_the_encoding_is_what_the_memory_says(tmp_path: Path, encoding: str) -> None:
    name = {"utf-16-le": "utf-16", "utf-8-sig": "utf-8"}.get(encoding, encoding)
    text = f'<?xml version="1.0" encoding="{name}"?><tmx><body>{unit("é", "ü")}</body></tmx>'
    content = ("\ufeff" if encoding == "utf-16-le" else "") + text
    corpus = opened({"path": write(tmp_path / "a.tmx", content.encode(encoding))})
    assert list(corpus.pairs()) == [("é", "ü")]


def test_a_namespace_and_a_document_type_change_nothing(tmp_path: Path) -> None:
    head = HEAD + '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    text = f'{head}<tmx version="1.4" xmlns="http://www.lisa.org/tmx14"><body>{unit("a", "b")}</body></tmx>'
    assert list(opened({"path": write(tmp_path / "a.tmx", text)}).pairs()) == [("a", "b")]


def test_malformed_xml_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message("not-well-formed-xml")):
        list(memory(tmp_path, unit("a", "b") + "\n" + unit("a < b", "c")).pairs())
    path = Path(write(tmp_path / "b.tmx", HEAD + f"<tmx><body>{unit('a', 'b')}\n{unit('c', 'd')}"))
    with pytest.raises(CorpusError, match=message("not-well-formed-xml")):
        list(opened({"path": str(path)}).pairs())
    path.write_bytes((HEAD + f"<tmx><body>\n{unit('M', 'b')}</body></tmx>").encode().replace(b"M", b"M\xfcll"))
    with pytest.raises(CorpusError, match=message("not-well-formed-xml")):
        list(opened({"path": str(path)}).pairs())


@pytest.mark.parametrize("text", ["a&nbsp;b", 'a<ph x="&nbsp;"/>b'])
@pytest.mark.parametrize("declared", ["", '<!DOCTYPE tmx [<!ENTITY e "v">]>'])
def test_an_entity_that_is_not_declared_is_named_with_its_line(tmp_path: Path, text: str, declared: str) -> None:
    corpus = memory(tmp_path, f"{unit('a', 'b')}\n{unit(text, 'd')}\n{unit('e', 'f')}", head=HEAD + declared)
    with pytest.raises(CorpusError, match=message("not-well-formed-xml")):
        list(corpus.pairs())


def test_another_xml_is_no_memory(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=message("not-tmx", "html")):
        list(opened({"path": write(tmp_path / "a.tmx", "<html><p>a</p></html>")}).pairs())


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    "declared",
    [
        f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{LAUGHS}<!ENTITY x "&l9;">]>',
        f'<!DOCTYPE tmx [<!ENTITY x "{"ha" * 10_000}">]>',
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "http://127.0.0.1:9/x">]>',
    ],
    ids=["laughs", "long", "file", "network"],
)
def test_no_entity_is_expanded(tmp_path: Path, declared: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    corpus = memory(tmp_path, unit("good", "gut") + unit("&x;" * 1000, "b"), head=HEAD + declared)
    expected = ("entity-not-expanded", "&x;") if "SYSTEM" in declared else ("not-well-formed-xml", "Maximum entity")
    with time_limit(20), pytest.raises(CorpusError, match=message(*expected)):
        list(corpus.pairs())
    if "SYSTEM" in declared:  # what the parser itself lets through
        [block] = corpus.blocks()
        assert block.pairs[0] == ("good", "gut")
        assert isinstance(block.pairs[1], BadPair)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_entities_in_attributes_and_deep_nesting_are_refused_in_time(tmp_path: Path) -> None:
    declared = f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{LAUGHS}<!ENTITY x "&l9;">]>'
    with time_limit(20), pytest.raises(CorpusError):
        list(memory(tmp_path, unit("a", "b", "&x;"), head=HEAD + declared).pairs())
    with time_limit(20), pytest.raises(CorpusError, match=message("not-well-formed-xml")):
        list(memory(tmp_path, unit("<hi>" * 1000 + "</hi>" * 1000, "b")).pairs())


@pytest.mark.slow
def test_a_memory_of_any_size_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{HEAD}<tmx><body>\n")
        for _ in range(300_000):
            file.write(f"<!-- note -->{unit('a sentence of some words ' * 8, 'ein Satz aus Wörtern ' * 8)}\n")
        file.write("</body></tmx>\n")
    assert path.stat().st_size > 130_000_000
    corpus = opened({"path": str(path)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(len(block.pairs) for block in corpus.blocks()) == 300_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB
