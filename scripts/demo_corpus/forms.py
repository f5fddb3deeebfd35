"""Makes the forms of words in both languages."""

from collections.abc import Callable

from demo_corpus.entries import CASES, GENDERS, Case, Gender, Noun, Text, Verb
from demo_corpus.nouns import WEAK
from demo_corpus.verbs import IRREGULAR_PRESENT
from demo_corpus.words import ENDINGS, ENGLISH_NUMBERS, ENGLISH_TENS, GERMAN_NUMBERS, GERMAN_TENS


def join(*parts: str) -> str:
    """Join the parts that are not empty, with one space between them."""
    return " ".join(part for part in parts if part)


def number(n: int) -> Text:
    """Return the number word of 0 <= n < 100: twenty-one, einundzwanzig."""
    if n < 20:
        return Text(ENGLISH_NUMBERS[n], GERMAN_NUMBERS[n])
    tens, ones = divmod(n, 10)
    if ones == 0:
        return Text(ENGLISH_TENS[tens], GERMAN_TENS[tens])
    german_ones = "ein" if ones == 1 else GERMAN_NUMBERS[ones]
    return Text(f"{ENGLISH_TENS[tens]}-{ENGLISH_NUMBERS[ones]}", f"{german_ones}und{GERMAN_TENS[tens]}")


def clock(hour: int, quarter: int) -> Text:
    """Return a time of day; half past seven is halb acht in German."""
    here, following = number(hour), number(hour % 12 + 1)
    match quarter:
        case 0:
            return Text(f"at {here.english} o'clock", f"um {'ein' if hour == 1 else here.german} Uhr")
        case 1:
            return Text(f"at a quarter past {here.english}", f"um Viertel nach {here.german}")
        case 2:
            return Text(f"at half past {here.english}", f"um halb {following.german}")
        case _:
            return Text(f"at a quarter to {following.english}", f"um Viertel vor {following.german}")


def ending(kind: str, case: Case, gender: Gender) -> str:
    return ENDINGS[kind][CASES.index(case)].split()[GENDERS.index(gender)].replace("-", "")


def declined(adjective: str, kind: str, case: Case, gender: Gender) -> str:
    """Give an adjective the ending that it has before its noun: alt -> alten, müde -> müden, teuer -> teuren."""
    stem = {"teuer": "teur", "dunkel": "dunkl"}.get(adjective, adjective.removesuffix("e"))
    return stem + ending(kind, case, gender)


def noun_form(noun: Noun, case: Case, gender: Gender) -> str:
    if gender == "p":
        bare = case != "dative" or noun.german_plural[-1] in "ns"
        return noun.german_plural + ("" if bare else "n")
    return noun.german if case == "nominative" else WEAK.get(noun.german, noun.german)


def first_word(verb: str, change: Callable[[str], str]) -> str:
    """Inflect the first word of a verb: turn on -> turns on."""
    head, space, rest = verb.partition(" ")
    return change(head) + space + rest


def third(verb: str) -> str:
    """Return the form for he and she: go -> goes, try -> tries, have -> has."""
    if verb == "have":
        return "has"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "o")) else "s")


def ing(verb: str) -> str:
    if verb in ("run", "put", "get", "begin", "travel"):
        return verb + verb[-1] + "ing"
    return (verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb) + "ing"


def german_present(verb: Verb) -> tuple[str, ...]:
    """Return the forms for ich, er and sie (plural), without the prefix."""
    stem = verb.german[:-2] if verb.german.endswith("en") else verb.german[:-1]
    return IRREGULAR_PRESENT.get(verb.german, (stem + "e", verb.er, verb.german))
