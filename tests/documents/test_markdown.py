"""Properties of translated Markdown: only texts change, markup stays with its words, and no text becomes markup."""

import random
import sys
from pathlib import Path

import pytest
from helpers.thorough import thorough

pytest.importorskip("markdown_it")

from markdown_it import MarkdownIt

from transformer_mt.base.errors import TranslationError
from transformer_mt.documents.document import translate_document
from transformer_mt.documents.markdown import translate_markdown

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PAGES = [path for path in sorted(Path(__file__).parents[2].glob("**/*.md")) if ".venv" not in path.parts]


def identity(texts):
    return [(text, [(word, word) for word in range(len(text.split()))]) for text in texts]


def swap(texts):
    """Other words in the same places."""
    return [(text.swapcase(), pairs) for text, pairs in identity(texts)]


def reversal(texts):
    split = [text.split() for text in texts]
    return [(" ".join(words[::-1]), [(n, len(words) - 1 - n) for n in range(len(words))]) for words in split]


SIGNS = [
    "*",
    "**a",
    "_b_",
    "[c](d)",
    "`",
    "#",
    "1.",
    "-",
    "<b>",
    "&amp;",
    "|",
    "~~",
    "\\",
    "![e]",
    "---",
    "===",
    ">",
    "+",
]


def invention(texts):
    """Random words and signs with a random alignment; sometimes nothing."""
    found = []
    for text in texts:
        rng = random.Random(text)
        words = [rng.choice([*SIGNS, *text.split()]) for _ in range(rng.randrange(8))]
        pairs = [(rng.randrange(-2, 12), rng.randrange(len(words) + 2)) for _ in range(rng.randrange(12))]
        found.append((" ".join(words), pairs))
    return found


WORDS = ["Paris", "the", "house,", "(red)", "snake_case", "don't", "été", "&copy;", "\\*", "R&B", "2", "end.", "a*b"]
POINTS = ["`if a | b`", "<https://a.bc/_x_>", "![an *old* dog](x.png 'y')", "<br>", "[^1]", "``a ` b``", "<!-- c -->"]
AROUND = ["*{}*", "_{}_", "**{}**", "~~{}~~", "[{}](u_r_l 'title')", "[{}][ref]", "<kbd>{}</kbd>", "<b>{}</b>"]
KEPT = [
    "```python\n# code *a*\n\n- b\n```",
    "    # code\n    [a](b)",
    "<div>\n*a* b\n</div>",
    "[ref]: http://x.y/z 'a b'",
    "---",
    "***",
    "<!-- note -->",
]


def sentence(rng, depth=2, is_cell=False):
    found = []
    for _ in range(rng.randrange(1, 5)):
        kind = rng.random()
        if kind < 0.3 and depth:
            found.append(rng.choice(AROUND).format(sentence(rng, depth - 1, is_cell=True).strip()))
        elif kind < 0.45:
            found.append(rng.choice(POINTS))
        else:
            found.append(rng.choice(WORDS))
        found.append(rng.choice([" ", " ", " ", " ", *([] if is_cell else ["\n", "  \n", "\\\n"])]))
    text = "".join(found).strip().removesuffix("\\")
    return text.replace("|", "\\|") if is_cell and depth == 2 else text


def block(rng, depth=2):
    """Lines of a block of Markdown."""
    kind = rng.randrange(7 if depth else 4)
    if kind == 0:
        return rng.choice(KEPT).split("\n")
    if kind == 1:
        return [f"{'#' * rng.randrange(1, 4)} {sentence(rng, is_cell=True)}{rng.choice(['', '', ' ##'])}"]
    if kind == 2:
        cells = [[sentence(rng, is_cell=True) for _ in range(2)] for _ in range(3)]
        rows = [f"| {a} | {b} |" if rng.random() < 0.8 else f"{a} | {b}" for a, b in cells]
        return [f"| {cells[0][0]} | {cells[0][1]} |", "|---|:-:|", *rows[1:]]
    if kind == 3:
        return [*sentence(rng).split("\n"), *rng.choice([[], [], ["======"], ["---"]])]
    inner = [line for _ in range(rng.randrange(1, 3)) for line in [*block(rng, depth - 1), ""]][:-1]
    if kind == 4:
        return [f"> {line}".rstrip() if not line.endswith("  ") else f"> {line}" for line in inner]
    mark = rng.choice(["- ", "* ", "12. ", "1) ", "- [ ] "])
    return [(mark if number == 0 else " " * min(len(mark), 4)) + line for number, line in enumerate(inner)]


