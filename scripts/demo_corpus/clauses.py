"""Builds clauses: the same subject, verb and complements in the word order of each language."""

import re
from dataclasses import dataclass, replace

from demo_corpus.entries import AGREEMENTS, CASES, NOTHING, Agreement, Modal, Order, Tense, Text, Verb
from demo_corpus.forms import ending, first_word, german_present, ing, join, third
from demo_corpus.nouns import FAMILY, PEOPLE
from demo_corpus.phrases import I, Phrase
from demo_corpus.verbs import BE, LIKE_TO, PRETERITE


@dataclass(frozen=True)
class Action:
    """A verb with all its complements."""

    verb: Verb
    object: Phrase | None = None
    recipient: Phrase | None = None  # in the dative
    goal: Text = NOTHING  # a direction, what the subject is, or a preposition with its noun
    company: Text = NOTHING  # with whom, for whom
    place: Text = NOTHING
    tail: Text = NOTHING  # a clause that depends on the verb or on its object


@dataclass(frozen=True)
class Clause:
    subject: Phrase
    action: Action
    tense: Tense = "present"
    modal: Modal | None = None
    negated: bool = False
    time: Text = NOTHING
    often: Text = NOTHING


def english_be(tense: Tense, agreement: Agreement) -> str:
    forms = ("was", "was", "were") if tense == "past" else ("am", "is", "are")
    return forms[AGREEMENTS.index(agreement)]


def english_verb(clause: Clause, with_do: bool) -> tuple[str, str]:
    """Return the auxiliary, which stands before "not" and begins questions, and the rest. Either may be empty."""
    verb, modal, agreement = clause.action.verb, clause.modal, clause.subject.agreement
    past, singular = clause.tense == "past", agreement == "er"
    if modal and modal.auxiliary:
        auxiliary, _, linked = (modal.past if past else modal.english).partition(" ")
        return auxiliary, join(linked, verb.english)
    base, third_form, past_form = verb.english, first_word(verb.english, third), verb.past
    if modal:
        base, third_form, past_form = (join(m, base) for m in (modal.english, modal.third, modal.past))
    elif verb is BE:
        return english_be(clause.tense, agreement), ""
    elif clause.tense == "progressive":
        return english_be("present", agreement), first_word(verb.english, ing)
    if with_do:
        return "did" if past else "does" if singular else "do", base
    return "", past_form if past else third_form if singular else base


def english_complements(action: Action, verb: str) -> str:
    """Return the verb form and its complements. A pronoun stands before the particle of the verb: turns it on."""
    recipient = action.recipient.as_object if action.recipient else ""
    thing = action.object.as_object if action.object else ""
    head, _, particle = verb.rpartition(" ")
    if action.object and action.object.is_pronoun and particle in ("on", "off", "up", "away", "back"):
        verb, thing = head, f"{thing} {particle}"
    return join(verb, recipient, thing, action.goal.english, action.company.english, action.place.english)


def english(clause: Clause, *, question: bool = False) -> str:
    auxiliary, verb = english_verb(clause, with_do=question or clause.negated)
    subject, negation = clause.subject.english, "not" if clause.negated else ""
    opening = join(auxiliary, subject, negation) if question else join(subject, auxiliary, negation)
    rest = english_complements(clause.action, verb)
    sentence = join(opening, clause.often.english, rest, clause.time.english, clause.action.tail.english)
    return re.sub(r"\bcan not\b", "cannot", sentence)


def german_verb(clause: Clause) -> tuple[str, str, str]:
    """Return the finite verb, what ends the clause if that verb is second, and both together if it is last."""
    verb, which = clause.action.verb, AGREEMENTS.index(clause.subject.agreement)
    past = clause.tense == "past"
    if clause.modal and clause.modal.german:
        finite = (clause.modal.german_past if past else clause.modal.german)[which]
        closing = verb.prefix + verb.german
    elif past and verb.german not in PRETERITE:
        helpers = ("bin", "ist", "sind") if verb.perfect_with_sein else ("habe", "hat", "haben")
        finite, closing = helpers[which], verb.participle
    else:
        finite, closing = (PRETERITE[verb.german] if past else german_present(verb))[which], verb.prefix
        return finite, closing, closing + finite
    return finite, closing, f"{closing} {finite}"


