"""Each filter finds what was planted for it, and nothing else; the quick forms agree with the plain ones."""

import pickle
import random
import unicodedata

import pytest
from helpers.messages import message

from transformer_mt.base.doubts import same_numbers
from transformer_mt.base.errors import ConfigError
from transformer_mt.corpora.filters import REASONS, PieceFilters, TextFilters
from transformer_mt.corpora.repeated import HeldOut
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.text_settings import FiltersConfig
from transformer_mt.text.tokenizer import clean

GOOD = [
    ("The dog sleeps.", "Der Hund schläft."),
    ("It's 5 o'clock!", "Es ist 5 Uhr!"),
    ("“Quoted” – naïve café", "„Zitiert“ – naives Café"),
    ("It costs 2,000 or 3", "Es kostet 2000 o. drei"),
    ("a", "b"),
]


def corpus(source="en", target="de", **values):
    values = {"source_language": source, "target_language": target, "train": "a", "valid": "b", "test": {}} | values
    return CorpusConfig(**values)


def text_filters(source="en", target="de", held=None, **settings):
    return TextFilters.of(FiltersConfig(**settings), corpus(source, target), HeldOut(held or {}))


def reason_of(filters, source, target):
    [languages] = filters.sides
    return filters.reason(source, target, languages)


def test_a_corpus_the_other_way_round_is_compared_with_its_own_scripts():
    train = [
        {"name": "there", "path": "a"},
        {"name": "back", "path": "a", "source": "ru", "target": "en"},
    ]
    settings = FiltersConfig(min_script_share=0.5)
    filters = TextFilters.of(settings, corpus("en", "ru", train=train), HeldOut({}))
    assert filters.reason("Hello", "Привет", ("en", "ru")) is None
    assert filters.reason("Привет", "Hello", ("ru", "en")) is None
    assert filters.reason("Привет", "Hello", ("en", "ru")) == "wrong_script"


def plain_reason(settings, held, own_source, own_target, source, target):
    """The property in plain words, character by character. `own_…` says whether a letter is of the script."""
    sides = (source, own_source), (target, own_target)
    texts = source, target
    control = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\ufeff", "\ufffd"}

    def shares(text, is_own):
        letters = [c for c in text if unicodedata.category(c)[0] == "L"]
        there = [c for c in text if c != " "]
        digits = [c for c in there if unicodedata.category(c) == "Nd"]
        marks = [c for c in there if unicodedata.category(c)[0] in "PS"]
        own = sum(map(is_own, letters)) / len(letters) if letters else 1
        return own, len(digits) / len(there), len(marks) / len(there)

    if not source or not target:
        return "blank"
    if settings.held_out and (source in held or target in held):
        return "held_out"
    if settings.identical and source == target:
        return "identical"
    if min(map(len, texts)) < settings.min_characters:
        return "too_short"
    if max(map(len, texts)) > settings.max_characters > 0:
        return "too_long"
    if settings.control_characters and any(c in control or unicodedata.category(c) == "Co" for c in source + target):
        return "control_characters"
    for text, is_own in sides:
        own, digits, marks = shares(text, is_own)
        if own < settings.min_script_share:
            return "wrong_script"
        if digits > settings.max_digit_share:
            return "digits"
        if marks > settings.max_punctuation_share:
            return "punctuation"
    if settings.number_mismatch and not same_numbers(source, target):
        return "number_mismatch"
    return None


def test_by_default_only_blank_and_held_out_pairs_are_left_out():
    filters = text_filters(held={"valid": GOOD[:1]})
    odd = [("same", "same"), ("Да", "123"), ("...", "\x01"), ("a" * 10_000, "b")]
    assert [reason_of(filters, *pair) for pair in GOOD + odd] == ["held_out"] + [None] * 8
    assert [reason_of(filters, *pair) for pair in [("", "a"), ("a", ""), ("", "")]] == ["blank"] * 3


ALL = {
    "identical": True,
    "number_mismatch": True,
    "min_characters": 1,
    "max_characters": 200,
    "control_characters": True,
    "min_script_share": 0.5,
    "max_digit_share": 0.5,
    "max_punctuation_share": 0.5,
}


