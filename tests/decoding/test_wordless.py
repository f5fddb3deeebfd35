"""What has nothing to translate comes back as it is, whatever the model and wherever it stands."""

import pytest
from helpers.echo import Echo
from helpers.hostile import time_limit
from helpers.thorough import thorough
from helpers.tiny import demo_pairs
from helpers.untrained import LONG_LINES

from transformer_mt.base.languages import EOS
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.decoding.line_parts import Tags
from transformer_mt.decoding.translation import doubtful
from transformer_mt.decoding.translator import Translator
from transformer_mt.serving.jobs import Job, answer, text_of
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.text.protection import Protection
from transformer_mt.text.terms import Terms

LETTERLESS = [
    *("-", "...", "***", ">", "|", "--", "42", "5.5%", ":)", "00:00:00,000 --> 00:00:12,840", "½", "+49 170 1234567"),
    *(
        "* * *",
        "- 7",
        "> >",
        "5\u00a0%",
        "42. 43. 44.",
        "1)\t2)",
        "…",
        "…",
        "🙂",
        "\uff11\uff12",
        "12345678 " * 30 + "9",
    ),
]
PROTECTED = [
    *("http://a.b/c", "%s: %s", "{name} (42)", "COVID-19", "x86_64  v1.2", "a@b.cd, WWW.EXAMPLE.COM", "<keep1>"),
    *("{{ count }} - {{ total }}", "- https://example.com/a", "%1$s %(name)s"),
]
SENTENCE = demo_pairs(1)[0][0]
TAGS = Tags(("<2de>",), ("<2de>",), True, {"<2de>": ("en", "de")})


class Chatty(Echo):
    """Answers everything with the same sentence."""

    tokens = ()

    def translate_unordered(self, sentences, decoding, wanted=None):
        self.sentences += sentences
        for number, sentence in enumerate(sentences):
            looked_at = [0] * len(self.tokens) if wanted.alignment else None
            found = Hypothesis([*sentence.prefix, *self.tokens, EOS], -1.0, -1.0, looked_at)
            yield [number], [[found] * decoding.n_best]


@pytest.fixture
def chatty(translator):
    """A function that makes a Translator whose engine makes things up."""

    def make(languages=("en", "de"), answer_text="Wem hat Bilder.", tags=TAGS, trained=LONG_LINES):
        engine = Chatty()
        [engine.tokens] = [ids[:-1] for ids in translator.tokenizer.encode_target([answer_text])]
        return Translator(engine, translator.tokenizer, DecodingConfig(), trained, None, languages, None, tags)

    return make


@pytest.mark.parametrize("line", [*LETTERLESS, *PROTECTED])
def test_it_comes_back_as_it_is_with_sane_values(chatty, line):
    translator = chatty()
    for text in (line, f"  {line} ", f"<2de> {line}"):
        for settings in ({}, {"split_sentences": "always", "protect": "always"}, {"split_sentences": "never"}):
            decoding = DecodingConfig(n_best=3, **settings)
            [[found]] = translator.translations([text], decoding, alignment=True)
            assert found.text == text.removeprefix("<2de> ")
            assert (found.score, found.log_prob, found.pieces, found.num_parts) == (0.0, 0.0, [], 0)
            assert not found.is_short and not found.at_limit
            assert doubtful(text, found) == ([], None)
            shift = text.startswith("<2de>")
            assert found.alignment == [(n + shift, n) for n in range(len(line.split()))]
    assert translator.engine.sentences == []


def test_the_setting_and_protect_never_leave_it_to_the_model(chatty):
    translator = chatty()
    lines = ["42", "http://a.b/c"]
    assert translator.translate(lines, DecodingConfig(keep_wordless=False)) == ["Wem hat Bilder."] * 2
    assert translator.translate(lines, DecodingConfig(protect="never")) == ["42", "Wem hat Bilder."]
    assert translator.translate(["<keep1>"], DecodingConfig(protect="never")) == ["<keep1>"]


def test_so_does_a_prefix_and_a_term(chatty, translator):
    assert chatty().translate(["42"]) == ["42"]
    [[found]] = chatty().translations(["42"], prefixes=["Zwei"])
    assert found.text.startswith("Zwei ") and found.text.endswith("Wem hat Bilder.")
    terms = Terms({"42": ["zweiundvierzig"], "example.com": ["Beispiel"]})
    found = chatty().translations(["- 42", "43"], terms=terms)
    assert [best.text for [best] in found] == ["- zweiundvierzig", "43"]


