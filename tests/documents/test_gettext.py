"""Properties of translated .po files: empty translations are filled and marked, and nothing else changes."""

import random
from typing import Literal

import pytest
from helpers.messages import message

pytest.importorskip("polib")

import polib

from transformer_mt.base.errors import TranslationError
from transformer_mt.decoding.translation import Translation, doubtful
from transformer_mt.decoding.translator import Translator
from transformer_mt.documents.document import in_utf8, translate_po
from transformer_mt.settings.search_settings import DecodingConfig

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
KINDS = [
    'msgid "a\\"\\\\ b"\nmsgstr ""\n',
    '#. note\n#, c-format\nmsgid ""\n"a\\n"\n"\\n"\n"b %s"\nmsgstr ""\n',
    'msgctxt "x"\nmsgid "c"\nmsgid_plural "cs"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    'msgid "p"\nmsgid_plural "ps"\nmsgstr[0] "eins"\nmsgstr[1] ""\n',
    '#~ msgid "old"\n#~ msgstr ""\n',
    '#, fuzzy\n#| msgid "Old"\nmsgid "d"\nmsgstr   ""\n"da"\n',
    '# A note\n#: a.c:1 b.c:2\nmsgid "cat"\nmsgstr "Katze"\n',
]


def shout(lines: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    assert all(line.strip() and "\n" not in line for line in lines)
    return [(line.upper(), []) for line in lines]


def entries(text: str) -> list[dict[str, object]]:
    found = sorted(polib.pofile(text), key=lambda entry: entry.obsolete)  # as gettext writes them
    return [dict(vars(entry), flags={*entry.flags}, linenum=0) for entry in found]


def test_only_empty_translations_change_and_are_marked() -> None:
    draw = random.Random(1)
    for _ in range(100):
        text = HEADER + "\n" + "\n".join(draw.sample(KINDS, k=draw.randint(0, len(KINDS))))
        found = translate_po(text, shout)
        for before, after in zip(entries(text), entries(found), strict=True):
            plural = before["msgstr_plural"]
            if before["obsolete"] or before["msgstr"] or (plural and any(plural.values())):
                assert after == before
                continue
            expected = str(before["msgid_plural"] or before["msgid"]).upper()
            forms = {"msgstr_plural": dict.fromkeys(plural, expected)} if plural else {"msgstr": expected}
            assert after == before | forms | {"flags": before["flags"] | {"fuzzy"}}
        assert polib.pofile(found).metadata == polib.pofile(text).metadata
        assert translate_po(found, shout) == found, "nothing is left to fill"


FORMATS = (
    "%s|%d|%(name)s|%1$s|{0}|{name}|%lu|%zu|%-5.2f%%|$HOME|${PATH}|{{ n }}|%x|%i|%c|%Y-%m-%d|%%|%'d|%*d|%n|%@".split(
        "|"
    )
)
WORDS = "cannot read|file name|is not a directory|Written by|too many of|no such user|invalid".split("|")


def catalogue(number: int) -> str:
    """A catalogue of which each entry has one to four placeholders, and each fourth one a plural."""
    draw, found = random.Random(7), [HEADER]
    for entry in range(number):
        words = [*draw.sample(WORDS, 2), *draw.sample(FORMATS, draw.randint(1, 4)), str(entry)]
        draw.shuffle(words)
        one, many = (draw.choice(["{}: {}", "{} {}\\n{}", "{}"]).replace("{}", "\0") for _ in range(2))
        texts = [form.replace("\0", " ".join(words[:3]), 1).replace("\0", " ".join(words[3:])) for form in (one, many)]
        plural = f'msgid_plural "{texts[1]}"\nmsgstr[0] ""\nmsgstr[1] ""\n'
        found.append(f'msgid "{texts[0]}"\n' + (plural if entry % 4 == 0 else 'msgstr ""\n'))
    return "\n".join(found)


@pytest.mark.parametrize("protect", ["auto", "always", "never"])
def test_no_placeholder_is_lost_without_a_doubt(
    translator: Translator, protect: Literal["auto", "always", "never"]
) -> None:
    decoding, pairs = DecodingConfig(beam_size=2, max_extra_length=20, protect=protect), list[tuple[str, Translation]]()
    text = catalogue(40)
    found = translator.translate_document(text, "po", decoding, done=pairs.extend)
    doubted = {source for source, best in pairs if "placeholders" in doubtful(source, best)[0]}
    lost = {
        source
        for entry in polib.pofile(found)
        for form in (entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr])
        for source, line in zip((entry.msgid_plural or entry.msgid).split("\n"), form.split("\n"), strict=True)
        if any(source.count(one) != line.count(one) for one in FORMATS)
    }
    assert lost <= doubted
    assert len(lost) > 20 if protect == "never" else not lost