@pytest.mark.parametrize(
    ("settings", "reason", "bad"),
    [
        ({"identical": True}, "identical", [("Berlin", "Berlin"), ("é 1", "é 1")]),
        (
            {"number_mismatch": True},
            "number_mismatch",
            [("It was 1987", "Es war 1978"), ("From 12:30 to 13:30", "Um 12.30 Uhr"), ("Nobody", "100 Leute")],
        ),
        ({"min_characters": 2}, "too_short", [("a", "long"), ("long", "é")]),
        ({"max_characters": 24}, "too_long", [("a" * 25, "b"), ("b", "ü" * 25)]),
        (
            {"control_characters": True},
            "control_characters",
            [("a\x00b", "b"), ("b", "a\x7f"), ("a", "\x1b[31m"), ("a\ufffd", "b"), ("b", "é\x9f"), ("\ufeffa", "b")],
        ),
        ({"control_characters": True}, "control_characters", [("a \ue000", "b"), ("b", "a\U00100000")]),
        (
            {"min_script_share": 0.5},
            "wrong_script",
            [("Привет мир", "Hallo"), ("Hello", "Привет"), ("你好", "Hallo"), ("Hi Привет", "Hi"), ("γειά", "b")],
        ),
        ({"max_digit_share": 0.5}, "digits", [("12 34 ab", "good text"), ("good", "é 123"), ("٣٤٥ a", "b")]),
        (
            {"max_punctuation_share": 0.5},
            "punctuation",
            [("... a", "b"), ("b", "?! »é«"), ("$ + = a", "b"), ("b", "★★★ é")],
        ),
    ],
)
def test_each_filter_finds_what_was_planted_for_it(settings, reason, bad):
    assert reason in REASONS
    alone, together = text_filters(**settings), text_filters(**(ALL | settings))
    assert [reason_of(alone, *pair) for pair in bad] == [reason] * len(bad)
    assert [reason_of(together, *pair) for pair in bad] == [reason] * len(bad)
    off = text_filters(**{key: value for key, value in ALL.items() if key not in settings})
    assert reason not in [reason_of(off, *pair) for pair in bad]
    good = [pair for pair in GOOD if reason != "too_short" or len(pair[0]) > 1]
    assert [reason_of(alone, *pair) for pair in good] == [None] * len(good)


@pytest.mark.parametrize(
    ("settings", "pair"),
    [
        ({"max_digit_share": 0.5}, ("12ab", "b")),
        ({"max_punctuation_share": 0.5}, ("..é b", "b")),
        ({"min_script_share": 0.5}, ("Hi да", "b")),
        ({"min_characters": 3, "max_characters": 3}, ("abc", "äöü")),
    ],
)
def test_what_is_at_a_bound_stays(settings, pair):
    assert reason_of(text_filters(**settings), *pair) is None


@pytest.mark.parametrize(
    ("language", "good", "bad"),
    [
        ("ru", "Привет, мир", "Hello, world"),
        ("sr", "Добар дан, dobar dan", "καλημέρα"),
        ("sr-Latn", "dobar dan", "добар дан"),
        ("zh", "你好世界。", "こんにちは"),
        ("zho_Hant", "臺灣", "Taiwan"),
        ("ja", "こんにちは、世界。カタカナー", "Hello"),
        ("ko", "안녕하세요", "Hello"),
        ("hi", "नमस्ते दुनिया", "Hello"),
        ("ar", "مرحبا بالعالم", "שלום"),
        ("he", "שלום", "مرحبا"),
        ("el", "Καλημέρα", "Hello"),
        ("th", "สวัสดีชาวโลก", "Hello"),
        ("vi", "Xin chào thế giới", "Привет"),
    ],
)
def test_the_script_is_that_of_the_language(language, good, bad):
    filters = text_filters(language, "de", min_script_share=0.6)
    assert reason_of(filters, clean(good), "gut") is None
    assert reason_of(filters, clean(bad), "gut") == "wrong_script"
    assert reason_of(filters, "12:30 (½) …", "gut") is None, "there is no letter to judge"
    with_default = text_filters("en", language, min_script_share=0.6)
    assert reason_of(with_default, "good", clean(bad)) == "wrong_script"


def test_letters_of_no_script_are_not_judged():
    filters = text_filters("ja", "de", min_script_share=1.0)
    assert reason_of(filters, "カーテンー", "µm") is None
    assert reason_of(filters, "カーaテンー", "gut") == "wrong_script"


