"""What translate says when it has ended."""

import json
import textwrap

import pytest

from transformer_mt import translate
from transformer_mt.decoding.translation import BLANK, Translation
from transformer_mt.terminal.translation_output import TranslationSummary


def translation(**marks):
    return Translation("Ja.", -1.0, -2.0, ["▁Ja", "."], **marks)


def test_all_kinds_of_lines_are_counted_and_those_to_look_at_named():
    summary = TranslationSummary(seconds=2.0)
    marks = [{}, {"num_parts": 3}, {"num_parts": 2, "is_short": True}, {"at_limit": True}, *[{"is_short": True}] * 5]
    for line, mark in enumerate(marks, start=1):
        summary.add(line, translation(**mark), "Yes." if line < 8 else "Yes, 20.")
    summary.add(10, BLANK, "")
    numbers, short, limit, other_numbers = summary.text().split("\n")
    assert numbers.startswith("10 lines in 2.0 s, 5.0 a second; 1 blank; 2 split into 5 parts; peak memory ")
    assert short.startswith("warning: the translation of 6 lines is much shorter")
    assert short.endswith(": look at lines 3, 5, 6, 7, 8, …")
    assert limit.startswith("warning: the translation of 1 line was") and limit.endswith(": look at line 4")
    assert other_numbers == "warning: the translation of 2 lines has other numbers than the source: look at lines 8, 9"


def test_lines_of_earlier_commands_count_but_not_for_the_rate():
    earlier, summary = TranslationSummary(seconds=9.0), TranslationSummary(seconds=2.0)
    for line in range(1, 9):
        earlier.add(line, translation(is_short=True), "Yes.")
    earlier.doubtful["numbers"] += 7, 8
    summary.add_counts(json.loads(json.dumps(vars(earlier))))
    summary.seconds = 2.0  # those of this start alone
    assert summary.text(num_before=8).startswith("8 lines, 8 of them by earlier starts; 0 blank; ")
    summary.add(9, translation(at_limit=True, num_parts=2), "10")
    numbers, short, limit, other_numbers = summary.text(num_before=8).split("\n")
    assert numbers.startswith(
        "9 lines, 8 of them by earlier starts; the others in 2.0 s, 0.5 a second; 0 blank; 1 split into 2 "
    )
    assert short.startswith("warning: the translation of 8 lines is") and short.endswith("lines 1, 2, 3, 4, 5, …")
    assert limit.endswith(": look at line 9") and other_numbers.endswith(": look at lines 7, 8, 9")


def test_a_line_of_numbers_alone_where_nothing_is_to_be_looked_at():
    summary = TranslationSummary()
    summary.add(1, translation(), "Yes.")
    assert summary.text().count("\n") == 0
    assert summary.text().startswith("1 line in ")


def test_the_texts_of_a_document_are_named_by_their_beginnings():
    summary, texts = TranslationSummary(), ["Yes.", "It is 10\x1b.", f"In {'1999 ' * 20}"]
    for number, text in enumerate(texts, start=1):
        summary.add(number, translation(), text)
    counts, numbers = summary.text(texts=texts).split("\n")
    assert counts.startswith("3 texts in ")
    assert numbers == (
        "warning: the translation of 2 texts has other numbers than the source: look at texts "
        r'2 "It is 10\x1b.", 3 "In 1999 1999 1999 1999 1999 19… (103 characters)"'
    )


@pytest.mark.thorough
@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize(
    ("form", "document"),
    [
        ("html", "<p>A dog.</p><img alt='A dog, 1987.'>"),
        ("xml", "<r><p>A dog.</p><p>A dog, 1987.</p></r>"),
        ("markdown", "# A dog.\n\n- A dog, 1987.\n"),
        ("srt", "1\n00:00:01,000 --> 00:00:02,500\nA dog.\n\n2\n00:00:03,000 --> 00:00:04,500\nA dog, 1987.\n"),
        ("po", 'msgid "A dog."\nmsgstr ""\n\nmsgid "A dog, 1987."\nmsgstr ""\n'),
    ],
)
def test_so_does_the_summary_of_a_document(run_stage, model_dir, capsys, form, document, quiet):
    flags = ["--quiet"] * quiet
    status, _ = run_stage(translate.main, document.encode(), model_dir, "beam_size=1", "--format", form, *flags)
    said = capsys.readouterr().err
    assert status == 0
    assert quiet == (said == "")
    if not quiet:
        assert "2 texts in " in said and '2 "A dog, 1987."' in said


def test_translate_says_it_on_standard_error_unless_it_is_to_be_quiet(run_stage, model_dir, capsys):
    said = {}
    for flags in ([], ["--quiet"]):
        status, output = run_stage(translate.main, b"A dog.\n\nHe sleeps. So?\n", model_dir, "beam_size=1", *flags)
        assert (status, output.count(b"\n")) == (0, 3)
        said[len(flags)] = capsys.readouterr().err
    assert "3 lines in" in said[0] and "; 1 blank; 1 split into 2 parts;" in said[0]
    assert said[1] == ""


@pytest.mark.parametrize("into_file", [True, False])
def test_text_with_broken_lines_is_named_once(run_stage, model_dir, caplog, tmp_path, into_file):
    text = "A dog that sleeps in the garden of the house is often happy, and so am I. " * 15
    (tmp_path / "in").write_text("\n".join(textwrap.wrap(text, 50)))
    flags = ["--input", tmp_path / "in", "--output", tmp_path / "out"] if into_file else []
    arguments = [model_dir, "--device", "cpu", "beam_size=1", "--buffer-lines", "10", *flags]
    assert run_stage(translate.main, (tmp_path / "in").read_bytes(), *arguments)[0] == 0
    assert caplog.text.count("--format paragraphs") == 1
    caplog.clear()
    assert run_stage(translate.main, b"A dog sleeps.\nA cat does not.\n" * 9, *arguments[:4])[0] == 0
    assert not caplog.records
