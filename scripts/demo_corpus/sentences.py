"""Draws whole sentences at random."""

from dataclasses import replace

from demo_corpus.actions import a_number, a_person, a_phrase, a_place, a_spot, an_action, clashes, moving
from demo_corpus.clauses import (
    Action,
    Clause,
    after_main,
    as_object_relative,
    before_main,
    depending,
    english,
    english_be,
    german,
    relative,
    sentence,
    to_infinitive,
    with_relative,
)
from demo_corpus.dice import Dice
from demo_corpus.entries import NOTHING, Frame, Tense, Text, texts
from demo_corpus.forms import number
from demo_corpus.nouns import (
    ANIMALS,
    FAMILY,
    FURNITURE,
    GOODS,
    MEN,
    PEOPLE,
    PIECES,
    THINGS,
    WOMEN,
    WRITINGS,
)
from demo_corpus.phrases import (
    HOW_MANY,
    MANY,
    SOME,
    THE,
    WHICH,
    A,
    I,
    Phrase,
    counted,
    noun_phrase,
    pronoun_of,
    with_preposition,
)
from demo_corpus.statements import a_clause, a_following, being, statement
from demo_corpus.verbs import (
    ASK,
    BE,
    COST,
    DATIVE,
    INTENDING,
    KNOW,
    REPORTING,
    TRANSITIVE,
    TRAVELLING,
    WALKING,
)
from demo_corpus.words import TIMES


def any_frame(dice: Dice) -> Frame:
    frames: tuple[Frame, ...] = ("habit", "now", "past", "past", "future")
    return dice.pick(frames)


def plain(dice: Dice) -> Text:
    return sentence(statement(dice, a_clause(dice, any_frame(dice), a_person(dice))))


def two_clauses(dice: Dice) -> Text:
    """Draw a sentence with because, although, when, while, before or if. That clause comes second or first."""
    frame = any_frame(dice)
    choice = texts("because weil; because weil; although obwohl")
    if frame in ("habit", "past"):
        choice += texts("while während; before bevor") + (Text("when", "als" if frame == "past" else "wenn"),)
    if frame == "future":
        choice += texts("if wenn; if wenn")
    conjunction = dice.pick(choice)
    active = conjunction.english in ("while", "before", "when", "if")
    other: Frame = frame if frame != "future" else "habit" if conjunction.english == "if" else "now"
    if dice.chance(0.6):
        main = a_clause(dice, frame, a_person(dice))
        second = depending(conjunction, a_following(dice, main, other, active=active))
        return sentence(after_main(statement(dice, main), second))
    dependent = replace(a_clause(dice, other, a_person(dice), bare=active), time=NOTHING)
    rainy = conjunction.english not in ("because", "if")
    main = a_following(dice, dependent, frame, active=True, rainy=rainy)
    return sentence(before_main(depending(conjunction, dependent), main))


def coordination(dice: Dice) -> Text:
    frame = any_frame(dice)
    first = a_clause(dice, frame, a_person(dice))
    second = a_following(dice, first, frame, active=frame == "future")
    link = dice.pick((Text(", and", "und"), Text(", but", ", aber")))
    last = Text(f"{link.english} {english(second)}", f"{link.german} {german(second)}")
    return sentence(after_main(statement(dice, first), last))


def reporting(dice: Dice) -> Text:
    """Draw a sentence of the form: says that, does not know whether, asks whether."""
    subject = a_person(dice)
    frame: Frame = "past" if dice.chance(0.4) else "habit"
    inner_subject = pronoun_of(subject) if dice.chance(0.4) else None
    inner = a_clause(dice, "past" if frame == "past" else any_frame(dice), inner_subject or a_person(dice))
    if dice.chance(0.25) and subject.negation:
        verb, conjunction = dice.pick((KNOW, ASK)), Text("whether", "ob")
    else:
        verb, conjunction = dice.pick(REPORTING), Text("that", "dass")
    main = a_clause(dice, frame, subject, Action(verb, tail=depending(conjunction, inner)), bare=True)
    main = replace(main, negated=verb is KNOW and conjunction.english == "whether")
    if frame == "past" and dice.chance(0.3):
        main = replace(main, time=dice.pick(TIMES["past"]))
    return sentence(statement(dice, main))


