"""Finds where the sentences of a line begin and end, by punctuation, abbreviations, numbers and quotes.

The rule needs no model. In doubt, it keeps two sentences together rather than cutting one in two.
"""

import re
from itertools import pairwise

# Each of these marks may end a sentence if white space follows: Latin and Greek, Arabic, Urdu, Devanagari, Armenian,
# Ethiopic, Burmese, Khmer.
MARKS = ".!?…؟۔।॥։።။។"  # noqa: RUF001
# These always end a sentence, because Chinese and Japanese write no white space after them.
WIDE_MARKS = "。！？｡"  # noqa: RUF001
# Quotes are in both lists, because one language closes with a quote that another opens with.
CLOSING = "\"'”’»›“‘«)]}」』）】"  # noqa: RUF001
_OPENING = "\"'“‘«‹„‚”’»([{¿¡「『（【-–—"  # noqa: RUF001
_LONGEST_ABBREVIATION = 20  # characters; anything longer is a word

# A run of marks matches only from its first mark, so that a line that consists of marks takes no longer than others.
_END = re.compile(
    rf"(?<![{MARKS}])(?P<marks>[{MARKS}]++)[{re.escape(CLOSING)}]*+(?P<space>\s++)(?=\S)"
    rf"|(?<![{WIDE_MARKS}])[{WIDE_MARKS}]++(?P<wide_space>\s*+)(?=[^\s{re.escape(CLOSING)}])"
)
_FIRST_CHARACTER = re.compile(rf"[\s{re.escape(_OPENING)}]*+(\w?)")

# The same where the white space is missing, as in "I read a book.I like it.", but not for dots of omission.
_LETTER = r"[^\W\d_]"
_END_WITHOUT_SPACE = re.compile(
    rf"(?<={_LETTER}{{2}})(?P<marks>\.|[!?]++)\)?"
    rf"(?=[¿¡]|(?P<word>{_LETTER}++)(?!\w)(?P<joined>['’]{_LETTER}++)?(?P<next>\s\w)?)"
)
# Such a line may hold code, where a stop stands between the parts of a name, as in net.Socket.
_CODE = re.compile(r"[\\_=<>`\[\]{}#*|;]|://")
# So do addresses, which have such signs or several stops, and a few names with capitals.
_NAME = re.compile(r"[@/:&$]|\..*\.\w|\.(?:Com|Org|Net|Js)\b", re.DOTALL)
_NAMES_WITH_MARKS = frozenset("Jeopardy Joomla Kahoot Yahoo Yum".split())  # as in Yahoo!Mail and Yahoo! Mail
_LONGEST_NAME = 80  # characters on each side of the stop

# A name or a number follows these abbreviations, so they end no sentence: English, German, French, Spanish, Italian,
# Portuguese, Dutch, Swedish, Polish, Czech and Russian. "etc." and others that often end a sentence are left out.
_BEFORE_A_NAME = frozenset(
    "mr mrs ms mx dr drs prof st ste sr sra srta dña fr hr hrn frl msgr mgr rev hon gen col lt sgt capt cpt cmdr adm "
    "maj gov sen rep pres supt insp vs cf ca zzgl inkl exkl evtl ggf bzw vgl sog bspw resp phil dipl ing mme mlle sig "
    "sigg dott avv mio mrd tsd bzgl dhr mevr mw jhr ul płk św tzw tzn np apt dept univ assn bros mt mts "
    "med kath evang lic psicol проф акад им св ул гг тыс млн млрд".split()  # noqa: RUF001
)
_BEFORE_A_NUMBER = frozenset(
    "no nos nr nrn núm num nº art arts abs abschn kap bd fig figs abb tab eq eqs vol vols pp sec secs chap par ziff rn "
    "jan feb mar mär apr jun jul aug sep sept oct okt nov dec dez janv févr avr juil déc abr ago dic tel str "
    "ул стр рис".split()
)
# Languages that write an ordinal number with a full stop, as in "am 3. Mai".
_WITH_ORDINAL_STOPS = frozenset(
    "de deu gsw lb ltz cs ces sk slk sl slv hr hrv sr srp bs bos pl pol da dan nb nob nn nno no nor is isl fo fao fi "
    "fin et est lv lav hu hun tr tur az aze mk mkd eu eus".split()
)


