"""The stage translate with documents that have tags, and the same from Python."""

import gzip
import re
from typing import get_args

import pytest
from helpers.messages import says
from helpers.tiny import demo_pairs

from transformer_mt import translate
from transformer_mt.documents.document import ENDINGS, DocumentForm
from transformer_mt.documents.markup import translate_markup

FIRST, SECOND = (source for source, _ in demo_pairs(2))


@pytest.fixture
def run_translate(run_stage, model_dir):
    """A function that translates these bytes with these arguments: exit status, and what was written."""
    return lambda content, *arguments: run_stage(translate.main, content, model_dir, "--device", "cpu", *arguments)


@pytest.mark.parametrize("form", ["html", "xml"])
def test_each_block_is_translated_like_a_line(run_translate, translator, form):
    first, second = translator.translate([FIRST, SECOND])
    source, expected = (
        f'<ul class="x">\r\n <li>\n  {one}\n </li>\n <li>{two}</li></ul>\n'
        for one, two in ((FIRST, SECOND), (first, second))
    )
    assert run_translate(b"\xef\xbb\xbf" + source.encode(), "--format", form, "--quiet") == (0, expected.encode())
    assert translator.translate_document(source, form) == expected


def test_tags_stay_in_files(run_translate, tmp_path):
    words = FIRST.split()
    (tmp_path / "in.html").write_text(f"<p>{words[0]} <b>{words[1]}</b> <br> {' '.join(words[2:])}", encoding="utf-8")
    files = ["--input", str(tmp_path / "in.html"), "--output", str(tmp_path / "out.html")]
    assert run_translate(b"not read", "--format", "html", *files) == (0, b"")
    found = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert sorted(re.findall("<[^>]*>", found)) == sorted(["<p>", "<b>", "</b>", "<br>"])
    assert not (tmp_path / "out.html.parts").exists()


DOCUMENTS = {
    "html": "<p>{}</p>",
    "xml": "<r><p>{}</p></r>",
    "markdown": "# {}\n",
    "srt": "1\n00:00:01,000 --> 00:00:02,500\n{}\n",
    "vtt": "WEBVTT\n\n00:01.000 --> 00:02.500\n{}\n",
    "po": 'msgid "{}"\nmsgstr ""\n',
}


@pytest.mark.parametrize("ending", [*ENDINGS, ".HTML", ".md.gz", ".txt", ".en", ""])
def test_the_ending_says_the_form_unless_an_option_does(run_translate, translator, tmp_path, capsys, ending):
    form = ENDINGS.get(ending.lower().removesuffix(".gz"))
    document, file = DOCUMENTS[form or "html"].format(FIRST), tmp_path / f"page{ending}"
    file.write_bytes(gzip.compress(document.encode()) if ending.endswith(".gz") else document.encode())
    status, found = run_translate(b"", "--input", str(file))
    note = f"{file}: its ending means --format {form}; to translate its lines, give --format text"
    lines = "".join(f"{line}\n" for line in translator.translate(document.splitlines()))
    assert status == 0
    assert found.decode() == (translator.translate_document(document, form) if form else lines)
    assert (note in capsys.readouterr().err) == (form is not None)
    assert run_translate(b"", "--input", str(file), "--format", "text", "--quiet") == (0, lines.encode())
    assert capsys.readouterr().err == ""


def test_every_form_has_its_ending():
    """Only files of text with broken lines end like any others."""
    assert {*ENDINGS.values()} == {*get_args(DocumentForm)} - {"paragraphs"}


def test_the_ending_says_that_an_option_is_for_lines_and_quiet_is_quiet(run_translate, tmp_path, capsys):
    (tmp_path / "page.html").write_text("<p>A dog.</p>")
    assert run_translate(b"", "--input", str(tmp_path / "page.html"), "--json") == (2, b"")
    assert says(capsys.readouterr().err, "option-about-lines", "--json", "html", "--format text")
    assert run_translate(b"", "--input", str(tmp_path / "page.html"), "--quiet")[0] == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_code_and_placeholders_stay_also_in_attributes(translator, form):
    code, image = {
        "html": ("<code>rm {x} %d</code>", '<img alt="A dog {name} %s" title="{n}">'),
        "markdown": ("`rm {x} %d`", "![A dog {name} %s](a.png)"),
    }[form]
    source = f"{FIRST} {code} %s: {{name}} https://example.com/a {image}"
    found = translator.translate_document(f"<p>{source}</p>" if form == "html" else source, form)
    for text in (code, "%s:", "https://example.com/a"):
        assert found.count(text) == 1, found
    assert found.count("{name}") == found.count("%s") == 2
    assert form == "markdown" or 'title="{n}"' in found


@pytest.mark.parametrize("option", ["--json", "--scores", "--alignment", "--prefix", "--terms", "n_best=2"])
def test_what_is_about_lines_is_not_for_documents(run_translate, tmp_path, capsys, option):
    more = [str(tmp_path / "prefixes")] if option in ("--prefix", "--terms") else []
    assert run_translate(b"<p>", "--format", "html", option, *more) == (2, b"")
    assert says(capsys.readouterr().err, "option-about-lines", option, "html")


@pytest.mark.parametrize(
    ("content", "code"), [(b"<r>\n<a></r>", "xml-not-well-formed"), (b"<r>\n\xff</r>", "line-not-utf-8")]
)
def test_a_document_that_cannot_be_read(run_translate, capsys, content, code):
    assert run_translate(content, "--format", "xml") == (2, b"")
    assert says(capsys.readouterr().err, code)


@pytest.mark.thorough
def test_the_tag_of_a_model_is_not_a_word_of_the_document(translator):
    plain = translator.translations([f"<2xx> {FIRST}"], alignment=True)[0][0]
    words = FIRST.split()
    pairs = [(source - 1, target) for source, target in plain.alignment]
    for number in range(len(words)):
        text = " ".join([*words[:number], f"<b>{words[number]}</b>", *words[number + 1 :]])
        expected = translate_markup(text, "html", lambda texts: [(plain.text, pairs)])
        assert translator.translate_document(text, "html", tag="<2xx>") == expected
