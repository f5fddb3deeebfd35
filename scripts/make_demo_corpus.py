"""Write the demo corpus: English sentences and their German translations, made by a small grammar.

The corpus is synthetic and says nothing about the world. It holds what makes German more than a word by word
copy of English: verb second and verb last, separable verbs, gender, case, adjective endings, number words.
The same English sentence always has the same German, so that a small model can learn it nearly perfectly.

The file reads downwards: words, forms of a word, noun phrases, clauses, then what is drawn at random.
"""

from __future__ import annotations

import argparse
import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

Case = Literal["nominative", "accusative", "dative"]
Gender = Literal["m", "f", "n", "p"]  # p: the plural, which declines like a fourth gender
Agreement = Literal["ich", "er", "sie"]  # which form of the verb a subject takes: 1st singular, 3rd, plural
Tense = Literal["present", "progressive", "past"]  # the German of "progressive" is the present
Frame = Literal["habit", "now", "past", "future"]  # what a clause is about; decides tense, modals and times
Order = Literal["second", "first", "last"]  # where the finite verb stands in German

CASES: tuple[Case, ...] = ("nominative", "accusative", "dative")
GENDERS: tuple[Gender, ...] = ("m", "f", "n", "p")
AGREEMENTS: tuple[Agreement, ...] = ("ich", "er", "sie")

T = TypeVar("T")


class Text(NamedTuple):
    """The same piece of a sentence in both languages."""

    english: str
    german: str


NOTHING = Text("", "")


@dataclass(frozen=True)
class Noun:
    english: str
    plural: str  # "-" for what cannot be counted
    gender: Gender
    german: str
    german_plural: str
    adjectives: tuple[Text, ...]  # those that make sense with it


@dataclass(frozen=True)
class Verb:
    """`german` is the infinitive without `prefix`, which is the part that can be separated."""

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
    """German forms are for ich, er, sie (plural); no `past` means that the grammar does not use one."""

    english: str
    third: str
    past: str
    german: tuple[str, ...]
    german_past: tuple[str, ...] = ()
    auxiliary: bool = True  # English asks and negates with it; "have to" and "want to" need "do"


# --- Words ----------------------------------------------------------------------------------------------


def rows(table: str) -> list[list[str]]:
    """Rows end at ; or at the end of the line, and are split into words; _ stands for a space in a word."""
    lines = [line.split() for line in re.split(r"[;\n]", table)]
    return [[word.replace("_", " ") for word in line] for line in lines if line]


def texts(table: str) -> tuple[Text, ...]:
    return tuple(Text(english, german) for english, german in rows(table))


def nouns(table: str, adjectives: str) -> tuple[Noun, ...]:
    fitting = tuple(Text(english, ADJECTIVES[english]) for english in adjectives.split())
    found = []
    for english, plural, letter, german, german_plural in rows(table):
        gender = GENDERS["mfnp".index(letter)]
        found.append(Noun(english, plural, gender, german, german_plural, fitting))
    return tuple(found)


def verbs(table: str, objects: tuple[Noun, ...] = ()) -> tuple[Verb, ...]:
    """Columns: English, past, German (prefix|verb), er form, participle, then any of sein, state, dative,
    and preposition+case."""
    found = []
    for english, past, german, er, participle, *marks in rows(table):
        prefix, _, stem = german.rpartition("|")
        preposition = next((mark.split("+")[0] for mark in marks if "+" in mark), "")
        case: Case = "dative" if any(mark.endswith("dative") for mark in marks) else "accusative"
        sein, state = "sein" in marks, "state" in marks
        found.append(Verb(english, past, prefix, stem, er, participle, sein, state, preposition, case, objects))
    return tuple(found)


ADJECTIVES = dict(
    texts("""
    old alt; young jung; friendly freundlich; tired müde; happy glücklich; sad traurig; tall groß; clever klug
    hungry hungrig; sick krank; famous berühmt; polite höflich; new neu; small klein; big groß; expensive teuer
    cheap billig; beautiful schön; ugly hässlich; heavy schwer; red rot; blue blau; green grün; white weiß
    black schwarz; dirty schmutzig; broken kaputt; interesting interessant; short kurz; boring langweilig
    exciting spannend; fresh frisch; sweet süß; cold kalt; warm warm; good gut; fast schnell; quiet ruhig
    simple einfach; important wichtig
    """)
)