def document(seed):
    rng = random.Random(seed)
    front = rng.choice(["", "", "", "---\ntitle: A *b*\n---\n"])
    text = front + "\n\n".join("\n".join(block(rng)) for _ in range(rng.randrange(1, 5)))
    return (text + rng.choice(["", "\n", "\n\n[ref]: x\n"])).replace("\n", rng.choice(["\n", "\n", "\r\n"]))


def inline(text):
    """For each block, the inline tokens in it, those of images included."""
    blocks = PARSER.parse(text)
    return [(one, [part for each in one.children or [] for part in (each, *(each.children or []))]) for one in blocks]


def markup(text):
    """All blocks in order, and in each of them all markup, without the words."""

    def tags(parts):
        kinds = [part for part in parts if not part.type.startswith(("text", "softbreak"))]
        return sorted((part.type, str(part.attrs), "" if part.children else part.content) for part in kinds)

    return [(one.type, one.attrs, one.content * (one.type != "inline"), tags(parts)) for one, parts in inline(text)]


def words(text):
    """The text of each block as a reader sees it, without white space and footnotes."""
    texts = ["".join(part.content for part in parts if part.type.startswith("text")) for _, parts in inline(text)]
    return ["".join(text.split()).replace("[^1]", "") for text in texts]


SEEDS = [*range(40), *thorough(*range(40, 200), 714, 1826)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_identity_gives_the_same_file(seed):
    text = document(seed)
    assert translate_markdown(text, identity) == text


@pytest.mark.parametrize("translate", [swap, reversal, invention])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_translation_changes_the_markup(seed, translate):
    text = document(seed)
    assert markup(translate_markdown(text, translate)) == markup(text)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_text_is_lost(seed):
    text = document(seed)
    assert [one.lower() for one in words(translate_markdown(text, swap))] == [one.lower() for one in words(text)]


@pytest.mark.parametrize("path", [PAGES[0], *thorough(*PAGES[1:])], ids=lambda path: path.stem)
def test_real_pages(path):
    text = path.read_text(encoding="utf-8")
    assert translate_markdown(text, identity) == text
    for translate in (swap, reversal, invention):
        assert markup(translate_markdown(text, translate)) == markup(text)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "frame", ["{}\n", "# {}", "- {}", "> a\n> {}", "{}\n===", "| a |\n|---|\n| {} |", "a\n\n**{}**.", "[{}](x)"]
)
@pytest.mark.parametrize(
    "signs", [*SIGNS, "a *b* c", "2 * 3", "a|b", "~~~", "C #", "&#42;", "10) x", "--- x", "<!-- x", "R&D", "a\\"]
)
def test_signs_in_a_translation_are_text(frame, signs):
    found = translate_markdown(frame.format("word"), lambda texts: [(signs, [(0, 0)]) for _ in texts])
    assert [one for one, *_ in markup(found)] == [one for one, *_ in markup(frame.format("word"))]
    assert "".join(signs.split()) in "".join(words(found))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("The *red* [house](x 'y').\n", "[house](x 'y'). *red* The\n"),
        ("one\ntwo\n", "two one\n"),
        ("> one\n> two\\\n> three\n", "> three two\\\n> one\n"),
        ("- [x] one two\n", "- [x] two one\n"),
        ("> [!NOTE]\n> one\n> two\n", "> [!NOTE]\n> two one\n"),
        ("one[^1] two\n\n[^1]: a b c\n", "two one[^1]\n\n[^1]: c b a\n"),
        ("## one two ##\n", "## two one ##\n"),
        ("one two\n===\n", "two one\n===\n"),
        ("1. one 2.\n", "1. 2\\. one\n"),
        ("one [two *three*]\n\n[two *three*]: x\n", "[*three* two][two *three*] one\n\n[two *three*]: x\n"),
        ("[one two][]\n\n[one two]: x\n", "[two one][one two]\n\n[one two]: x\n"),
        ("![one two]\n\n[one two]: x\n", "![two one][one two]\n\n[one two]: x\n"),
        ("a [![b c](x)](y) d\n", "d a [![c b](x)](y)\n"),
        ("- | - | b c |\n  |---|---|\n  | - d | `a\\|b` c |\n", "- | - | c b |\n  |---|---|\n  | d - | `a\\|b` c |\n"),
        ("one **`two` three** four\n", "four **`two` three** one\n"),
        ("**one `two`** (three)\n", "(three) **one `two`**\n"),
        ("see <kbd>a b</kbd> or <b>c d</b>\n", "<b>d c</b> or see <kbd>a b</kbd>\n"),
        ("https://a.b/_c_*d* e\n", "e https://a.b/_c_*d*\n"),
        ("---\na: b c\n---\n\nd e\n", "---\na: b c\n---\n\ne d\n"),
        ("    a b\n\n<p>\na b\n</p>\n\n```\na b\n```\n", "    a b\n\n<p>\na b\n</p>\n\n```\na b\n```\n"),
        (
            "First[^1] and[^2].\n[^1]: One *note*.\n[^2]: Two.\n",
            "and[^2]. First[^1]\n[^1]: *note*. One\n[^2]: Two.\n",
        ),
        ("", ""),
    ],
)
def test_words_move_with_their_markup(source, expected):
    assert translate_markdown(source, reversal) == expected


