"""Bad text is told of before training, each mistake by itself, and good text is not."""

import random
from itertools import pairwise, permutations

import pytest
from helpers.forms import measured, only_training, write_form
from helpers.messages import message
from helpers.tiny import demo_pairs

from transformer_mt.base.errors import CorpusError
from transformer_mt.corpora.text_traits import telling_words
from transformer_mt.preparing.text_warnings import FEWEST_PAIRS, check_text, text_warnings
from transformer_mt.settings.text_settings import FiltersConfig

GOOD = demo_pairs(800)
CHINESE = "我喜欢你的书。|他是一个学生。|这是什么。|我们去北京吧。|今天天气很好。|你吃饭了吗。|他们不在家。".split("|")
JAPANESE = (
    "私は本が好きです。|彼は学生です。|これは何ですか。|東京に行きましょう。|今日は天気がいい。|もう食べた。".split("|")
)
# Of five languages that are not in the demo corpus: the same sentences.
SENTENCES = {
    "nl": "ik weet niet wat dit is . de man en de vrouw zijn in het huis van een vriend . dat is een hond",
    "fr": "je ne sais pas ce que c'est . la femme et les hommes sont dans la maison . un chien est là",
    "es": "no sé lo que es . el hombre y la mujer están en la casa de un amigo . los perros se van",
    "pt": "não sei o que é isto . o homem e a mulher estão em casa . um cão para os amigos",
    "it": "non so che cosa è . il cane e la donna sono in casa di un amico . questo è per me",
    "da": "jeg ved ikke , hvad det er . du og jeg er i et hus . det er tid til at gå ud af en by",
    "sv": "jag vet inte vad det är . du och jag är i ett hus som en vän har på landet . det är dags att gå",
    "pl": "nie wiem , co to jest . pies i kot nie są w domu . to jest na stole z kwiatami , że się da",
    "cs": "nevím , co to je . pes a kočka jsou v domě . já se ptám , že to je na stole jak jsem řekl",
    "ru": "я не знаю , что это такое . он и она в доме на улице . это как сон , но я не сплю",
    "uk": "я не знаю , що це таке . він та вона в домі з друзями . це не так , як було",
}


def warnings_of(directory, pairs, source="en", target="de") -> list[str]:
    measures = measured(only_training(write_form(directory, "files", pairs), source, target), FiltersConfig())
    check_text(measures)
    return text_warnings(measures)


def test_good_text_has_no_warning(tmp_path):
    assert warnings_of(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("words", "change"),
    [
        (["swapped: the source looks like de"], lambda pairs: [(b, a) for a, b in pairs]),
        (["both sides look like en", "are not related"], lambda pairs: [(a, b) for (a, _), (b, _) in pairwise(pairs)]),
        (["are not related"], lambda pairs: [(a, b) for (a, _), (_, b) in pairwise(pairs)]),
        (["repeat an earlier one"], lambda pairs: [*pairs, *pairs]),
        (["800 of 1,600 pairs have the same text"], lambda pairs: [*pairs, *((a, a) for a, _ in pairs)]),
        (["8 times as many words"], lambda pairs: [(a, " ".join([b] * 8)) for a, b in pairs]),
        (["target (de) looks tokenised"], lambda pairs: [(a, b.replace(".", " .")) for a, b in pairs]),
        (["source (en) is cut"], lambda pairs: [(a.replace("ing ", "@@ ing "), b) for a, b in pairs]),
        (["target (de) is cut"], lambda pairs: [(a, "▁" + b.replace(" ", " ▁")) for a, b in pairs]),
        (["target (de) looks tokenised"], lambda pairs: [(a, b.replace("ie ", "ie &quot; ")) for a, b in pairs]),
        (["source (en) has HTML"], lambda pairs: [(a.replace(" in ", " &lt;in "), b) for a, b in pairs]),
        (["source (en) has no capital"], lambda pairs: [(a.lower(), b) for a, b in pairs]),
    ],
)
def test_each_mistake_is_told_by_itself(words, change, tmp_path):
    found = warnings_of(tmp_path, change(GOOD))
    assert len(found) == len(words), found
    for warning, expected in zip(found, words, strict=True):
        assert expected in warning


def test_few_different_lines_are_told(tmp_path):
    pairs = [(GOOD[number % 210][0], GOOD[number % 800][1]) for number in range(2400)]
    assert "have only 210 different sources" in warnings_of(tmp_path, pairs)[0]


def test_a_code_that_is_no_language_is_told(tmp_path):
    [warning] = warnings_of(tmp_path, GOOD, source="english")
    assert "language code english of the source is unknown" in warning


@pytest.mark.parametrize(("every", "is_told"), [(20, True), (2, False)])
def test_sides_are_swapped_only_if_nearly_all_pairs_are(every, is_told, tmp_path):
    pairs = [(a, b) if number % every == 0 else (b, a) for number, (a, b) in enumerate(GOOD)]
    assert any("swapped" in warning for warning in warnings_of(tmp_path, pairs)) == is_told


