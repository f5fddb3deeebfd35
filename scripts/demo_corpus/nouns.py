"""Lists adjectives, nouns and names, and groups of them."""

from demo_corpus.entries import GENDERS, Noun, Text, rows, texts


def nouns(table: str, adjectives: str) -> tuple[Noun, ...]:
    fitting = tuple(Text(english, ADJECTIVES[english]) for english in adjectives.split())
    found = []
    for english, plural, letter, german, german_plural in rows(table):
        gender = GENDERS["mfnp".index(letter)]
        found.append(Noun(english, plural, gender, german, german_plural, fitting))
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