PEOPLE = nouns(
    """
    man men m Mann Männer; woman women f Frau Frauen; boy boys m Junge Jungen; girl girls n Mädchen Mädchen
    child children n Kind Kinder; teacher teachers m Lehrer Lehrer; doctor doctors m Arzt Ärzte
    nurse nurses f Krankenschwester Krankenschwestern; neighbour neighbours m Nachbar Nachbarn
    friend friends m Freund Freunde; student students m Student Studenten; guest guests m Gast Gäste
    waitress waitresses f Kellnerin Kellnerinnen; actress actresses f Schauspielerin Schauspielerinnen
    """,
    "old young friendly tired happy sad tall clever hungry sick famous polite",
)
FAMILY = nouns(
    """
    brother brothers m Bruder Brüder; sister sisters f Schwester Schwestern; mother mothers f Mutter Mütter
    father fathers m Vater Väter; aunt aunts f Tante Tanten
    daughter daughters f Tochter Töchter; son sons m Sohn Söhne
    """,
    "old young friendly tired happy sad tall clever sick",
)
ANIMALS = nouns(
    """
    dog dogs m Hund Hunde; cat cats f Katze Katzen; horse horses n Pferd Pferde; bird birds m Vogel Vögel
    cow cows f Kuh Kühe; mouse mice f Maus Mäuse
    """,
    "old young small big black white hungry beautiful",
)
PIECES = nouns(
    """
    apple apples m Apfel Äpfel; egg eggs n Ei Eier; orange oranges f Orange Orangen
    cake cakes m Kuchen Kuchen; tomato tomatoes f Tomate Tomaten; potato potatoes f Kartoffel Kartoffeln
    """,
    "fresh good cheap small big",
)
DISHES = nouns(
    """
    bread - n Brot -; cheese - m Käse -; meat - n Fleisch -; soup soups f Suppe Suppen
    """,
    "fresh good warm cold",
)
DRINKS = nouns(
    """
    water - n Wasser -; milk - f Milch -; coffee - m Kaffee -; tea - m Tee -; juice - m Saft -
    """,
    "cold warm fresh good sweet",
)
WRITINGS = nouns(
    """
    book books n Buch Bücher; letter letters m Brief Briefe; newspaper newspapers f Zeitung Zeitungen
    story stories f Geschichte Geschichten; poem poems n Gedicht Gedichte
    """,
    "interesting short boring exciting new old important",
)
CLOTHES = nouns(
    """
    coat coats m Mantel Mäntel; shirt shirts n Hemd Hemden; jacket jackets f Jacke Jacken
    hat hats m Hut Hüte; dress dresses n Kleid Kleider
    """,
    "new old red blue green white black dirty expensive cheap warm beautiful",
)
DEVICES = nouns(
    """
    lamp lamps f Lampe Lampen; radio radios n Radio Radios; computer computers m Computer Computer
    """,
    "new old small big expensive cheap broken heavy",
)
OPENINGS = nouns(
    """
    door doors f Tür Türen; window windows n Fenster Fenster; cupboard cupboards m Schrank Schränke
    suitcase suitcases m Koffer Koffer; bottle bottles f Flasche Flaschen
    """,
    "new old small big heavy green red dirty",
)
FURNITURE = nouns(
    """
    table tables m Tisch Tische; chair chairs m Stuhl Stühle; bed beds n Bett Betten
    bench benches f Bank Bänke
    """,
    "new old small big white black heavy beautiful expensive",
)
THINGS = nouns(
    """
    key keys m Schlüssel Schlüssel; bag bags f Tasche Taschen; picture pictures n Bild Bilder
    present presents n Geschenk Geschenke; ball balls m Ball Bälle; cup cups f Tasse Tassen
    knife knives n Messer Messer; umbrella umbrellas m Regenschirm Regenschirme
    flower flowers f Blume Blumen; watch watches f Uhr Uhren
    """,
    "new old small big red blue white beautiful ugly expensive cheap",
)
VEHICLES = nouns(
    """
    car cars n Auto Autos; bicycle bicycles n Fahrrad Fahrräder; bus buses m Bus Busse
    train trains m Zug Züge; taxi taxis n Taxi Taxis
    """,
    "new old fast red black expensive big",
)
EVENTS = nouns(
    """
    film films m Film Filme; concert concerts n Konzert Konzerte; party parties f Feier Feiern
    journey journeys f Reise Reisen; game games n Spiel Spiele
    """,
    "interesting short boring exciting big",
)
IDEAS = nouns(
    """
    question questions f Frage Fragen; answer answers f Antwort Antworten; problem problems n Problem Probleme
    plan plans m Plan Pläne
    """,
    "simple important new short interesting",
)
ROOMS = nouns(
    """
    kitchen kitchens f Küche Küchen; garden gardens m Garten Gärten; room rooms n Zimmer Zimmer
    house houses n Haus Häuser; city cities f Stadt Städte; museum museums n Museum Museen
    church churches f Kirche Kirchen; office offices n Büro Büros
    park parks m Park Parks; village villages n Dorf Dörfer
    forest forests m Wald Wälder; school schools f Schule Schulen
    """,
    "old big small beautiful quiet",
)
STOPS = nouns(
    """
    station stations m Bahnhof Bahnhöfe; lake lakes m See Seen
    river rivers m Fluss Flüsse; bridge bridges f Brücke Brücken; beach beaches m Strand Strände
    """,
    "big small beautiful quiet",
)
LIVING = PEOPLE + FAMILY + ANIMALS
GOODS = PIECES + WRITINGS + CLOTHES + DEVICES + FURNITURE + THINGS + VEHICLES
HOUSEHOLD = CLOTHES + DEVICES + OPENINGS + FURNITURE + THINGS + VEHICLES
BUILDINGS = tuple(n for n in ROOMS + STOPS if n.english in "house museum church school station".split())
CROSSED = tuple(noun for noun in ROOMS if noun.english in "garden house city park village forest".split())
# Weak nouns end in -n or -en in every case but the nominative singular.
WEAK = {"Junge": "Jungen", "Nachbar": "Nachbarn", "Student": "Studenten"}

