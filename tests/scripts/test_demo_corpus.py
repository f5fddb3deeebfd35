"""Properties of the demo corpus, and its German checked by hand."""

import hashlib
import re
from pathlib import Path
from types import SimpleNamespace

import make_demo_corpus
import pytest
from demo_corpus import (
    actions,
    clauses,
    corpus,
    dice,
    entries,
    forms,
    nouns,
    phrases,
    sentences,
    statements,
    verbs,
    words,
)
from helpers.messages import message

from transformer_mt.base.errors import UserError
from transformer_mt.demo import SIZES, packaged_corpus, write_corpus

DEFAULT_SHA256 = "81735a33dc675d704f0159dcb1ab5ba525e80e52db088c768cc1dd8d2b02ece2"


MODULES = (entries, nouns, verbs, words, forms, phrases, clauses, dice, actions, statements, sentences, corpus)
# All that the grammar is made of, and the script's command.
demo = SimpleNamespace(
    **{name: value for module in MODULES for name, value in vars(module).items()},
    main=make_demo_corpus.main,
)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("demo") / "corpus"
    demo.main(["--output", str(output)])
    return output


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def noun(english: str):
    groups = (value for value in vars(demo).values() if isinstance(value, tuple))
    return next(x for group in groups for x in group if isinstance(x, demo.Noun) and x.english == english)


def verb(english: str):
    groups = (value for value in vars(demo).values() if isinstance(value, tuple))
    return next(x for group in groups for x in group if isinstance(x, demo.Verb) and x.english == english)


def phrase(words: str, determiner: str = "THE", adjective: str = "", *, plural: bool = False):
    adjectives = demo.Text(adjective, demo.ADJECTIVES.get(adjective, ""))
    return demo.noun_phrase(noun(words), getattr(demo, determiner), adjectives, plural=plural)


def clause(subject: str, english_verb: str, thing=None, **settings):
    action_settings = {key: settings.pop(key) for key in ("place", "goal", "recipient") if key in settings}
    action = demo.Action(verb(english_verb), thing, **action_settings)
    return demo.Clause(demo.name(subject), action, **settings)


# --- The files ------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_default_corpus_is_the_same_bytes_everywhere(written):
    digest = hashlib.sha256()
    for part in ("train", "valid", "test"):
        for language in ("en", "de"):
            digest.update((written / f"{part}.{language}").read_bytes())
    assert digest.hexdigest() == DEFAULT_SHA256


@pytest.mark.thorough
def test_only_the_six_files_are_left(written):
    assert sorted(path.name for path in written.iterdir()) == sorted(
        f"{p}.{lang}" for p in SIZES for lang in ("de", "en")
    )


def test_as_many_lines_as_asked_for_and_none_empty(written):
    for part, size in SIZES.items():
        for language in ("en", "de"):
            raw = (written / f"{part}.{language}").read_bytes()
            assert raw.count(b"\n") == size and b"\r" not in raw and b"\n\n" not in raw


def test_no_sentence_comes_twice_on_either_side(written):
    for language in ("en", "de"):
        sentences = [line for part in SIZES for line in lines(written / f"{part}.{language}")]
        assert len(set(sentences)) == sum(SIZES.values())


def test_vocabulary_and_length(written):
    for language in ("en", "de"):
        sentences = [re.findall(r"[\w'-]+", line.lower()) for line in lines(written / f"train.{language}")]
        assert len({word for sentence in sentences for word in sentence}) >= 300
        assert 10 <= sum(map(len, sentences)) / len(sentences) <= 12


def test_every_adjective_noun_and_verb_is_used(written):
    text = " " + " ".join(lines(written / "train.en")).lower()
    for group in vars(demo).values():
        for entry in group if isinstance(group, tuple) else ():
            if isinstance(entry, demo.Noun | demo.Verb):
                assert f" {entry.english}" in text, entry.english
    assert not [adjective for adjective in demo.ADJECTIVES if f" {adjective}" not in text]