def test_all_texts_are_translated_together():
    calls = []
    text = "# one\n\ntwo ![three](x)\n\n| four |\n|---|\n|  |\n\n> - five\n>   six `seven`\n"
    translate_markdown(text, lambda texts: calls.append(texts) or identity(texts))
    assert calls == [["one", "two", "three", "four", "five six"]]


def test_an_emphasis_that_would_be_empty_gets_a_word_or_the_text_stays():
    assert translate_markdown("one *two* three four", lambda texts: [("a b c d", [(0, 0), (2, 1)])]) == "*a* b c d"
    assert translate_markdown("one *two*\n\nthree", lambda texts: [("", []), ("c", [])]) == "one *two*\n\nc"


def test_a_warning_names_the_lines_of_texts_that_stay(caplog):
    text = "---\nfront: matter\n---\none *two*\n\nthree ![fo*u*r](x)\n"
    # The texts are `one two`, `three` and `four`; the first and the last cannot keep their emphasis.
    found = translate_markdown(text, lambda texts: [("", []), ("c", [(0, 0)]), ("", [])])
    assert found == "---\nfront: matter\n---\none *two*\n\nc ![fo*u*r](x)\n"
    assert "2 texts stay" in caplog.text and "lines: 4, 6\n" in caplog.text
    caplog.clear()
    assert translate_markdown(text, identity) == text and not caplog.records


@pytest.mark.parametrize("translation", ["a | b", "|a", "a|", "|", "| a |", "a|b `|`"])
@pytest.mark.parametrize("page", ["one\n---\n\ntwo\n", "> one\n> -\n", "- one\n  two\n  ---\n", "one `a|b`\n--\n"])
def test_no_translation_of_a_heading_becomes_a_table(page, translation):
    found = translate_markdown(page, lambda texts: [(translation, [])] * len(texts))
    assert [one.type for one in PARSER.parse(found)] == [one.type for one in PARSER.parse(page)]
    shown = "".join(part.content for _, inner in inline(found) for part in inner)
    assert shown.count("|") >= translation.count("|")


def test_a_warning_says_how_much_stays_as_code(caplog):
    text = "---\na: b\n---\none\n\n    two three\n    four\n\n    five\n\n```\nsix\n```\n\n- a\n\n      seven\n"
    assert translate_markdown(text, swap).count("five") == 1
    assert "5 lines, indented" in caplog.text and "--format paragraphs" in caplog.text
    caplog.clear()
    translate_markdown("```\nsix\n```\n", swap)
    assert not caplog.records


def test_emphasis_in_a_language_without_spaces():
    found = translate_markdown("I _love_ you", lambda texts: [("我爱你", [(0, 0), (1, 1), (2, 2)])], ("en", "zh"))
    assert found == "我*爱*你"
    found = translate_markdown(
        '**"Love"** is', lambda texts: [("「愛」是", [(0, 0), (0, 1), (0, 2), (1, 3)])], ("en", "zh")
    )
    assert found == "**「愛」** 是"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text", ["*a " * 2000, "[" * 2000, "> " * 500 + "a", "`a " * 2000, "| a " * 1000 + "\n" + "|-" * 1000]
)
def test_hostile_markdown_takes_seconds(text):
    assert translate_markdown(text, identity) == text
    assert markup(translate_markdown(text, swap)) == markup(text)


def test_without_its_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    monkeypatch.delitem(sys.modules, "transformer_mt.documents.markdown")
    with pytest.raises(TranslationError, match="pip install markdown-it-py"):
        translate_document("a", "markdown", identity, ("en", "de"))