# Never "my man" (in German the husband), "her girl" and the like.
UNOWNED = tuple(n for n in PEOPLE if n.english in "man woman boy girl waitress actress".split())

FRIEND = next(noun for noun in PEOPLE if noun.english == "friend")

WOMEN = "Anna Maria Laura Julia Sophie".split()
MEN = "Peter Paul Thomas Felix Max".split()
CITIES = texts("Berlin Berlin; Hamburg Hamburg; Vienna Wien; Munich München; Cologne Köln; Rome Rom")

TRANSITIVE = (
    *verbs("buy bought kaufen kauft gekauft; sell sold verkaufen verkauft verkauft", GOODS),
    *verbs("find found finden findet gefunden state; look_for looked_for suchen sucht gesucht", GOODS),
    *verbs("need needed brauchen braucht gebraucht state; like liked mögen mag gemocht state", GOODS),
    *verbs("have had haben hat gehabt state", ANIMALS + HOUSEHOLD),
    *verbs("eat ate essen isst gegessen", PIECES + DISHES),
    *verbs("drink drank trinken trinkt getrunken", DRINKS),
    *verbs("read read lesen liest gelesen; write wrote schreiben schreibt geschrieben", WRITINGS),
    *verbs("repair repaired reparieren repariert repariert", DEVICES + VEHICLES),
    *verbs("see saw sehen sieht gesehen state", PEOPLE + ANIMALS + VEHICLES),
    *verbs("visit visited besuchen besucht besucht; meet met treffen trifft getroffen", PEOPLE + FAMILY),
    *verbs("invite invited ein|laden lädt eingeladen; call called an|rufen ruft angerufen", PEOPLE + FAMILY),
    *verbs("pick_up picked_up ab|holen holt abgeholt", PEOPLE + FAMILY),
    *verbs("open opened auf|machen macht aufgemacht; close closed zu|machen macht zugemacht", OPENINGS),
    *verbs("turn_on turned_on ein|schalten schaltet eingeschaltet", DEVICES),
    *verbs("turn_off turned_off aus|schalten schaltet ausgeschaltet", DEVICES),
    *verbs("put_on put_on an|ziehen zieht angezogen; wash washed waschen wäscht gewaschen", CLOTHES),
    *verbs("bring_back brought_back zurück|bringen bringt zurückgebracht", WRITINGS + CLOTHES + THINGS),
    *verbs("throw_away threw_away weg|werfen wirft weggeworfen", WRITINGS + CLOTHES + THINGS),
    *verbs("look_at looked_at an|sehen sieht angesehen", HOUSEHOLD),
    *verbs("understand understood verstehen versteht verstanden state", IDEAS),
    *verbs("explain explained erklären erklärt erklärt; forget forgot vergessen vergisst vergessen state", IDEAS),
    *verbs("feed fed füttern füttert gefüttert", ANIMALS),
    *verbs("draw drew zeichnen zeichnet gezeichnet", ANIMALS + FURNITURE + PIECES),
)
STAYING = verbs("""
    sleep slept schlafen schläft geschlafen; work worked arbeiten arbeitet gearbeitet
    play played spielen spielt gespielt; dance danced tanzen tanzt getanzt; sing sang singen singt gesungen
    live lived wohnen wohnt gewohnt state; wait waited warten wartet gewartet
    laugh laughed lachen lacht gelacht; stay stayed bleiben bleibt geblieben sein
    have_breakfast had_breakfast frühstücken frühstückt gefrühstückt
    watch_television watched_television fern|sehen sieht ferngesehen
    """)
