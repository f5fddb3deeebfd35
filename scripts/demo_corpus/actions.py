"""Draws at random what somebody does."""

from collections.abc import Sequence

from demo_corpus.clauses import Action
from demo_corpus.dice import Dice
from demo_corpus.entries import NOTHING, Noun, Text
from demo_corpus.nouns import (
    BUILDINGS,
    CITIES,
    CROSSED,
    FAMILY,
    FRIEND,
    MEN,
    PEOPLE,
    ROOMS,
    STOPS,
    UNOWNED,
    WOMEN,
)
from demo_corpus.phrases import (
    ALL,
    BARE,
    EVERY,
    HE,
    MANY,
    POSSESSIVES,
    SHE,
    SOME,
    THE,
    THESE,
    THEY,
    THIS,
    WE,
    A,
    I,
    Phrase,
    counted,
    german_with_preposition,
    name,
    noun_phrase,
    with_preposition,
)
from demo_corpus.verbs import (
    ARRIVE,
    DATIVE,
    GIVING,
    HAPPENING,
    PREPOSITIONAL,
    SHARED,
    STAYING,
    TRANSITIVE,
    TRAVELLING,
    WALKING,
)
from demo_corpus.words import PLACE_WORDS


def a_number(dice: Dice) -> int:
    return dice.between(2, 12) if dice.chance(0.5) else dice.between(13, 99)


def a_phrase(dice: Dice, choice: Sequence[Noun], *, generic: bool = True) -> Phrase:
    """Draw a noun with or without adjective. `generic` allows "apples" without an article, otherwise "every apple"."""
    noun = dice.pick(choice)
    adjective = dice.pick(noun.adjectives) if dice.chance(0.4) else NOTHING
    if noun in FAMILY:
        return noun_phrase(noun, dice.pick(POSSESSIVES), adjective)
    if noun.plural == "-":
        return noun_phrase(noun, dice.pick((THE, BARE, BARE, dice.pick(POSSESSIVES))), adjective)
    if dice.chance(0.65):
        owned = [THIS] if noun in UNOWNED else [dice.pick(POSSESSIVES)] * 3
        general = THIS if generic else EVERY
        return noun_phrase(noun, dice.pick([THE, THE, THE, A, A, A, general, *owned]), adjective)
    numbers = [counted(a_number(dice)), counted(a_number(dice))]
    others = [BARE, BARE] if generic else [THESE]
    others += [] if noun in UNOWNED else [dice.pick(POSSESSIVES)]
    determiner = dice.pick([THE, THE, THESE, ALL, MANY, SOME, *numbers, *others])
    return noun_phrase(noun, determiner, adjective, plural=True)


def a_person(dice: Dice) -> Phrase:
    roll = dice.random()
    if roll < 0.3:
        return name(dice.pick((*WOMEN, *MEN)))
    if roll < 0.5:
        return dice.pick((I, WE, HE, SHE, THEY))
    return a_phrase(dice, dice.pick((PEOPLE, PEOPLE, FAMILY)), generic=False)


def an_object(dice: Dice, choice: Sequence[Noun]) -> Phrase:
    noun = dice.pick(choice)
    if noun in PEOPLE + FAMILY and dice.chance(0.4):
        return dice.pick((I, WE, HE, SHE, THEY, name(dice.pick(WOMEN)), name(dice.pick(MEN))))
    return a_phrase(dice, (noun,))


def a_spot(dice: Dice, choice: Sequence[Noun]) -> Phrase:
    noun = dice.pick(choice)
    determiner = dice.pick((THE,) * 8 + (A, THIS, POSSESSIVES[0], POSSESSIVES[3]))
    return noun_phrase(noun, determiner, dice.pick(noun.adjectives) if dice.chance(0.3) else NOTHING)


def a_place(dice: Dice) -> Text:
    roll = dice.random()
    if roll < 0.12:
        return dice.pick(PLACE_WORDS)
    if roll < 0.2:
        city = dice.pick(CITIES)
        return Text(f"in {city.english}", f"in {city.german}")
    if roll < 0.4:
        return with_preposition("at", a_spot(dice, STOPS))
    if roll < 0.5:
        return with_preposition(dice.pick(("behind", "in front of", "next to")), a_spot(dice, BUILDINGS))
    return with_preposition("in", a_spot(dice, ROOMS))