def test_long_lines_and_single_words_are_told(tmp_path):
    long = [(" ".join(a for a, _ in part), " ".join(b for _, b in part)) for part in slices(demo_pairs(1200), 12)]
    assert len(long) > 500
    found = warnings_of(tmp_path, long)
    assert len(found) == 2 and all("has long lines, of 1" in warning for warning in found)
    words = [(f"Word{number}", f"Wort{number}") for number in range(600)]
    found = warnings_of(tmp_path, words)
    assert len(found) == 2 and all("single words" in warning for warning in found)


def slices(pairs, size):
    return [pairs[at : at + size] for at in range(0, len(pairs) - size, 2)]


def drawn(texts, number=600, seed=1):
    """Lines of a few sentences in a random order, each with a number, so that they differ."""
    draw = random.Random(seed)
    return ["".join(draw.choices(texts, k=draw.randint(2, 5))) + str(line) for line in range(number)]


def test_languages_of_one_script_are_told_apart_without_spaces(tmp_path):
    chinese, japanese = drawn(CHINESE), drawn(JAPANESE)
    both = list(zip(chinese, japanese, strict=True))
    assert not [warning for warning in warnings_of(tmp_path, both, "zh", "ja") if "related" not in warning]
    assert "the sides seem to be swapped: the source looks like zh" in warnings_of(tmp_path, both, "ja", "zh")[0]
    spaced = [(" ".join(a), b) for a, b in both]
    for language, has_none in (("zh", True), ("ko", False)):
        found = warnings_of(tmp_path, spaced, language, "ja")
        assert any("has spaces between" in warning for warning in found) == has_none


def test_a_side_in_another_script_is_told(tmp_path):
    [warning] = warnings_of(tmp_path, GOOD, "en", "ru")
    assert "0 % of the letters of the target are Cyrillic" in warning
    both = list(zip(drawn(CHINESE), (b for _, b in GOOD), strict=False))
    assert "swapped: the source looks like zh" in warnings_of(tmp_path, both, "de", "zh")[0]
    assert not [warning for warning in warnings_of(tmp_path, GOOD, "en", "xx") if "look" in warning], (
        "unknown: no verdict"
    )


def test_frequent_words_tell_two_languages_apart():
    for one, other in permutations(SENTENCES, 2):
        own, of_other = telling_words(one, other)
        assert not own & of_other and (of_other, own) == telling_words(other, one)
        words = SENTENCES[one].split()
        assert sum(word in own for word in words) > 2 * sum(word in of_other for word in words), (one, other)
    assert telling_words("en", "en") == telling_words("en", "xx") == (frozenset(), frozenset())


@pytest.mark.parametrize(
    ("code", "facts", "rows"),
    [
        ("no-pair-in-text", ["t.tsv:1: has 1 column", "900 unreadable"], ["only one"] * 900),
        ("no-pair-in-text", ["900 with a blank side"], ["only one\t"] * 900),
        ("too-few-pairs", ["499 are usable"], [f"{a}\t{b}" for a, b in GOOD[:499]] * 3),
        ("too-few-lines", ["800 pairs", "1 different source"], [f"The same source.\t{b}" for _, b in GOOD]),
        ("too-few-lines", ["10 different targets"], [f"{a}\tDas {i % 10}" for i, (a, _) in enumerate(GOOD)]),
        ("too-few-pairs", ["800 pairs", "0 are usable", "800 have equal sides"], [f"{a}\t{a}" for a, _ in GOOD]),
    ],
)
def test_text_from_which_nothing_can_be_learnt_is_refused(code, facts, rows, tmp_path):
    (tmp_path / "t.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    measures = measured(only_training(str(tmp_path / "t.tsv"), valid={"share": 1e-9}), FiltersConfig())
    with pytest.raises(CorpusError, match=message(code, *facts)):
        check_text(measures)


def test_as_many_pairs_as_are_needed_are_enough(tmp_path):
    (tmp_path / "t.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in GOOD[:FEWEST_PAIRS]), encoding="utf-8")
    check_text(measured(only_training(str(tmp_path / "t.tsv"), valid={"share": 1e-9}), FiltersConfig()))


def test_unreadable_lines_are_told_with_the_place_of_the_first(tmp_path):
    rows = [*(f"{a}\t{b}" for a, b in GOOD), "only one", "only one"]
    (tmp_path / "t.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    skip = FiltersConfig(on_bad_line="skip")
    stops, skips = (text_warnings(measured(only_training(str(tmp_path / "t.tsv")), f)) for f in (FiltersConfig(), skip))
    assert skips == [] and len(stops) == 1
    assert "2 of 802 lines cannot be read" in stops[0] and "t.tsv:801: has 1 column" in stops[0]