HAPPENING = verbs("""
    get_up got_up auf|stehen steht aufgestanden sein; wake_up woke_up auf|wachen wacht aufgewacht sein
    fall_asleep fell_asleep ein|schlafen schläft eingeschlafen sein
    come_back came_back zurück|kommen kommt zurückgekommen sein; go_out went_out aus|gehen geht ausgegangen sein
    """)
WALKING = verbs("""
    go went gehen geht gegangen sein; walk walked laufen läuft gelaufen sein; run ran rennen rennt gerannt sein
    """)
TRAVELLING = verbs("""
    travel travelled reisen reist gereist sein; fly flew fliegen fliegt geflogen sein
    drive drove fahren fährt gefahren sein
    """)
DATIVE = verbs(
    """
    help helped helfen hilft geholfen dative; thank thanked danken dankt gedankt dative
    follow followed folgen folgt gefolgt sein dative; listen_to listened_to zu|hören hört zugehört dative
    answer answered antworten antwortet geantwortet dative
    """,
    PEOPLE + FAMILY,
)
GIVING = verbs(
    """
    give gave geben gibt gegeben; show showed zeigen zeigt gezeigt; send sent schicken schickt geschickt
    bring brought bringen bringt gebracht
    """,
    WRITINGS + CLOTHES + THINGS,
)
PREPOSITIONAL = (
    *verbs("wait_for waited_for warten wartet gewartet auf+accusative", PEOPLE + FAMILY + VEHICLES),
    *verbs("talk_about talked_about sprechen spricht gesprochen über+accusative", WRITINGS + EVENTS + IDEAS),
    *verbs("think_of thought_of denken denkt gedacht an+accusative", FAMILY + EVENTS + IDEAS),
    *verbs("dream_of dreamed_of träumen träumt geträumt von+dative", ANIMALS + VEHICLES + EVENTS),
    *verbs("look_after looked_after auf|passen passt aufgepasst auf+accusative", PEOPLE + ANIMALS),
    *verbs("take_part_in took_part_in teil|nehmen nimmt teilgenommen an+dative", EVENTS),
)
REPORTING = verbs("""
    say said sagen sagt gesagt state; believe believed glauben glaubt geglaubt state
    know knew wissen weiß gewusst state; hope hoped hoffen hofft gehofft state; hear heard hören hört gehört state
    """)
INTENDING = verbs("""
    try tried versuchen versucht versucht; plan planned planen plant geplant state
    begin began beginnen beginnt begonnen; decide decided beschließen beschließt beschlossen state
    """)
BE, ASK, COST, LOVE, ARRIVE = verbs("""
    be - sein ist gewesen sein state; ask asked fragen fragt gefragt state
    cost cost kosten kostet gekostet state; love loved lieben liebt geliebt state
    arrive arrived an|kommen kommt angekommen sein
    """)
# What is done with or without others.
SHARED = ("buy", "look for", "eat", "drink", "read", "repair", "visit", "wash", "look at", "feed", "draw")
BOUND = ("live", "stay", "arrive")  # to their place, which does not go to the front
NEED = next(verb for verb in TRANSITIVE if verb.english == "need")
KNOW = next(verb for verb in REPORTING if verb.english == "know")
WEATHER = verbs("rain rained regnen regnet geregnet; snow snowed schneien schneit geschneit")
SKIES = texts("dark dunkel; late spät; windy windig; sunny sonnig")  # said of no thing: "it" must stay clear

IRREGULAR_PRESENT = {
    "sein": ("bin", "ist", "sind"),
    "wissen": ("weiß", "weiß", "wissen"),
    "mögen": ("mag", "mag", "mögen"),
}
# These few verbs tell of the past in the preterite, all others in the perfect tense.
PRETERITE = {
    "sein": ("war", "war", "waren"),
    "haben": ("hatte", "hatte", "hatten"),
    "mögen": ("mochte", "mochte", "mochten"),
    "wissen": ("wusste", "wusste", "wussten"),
}

