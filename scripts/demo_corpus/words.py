"""Lists the small words, such as times, numbers and prepositions, and the endings."""

from demo_corpus.entries import NOTHING, Case, Frame, Text, texts

SKIES = texts("dark dunkel; late spät; windy windig; sunny sonnig")  # never said of a thing, so that "it" stays clear


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