def test_another_script_can_be_named():
    filters = text_filters("xx-Cyrl", "yy_Jpan", min_script_share=0.5)
    assert reason_of(filters, "Привет", "こんにちは") is None
    assert reason_of(filters, "Hello", "你好") == "wrong_script"


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        (("xx", "de"), ("script-of-language-unknown", "corpus.source_language=xx", "xx-Latn")),
        (("en", "tlh"), ("script-of-language-unknown", "corpus.target_language=tlh", "tlh-Latn")),
        (("en-Zzzy", "de"), ("unknown-script", "corpus.source_language=en-Zzzy", "'Zzzy'")),
    ],
)
def test_a_script_that_is_not_known_is_an_error(languages, expected):
    with pytest.raises(ConfigError, match=message(*expected)):
        text_filters(*languages, min_script_share=0.5)
    assert reason_of(text_filters(*languages), "a", "b") is None


CHARACTERS = "abcXYZ   äöéß019٣½²_.,!?»$+ДдιΩ你好こー\u0301\u00b5\u00aa\x01\x7f\ufffd\ue123\u200d😀"


@pytest.mark.parametrize("num_settings", range(12))
def test_the_quick_form_agrees_with_the_plain_one(num_settings):
    dice = random.Random(num_settings)
    settings = FiltersConfig(
        held_out=dice.random() < 0.5,
        identical=dice.random() < 0.5,
        number_mismatch=dice.random() < 0.5,
        min_characters=dice.choice([0, 2, 3]),
        max_characters=dice.choice([0, 9, 12]),
        control_characters=dice.random() < 0.5,
        min_script_share=dice.choice([0.0, 0.3, 0.5, 1.0]),
        max_digit_share=dice.choice([0.0, 0.3, 0.5, 1.0]),
        max_punctuation_share=dice.choice([0.0, 0.3, 0.5, 1.0]),
    )
    of_no_script = {"ー", "\u00b5"}

    def own(name):
        return lambda c: name in unicodedata.name(c) or c == "\u00aa" * (name == "LATIN") or c in of_no_script

    texts = []
    for _ in range(400):
        kinds = CHARACTERS if dice.random() < 0.7 else CHARACTERS[:9] + "019.,!?"
        texts.append(clean("".join(dice.choices(kinds, k=dice.randrange(14)))))
    held = {"valid": [(texts[0], texts[1])], "test/a": [(texts[2], texts[3])]}
    filters = TextFilters.of(settings, corpus("en", "ru"), HeldOut(held))
    pairs = [(dice.choice(texts), dice.choice(texts)) for _ in range(1500)] + [(text, text) for text in texts]
    expected = [plain_reason(settings, texts[:4], own("LATIN"), own("CYRILLIC"), *pair) for pair in pairs]
    # A letter of no script is neither own nor foreign, which the plain form here does not know.
    compared = [i for i, pair in enumerate(pairs) if not of_no_script & set("".join(pair))]
    assert [reason_of(filters, *pairs[i]) for i in compared] == [expected[i] for i in compared]
    assert len(compared) > 800 and len({expected[i] for i in compared}) > 2


def test_the_filters_can_be_sent_to_another_process():
    filters = text_filters(held={"valid": GOOD[:1]}, **ALL)
    again = pickle.loads(pickle.dumps(filters))
    pairs = [*GOOD, ("Привет", "b"), ("a\x01", "b"), ("same", "same"), ("1234", "b"), ("....", "b")]
    assert [reason_of(again, *pair) for pair in pairs] == [reason_of(filters, *pair) for pair in pairs]


def test_pieces():
    filters = PieceFilters(max_length=20, max_ratio=2.0)
    reasons = {
        **{(0, 5): "blank", (5, 0): "blank", (0, 50): "blank"},
        **{(19, 19): None, (20, 19): "too_long", (19, 20): "too_long", (1, 30): "too_long"},
        **{(2, 2): None, (1, 5): None, (5, 1): None},
        **{(5, 11): "bad_ratio", (11, 5): "bad_ratio", (5, 10): None, (3, 10): None, (6, 12): None},
    }
    assert {pair: filters.reason(*pair) for pair in reasons} == reasons
    valid = PieceFilters(max_length=20, max_ratio=float("inf"))
    assert [valid.reason(*pair) for pair in [(1, 19), (0, 1), (1, 20)]] == [None, "blank", "too_long"]


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match=message("min-characters-above-max", "min_characters=5", "max_characters=4")):
        FiltersConfig(min_characters=5, max_characters=4)