def test_text_is_well_formed(written):
    for part in SIZES:
        for language in ("en", "de"):
            for line in lines(written / f"{part}.{language}"):
                assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüß', -]*[.?]", line), line
                assert not re.search(r"  | ,|,,|,[.?]|,\S", line), line


def test_an_english_a_stands_before_a_consonant(written):
    for line in lines(written / "train.en"):
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", line), line


def test_a_longer_corpus_begins_with_the_shorter():
    assert demo.corpus(300, seed=7)[:100] == demo.corpus(100, seed=7)
    assert demo.corpus(50, seed=7) != demo.corpus(50, seed=8)


def test_the_test_set_does_not_depend_on_the_size_of_train(tmp_path):
    for train in ("10", "30"):
        demo.main(["--output", str(tmp_path / train), "--train", train, "--valid", "5", "--test", "5"])
    for name in ("test.de", "valid.en"):
        assert lines(tmp_path / "10" / name) == lines(tmp_path / "30" / name)


def test_the_corpus_of_the_package_is_what_the_grammar_makes(written, tmp_path):
    """If you change the grammar, write `corpus(21000, seed=1)` as lines of two columns, and compress it by bzip2."""
    write_corpus(tmp_path, packaged_corpus(), SIZES)
    for part in SIZES:
        for language in ("en", "de"):
            assert lines(tmp_path / f"{part}.{language}") == lines(written / f"{part}.{language}")


def test_one_english_sentence_with_two_translations_is_refused(monkeypatch):
    drawn = iter(["Eins.", "Zwei."])
    monkeypatch.setattr(corpus, "SENTENCES", (lambda dice: demo.Text("One.", next(drawn)),))
    with pytest.raises(AssertionError, match=r"One\. is both Eins\. and Zwei\."):
        demo.corpus(2, seed=1)


def test_a_german_sentence_is_taken_once(monkeypatch):
    drawn = iter([("She reads.", "Sie liest."), ("She is reading.", "Sie liest."), ("He reads.", "Er liest.")])
    monkeypatch.setattr(corpus, "SENTENCES", (lambda dice: demo.Text(*next(drawn)),))
    assert demo.corpus(2, seed=1) == [("She reads.", "Sie liest."), ("He reads.", "Er liest.")]


@pytest.fixture(scope="module")
def long_pairs() -> list[tuple[str, str]]:
    return demo.corpus(2000, seed=1, most=4)


