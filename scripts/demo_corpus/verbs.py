"""Lists verbs by their complements, with their irregular forms, and modals."""

from demo_corpus.entries import Case, Frame, Modal, Noun, Verb, rows
from demo_corpus.nouns import (
    ANIMALS,
    CLOTHES,
    DEVICES,
    DISHES,
    DRINKS,
    EVENTS,
    FAMILY,
    FURNITURE,
    GOODS,
    HOUSEHOLD,
    IDEAS,
    OPENINGS,
    PEOPLE,
    PIECES,
    THINGS,
    VEHICLES,
    WRITINGS,
)


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
# Verbs for what is done with or without others.
SHARED = ("buy", "look for", "eat", "drink", "read", "repair", "visit", "wash", "look at", "feed", "draw")
BOUND = ("live", "stay", "arrive")  # the place of these verbs does not come first in a clause
NEED = next(verb for verb in TRANSITIVE if verb.english == "need")
KNOW = next(verb for verb in REPORTING if verb.english == "know")
WEATHER = verbs("rain rained regnen regnet geregnet; snow snowed schneien schneit geschneit")


IRREGULAR_PRESENT = {
    "sein": ("bin", "ist", "sind"),
    "wissen": ("weiß", "weiß", "wissen"),
    "mögen": ("mag", "mag", "mögen"),
}
# The German past of these few verbs is the preterite; that of all others is the perfect tense.
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