def test_what_is_no_catalogue_is_an_error_with_its_line() -> None:
    with pytest.raises(TranslationError, match=r"no catalogue of gettext: .*line 3"):
        translate_po('msgid "a"\nmsgstr ""\nnonsense\n', shout)


@pytest.mark.parametrize("text", ['msgid "The dog\nmsgstr ""\n', 'msgid ""\n"one\n"two"\nmsgstr ""\n'])
def test_a_text_without_its_closing_quotation_mark_is_an_error(text: str) -> None:
    with pytest.raises(TranslationError, match=r"^line [12]: the text has no closing quotation mark"):
        translate_po(text, shout)


def test_a_text_is_never_taken_for_the_name_of_a_file(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.po").write_text('msgid "secret"\nmsgstr ""\n', encoding="utf-8")
    with pytest.raises(TranslationError):
        translate_po("other.po", shout)


CATALOGUE = HEADER + '\nmsgid "caf\u00e9"\nmsgstr "Caf\u00e9"\n\nmsgid "dog"\nmsgstr ""\n'


@pytest.mark.parametrize("charset", ["ISO-8859-15", "iso-8859-1", "CP1252", "windows-1252", "GB18030"])
def test_a_catalogue_is_read_in_the_charset_of_its_header_and_becomes_utf8(charset: str) -> None:
    text = CATALOGUE.replace("UTF-8", charset).replace('"dog"', '"\u20ac"' if charset != "iso-8859-1" else '"dog"')
    found = in_utf8(text.encode(charset), "po").decode()
    assert found == text.replace(charset, "UTF-8")
    assert polib.pofile(translate_po(found, shout))[0].msgstr == "Caf\u00e9"


@pytest.mark.parametrize("charset", ["UTF-8", "utf-8", "punycode", "no-such-charset"])
def test_any_other_catalogue_stays_as_it_is(charset: str) -> None:
    content = CATALOGUE.replace("UTF-8", charset).encode()
    assert in_utf8(content, "po") == content
    assert in_utf8(CATALOGUE.replace("UTF-8", "ISO-8859-1").encode(), "xml").decode().count("ISO-8859-1") == 1


@pytest.mark.parametrize("charset", ["CHARSET", "US-ASCII"])
def test_a_catalogue_that_gets_other_letters_names_utf8(charset: str) -> None:
    assert in_utf8(CATALOGUE.replace("UTF-8", charset).encode(), "po").decode() == CATALOGUE


def test_a_wrong_charset_is_named() -> None:
    with pytest.raises(TranslationError, match=message("wrong-encoding", "GB2312")):
        in_utf8(CATALOGUE.replace("UTF-8", "GB2312").encode("iso-8859-1"), "po")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_documents_in_utf16_are_read(encoding: str) -> None:
    for form, text in (("po", CATALOGUE), ("xml", '<?xml version="1.0" encoding="UTF-16"?><a>\u00e9</a>'), ("srt", "")):
        found = in_utf8(("\ufeff" + text).encode(encoding), form).decode()
        assert found == text.replace("UTF-16", "UTF-8")


def test_xml_is_read_in_the_encoding_that_it_declares() -> None:
    text = "<?xml version='1.0' encoding='ISO-8859-1'?><a>\u00e9</a>"
    assert in_utf8(text.encode("iso-8859-1"), "xml").decode() == text.replace("ISO-8859-1", "UTF-8")


@pytest.mark.parametrize("naming", ["charset={}", 'charset="{}"', "http-equiv=Content-Type content='a/b; charset={}'"])
def test_a_page_is_read_in_the_encoding_that_it_names(naming: str) -> None:
    page = f"<!doctype html><html><head><meta {naming}><title>\u00e9 \u20ac</title>"
    for named, encoding in (("koi8-r", "koi8-r"), ("iso-8859-1", "windows-1252"), ("utf-8", "utf-8")):
        text = page.format(named).replace("\u00e9 \u20ac", "\u0436") if named == "koi8-r" else page.format(named)
        assert in_utf8(text.encode(encoding), "html").decode().lower() == text.replace(named, "utf-8").lower()


def test_what_a_page_names_behind_its_beginning_or_cannot_be_true_is_not_believed() -> None:
    for tag in ("<p>" * 400 + "<meta charset=koi8-r>", "<meta charset=utf-16>", "<a charset=koi8-r>"):
        page = tag + "\u00e9"
        assert in_utf8(page.encode(), "html").decode() == page