@pytest.mark.thorough
def test_joined_sentences_are_of_all_lengths(long_pairs):
    shares = [0] * 7
    for english, _ in long_pairs:
        shares[min(len(english.split()) // 10, 6)] += 1 / len(long_pairs)
    assert all(share > 0.1 for share in shares[:5]) and max(shares) < 0.25, shares
    assert max(len(english.split()) for english, _ in long_pairs) >= 60


@pytest.mark.thorough
def test_joined_sentences_are_well_formed(long_pairs):
    for pair in long_pairs:
        for line in pair:
            assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüß', -]*[.]", line), line
            assert not re.search(r"  | ,|,,|,[.?]|,\S", line), line


@pytest.mark.thorough
def test_within_a_joined_sentence_only_names_and_german_nouns_are_capital(long_pairs):
    """What follows a link is written as a statement of its own is, but for its first letter."""
    for pair in long_pairs:
        for side, links in enumerate(("and|but", "und|aber")):
            for word in re.findall(rf", (?:{links}) (\w+)", pair[side]):
                assert word in (*demo.WOMEN, *demo.MEN, "I") or word[0].islower(), pair[side]
    assert any(", and I " in english for english, _ in long_pairs)
    text = " ".join(german for _, german in long_pairs)
    assert ", aber Anna " in text and ", aber Peter " in text


def test_joining_joins_what_the_grammar_makes(monkeypatch):
    drawn = [demo.Text("I sleep.", "Ich schlafe."), demo.Text("Anna is old.", "Anna ist alt.")]
    monkeypatch.setattr(sentences, "STATEMENTS", (lambda dice: drawn[0], lambda dice: drawn[1]))
    found = {demo.joined(demo.Dice(seed), 2) for seed in range(200)}
    assert set(drawn) < found
    assert demo.Text("Anna is old, but I sleep.", "Anna ist alt, aber ich schlafe.") in found
    assert demo.Text("I sleep, and Anna is old.", "Ich schlafe, und Anna ist alt.") in found
    assert len(found) == 2 + 2 * 2 * 2


def test_join_is_an_option(tmp_path):
    demo.main(["--output", str(tmp_path), "--train", "30", "--valid", "5", "--test", "5", "--join", "3"])
    expected = demo.corpus(40, seed=1, most=3)
    assert lines(tmp_path / "test.de") == [german for _, german in expected[:5]]
    assert max(len(line.split()) for line in lines(tmp_path / "train.en")) > 20


def test_a_second_run_does_nothing_and_another_file_of_that_name_is_refused(tmp_path, capsys):
    arguments = ["--output", str(tmp_path), "--train", "20", "--valid", "5", "--test", "5"]
    demo.main(arguments)
    assert capsys.readouterr().out.count("\n") == 1
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    demo.main(arguments)
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    (tmp_path / "train.de").write_text("Meins.\n", encoding="utf-8")
    with pytest.raises(UserError, match=message("demo-file-exists", "train.de", "20 train")):
        demo.main(arguments)
    assert (tmp_path / "train.de").read_text(encoding="utf-8") == "Meins.\n"
    (tmp_path / "train.de").unlink()
    demo.main(arguments)
    assert "20 train" in capsys.readouterr().out
    assert (tmp_path / "train.de").read_bytes() == before[tmp_path / "train.de"][0]


def test_sizes_below_one_are_refused(capsys):
    with pytest.raises(SystemExit):
        demo.main(["--valid", "0"])
    assert "give at least 1" in capsys.readouterr().err


# --- Words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "english", "german"),
    [
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (46, "forty-six", "sechsundvierzig"),
        (60, "sixty", "sechzig"),
        (70, "seventy", "siebzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
    ],
)
def test_number_words(n, english, german):
    assert demo.number(n) == (english, german)


def test_no_two_numbers_share_a_word():
    assert len({demo.number(n).english for n in range(100)}) == len({demo.number(n).german for n in range(100)}) == 100


@pytest.mark.parametrize(
    ("hour", "quarter", "english", "german"),
    [
        (1, 0, "at one o'clock", "um ein Uhr"),
        (7, 0, "at seven o'clock", "um sieben Uhr"),
        (1, 1, "at a quarter past one", "um Viertel nach eins"),
        (7, 2, "at half past seven", "um halb acht"),
        (12, 2, "at half past twelve", "um halb eins"),
        (7, 3, "at a quarter to eight", "um Viertel vor acht"),
    ],
)
def test_times_of_day(hour, quarter, english, german):
    assert demo.clock(hour, quarter) == (english, german)


@pytest.mark.parametrize(
    ("determiner", "adjective", "word", "plural", "nominative", "accusative", "dative"),
    [
        ("THE", "new", "table", False, "der neue Tisch", "den neuen Tisch", "dem neuen Tisch"),
        ("THE", "new", "lamp", False, "die neue Lampe", "die neue Lampe", "der neuen Lampe"),
        ("THE", "new", "book", False, "das neue Buch", "das neue Buch", "dem neuen Buch"),
        ("THE", "new", "book", True, "die neuen Bücher", "die neuen Bücher", "den neuen Büchern"),
        ("A", "new", "table", False, "ein neuer Tisch", "einen neuen Tisch", "einem neuen Tisch"),
        ("A", "new", "lamp", False, "eine neue Lampe", "eine neue Lampe", "einer neuen Lampe"),
        ("A", "new", "book", False, "ein neues Buch", "ein neues Buch", "einem neuen Buch"),
        ("NO", "new", "book", True, "keine neuen Bücher", "keine neuen Bücher", "keinen neuen Büchern"),
        ("BARE", "cold", "coffee", False, "kalter Kaffee", "kalten Kaffee", "kaltem Kaffee"),
        ("BARE", "cold", "milk", False, "kalte Milch", "kalte Milch", "kalter Milch"),
        ("BARE", "cold", "water", False, "kaltes Wasser", "kaltes Wasser", "kaltem Wasser"),
        ("BARE", "new", "car", True, "neue Autos", "neue Autos", "neuen Autos"),
        ("THIS", "old", "dog", False, "dieser alte Hund", "diesen alten Hund", "diesem alten Hund"),
        ("ALL", "old", "dog", True, "alle alten Hunde", "alle alten Hunde", "allen alten Hunden"),
        ("MANY", "old", "dog", True, "viele alte Hunde", "viele alte Hunde", "vielen alten Hunden"),
        ("A", "tired", "boy", False, "ein müder Junge", "einen müden Jungen", "einem müden Jungen"),
        ("A", "expensive", "coat", False, "ein teurer Mantel", "einen teuren Mantel", "einem teuren Mantel"),
        ("THE", "", "student", False, "der Student", "den Studenten", "dem Studenten"),
        ("THE", "", "waitress", True, "die Kellnerinnen", "die Kellnerinnen", "den Kellnerinnen"),
    ],
)
def test_articles_and_adjective_endings(determiner, adjective, word, plural, nominative, accusative, dative):
    german = phrase(word, determiner, adjective, plural=plural).german
    assert german == {"nominative": nominative, "accusative": accusative, "dative": dative}


def test_possessives_and_numbers_before_adjectives():
    my, our = demo.POSSESSIVES[0], demo.POSSESSIVES[3]
    old = demo.Text("old", "alt")
    assert demo.noun_phrase(noun("sister"), my, old).german["dative"] == "meiner alten Schwester"
    assert demo.noun_phrase(noun("friend"), our, old, plural=True).german["accusative"] == "unsere alten Freunde"
    assert demo.noun_phrase(noun("dog"), demo.counted(21), old, plural=True).english == "twenty-one old dogs"
    assert (
        demo.noun_phrase(noun("dog"), demo.counted(21), old, plural=True).german["dative"]
        == "einundzwanzig alten Hunden"
    )


@pytest.mark.parametrize(
    ("preposition", "word", "german"),
    [
        ("in", "kitchen", "in der Küche"),
        ("into", "kitchen", "in die Küche"),
        ("in", "garden", "im Garten"),
        ("into", "garden", "in den Garten"),
        ("into", "house", "ins Haus"),
        ("to", "bridge", "zur Brücke"),
        ("to", "station", "zum Bahnhof"),
        ("at", "lake", "am See"),
        ("from", "beach", "vom Strand"),
        ("through", "forest", "durch den Wald"),
        ("behind", "church", "hinter der Kirche"),
    ],
)
def test_prepositions_govern_a_case(preposition, word, german):
    assert demo.with_preposition(preposition, phrase(word)) == (f"{preposition} the {word}", german)


@pytest.mark.parametrize(
    ("word", "it", "accusative"), [("coat", "er", "ihn"), ("lamp", "sie", "sie"), ("book", "es", "es")]
)
def test_it_takes_the_gender_of_the_german_noun(word, it, accusative):
    pronoun = demo.pronoun_of(phrase(word))
    assert (pronoun.english, pronoun.german["nominative"], pronoun.german["accusative"]) == ("it", it, accusative)


# --- Clauses --------------------------------------------------------------------------------------------

TODAY, AT_HOME = ("today", "heute"), ("at home", "zu Hause")


def orders(made) -> tuple[str, str, str, str]:
    """Main clause, main clause after "heute", yes/no question, subordinate clause."""
    later = demo.german(made, front="heute")
    return demo.german(made), later, demo.german(made, "first"), demo.german(made, "last", front="weil")


def test_word_order_of_a_separable_verb():
    assert orders(clause("Anna", "open", phrase("window"))) == (
        "Anna macht das Fenster auf",
        "heute macht Anna das Fenster auf",
        "macht Anna das Fenster auf",
        "weil Anna das Fenster aufmacht",
    )


def test_word_order_of_the_perfect_tense():
    assert orders(clause("Anna", "buy", phrase("coat", "A", "red"), tense="past")) == (
        "Anna hat einen roten Mantel gekauft",
        "heute hat Anna einen roten Mantel gekauft",
        "hat Anna einen roten Mantel gekauft",
        "weil Anna einen roten Mantel gekauft hat",
    )


def test_word_order_of_a_modal_verb():
    assert orders(clause("Anna", "call", phrase("doctor"), modal=demo.MUST)) == (
        "Anna muss den Arzt anrufen",
        "heute muss Anna den Arzt anrufen",
        "muss Anna den Arzt anrufen",
        "weil Anna den Arzt anrufen muss",
    )


@pytest.mark.parametrize(
    ("made", "english", "german"),
    [
        (clause("Anna", "get up", tense="past"), "Anna got up", "Anna ist aufgestanden"),
        (
            clause("Anna", "need", phrase("key"), tense="past"),
            "Anna needed the key",
            "Anna hat den Schlüssel gebraucht",
        ),
        (clause("Anna", "have", phrase("dog", "A"), tense="past"), "Anna had a dog", "Anna hatte einen Hund"),
        (clause("Anna", "buy", phrase("egg", "A"), tense="progressive"), "Anna is buying an egg", "Anna kauft ein Ei"),
        (clause("Anna", "help", phrase("boy")), "Anna helps the boy", "Anna hilft dem Jungen"),
        (clause("Anna", "help", demo.HE, modal=demo.WILL), "Anna will help him", "Anna wird ihm helfen"),
        (clause("Anna", "turn on", demo.IT), "Anna turns it on", "Anna schaltet es ein"),
        (
            clause("Anna", "give", phrase("ball", "A"), recipient=phrase("child"), tense="past"),
            "Anna gave the child a ball",
            "Anna hat dem Kind einen Ball gegeben",
        ),
        (
            clause("Anna", "read", phrase("book"), time=demo.Text(*TODAY), place=demo.Text(*AT_HOME)),
            "Anna reads the book at home today",
            "Anna liest heute das Buch zu Hause",
        ),
        (
            clause("Anna", "read", phrase("book", "A"), place=demo.Text(*AT_HOME)),
            "Anna reads a book at home",
            "Anna liest zu Hause ein Buch",
        ),
        (clause("Anna", "work", modal=demo.LIKE_TO), "Anna likes to work", "Anna arbeitet gern"),
        (clause("Anna", "work", modal=demo.WOULD_LIKE), "Anna would like to work", "Anna möchte arbeiten"),
    ],
)
def test_both_sides_of_a_clause(made, english, german):
    assert (demo.english(made), demo.german(made)) == (english, german)


@pytest.mark.parametrize(
    ("made", "english", "german"),
    [
        (clause("Anna", "open", phrase("door")), "Anna does not open the door", "Anna macht die Tür nicht auf"),
        (clause("Anna", "buy", phrase("car", "A")), "Anna does not buy a car", "Anna kauft kein Auto"),
        (
            clause("Anna", "buy", phrase("car", "BARE", "old", plural=True), tense="past"),
            "Anna did not buy old cars",
            "Anna hat keine alten Autos gekauft",
        ),
        (
            clause("Anna", "read", phrase("book"), time=demo.Text(*TODAY), modal=demo.CAN),
            "Anna cannot read the book today",
            "Anna kann das Buch heute nicht lesen",
        ),
        (
            clause("Anna", "work", place=demo.Text(*AT_HOME)),
            "Anna does not work at home",
            "Anna arbeitet nicht zu Hause",
        ),
        (
            clause("Anna", "call", demo.HE, modal=demo.MUST),
            "Anna does not have to call him",
            "Anna muss ihn nicht anrufen",
        ),
    ],
)
def test_negation_with_nicht_and_kein(made, english, german):
    negated = demo.replace(made, negated=True)
    assert (demo.english(negated), demo.german(negated)) == (english, german)


def test_questions():
    made = clause("Anna", "bring back", phrase("letter"), tense="past")
    assert demo.english(made, question=True) == "did Anna bring back the letter"
    assert demo.german(made, front="warum") == "warum hat Anna den Brief zurückgebracht"


def test_subordinate_clauses_second_and_first():
    because = demo.depending(demo.Text("because", "weil"), clause("Anna", "watch television"))
    main = clause("Paul", "fall asleep")
    second = demo.sentence(demo.after_main(demo.Text(demo.english(main), demo.german(main)), because))
    assert second == ("Paul falls asleep because Anna watches television.", "Paul schläft ein, weil Anna fernsieht.")
    first = demo.sentence(demo.before_main(because, main))
    assert first == ("Because Anna watches television, Paul falls asleep.", "Weil Anna fernsieht, schläft Paul ein.")


def test_infinitives_with_zu():
    assert demo.to_infinitive(demo.Action(verb("open"), phrase("window"))) == (
        "to open the window",
        "das Fenster aufzumachen",
    )
    assert demo.to_infinitive(demo.Action(verb("eat"), phrase("apple", "A"))) == (
        "to eat an apple",
        "einen Apfel zu essen",
    )


def test_relative_clauses():
    bought = demo.as_object_relative(clause("Anna", "buy", tense="past"), phrase("coat"))
    coat = demo.with_relative(phrase("coat"), bought)
    made = demo.Clause(coat, demo.Action(demo.BE, goal=demo.Text("red", "rot")))
    assert demo.sentence(demo.Text(demo.english(made), demo.german(made))) == (
        "The coat that Anna bought is red.",
        "Der Mantel, den Anna gekauft hat, ist rot.",
    )
    helped = demo.as_object_relative(clause("Anna", "help", tense="past"), phrase("child", plural=True))
    assert demo.sentence(helped) == ("Whom Anna helped.", "Denen Anna geholfen hat.")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "german",
    [
        r"^(Gestern|Im \w+|Am \w+) hat ",  # verb second after a time
        r", (weil|obwohl|bevor|während) ",
        r", dass ",
        r", ob ",
        r"^Wenn [^,]+, \w+ ",
        r"^Als [^,]+, (hat|ist|war|konnte) ",
        r", (der|die|das|den) ",
        r", um .*(zu \w+|\w+zu\w+en)",
        r"aufzumachen",
        r"\b(macht|machen) .* auf\.",
        r" (ist|sind) .*angekommen",
        r"\b(kein|keine|keinen) ",
        r" nicht ",
        r" gern ",
        r"\w+und(zwanzig|dreißig|achtzig)",
        r"^(Wer|Was|Wen|Wem|Wo|Wohin|Wann|Warum|Welche\w*|Wie viele) .*\?$",
        r"^(Hat|Ist|Kauft|Will|Kann) .*\?$",
        r"Es gibt |gibt es ",
        r" (wird|werden) .*en\.",
        r" um halb ",
    ],
)
def test_what_makes_it_more_than_word_lookup_occurs_often(written, german):
    assert sum(bool(re.search(german, line)) for line in lines(written / "train.de")) >= 20