def intention(dice: Dice) -> Text:
    """Draw a sentence with an infinitive: tries to open the window; goes home in order to sleep."""
    subject, frame = a_person(dice), any_frame(dice)
    to_do = to_infinitive(an_action(dice, subject, deliberate=True))
    if dice.chance(0.5):
        action = moving(dice)
        while clashes(subject, action):
            action = moving(dice)
        action = replace(action, tail=Text(f"in order {to_do.english}", f", um {to_do.german}"))
    else:
        action = Action(dice.pick(INTENDING), tail=Text(to_do.english, f", {to_do.german}"))
    return sentence(statement(dice, a_clause(dice, frame, subject, action)))


def relative_of_subject(dice: Dice) -> Text:
    """Draw a sentence whose subject has a relative clause: the man who lives in Berlin; the book that Anna bought."""
    plural, frame = dice.chance(0.25), any_frame(dice)
    if dice.chance(0.5):
        noun = dice.pick(PEOPLE)
        adjective = dice.pick(noun.adjectives) if dice.chance(0.3) else NOTHING
        subject = noun_phrase(noun, THE, adjective, plural=plural)
        inner = replace(a_clause(dice, frame, relative(subject)), time=NOTHING)
        described = Text(english(inner), f", {german(inner, 'last')} ,")
        return sentence(statement(dice, a_clause(dice, any_frame(dice), with_relative(subject, described))))
    noun = dice.pick(GOODS)
    subject = noun_phrase(noun, THE, plural=plural)
    described = an_object_relative(dice, subject, frame)
    return sentence(statement(dice, being(dice, with_relative(subject, described), frame, noun.adjectives)))


def an_object_relative(dice: Dice, thing: Phrase, frame: Frame) -> Text:
    fitting = [v for v in TRANSITIVE if thing.noun in v.objects and v.past != v.english and v.english != "have"]
    clause = a_clause(dice, frame, a_person(dice), Action(dice.pick(fitting)))
    return as_object_relative(replace(clause, time=NOTHING), thing)


def relative_of_object(dice: Dice) -> Text:
    """Draw a sentence whose object has a relative clause: ... reads the book that Peter bought."""
    frame, subject = any_frame(dice), a_person(dice)
    noun = dice.pick(GOODS)
    thing = noun_phrase(noun, dice.pick((THE, THE, A)), plural=False)
    fitting = [v for v in TRANSITIVE if noun in v.objects and v.past != v.english]
    tail = an_object_relative(dice, thing, "past")
    action = Action(dice.pick(fitting), thing, tail=tail)
    return sentence(statement(dice, a_clause(dice, frame, subject, action)))


def description(dice: Dice) -> Text:
    """Draw a sentence about what something costs, how old someone is, where something is, or what there is."""
    roll, past = dice.random(), dice.chance(0.3)
    tense: Tense = "past" if past else "present"
    if roll < 0.25:
        thing, price = a_spot(dice, GOODS), number(a_number(dice))
        goal = Text(f"{price.english} euros", f"{price.german} Euro")
        return sentence(statement(dice, Clause(thing, Action(COST, goal=goal), tense)))
    if roll < 0.45:
        person, age = a_person(dice), number(a_number(dice))
        goal = Text(f"{age.english} years old", f"{age.german} Jahre alt")
        return sentence(statement(dice, Clause(person, Action(BE, goal=goal), tense)))
    if roll < 0.7:
        thing, preposition = a_phrase(dice, PIECES + WRITINGS + THINGS, generic=False), dice.pick(("on", "under"))
        goal = with_preposition(preposition, a_spot(dice, FURNITURE))
        return sentence(statement(dice, Clause(thing, Action(BE, goal=goal), tense)))
    return there_is(dice, past)