CAN = Modal("can", "can", "could", ("kann", "kann", "können"), ("konnte", "konnte", "konnten"))
MUST = Modal(
    "have to", "has to", "had to", ("muss", "muss", "müssen"), ("musste", "musste", "mussten"), auxiliary=False
)
WANT = Modal(
    "want to", "wants to", "wanted to", ("will", "will", "wollen"), ("wollte", "wollte", "wollten"), auxiliary=False
)
MAY = Modal("may", "may", "", ("darf", "darf", "dürfen"))
SHOULD = Modal("should", "should", "", ("sollte", "sollte", "sollten"))
WILL = Modal("will", "will", "", ("werde", "wird", "werden"))
WOULD_LIKE = Modal("would like to", "would like to", "", ("möchte", "möchte", "möchten"))
LIKE_TO = Modal("like to", "likes to", "", (), auxiliary=False)  # German says it with the adverb "gern"

MODALS: dict[Frame, tuple[Modal, ...]] = {
    "habit": (CAN, MUST, LIKE_TO, LIKE_TO),
    "now": (CAN, MUST, WANT, MAY),
    "past": (CAN, MUST, WANT),
    "future": (WILL, WILL, WILL, WANT, WOULD_LIKE, SHOULD, MAY),
}

WEEKDAYS = texts("""
    Monday Montag; Tuesday Dienstag; Wednesday Mittwoch; Thursday Donnerstag; Friday Freitag
    Saturday Samstag; Sunday Sonntag
    """)
MONTHS = texts("""
    January Januar; February Februar; March März; April April; May Mai; June Juni; July Juli; August August
    September September; October Oktober; November November; December Dezember
    """)
ON_A_DAY = tuple(Text(f"on {day.english}", f"am {day.german}") for day in WEEKDAYS)
IN_A_MONTH = tuple(Text(f"in {month.english}", f"im {month.german}") for month in MONTHS)
TIMES: dict[Frame, tuple[Text, ...]] = {
    "habit": (
        *texts("every_day jeden_Tag; every_evening jeden_Abend; every_year jedes_Jahr; every_week jede_Woche"),
        *texts("in_the_morning am_Morgen; in_the_evening am_Abend; at_night in_der_Nacht; in_winter im_Winter"),
        *texts("in_summer im_Sommer; in_spring im_Frühling; in_autumn im_Herbst; at_the_weekend am_Wochenende"),
        *(Text(f"on {day.english}s", f"{day.german.lower()}s") for day in WEEKDAYS),
    ),
    "now": texts("now jetzt; today heute; at_the_moment im_Moment; this_week diese_Woche"),
    "past": (
        *texts("yesterday gestern; the_day_before_yesterday vorgestern; last_week letzte_Woche"),
        *texts("last_month letzten_Monat; last_year letztes_Jahr; this_morning heute_Morgen"),
        *ON_A_DAY,
        *IN_A_MONTH,
    ),
    "future": (
        *texts("tomorrow morgen; the_day_after_tomorrow übermorgen; next_week nächste_Woche; soon bald"),
        *texts("next_month nächsten_Monat; next_year nächstes_Jahr; this_evening heute_Abend"),
        *ON_A_DAY,
        *IN_A_MONTH,
    ),
}
OFTEN = texts("often oft; always immer; never nie; sometimes manchmal; usually meistens")
DEGREES = (NOTHING, NOTHING, *texts("very sehr; too zu; quite ziemlich"))
# English unit, German dative plural for "vor" and "in", German accusative plural, the largest number.
UNITS = (
    ("minutes", "Minuten", "Minuten", 59),
    ("hours", "Stunden", "Stunden", 48),
    ("days", "Tagen", "Tage", 40),
    ("weeks", "Wochen", "Wochen", 30),
    ("months", "Monaten", "Monate", 24),
    ("years", "Jahren", "Jahre", 30),
)
PLACE_WORDS = texts("outside draußen; at_home zu_Hause; here hier; there dort")

ENGLISH_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
ENGLISH_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN_NUMBERS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
).split()
GERMAN_TENS = "- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()

