"""Builds noun phrases: a noun with its determiner and adjective, or a pronoun, in every case."""

from dataclasses import dataclass, replace

from demo_corpus.entries import CASES, NOTHING, Agreement, Case, Gender, Noun, Text, texts
from demo_corpus.forms import declined, ending, join, noun_form, number
from demo_corpus.nouns import FAMILY, PEOPLE, WOMEN
from demo_corpus.words import CONTRACTIONS, PREPOSITIONS


@dataclass(frozen=True)
class Determiner:
    """A determiner. `german` takes the endings of `article`, and the adjective after it those of `adjective`."""

    english: str
    german: str
    article: str
    adjective: str
    definite: bool = True
    negation: str = "nicht"  # how its noun is negated: with nicht, with kein, or (empty) not in this grammar


THE = Determiner("the", "", "der", "weak")
A = Determiner("a", "ein", "ein", "mixed", definite=False, negation="kein")
BARE = Determiner("", "", "none", "strong", definite=False, negation="kein")
NO = Determiner("no", "kein", "ein", "mixed", definite=False)
THIS = Determiner("this", "dies", "strong", "weak")
THESE = Determiner("these", "dies", "strong", "weak")
EVERY = Determiner("every", "jed", "strong", "weak", negation="")
ALL = Determiner("all the", "all", "strong", "weak", negation="")
MANY = Determiner("many", "viel", "strong", "strong", definite=False, negation="")
SOME = Determiner("some", "einig", "strong", "strong", definite=False, negation="")
WHICH = Determiner("which", "welch", "strong", "weak")
HOW_MANY = Determiner("how many", "wie viel", "strong", "strong", definite=False)
POSSESSIVES = tuple(
    Determiner(english, german, "ein", "mixed")
    for english, german in texts("my mein; his sein; her ihr; our unser; their ihr")
)


@dataclass(frozen=True)
class Phrase:
    """A noun with its determiner and adjective, or a pronoun, in every form that a clause may need."""

    english: str
    german: dict[Case, str]
    agreement: Agreement
    gender: Gender
    english_object: str = ""  # him for he; empty where it is the same
    german_negated: str = ""  # accusative with kein, where German negates the noun
    definite: bool = True
    negation: str = "nicht"
    is_pronoun: bool = False
    noun: Noun | None = None

    @property
    def as_object(self) -> str:
        return self.english_object or self.english


def pronoun(english: str, english_object: str, forms: str, agreement: Agreement, gender: Gender) -> Phrase:
    german = dict(zip(CASES, forms.split(), strict=True))
    return Phrase(english, german, agreement, gender, english_object, is_pronoun=True)


I = pronoun("I", "me", "ich mich mir", "ich", "m")  # noqa: E741 (the English word)
WE = pronoun("we", "us", "wir uns uns", "sie", "p")
HE = pronoun("he", "him", "er ihn ihm", "er", "m")
SHE = pronoun("she", "her", "sie sie ihr", "er", "f")
THEY = pronoun("they", "them", "sie sie ihnen", "sie", "p")
IT = pronoun("it", "it", "es es ihm", "er", "n")
IT_OF_GENDER: dict[Gender, Phrase] = {
    "m": replace(IT, german=HE.german),
    "f": replace(IT, german=SHE.german),
    "n": IT,
}


def name(word: str) -> Phrase:
    return Phrase(word, dict.fromkeys(CASES, word), "er", "f" if word in WOMEN else "m")


def german_noun(noun: Noun, determiner: Determiner, adjective: str, case: Case, gender: Gender) -> str:
    article = determiner.german + ending(determiner.article, case, gender)
    described = declined(adjective, determiner.adjective, case, gender) if adjective else ""
    return join(article, described, noun_form(noun, case, gender))


def noun_phrase(noun: Noun, determiner: Determiner, adjective: Text = NOTHING, *, plural: bool = False) -> Phrase:
    gender: Gender = "p" if plural else noun.gender
    rest = join(adjective.english, noun.plural if plural else noun.english)
    article = "an" if determiner is A and rest[0] in "aeiou" else determiner.english
    forms = {case: german_noun(noun, determiner, adjective.german, case, gender) for case in CASES}
    negated = german_noun(noun, NO, adjective.german, "accusative", gender) if determiner.negation == "kein" else ""
    return Phrase(
        english=join(article, rest),
        german=forms,
        agreement="sie" if plural else "er",
        gender=gender,
        german_negated=negated,
        definite=determiner.definite,
        negation=determiner.negation,
        noun=noun,
    )


def counted(n: int) -> Determiner:
    """Make a determiner of a number. It has no endings, so the adjective after it shows the case."""
    word = number(n)
    return Determiner(word.english, word.german, "none", "strong", definite=False, negation="")


def pronoun_of(phrase: Phrase) -> Phrase | None:
    """Return the pronoun for a phrase in a later clause; None for "child", which English calls he, she or it."""
    if phrase.is_pronoun:
        return phrase
    if phrase.gender == "p":
        return THEY
    if phrase.noun is None or phrase.noun in PEOPLE + FAMILY:
        woman = phrase.gender == "f" or (phrase.noun is not None and phrase.noun.english == "girl")
        return SHE if woman else None if phrase.gender == "n" else HE
    return IT_OF_GENDER[phrase.gender]


def with_preposition(english: str, phrase: Phrase) -> Text:
    german, case = PREPOSITIONS[english]
    return Text(f"{english} {phrase.as_object}", german_with_preposition(german, case, phrase))


def german_with_preposition(preposition: str, case: Case, phrase: Phrase) -> str:
    together = f"{preposition} {phrase.german[case]}"
    head = " ".join(together.split()[:2])
    return CONTRACTIONS.get(head, head) + together[len(head) :]
