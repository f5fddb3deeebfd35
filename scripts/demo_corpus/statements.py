"""Draws clauses at random, with times, modals and negation."""

from collections.abc import Sequence
from dataclasses import replace

from demo_corpus.actions import a_person, an_action
from demo_corpus.clauses import Action, Clause, english, german
from demo_corpus.dice import Dice
from demo_corpus.entries import NOTHING, Frame, Modal, Tense, Text
from demo_corpus.forms import clock, join, number
from demo_corpus.nouns import LIVING, PEOPLE
from demo_corpus.phrases import IT, Phrase, pronoun_of
from demo_corpus.verbs import BE, BOUND, LIKE_TO, LOVE, MODALS, NEED, STAYING, WEATHER, WILL
from demo_corpus.words import DEGREES, OFTEN, SKIES, TIMES, UNITS


def ago_or_ahead(dice: Dice, frame: Frame) -> Text:
    unit, after_preposition, _, most = dice.pick(UNITS)
    amount = number(dice.between(2, most))
    if frame == "past":
        return Text(f"{amount.english} {unit} ago", f"vor {amount.german} {after_preposition}")
    return Text(f"in {amount.english} {unit}", f"in {amount.german} {after_preposition}")


def duration(dice: Dice) -> Text:
    unit, _, accusative, most = dice.pick(UNITS[:5])
    amount = number(dice.between(2, most))
    return Text(f"for {amount.english} {unit}", f"{amount.german} {accusative} lang")


def a_time(dice: Dice, frame: Frame, action: Action) -> Text:
    if frame == "past" and action.verb in STAYING and dice.chance(0.4):
        return duration(dice)
    if frame in ("past", "future") and dice.chance(0.25):
        return ago_or_ahead(dice, frame)
    if frame == "habit" and not action.verb.stative and dice.chance(0.25):
        return clock(dice.between(1, 12), dice.between(0, 3))
    return dice.pick(TIMES[frame])


def a_modal(dice: Dice, frame: Frame, action: Action) -> Modal | None:
    if action.verb.stative:
        return WILL if frame == "future" else None
    modal = dice.pick(MODALS[frame]) if frame == "future" or dice.chance(0.3) else None
    return None if modal is LIKE_TO and action.recipient else modal


def can_be_negated(subject: Phrase, action: Action) -> bool:
    """Whether "not" is clear in a clause: it is not with "every", "some", a number, or many complements."""
    phrases = [phrase for phrase in (subject, action.object, action.recipient) if phrase]
    indefinite_dative = action.verb.case == "dative" and action.object and not action.object.definite
    if indefinite_dative or action.company != NOTHING or (action.goal != NOTHING and action.place != NOTHING):
        return False
    return all(phrase.negation for phrase in phrases)


def a_clause(dice: Dice, frame: Frame, subject: Phrase, action: Action | None = None, *, bare: bool = False) -> Clause:
    """Draw a clause in which the subject does something. `bare` leaves out modals, negation and times."""
    action = action or an_action(dice, subject, past=frame == "past", deliberate=bare)
    modal = None if bare and frame != "future" else a_modal(dice, frame, action)
    negated = not bare and dice.chance(0.15) and can_be_negated(subject, action)
    ongoing = frame == "now" and not modal and not action.verb.stative
    tense: Tense = "past" if frame == "past" else "progressive" if ongoing else "present"
    time = a_time(dice, frame, action) if not bare and dice.chance(0.6) else NOTHING
    if negated and time.english.startswith("every"):  # not (every day) or (not a single day)?
        time = NOTHING
    regular = frame == "habit" and not (bare or negated or action.verb.stative or modal is LIKE_TO)
    often = dice.pick(OFTEN) if regular and not time.english.startswith("every") and dice.chance(0.3) else NOTHING
    return Clause(subject, action, tense, modal, negated, time, often)


def being(dice: Dice, subject: Phrase, frame: Frame, adjectives: Sequence[Text]) -> Clause:
    """Draw a clause in which the subject is, or is not, something."""
    negated = dice.chance(0.2) and subject.negation != ""
    degree = NOTHING if negated else dice.pick(DEGREES)
    adjective = dice.pick(adjectives)
    goal = Text(join(degree.english, adjective.english), join(degree.german, adjective.german))
    return Clause(subject, Action(BE, goal=goal), "past" if frame == "past" else "present", negated=negated)


def weather(dice: Dice, frame: Frame) -> Clause:
    if dice.chance(0.4):
        return being(dice, IT, frame, SKIES)
    modal = WILL if frame == "future" else None
    return replace(a_clause(dice, frame, IT, Action(dice.pick(WEATHER)), bare=True), modal=modal)


def statement(dice: Dice, clause: Clause) -> Text:
    """Draw a main clause. It begins with its subject; or with a time or a place, and then the verb comes before it."""
    action = clause.action
    if clause.time != NOTHING and (dice.chance(0.5) or action.tail != NOTHING):
        front, rest = clause.time, replace(clause, time=NOTHING)
    elif action.place != NOTHING and not (clause.negated or action.verb.english in BOUND) and dice.chance(0.25):
        front, rest = action.place, replace(clause, action=replace(action, place=NOTHING))
    else:
        return Text(english(clause), german(clause))
    comma = "," if " " in front.english else ""
    return Text(join(front.english, comma, english(rest)), german(rest, front=front.german))


def a_following(dice: Dice, first: Clause, frame: Frame, *, active: bool, rainy: bool = True) -> Clause:
    """Draw a clause that continues the first one, often with pronouns.

    `active` wants something to happen in it; `rainy` allows the weather, which nobody can be the cause of.
    """
    who, thing = pronoun_of(first.subject), first.action.object
    roll = dice.random()
    if not active and thing and thing.negation and thing.noun and thing.noun not in LIVING and roll < 0.4:
        what = pronoun_of(thing)
        assert what
        if who and roll < 0.15:
            past: Frame = "past" if frame == "past" else "habit"
            verb = LOVE if first.action.verb is NEED else dice.pick((NEED, LOVE))
            return a_clause(dice, past, who, Action(verb, what), bare=True)
        return being(dice, what, frame, thing.noun.adjectives)
    if not active and who and roll < 0.6:
        fitting = first.subject.noun.adjectives if first.subject.noun else PEOPLE[0].adjectives
        return being(dice, who, frame, fitting)
    if rainy and roll < 0.7:
        return weather(dice, frame)
    subject = who if who and dice.chance(0.5) else a_person(dice)
    return replace(a_clause(dice, frame, subject, bare=active), time=NOTHING)