def there_is(dice: Dice, past: bool) -> Text:
    noun = dice.pick(ANIMALS + FURNITURE + THINGS + PEOPLE)
    plural = dice.chance(0.7)
    determiner = dice.pick((MANY, SOME, counted(a_number(dice)), counted(a_number(dice)))) if plural else A
    adjective = dice.pick(noun.adjectives) if dice.chance(0.4) else NOTHING
    thing, place = noun_phrase(noun, determiner, adjective, plural=plural), a_place(dice)
    be, gives = english_be("past" if past else "present", thing.agreement), "gab" if past else "gibt"
    found = thing.german["accusative"]
    if dice.chance(0.5):
        return sentence(Text(f"{place.english} there {be} {thing.english}", f"{place.german} {gives} es {found}"))
    return sentence(Text(f"there {be} {thing.english} {place.english}", f"es {gives} {found} {place.german}"))


def yes_no_question(dice: Dice) -> Text:
    subject = a_person(dice)
    while subject is I:
        subject = a_person(dice)
    clause = replace(a_clause(dice, any_frame(dice), subject), negated=False)
    return sentence(Text(english(clause, question=True), german(clause, "first")), "?")


def wh_question(dice: Dice) -> Text:
    """Draw a question: who, why, when or where about an action; what, which, how many or whom about an object."""
    frame, subject = any_frame(dice), a_person(dice)
    if dice.chance(0.2):
        who = Phrase("who", {"nominative": "wer", "accusative": "wen", "dative": "wem"}, "er", "m", "whom")
        clause = a_clause(dice, frame, who)
        return sentence(Text(english(clause), german(clause)), "?")
    if dice.chance(0.5):
        return object_question(dice, frame, subject)
    clause = a_clause(dice, frame, subject)
    action, word = clause.action, Text("why", "warum")
    if dice.chance(0.4) and not clause.negated:
        word, clause = Text("when", "wann"), replace(clause, time=NOTHING, often=NOTHING)
    elif action.place != NOTHING:
        word, clause = Text("where", "wo"), replace(clause, action=replace(action, place=NOTHING))
    elif action.verb in WALKING + TRAVELLING:
        word, clause = Text("where", "wohin"), replace(clause, action=replace(action, goal=NOTHING))
    return sentence(Text(f"{word.english} {english(clause, question=True)}", german(clause, front=word.german)), "?")


def object_question(dice: Dice, frame: Frame, subject: Phrase) -> Text:
    verb = dice.pick((*TRANSITIVE, *DATIVE))
    while verb.english == "look at" or (frame == "past" and verb.past == verb.english):
        verb = dice.pick((*TRANSITIVE, *DATIVE))
    noun = dice.pick(verb.objects)
    if noun in PEOPLE + FAMILY:
        asked = Text("whom", "wem" if verb.case == "dative" else "wen")
    elif noun.plural == "-" or dice.chance(0.3):
        asked = Text("what", "was")
    else:
        adjective = dice.pick(noun.adjectives) if dice.chance(0.3) else NOTHING
        determiner, plural = dice.pick(((WHICH, False), (WHICH, True), (HOW_MANY, True)))
        phrase = noun_phrase(noun, determiner, adjective, plural=plural)
        asked = Text(phrase.english, phrase.german[verb.case])
    clause = replace(a_clause(dice, frame, subject, Action(verb)), negated=False)
    return sentence(Text(f"{asked.english} {english(clause, question=True)}", german(clause, front=asked.german)), "?")


SENTENCES = (
    *(plain,) * 6,
    *(two_clauses,) * 7,
    *(coordination, reporting, intention, description) * 2,
    *(relative_of_subject, relative_of_object, yes_no_question, wh_question),
)


STATEMENTS = tuple(kind for kind in SENTENCES if kind not in (yes_no_question, wh_question))


def joined(dice: Dice, most: int) -> Text:
    """Join 1 to `most` statements into one sentence. Each number of statements is as likely as the others."""
    text = dice.pick(STATEMENTS)(dice)
    for _ in range(dice.between(0, most - 1)):
        link, following = dice.pick(texts("and und; but aber")), dice.pick(STATEMENTS)(dice)
        parts = zip(text, link, following, strict=True)
        text = Text(*(f"{side[:-1]}, {word} {inside(other[:-1])}." for side, word, other in parts))
    return text


def inside(side: str) -> str:
    """Write a statement as it is inside a sentence, in small letters; it never begins with a German noun."""
    return side if side.split(maxsplit=1)[0].strip(",") in ("I", *WOMEN, *MEN) else side[0].lower() + side[1:]
