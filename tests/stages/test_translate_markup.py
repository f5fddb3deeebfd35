"""The stage translate with documents that have tags, and the same from Python."""

import re

import pytest
from helpers.messages import says
from helpers.tiny import demo_pairs

from transformer_mt import translate
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


@pytest.mark.parametrize("option", ["--json", "--scores", "--alignment", "--prefix", "n_best=2"])
def test_what_is_about_lines_is_not_for_documents(run_translate, tmp_path, capsys, option):
    more = [str(tmp_path / "prefixes")] if option == "--prefix" else []
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