# English preposition -> the German one and the case it governs.
PREPOSITIONS: dict[str, tuple[str, Case]] = {
    "in": ("in", "dative"),
    "into": ("in", "accusative"),
    "at": ("an", "dative"),
    "to": ("zu", "dative"),
    "from": ("von", "dative"),
    "on": ("auf", "dative"),
    "behind": ("hinter", "dative"),
    "in front of": ("vor", "dative"),
    "next to": ("neben", "dative"),
    "under": ("unter", "dative"),
    "through": ("durch", "accusative"),
    "with": ("mit", "dative"),
    "without": ("ohne", "accusative"),
    "for": ("für", "accusative"),
}
CONTRACTIONS = {"in dem": "im", "in das": "ins", "an dem": "am", "zu dem": "zum", "zu der": "zur", "von dem": "vom"}

# Endings and articles: one row for each case, one column for each of m f n p; - is no ending.
ENDINGS = {
    "strong": ("er e es e", "en e es e", "em er em en"),  # dieser; and adjectives where no article shows the case
    "weak": ("e e e en", "en e e en", "en en en en"),  # adjectives after der, dieser, alle
    "mixed": ("er e es en", "en e es en", "en en en en"),  # adjectives after ein, kein, mein
    "ein": ("- e - e", "en e - e", "em er em en"),  # ein, kein, mein themselves
    "der": ("der die das die", "den die das die", "dem der dem den"),
    "none": ("- - - -", "- - - -", "- - - -"),
}


# --- Forms of a word ------------------------------------------------------------------------------------


def join(*parts: str) -> str:
    """The parts that are there, with one space between them."""
    return " ".join(part for part in parts if part)


def number(n: int) -> Text:
    """The number word of 0 <= n < 100: twenty-one, einundzwanzig."""
    if n < 20:
        return Text(ENGLISH_NUMBERS[n], GERMAN_NUMBERS[n])
    tens, ones = divmod(n, 10)
    if ones == 0:
        return Text(ENGLISH_TENS[tens], GERMAN_TENS[tens])
    german_ones = "ein" if ones == 1 else GERMAN_NUMBERS[ones]
    return Text(f"{ENGLISH_TENS[tens]}-{ENGLISH_NUMBERS[ones]}", f"{german_ones}und{GERMAN_TENS[tens]}")


def clock(hour: int, quarter: int) -> Text:
    """A time of day; half past seven is halb acht in German."""
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
    """An adjective before its noun: alt -> alten, müde -> müden, teuer -> teuren."""
    stem = {"teuer": "teur", "dunkel": "dunkl"}.get(adjective, adjective.removesuffix("e"))
    return stem + ending(kind, case, gender)


def noun_form(noun: Noun, case: Case, gender: Gender) -> str:
    if gender == "p":
        bare = case != "dative" or noun.german_plural[-1] in "ns"
        return noun.german_plural + ("" if bare else "n")
    return noun.german if case == "nominative" else WEAK.get(noun.german, noun.german)


def first_word(verb: str, change: Callable[[str], str]) -> str:
    """turn on -> turns on."""
    head, space, rest = verb.partition(" ")
    return change(head) + space + rest


def third(verb: str) -> str:
    """The form of he and she: go -> goes, try -> tries, have -> has."""
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
    """The forms for ich, er and sie (plural), without the prefix."""
    stem = verb.german[:-2] if verb.german.endswith("en") else verb.german[:-1]
    return IRREGULAR_PRESENT.get(verb.german, (stem + "e", verb.er, verb.german))


# --- Noun phrases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Determiner:
    """`german` takes the endings of `article`, the adjective after it those of `adjective`."""

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
    """A noun with what belongs to it, or a pronoun, in every form that a clause may ask for."""

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
    """A number as a determiner: it has no endings, and the adjective after it shows the case."""
    word = number(n)
    return Determiner(word.english, word.german, "none", "strong", definite=False, negation="")


def pronoun_of(phrase: Phrase) -> Phrase | None:
    """What stands for it in a later clause; None for "child", which English calls he, she or it."""
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