def split_sentences(line: str, language: str = "") -> list[tuple[str, str]]:
    """Split a line into sentences, each with the white space that follows it. Joined again, they give the line.

    `language` is the code of the line's language, such as de, de-AT or deu_Latn. It decides whether "3." may be an
    ordinal number.
    """
    ordinals = writes_ordinals_with_stops(language)
    has_capitals = line != line.lower()
    cuts = [
        match.span("space" if match["marks"] else "wide_space")
        for match in _END.finditer(line)
        if not match["marks"] or _ends(line, match, ordinals=ordinals, has_capitals=has_capitals)
    ]
    if (match := _END_WITHOUT_SPACE.search(line)) and not _CODE.search(line):
        found = _END_WITHOUT_SPACE.finditer(line, match.start())
        cuts = sorted([*cuts, *((match.end(), match.end()) for match in found if _ends_without_space(line, match))])
    edges = [(0, 0), *cuts, (len(line.rstrip()), len(line))]
    return [(line[start:stop], line[stop:following]) for (_, start), (stop, following) in pairwise(edges)]


def writes_ordinals_with_stops(language: str) -> bool:
    """Whether "3." may be an ordinal number in a language."""
    return re.split("[-_]", language.lower())[0] in _WITH_ORDINAL_STOPS


def _ends(line: str, match: re.Match[str], *, ordinals: bool, has_capitals: bool) -> bool:
    """Whether a sentence ends at these marks, which are followed by white space."""
    first = _FIRST_CHARACTER.match(line, match.end())
    letter = first[1] if first else ""
    # In a script without capitals, or a line without capitals, a sentence may begin with a small letter.
    if not letter or (letter.islower() and has_capitals):
        return False
    window = line[max(0, match.start() - _LONGEST_ABBREVIATION) : match.start()]
    before, word = _last_word(window)
    if match["marks"] != ".":
        return word not in _NAMES_WITH_MARKS
    if word.isdecimal():
        begins_an_item = not before or before[-1] in MARKS  # an item of a list, as in "1. Mix. 2. Bake."
        return not begins_an_item and not (ordinals and len(word) <= 2)  # a year may end a sentence
    lower = re.split("['’]|[.](?=[A-Z])", word)[-1].lower()  # as in "l'Ing.", or where a space is missing
    dotted = all(len(part) <= 2 and part.isalpha() for part in word.split("."))  # "z.B", "U.S"; an initial, too
    is_word_alone = "." not in word and len(word) != 1
    return not (
        (dotted and not is_word_alone) or lower in _BEFORE_A_NAME or (letter.isdecimal() and lower in _BEFORE_A_NUMBER)
    )


def _ends_without_space(line: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends at these marks, which follow a word, and a word or ¿ or ¡ follows them."""
    before = line[max(0, match.start() - _LONGEST_NAME) : match.start()].rsplit(maxsplit=1)[-1]
    after = line[match.start() : match.end() + _LONGEST_NAME].split(maxsplit=1)[0]
    if _NAME.search(before + after):
        return False
    word = match["word"]
    if word is None:
        return True
    is_letter = len(word) == 1 and (match["joined"] or (match["next"] and match["next"][-1].islower()))  # I am, I'm
    if not (word[0].isupper() and (word[1:].islower() or is_letter)):
        return False
    last = re.split(rf"(?!{_LETTER}).", before)[-1]
    if match["marks"] != ".":
        return last not in _NAMES_WITH_MARKS
    is_word = last.islower() or (last.istitle() and len(word) > 1)
    return is_word and last.lower() not in _BEFORE_A_NAME and bool(match["next"] or match["joined"])


def _last_word(text: str) -> tuple[str, str]:
    """Return the text before the last word, and that word without quotes and brackets before it."""
    stripped = text.rstrip()
    if stripped != text:  # tokenised text has white space before a full stop
        return stripped, ""
    words = text.split()
    word = words[-1] if words else ""
    return text[: len(text) - len(word)].rstrip(), word.lstrip(_OPENING)
