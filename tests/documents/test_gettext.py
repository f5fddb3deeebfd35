"""Properties of translated .po files: empty translations are filled, and nothing else changes."""

import random
import re

import pytest

from transformer_mt.documents.gettext import translate_po

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'


def shout(lines: list[str]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(line.upper(), []) for line in lines]


def test_an_empty_translation_is_filled_and_marked_and_a_translation_stays():
    text = f'{HEADER}\n# A note\n#: a.c:1\nmsgid "Dog"\nmsgstr ""\n\nmsgid "Cat"\nmsgstr "Katze"\n'
    expected = text.replace('msgid "Dog"\nmsgstr ""', '#, fuzzy\nmsgid "Dog"\nmsgstr "DOG"')
    assert translate_po(text, shout) == expected


def test_a_header_stays_even_if_it_is_empty():
    for header in (HEADER, 'msgid ""\nmsgstr ""\n'):
        assert translate_po(header, shout) == header


@pytest.mark.parametrize(
    ("head", "marked"),
    [
        ("", "#, fuzzy\n"),
        ("#, c-format\n", "#, fuzzy, c-format\n"),
        ("#, fuzzy\n", "#, fuzzy\n"),
        ('#: a.c\n#| msgid "Old"\n', '#: a.c\n#, fuzzy\n#| msgid "Old"\n'),
        ('msgctxt "menu"\n', '#, fuzzy\nmsgctxt "menu"\n'),
    ],
)
def test_the_flag_stands_where_gettext_writes_it(head, marked):
    assert translate_po(f'{head}msgid "a"\nmsgstr ""\n', shout) == f'{marked}msgid "a"\nmsgstr "A"\n'


def test_all_empty_forms_of_a_plural_get_the_plurals_translation():
    text = 'msgid "one"\nmsgid_plural "%d dogs"\nmsgstr[0] ""\nmsgstr[1] "Hunde"\nmsgstr[2] ""'
    filled = 'msgstr[0] "%D DOGS"\nmsgstr[1] "Hunde"\nmsgstr[2] "%D DOGS"'
    assert translate_po(text, shout) == '#, fuzzy\nmsgid "one"\nmsgid_plural "%d dogs"\n' + filled


def test_each_line_of_a_message_is_translated_and_signs_are_escaped():
    asked = []

    def ask(lines):
        asked.extend(lines)
        return [(f'"{line}"\t\\', []) for line in lines]

    text = 'msgid ""\n"\\n"\n"A \\"dog\\" "\n"runs.\\n"\n"\\n"\n"So?\\n"\nmsgstr ""\n'
    filled = translate_po(text, ask)
    assert asked == ['A "dog" runs.', "So?"]
    assert (
        filled == f'#, fuzzy\n{text[:-1]}\n"\\n"\n"\\"A \\"dog\\" runs.\\"\\t\\\\\\n"\n"\\n"\n"\\"So?\\"\\t\\\\\\n"\n'
    )


def test_with_the_identity_only_flags_and_empty_translations_change():
    draw = random.Random(1)
    kinds = [
        'msgid "a\\"\\\\ b"\nmsgstr ""\n',
        '#. note\n#, c-format\nmsgid ""\n"a\\n"\n"b %s"\nmsgstr ""\n',
        'msgctxt "x"\nmsgid "c"\nmsgid_plural "cs"\nmsgstr[0] ""\nmsgstr[1] ""\n',
        '#~ msgid "old"\n#~ msgstr ""\n',
        '#, fuzzy\nmsgid "d"\nmsgstr   ""\n"da"\n',
        "# alone\n",
    ]
    for _ in range(200):
        newline = draw.choice(["\n", "\r\n"])
        text = (HEADER + "\n" + "\n".join(draw.choices(kinds, k=draw.randint(0, 6)))).replace("\n", newline)
        found = translate_po(text, lambda lines: [(line, []) for line in lines])

        def rest(po):
            without_flags = re.sub(r"#, fuzzy(?:\r?\n|,)|^#,", "", po, flags=re.MULTILINE)
            return re.sub(r'^msgstr(?:\[\d\])?(?:\s*".*"\r?\n)+', "", without_flags, flags=re.MULTILINE)

        assert rest(found) == rest(text)
        assert translate_po(found, shout) == found  # nothing is left to fill