# --- Clauses --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Action:
    """A verb with all that completes it."""

    verb: Verb
    object: Phrase | None = None
    recipient: Phrase | None = None  # in the dative
    goal: Text = NOTHING  # where to, or what is said of the subject, or a preposition with its noun
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
    """The auxiliary, which "not" follows and questions begin with, and the rest; either may be empty."""
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
    """The verb form and what follows it; a pronoun stands before the particle of the verb: turns it on."""
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
    """The finite verb, what closes the clause when it stands second, and both together when it is last."""
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
    """What stands between the finite verb (or the subject) and the end of the clause.

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
    """`front` is what takes the place before the verb, or before the subject where the verb is last."""
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
    """to open the window, das Fenster aufzumachen."""
    verb = action.verb
    middle = german_middle(Clause(I, action))
    zu = f"{verb.prefix}zu{verb.german}" if verb.prefix else f"zu {verb.german}"
    return Text(f"to {english_complements(action, verb.english)}", join(middle, zu, action.tail.german))


def relative(phrase: Phrase) -> Phrase:
    """The relative pronoun for a phrase: who or that, der die das."""
    forms = {case: ending("der", case, phrase.gender) for case in CASES}
    forms["dative"] = "denen" if phrase.gender == "p" else forms["dative"]
    person = phrase.noun in PEOPLE + FAMILY
    return Phrase("who" if person else "that", forms, phrase.agreement, phrase.gender, "whom" if person else "")


def as_object_relative(clause: Clause, phrase: Phrase) -> Text:
    """A relative clause whose missing object is `phrase`: that Anna bought, das Anna gekauft hat."""
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
    """A subordinate clause takes the first place, and the verb comes next."""
    return Text(f"{first.english} , {english(main)}", german(main, front=f"{first.german.removeprefix(', ')} ,"))


def after_main(main: Text, second: Text) -> Text:
    return Text(f"{main.english} {second.english}", f"{main.german} {second.german}")


def sentence(text: Text, mark: str = ".") -> Text:
    """Written out: commas once and in their place, a capital letter, the mark at the end."""

    def written(side: str) -> str:
        side = re.sub(r"\s*,[\s,]*", ", ", side).strip(" ,")
        return side[0].upper() + side[1:] + mark

    return Text(written(text.english), written(text.german))


# --- What is drawn at random ----------------------------------------------------------------------------


class Dice:
    """Random choices made of random() alone, whose numbers Python keeps the same for a seed in all versions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.random() * len(items))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability


def a_number(dice: Dice) -> int:
    return dice.between(2, 12) if dice.chance(0.5) else dice.between(13, 99)


def a_phrase(dice: Dice, choice: Sequence[Noun], *, generic: bool = True) -> Phrase:
    """A noun with or without adjective; `generic` allows "apples" without an article, else "every apple"."""
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
    """with, without or for someone: not with thirty doctors."""
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
    """Whether someone would do something to themselves ("I see me"), for which there are other pronouns."""
    themselves = {"me", "us"} if subject in (I, WE) else {subject.english}
    adverbs = [action.goal.english, *(text.english.partition(" ")[2] for text in (action.goal, action.company))]
    people = [phrase for phrase in (action.object, action.recipient) if phrase]
    same_noun = any(phrase.noun is subject.noun is not None for phrase in people)
    return same_noun or any(other in themselves for other in [*adverbs, *(phrase.as_object for phrase in people)])


def an_action(dice: Dice, subject: Phrase, *, past: bool = False, deliberate: bool = False) -> Action:
    """Something that the subject does; in the past, "they read" must not look like the present."""
    while True:
        action = dice.pick(ACTIONS)(dice)
        verb = action.verb
        unclear = past and verb.past == verb.english and subject.agreement != "er"
        if not (unclear or clashes(subject, action) or (deliberate and verb.stative)):
            return action


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
    """Not with "every", "some" or numbers, where the reach of "not" is unclear, nor with many complements."""
    phrases = [phrase for phrase in (subject, action.object, action.recipient) if phrase]
    indefinite_dative = action.verb.case == "dative" and action.object and not action.object.definite
    if indefinite_dative or action.company != NOTHING or (action.goal != NOTHING and action.place != NOTHING):
        return False
    return all(phrase.negation for phrase in phrases)