def test_a_sentence_of_a_line_does_too_and_n_best_lists_keep_their_length(chatty, translator):
    echo = Translator(Echo(), translator.tokenizer, DecodingConfig(), LONG_LINES)
    decoding = DecodingConfig(split_sentences="always", n_best=3)
    [found] = echo.translations([f"- {SENTENCE} 42. http://a.b/c! {SENTENCE}"], decoding, alignment=True)
    assert len(found) == 3 and found[0].text == f"- {SENTENCE} 42. http://a.b/c! {SENTENCE}"
    assert [sentence.number for sentence in echo.engine.sentences] == [1, 1 + 2 * 2**32]
    assert found[0].alignment == [(n, n) for n in range(len(found[0].text.split()))]
    assert all(" 42. http://a.b/c! " in best.text for best in found)
    assert found[0].num_parts == 3 and found[0].score == -2.0
    with_mbr = DecodingConfig(mbr_candidates=2)
    assert [best.score for [best] in echo.translations(["42"], with_mbr)] == [100.0]


@pytest.mark.parametrize("number", [1, *thorough(7)])
def test_between_protected_texts_nothing_is_made_up(chatty, number):
    line = " 42 - ".join(["%s", *["{name}"] * number, "..."])
    assert chatty().translate([line, f"{SENTENCE} {line}"], DecodingConfig(protect="always")) == [
        line,
        f"Wem hat Bilder. {line}",
    ]


@pytest.mark.parametrize("languages", [("en", "zh-CN"), ("jpn_Jpan", "en"), ("en", "th")])
def test_only_the_punctuation_of_chinese_and_japanese_is_left_to_the_model(chatty, languages):
    asks = languages != ("en", "th")
    translator = chatty(languages, "!", Tags())
    assert translator.translate(["...", "?", "42?", "***", "--"]) == [
        *(["!", "!"] if asks else ["...", "?"]),
        "42?",
        "***",
        "--",
    ]
    always = DecodingConfig(split_sentences="always")
    assert chatty(languages, "Bilder.", Tags()).translate(["...", "42! 43!\t44"], always) == ["...", "42! 43!\t44"]
    [[found]] = chatty(languages, "!", Tags()).translations(["42 http://a.b"], alignment=True)
    assert {target for _, target in found.alignment} == set(range(2 if languages[1] == "en" else 12))


def test_what_no_line_can_have_is_written_as_other_lines_have_it(chatty):
    lines = ["1\n2", "3\u20284", "\ud800 5", " 6\r", "\t", "\u200b"]
    assert chatty().translate(lines) == ["1 2", "3 4", "\ufffd 5", " 6", "", "\u200b"]


def test_tables_and_requests_have_such_texts(chatty):
    table = "| Wert | % |\n|------|---|\n| 42 | -- |\n| … | `x` |\n"
    translator = chatty()
    found = translator.translate_document(table, "markdown", tag="<2de>").replace("Wem hat Bilder.", "Wert")
    assert found == table
    html = "<table><tr><td>42</td><td>--</td><td>http://a.b/c</td></tr></table><img alt='{name}' title='42'>"
    assert translator.translate_document(html, "html") == html
    texts = ("42\n\n - \n%s: {name}\n", "...")
    for by_sentence in (False, True):
        found = answer(translator, Job(texts, tag="<2de>", n_best=3, alignment=True, by_sentence=by_sentence))
        assert tuple(map(text_of, found)) == texts
        assert not any(one["doubts"] for text in found for sentence in text for one in sentence.translations)


def test_a_long_line_is_not_cut_and_no_warning_comes(chatty, caplog):
    translator = chatty(
        tags=Tags(),
        trained=LONG_LINES.model_copy(update={"usual_sentences": 1, "usual_pieces": 9, "most_pieces": 9}),
    )
    line = " ".join(map(str, range(2000)))
    assert translator.translate([line]) == [line]
    assert not caplog.records


@pytest.mark.parametrize("unit", ["http://1.1/", "%s ", "1.", "{a}", "a@b.c ", "A-1-", "%", "{", "$A", "%1", "%0.*"])
def test_a_long_text_takes_no_longer_than_others(translator, unit):
    for text in (unit * 20_000, unit * 20_000 + "é", unit * 20_000 + " und"):
        with time_limit(20):
            Protection(translator.tokenizer).is_wordless(text)


def test_most_sentences_are_not_searched_for_protected_texts(translator, monkeypatch):
    monkeypatch.setattr(Protection, "cut", lambda *_: pytest.fail("it is searched"))
    assert not any(Protection(translator.tokenizer).is_wordless(source) for source, _ in demo_pairs(50))