def german_middle(clause: Clause) -> str:
    """Return what stands between the finite verb (or the subject) and the end of the clause.

    Pronouns and names first, then time, what is known, nicht, company, place; what is new near the end.
    """
    action, thing = clause.action, clause.action.object
    case = action.verb.case
    happily = "gern" if clause.modal is LIKE_TO else ""
    with_kein = clause.negated and thing is not None and thing.negation == "kein" and not happily
    assert not with_kein or case == "accusative"
    negation = "nicht" if clause.negated and not with_kein else ""
    recipient = action.recipient.german["dative"] if action.recipient else ""
    short = thing.german[case] if thing and not thing.noun else ""
    if action.recipient and not action.recipient.noun:
        short, recipient = join(short, recipient), ""
    known = new = ""
    if thing and thing.noun:
        form = thing.german_negated if with_kein else thing.german[case]
        known, new = (form, "") if thing.definite or case == "dative" else ("", form)
    known = join(recipient, known)
    time = join(clause.time.german, clause.often.german)
    opening = join(known, time) if negation else join(time, known)  # Sie liest das Buch heute nicht.
    adverbs = join(negation, happily, action.company.german, action.place.german)
    return join(short, opening, adverbs, new, action.goal.german)


def german(clause: Clause, order: Order = "second", front: str = "") -> str:
    """Return the German clause. `front` stands before the verb, or before the subject if the verb is last."""
    subject = clause.subject.german["nominative"]
    middle = german_middle(clause)
    finite, closing, together = german_verb(clause)
    match order:
        case "second" if front:
            body = join(front, finite, subject, middle, closing)
        case "second":
            body = join(subject, finite, middle, closing)
        case "first":
            body = join(finite, subject, middle, closing)
        case "last":
            body = join(front, subject, middle, together)
    return join(body, clause.action.tail.german)


def to_infinitive(action: Action) -> Text:
    """Return an infinitive clause: to open the window, das Fenster aufzumachen."""
    verb = action.verb
    middle = german_middle(Clause(I, action))
    zu = f"{verb.prefix}zu{verb.german}" if verb.prefix else f"zu {verb.german}"
    return Text(f"to {english_complements(action, verb.english)}", join(middle, zu, action.tail.german))


def relative(phrase: Phrase) -> Phrase:
    """Return the relative pronoun for a phrase: who or that; der, die or das."""
    forms = {case: ending("der", case, phrase.gender) for case in CASES}
    forms["dative"] = "denen" if phrase.gender == "p" else forms["dative"]
    person = phrase.noun in PEOPLE + FAMILY
    return Phrase("who" if person else "that", forms, phrase.agreement, phrase.gender, "whom" if person else "")


def as_object_relative(clause: Clause, phrase: Phrase) -> Text:
    """Return a relative clause whose object is the relative pronoun: that Anna bought, das Anna gekauft hat."""
    link = relative(phrase)
    return Text(
        f"{link.as_object} {english(clause)}",
        f", {german(clause, 'last', front=link.german[clause.action.verb.case])} ,",
    )


def with_relative(phrase: Phrase, clause: Text) -> Phrase:
    forms = {case: f"{form} {clause.german}" for case, form in phrase.german.items()}
    return replace(phrase, english=f"{phrase.english} {clause.english}", german=forms)


def depending(conjunction: Text, clause: Clause) -> Text:
    return Text(f"{conjunction.english} {english(clause)}", f", {german(clause, 'last', front=conjunction.german)}")


def before_main(first: Text, main: Clause) -> Text:
    """Put a subordinate clause in the first place. In German the verb of the main clause comes next."""
    return Text(f"{first.english} , {english(main)}", german(main, front=f"{first.german.removeprefix(', ')} ,"))


def after_main(main: Text, second: Text) -> Text:
    return Text(f"{main.english} {second.english}", f"{main.german} {second.german}")


def sentence(text: Text, mark: str = ".") -> Text:
    """Write a sentence out: commas once and in their place, a capital letter first, and the mark at the end."""

    def written(side: str) -> str:
        side = re.sub(r"\s*,[\s,]*", ", ", side).strip(" ,")
        return side[0].upper() + side[1:] + mark

    return Text(written(text.english), written(text.german))