def a_clause(dice: Dice, frame: Frame, subject: Phrase, action: Action | None = None, *, bare: bool = False) -> Clause:
    """The subject does something; `bare` leaves out modals, negation and times."""
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
    """The subject is (not) so and so."""
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
    """A main clause that begins with its subject, or with a time or place, which brings the verb before it."""
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
    """A clause that goes on from the first, often with pronouns.

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


# --- Sentences ------------------------------------------------------------------------------------------


def any_frame(dice: Dice) -> Frame:
    frames: tuple[Frame, ...] = ("habit", "now", "past", "past", "future")
    return dice.pick(frames)


def plain(dice: Dice) -> Text:
    return sentence(statement(dice, a_clause(dice, any_frame(dice), a_person(dice))))


def two_clauses(dice: Dice) -> Text:
    """because, although, when, while, before, if: the dependent clause comes second or first."""
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
    """says that, does not know whether, asks whether."""
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
    """tries to open the window; goes home in order to sleep."""
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
    """The man who lives in Berlin ...; the book that Anna bought ..."""
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
    """... reads the book that Peter bought."""
    frame, subject = any_frame(dice), a_person(dice)
    noun = dice.pick(GOODS)
    thing = noun_phrase(noun, dice.pick((THE, THE, A)), plural=False)
    fitting = [v for v in TRANSITIVE if noun in v.objects and v.past != v.english]
    tail = an_object_relative(dice, thing, "past")
    action = Action(dice.pick(fitting), thing, tail=tail)
    return sentence(statement(dice, a_clause(dice, frame, subject, action)))


def description(dice: Dice) -> Text:
    """What something costs, how old someone is, where something is, what there is."""
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
    """who, why, when, where: about anything that happens; what, which, how many, whom: about an object."""
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
    """1 to `most` statements, each number as often as the others, as one sentence."""
    text = dice.pick(STATEMENTS)(dice)
    for _ in range(dice.between(0, most - 1)):
        link, following = dice.pick(texts("and und; but aber")), dice.pick(STATEMENTS)(dice)
        parts = zip(text, link, following, strict=True)
        text = Text(*(f"{side[:-1]}, {word} {inside(other[:-1])}." for side, word, other in parts))
    return text


def inside(side: str) -> str:
    """Written as it is within a sentence; a statement never begins with a noun."""
    return side if side.split(maxsplit=1)[0].strip(",") in ("I", *WOMEN, *MEN) else side[0].lower() + side[1:]


# --- The corpus -----------------------------------------------------------------------------------------


def corpus(num_pairs: int, seed: int, most: int = 1) -> list[tuple[str, str]]:
    """Pairs of an English sentence and its German; no English sentence and no German sentence comes twice.

    A longer corpus begins with the shorter one of the same seed. With `most` above 1, sentences are long ones, of
    up to so many statements.
    """
    dice = Dice(seed)
    german_of: dict[str, str] = {}
    seen: set[str] = set()
    while len(german_of) < num_pairs:
        pair = joined(dice, most) if most > 1 else dice.pick(SENTENCES)(dice)
        known = german_of.get(pair.english)
        assert known in (None, pair.german), f"{pair.english} is both {known} and {pair.german}"
        if pair.german not in seen:
            german_of[pair.english] = pair.german
            seen.add(pair.german)
    return list(german_of.items())


def files(train: int, valid: int, test: int, seed: int, most: int = 1) -> dict[str, bytes]:
    """Name -> content. Test comes first out of the grammar, so that it is the same for every size of train."""
    pairs = corpus(test + valid + train, seed, most)
    parts = {"test": pairs[:test], "valid": pairs[test : test + valid], "train": pairs[test + valid :]}
    contents = {}
    for part, chosen in parts.items():
        for column, language in enumerate(("en", "de")):
            contents[f"{part}.{language}"] = "".join(pair[column] + "\n" for pair in chosen).encode()
    return contents


def write_whole(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too few; at least 1 is needed")
    return value


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Write the demo corpus: train, valid and test, English (.en) and German (.de).",
        epilog="example: python scripts/make_demo_corpus.py --output data/demo_corpus --train 2000",
    )
    parser.add_argument("--output", type=Path, default=Path("data/demo_corpus"), help="folder (%(default)s)")
    parser.add_argument("--train", type=positive, default=20000, help="sentence pairs (%(default)s)")
    parser.add_argument("--valid", type=positive, default=500, help="sentence pairs (%(default)s)")
    parser.add_argument("--test", type=positive, default=500, help="sentence pairs (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another corpus (%(default)s)")
    parser.add_argument(
        "--join",
        type=positive,
        default=1,
        metavar="N",
        help="join 1 to N statements into a sentence, each number as often; 4: up to some 70 words (%(default)s)",
    )
    args = parser.parse_args(argv)

    contents = files(args.train, args.valid, args.test, args.seed, args.join)
    sizes = f"{args.train} train, {args.valid} valid and {args.test} test pairs"
    paths = {args.output / file_name: content for file_name, content in contents.items()}
    if all(path.is_file() and path.read_bytes() == content for path, content in paths.items()):
        print(f"{args.output} is already there and whole: {sizes}; nothing to do.")
        return
    args.output.mkdir(parents=True, exist_ok=True)
    for path, content in paths.items():
        write_whole(path, content)
    print(f"Wrote {args.output}: {sizes} of synthetic English and German.")


if __name__ == "__main__":
    main()