def some_company(dice: Dice, preposition: str) -> Text:
    """Draw "with", "without" or "for" and a person; never a number of people, as in "with thirty doctors"."""
    someone = noun_phrase(dice.pick(PEOPLE), dice.pick((THE, A)))
    relation = noun_phrase(dice.pick(FAMILY), dice.pick(POSSESSIVES))
    friends = noun_phrase(FRIEND, dice.pick((BARE, *POSSESSIVES)), plural=True)
    named = name(dice.pick((*WOMEN, *MEN)))
    return with_preposition(preposition, dice.pick((someone, relation, relation, friends, named, HE, SHE, THEY, I)))


def transitive(dice: Dice) -> Action:
    verb = dice.pick(TRANSITIVE)
    company = place = NOTHING
    if verb.english == "buy" and dice.chance(0.4):
        company = some_company(dice, "for")
    elif verb.english in SHARED and dice.chance(0.2):
        company = some_company(dice, dice.pick(("with", "without")))
    elif not verb.stative and dice.chance(0.3):
        place = a_place(dice)
    return Action(verb, an_object(dice, verb.objects), company=company, place=place)


def staying(dice: Dice) -> Action:
    if dice.chance(0.15):
        city = dice.pick(CITIES)
        in_city = Text(f"in {city.english}", f"in {city.german}")
        return Action(ARRIVE, place=dice.pick((in_city, with_preposition("at", a_spot(dice, STOPS)))))
    verb = dice.pick(STAYING)
    together = verb.english not in ("live", "sleep") and dice.chance(0.25)
    place = a_place(dice) if verb.english in ("live", "stay") or dice.chance(0.7) else NOTHING
    return Action(verb, company=some_company(dice, "with") if together else NOTHING, place=place)


def happening(dice: Dice) -> Action:
    verb = dice.pick(HAPPENING)
    goal = with_preposition("from", a_spot(dice, STOPS)) if verb.english == "come back" else NOTHING
    return Action(verb, goal=goal)


def moving(dice: Dice) -> Action:
    if dice.chance(0.3):
        city = dice.pick(CITIES)
        home, to_city = Text("home", "nach Hause"), Text(f"to {city.english}", f"nach {city.german}")
        return Action(dice.pick(TRAVELLING), goal=dice.pick((home, to_city, to_city)))
    goals = (("into", ROOMS), ("into", ROOMS), ("to", STOPS), ("to", STOPS), ("through", CROSSED))
    preposition, choice = dice.pick(goals)
    company = some_company(dice, "with") if dice.chance(0.25) else NOTHING
    return Action(dice.pick(WALKING), goal=with_preposition(preposition, a_spot(dice, choice)), company=company)


def dative(dice: Dice) -> Action:
    verb = dice.pick(DATIVE)
    return Action(verb, an_object(dice, verb.objects), place=a_place(dice) if dice.chance(0.2) else NOTHING)


def giving(dice: Dice) -> Action:
    verb = dice.pick(GIVING)
    return Action(verb, a_phrase(dice, verb.objects), recipient=an_object(dice, PEOPLE + FAMILY))


def prepositional(dice: Dice) -> Action:
    verb = dice.pick(PREPOSITIONAL)
    topic = an_object(dice, verb.objects)
    goal = Text(topic.as_object, german_with_preposition(verb.preposition, verb.case, topic))
    return Action(verb, goal=goal)


ACTIONS = (
    *(transitive,) * 8,
    *(staying, moving, giving) * 2,
    *(dative, prepositional, happening),
)


def clashes(subject: Phrase, action: Action) -> bool:
    """Whether somebody would do something to themselves, as in "I see me". That needs other pronouns."""
    themselves = {"me", "us"} if subject in (I, WE) else {subject.english}
    adverbs = [action.goal.english, *(text.english.partition(" ")[2] for text in (action.goal, action.company))]
    people = [phrase for phrase in (action.object, action.recipient) if phrase]
    same_noun = any(phrase.noun is subject.noun is not None for phrase in people)
    return same_noun or any(other in themselves for other in [*adverbs, *(phrase.as_object for phrase in people)])


def an_action(dice: Dice, subject: Phrase, *, past: bool = False, deliberate: bool = False) -> Action:
    """Draw something that the subject does. In the past, it must not look like the present, as "they read" does."""
    while True:
        action = dice.pick(ACTIONS)(dice)
        verb = action.verb
        unclear = past and verb.past == verb.english and subject.agreement != "er"
        if not (unclear or clashes(subject, action) or (deliberate and verb.stative)):
            return action
