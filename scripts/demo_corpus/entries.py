"""Defines the entries of the dictionary, and reads them from tables."""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

Case = Literal["nominative", "accusative", "dative"]
Gender = Literal["m", "f", "n", "p"]  # p: the plural, which declines like a fourth gender
Agreement = Literal["ich", "er", "sie"]  # which form of the verb a subject takes: 1st singular, 3rd, plural
Tense = Literal["present", "progressive", "past"]  # the German of "progressive" is the present
Frame = Literal["habit", "now", "past", "future"]  # what a clause is about; decides tense, modals and times
Order = Literal["second", "first", "last"]  # where the finite verb stands in German

CASES: tuple[Case, ...] = ("nominative", "accusative", "dative")
GENDERS: tuple[Gender, ...] = ("m", "f", "n", "p")
AGREEMENTS: tuple[Agreement, ...] = ("ich", "er", "sie")


class Text(NamedTuple):
    """A piece of a sentence in both languages."""

    english: str
    german: str


NOTHING = Text("", "")


@dataclass(frozen=True)
class Noun:
    english: str
    plural: str  # "-" if it cannot be counted
    gender: Gender
    german: str
    german_plural: str
    adjectives: tuple[Text, ...]  # those that make sense with it


@dataclass(frozen=True)
class Verb:
    """A verb. `german` is its infinitive without `prefix`, the part that can be separated."""

    english: str
    past: str
    prefix: str
    german: str
    er: str  # third person singular, without the prefix
    participle: str
    perfect_with_sein: bool = False
    stative: bool = False  # a state: English has no progressive
    preposition: str = ""  # the German one before its object; the English one is part of `english`
    case: Case = "accusative"  # of its object
    objects: tuple[Noun, ...] = ()


@dataclass(frozen=True)
class Modal:
    """A modal verb. Its German forms are for ich, er, sie (plural). Without `past`, the grammar uses no past of it."""

    english: str
    third: str
    past: str
    german: tuple[str, ...]
    german_past: tuple[str, ...] = ()
    auxiliary: bool = True  # English asks and negates with it; "have to" and "want to" need "do"


def rows(table: str) -> list[list[str]]:
    """Split a table into rows of words. Rows end at ; or at the end of the line; _ is a space inside a word."""
    lines = [line.split() for line in re.split(r"[;\n]", table)]
    return [[word.replace("_", " ") for word in line] for line in lines if line]


def texts(table: str) -> tuple[Text, ...]:
    return tuple(Text(english, german) for english, german in rows(table))
