"""Translating documents with tags: what stays, for any translation; where tags go; documents of many kinds."""

import html
import random
import re
from collections import Counter

import lxml.etree
import lxml.html
import pytest
from helpers.messages import message
from helpers.thorough import thorough

from transformer_mt.base.errors import TranslationError
from transformer_mt.documents.markup import translate_markup


def identity(texts):
    return [(text, [(word, word) for word in range(len(text.split()))]) for text in texts]


def reversal(texts):
    split = [text.split() for text in texts]
    return [(" ".join(words[::-1]), [(n, len(words) - 1 - n) for n in range(len(words))]) for words in split]


def upper(texts):
    """Words that are not copies."""
    return [(text.upper(), pairs) for text, pairs in identity(texts)]


def invention(texts):
    """Random words with a random alignment, from text to text the same; sometimes nothing."""
    found = []
    for text in texts:
        rng = random.Random(text)
        words = [rng.choice(["Ja", "<b>", "„Nein“,", "&amp;", ".", *text.split()]) for _ in range(rng.randrange(8))]
        pairs = [(rng.randrange(-2, 12), rng.randrange(len(words) + 2)) for _ in range(rng.randrange(12))]
        found.append((" ".join(words), pairs))
    return found


def dictionary(translations):
    """A translation of each text that stands there, with its pairs in Pharaoh format."""

    def translate(texts):
        found = []
        for text in texts:
            translation, pairs = translations[text]
            found.append((translation, [tuple(map(int, pair.split("-"))) for pair in pairs.split()]))
        return found

    return translate


WORDS = ["Paris", "the", "house,", "(red)", "H", "2", "don't", "été", "&lt;b&gt;", "&amp;", "10&nbsp;km", "end."]
POINTS = [
    "<br>",
    '<img src="x y">',
    "<!-- a <b> -->",
    "<code>if a > b</code>",
    '<a id="here"></a>',
    "<kbd>&copy;</kbd>",
    "</>",
]
INLINE = ["b", "i", 'q cite="?a=1&amp;b"', 'span class="x"', "sub"]
BLOCKS = ["p", "div", "h1", "td", "li", "blockquote"]
KEPT = [
    "<pre>\n a &copy; <b>b</b>\n</pre>",
    "<script>if (a < b) '<b>'</script>",
    '<p translate="no">Some <b>name</b></p>',
]


def element(tag, content):
    return f"<{tag}>{content}</{tag.split()[0]}>"


def sentence(rng, depth):
    found = []
    for _ in range(rng.randrange(5)):
        kind = rng.random()
        if kind < 0.25 and depth:
            found.append(element(rng.choice(INLINE), sentence(rng, depth - 1)))
        elif kind < 0.4:
            found.append(rng.choice(POINTS))
        else:
            found.append(rng.choice(WORDS))
        found.append(rng.choice(["", " ", " ", " ", "\n  "]))
    return "".join(found)


def document(seed):
    """A random fragment of HTML, which is also XML but for its void elements and &nbsp;."""
    rng = random.Random(seed)

    def block(depth):
        if rng.random() < 0.1:
            return rng.choice(KEPT)
        if depth and rng.random() < 0.5:
            return element(rng.choice(["div", "section"]), "".join(block(depth - 1) for _ in range(rng.randrange(4))))
        return element(rng.choice(BLOCKS), sentence(rng, 3)) + rng.choice(["", "\n\n"])

    return "".join(block(3) for _ in range(rng.randrange(1, 4)))


def as_xml(text):
    closed = re.sub("<(br|img[^>]*)>", r"<\1/>", text.replace("</>", ""))
    closed = closed.replace("&nbsp;", "&#160;").replace("&copy;", "c")
    return f"<r>{closed.replace(KEPT[1], '')}</r>"


def tags(text):
    return Counter(re.findall("<[^>]*>", re.sub("<(code|kbd|pre|script)>.*?</\\1>", "", text, flags=re.DOTALL)))


def blocks(text):
    """The nesting of blocks, without inline elements and texts."""

    def of(node):
        return node.tag, [of(child) for child in node if child.tag in (*BLOCKS, "section", "pre", "script")]

    return [of(one) for one in lxml.html.fromstring(f"<main>{text}</main>")]


def content(text, parse=lxml.html.fromstring):
    """All elements in order, each with its attributes and all its words."""
    root = parse(f"<main>{text}</main>" if parse is lxml.html.fromstring else text)
    return [(str(node.tag), dict(node.attrib), " ".join(node.xpath("string()").split())) for node in root.iter()]


SEEDS = [*range(40), *thorough(*range(40, 400))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_identity_gives_the_same_document(seed):
    text = document(seed)
    assert content(translate_markup(text, "html", identity)) == content(text)
    xml = as_xml(text)
    assert content(translate_markup(xml, "xml", identity), lxml.etree.fromstring) == content(xml, lxml.etree.fromstring)


@pytest.mark.thorough
@pytest.mark.parametrize("translate", [upper, reversal, invention])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_translation_loses_or_repeats_or_breaks_anything(seed, translate):
    text, spoken = document(seed), []

    def recorded(texts):
        translations = translate(texts)
        spoken.extend(translation for translation, _ in translations)
        return translations

    found = translate_markup(text, "html", recorded)
    plain = found
    for kept in [*KEPT, *POINTS]:
        plain = plain.replace(kept, "")
    plain = html.unescape(re.sub("<[^>]*>", "", plain))
    assert re.sub(r"\W", "", plain) == re.sub(r"\W", "", "".join(spoken))
    assert tags(found) == tags(text)
    assert blocks(found) == blocks(text)
    for kept in [*KEPT, *POINTS]:
        assert found.count(kept) == text.count(kept)
    lxml.etree.fromstring(translate_markup(as_xml(text), "xml", translate))  # tags nest, and text has no tags


@pytest.mark.parametrize("seed", SEEDS)
def test_a_true_alignment_brings_each_word_into_its_element(seed):
    def words(text):
        nodes = lxml.html.fromstring(f"<main>{text}</main>").iter()
        return Counter((str(node.tag), *sorted(" ".join(node.itertext()).split())) for node in nodes)

    text = re.sub("<sub>|</sub>", "", document(seed))
    text = re.sub("|".join(map(re.escape, POINTS)), " ", text)
    text = re.sub("(?=<[bisq])|(?<=</[biq]>)|(?<=</span>)", " ", text)  # tags only between words
    assert words(translate_markup(text, "html", reversal)) == words(text)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("I went to <b>Paris</b> last summer", "SUMMER LAST <b>PARIS</b> TO WENT I"),
        ("<p>The <a href='x'>red <i>house</i></a>.</p>", "<p><a href='x'><i>HOUSE</i>. RED</a> THE</p>"),
        ("  <b>All</b> \n", "  <b>ALL</b> \n"),
        ("<p>\n  one\n  two\n</p>", "<p>\n  TWO ONE\n</p>"),
        ("&nbsp;one two&nbsp;", "\u00a0TWO ONE\u00a0"),
        ("a &lt;b&gt; &amp;", "&amp; &lt;B&gt; A"),
        ("<img> one <b>two</b>", "<img> <b>TWO</b> ONE"),
        ("one<br>two", "TWO ONE<br>"),
        ("one <i class=x></i> two", "TWO ONE <i class=x></i>"),
        ("<ul><li>one two<li>three</ul>", "<ul><li>TWO ONE<li>THREE</ul>"),
        ("a</>b <b>c</></b>d</>", "<b>CD</></b> AB</></>"),
        ("<b>one <p>two</p> three</b>", "<b>ONE <p>TWO</p> THREE</b>"),
        ("<b>one <i>two</b> three</i>", "<b>ONE <i>TWO</b> THREE</i>"),
        ("one <b>two", "ONE <b>TWO"),
        ("one </b>two", "ONE </b>TWO"),
        ("a < b", "B &lt; A"),
        ("one <!-- never closed <b>two</b>", "ONE <!-- never closed <b>two</b>"),
        ("one <a href='x", "ONE <a href='x"),
        ("* · <hr> | >", "* · <hr> | >"),
        ("<title>A B</title><style>p > b {}</style>", "<title>B A</title><style>p > b {}</style>"),
        ("<!DOCTYPE html>\n<p>A B<?php echo 1 ?>", "<!DOCTYPE html>\n<p>B A<?php echo 1 ?>"),
        ("a <img src=x alt='one two'> b", "B A <img src=x alt='TWO ONE'>"),
        ('<a TITLE="&quot;A&quot; &amp; b" href="title=x">c', '<a TITLE="B &amp; &#34;A&#34;" href="title=x">C'),
        ("<img alt=one/two title  =  'it&#39;s' >", "<img alt=\"ONE/TWO\" title  =  'IT&#39;S' >"),
        ('<input placeholder="a b"/><br title="">', '<input placeholder="B A"/><br title="">'),
        ('<code title="a b">x y</code> c', '<code title="B A">x y</code> C'),
        ('<p title="a b" translate="no">x <b title="a b">y</b></p>',) * 2,
        ('<img translate="no" alt="a b"><img translate="no" alt="a b"/><i data-title="a b" :title="a b">1</i>',) * 2,
        ('<i title="10 %">1</i><i title="&nbsp;">1</i><i "title=a b">1</i><i a="x"title="1">1</i>',) * 2,
        ("", ""),
    ],
)
def test_html(source, expected):
    def translate(texts):
        return [(text.upper(), pairs) for text, pairs in reversal(texts)]

    assert translate_markup(source, "html", translate) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<r><s>one <b>two</b> three</s><s>four</s></r>", "<r><s>THREE <b>TWO</b> ONE</s><s>FOUR</s></r>"),
        ("<r>one <x id='1'/> two</r>", "<r>TWO ONE <x id='1'/></r>"),
        ("<r><![CDATA[a <b>c</b>]]></r>", "<r><![CDATA[a <b>c</b>]]></r>"),
        ("<r>\n one&#10;&#x41;\n</r>", "<r>\n A ONE\n</r>"),
        ("<r><s translate='no'>one</s><S>two</S></r>", "<r><s translate='no'>one</s><S>TWO</S></r>"),
        (
            "<?xml version='1.0'?><!DOCTYPE r [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><r>one &e; two</r>",
            "<?xml version='1.0'?><!DOCTYPE r [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><r>TWO ONE &e;</r>",
        ),
    ],
)
def test_xml(source, expected):
    def translate(texts):
        return [(text.upper(), pairs) for text, pairs in reversal(texts)]

    assert translate_markup(source, "xml", translate) == expected


@pytest.mark.parametrize(
    ("source", "translations", "expected"),
    [
        # LibreTranslate #288, #806: a sentence is translated with its tags, not in pieces, also over several lines.
        (
            "<p>\n    I went\n    to <b>Paris</b> last summer.\n</p>",
            {"I went to Paris last summer.": ("Letzten Sommer war ich in Paris.", "4-0 5-1 1-2 0-3 2-4 3-5")},
            "<p>\n    Letzten Sommer war ich in <b>Paris</b>.\n</p>",
        ),
        # Bergamot, pull request 312: a rare word keeps its link, whatever pieces it has.
        (
            "See <a href='x'>Llanfairpwllgwyngyll</a>!",
            {"See Llanfairpwllgwyngyll!": ("Siehe Llanfairpwllgwyngyll!", "0-0 1-1")},
            "Siehe <a href='x'>Llanfairpwllgwyngyll</a>!",
        ),
        # Bergamot #288: tags are not swallowed. A link with words to which nothing is aligned gets a word beside them.
        (
            "Look at <a href='x'>this</a> <i>house</i> now",
            {"Look at this house now": ("Sieh das Haus an", "0-0 3-2 1-3")},
            "Sieh das <i>Haus</i> <a href='x'>an</a>",
        ),
        (
            "Take <a href='x'>it</a> <i>now</i>",
            {"Take it now": ("Jetzt", "2-0")},
            "<a href='x'></a><i>Jetzt</i>",
        ),
        # An element whose words stand in two places: the complete span, if little is between.
        (
            "He <b>has slept</b> well today",
            {"He has slept well today": ("Er hat gut geschlafen heute", "0-0 1-1 3-2 2-3 4-4")},
            "Er <b>hat gut geschlafen</b> heute",
        ),
        (
            "He <b>did not get up</b> before ten",
            {"He did not get up before ten": ("Er stand vor zehn Uhr nicht auf", "0-0 3-1 5-2 6-3 6-4 2-5 4-6")},
            "Er stand vor zehn Uhr <b>nicht auf</b>",
        ),
        # An element stays in its parent, although its word has left it, and the words stay in order.
        (
            "<b>One <i>two</i> three</b> four",
            {"One two three four": ("Eins drei vier vier vier zwei", "0-0 2-1 3-2 3-3 3-4 1-5")},
            "<b><i>Eins</i> drei</b> vier vier vier zwei",
        ),
        # Another element is never taken in.
        (
            "<i>He</i> <b>takes it off</b> <u>now</u> again",
            {"He takes it off now again": ("Er zieht es jetzt aus wieder", "0-0 1-1 2-2 4-3 3-4 5-5")},
            "<i>Er</i> <b>zieht es</b> <u>jetzt</u> aus wieder",
        ),
    ],
)
def test_sentences_of_others(source, translations, expected):
    assert translate_markup(source, "html", dictionary(translations)) == expected


ATTRIBUTES = ["alt", "title", "placeholder", "aria-label", "label", "abbr"]
OTHERS = ["href", "class", "data-alt", "lang", "value", "titles"]


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_values_of_attributes_that_are_text_change(seed):
    rng = random.Random(seed)

    def attributes(translated):
        rng = random.Random(seed)
        written = []
        for name in rng.sample(ATTRIBUTES + OTHERS, 6):
            value = " ".join(rng.choices(["Tom's", '"one"', "a&b", "x<y>", "é=/", "end."], k=3))
            value = value.upper() if translated and name in ATTRIBUTES else value
            quote = rng.choice("\"'")
            written.append(f"{name}={quote}{html.escape(value)}{quote}")
        return " ".join(written)

    tag = rng.choice(["<img {}>", "<p {}>x", "<i {}></i>", "<textarea {}>a <b></textarea>", "a <b {}>b</b> c"])
    found = translate_markup(tag.format(attributes(translated=False)), "html", upper)
    expected = tag.format(attributes(translated=True))
    [before], [after] = (
        [one.items() for one in lxml.html.fromstring(f"<main>{text}</main>")] for text in (expected, found)
    )
    assert after == before


def test_entities_never_become_tags():
    # LibreTranslate unescapes its answer, so that &lt;b&gt; comes back as a tag.
    found = translate_markup("<p>&lt;script&gt; is &amp;lt; a <b>tag</b></p>", "html", identity)
    assert found == "<p>&lt;script&gt; is &amp;lt; a <b>tag</b></p>"


def test_a_language_without_spaces_has_pairs_of_characters():
    translate = dictionary({"I love you": ("我爱你", "0-0 1-1 2-2")})
    assert translate_markup("I <b>love</b> you", "html", translate, ("en", "zh")) == "我<b>爱</b>你"
    translate = dictionary({"我爱你": ("I love you", "0-0 1-1 2-2")})
    assert translate_markup("我<b>爱</b>你", "html", translate, ("zh", "en")) == "I <b>love</b> you"


def test_text_without_tags_is_translated_alone():
    assert translate_markup("Tom & Ann", "html", lambda texts: [(f"{texts[0]} <3", [])]) == "Tom &amp; Ann &lt;3"


def test_all_texts_are_translated_together():
    calls = []
    translate_markup("<p>one<p>two<td>three", "html", lambda texts: calls.append(texts) or identity(texts))
    assert calls == [["one", "two", "three"]]


@pytest.mark.parametrize(
    ("source", "code", "facts"),
    [
        ("<a>\n<b></a>", "xml-not-well-formed", ["line 2, column 6", "mismatched tag"]),
        ("<a>&nbsp;</a>", "xml-not-well-formed", ["line 1, column 4"]),
        ("", "xml-not-well-formed", ["line 1"]),
        ("<?xml version='1.0' encoding='latin-1'?><a/>", "xml-not-utf-8", ["latin-1"]),
    ],
)
def test_xml_that_cannot_be_read(source, code, facts):
    with pytest.raises(TranslationError, match=message(code, *facts)):
        translate_markup(source, "xml", identity)


N = 20_000
BOMB = "".join(f"<!ENTITY e{n + 1} '{f'&e{n};' * 10}'>" for n in range(10))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        "<div>" * N + "deep" + "</div>" * N,
        "a <b>b " * N + "</b>" * N,
        "<p>" + "a <b>b</b> <br> " * N,
        "<a" * N,
        "<!--" * N,
        "<!-- >" * N,
        "<a x='" * N,
        "</b>" * N + "<i>" * N + "</b>" * N,
        "<code>" * N,
        "." * N + "a" + "." * N + "<b>b</b>",
    ],
    ids=lambda text: text[:10],
)
@pytest.mark.parametrize("translate", [identity, invention])
def test_hostile_html_takes_seconds(text, translate):
    found = translate_markup(text, "html", translate)
    assert Counter(re.findall("</?[abcdip]+|<!--", found)) == Counter(re.findall("</?[abcdip]+|<!--", text))


@pytest.mark.thorough
def test_hostile_xml():
    bomb = f"<!DOCTYPE r [<!ENTITY e0 'x'>{BOMB}]><r>one &e10; two</r>"
    assert translate_markup(bomb, "xml", identity) == bomb
    deep = "<r>" * N + "a <b>b</b>" + "</r>" * N
    assert translate_markup(deep, "xml", identity) == deep


def test_a_word_does_not_stick_to_a_point_whose_brackets_the_translation_has_lost():
    def without_brackets(texts):
        return [("Der Hund im Garten", [(0, 0), (1, 1), (4, 3)]) for _ in texts]

    found = translate_markup("The dog (<code>x</code>) sleeps in the garden", "html", without_brackets)
    assert re.search(r"\w <code>x</code> \w", found) and found.count("<code>x</code>") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>a <!--> b</p>", "<p>A <!--> B</p>"),
        ("<p>a <!---> b</p>", "<p>A <!---> B</p>"),
        ("<p>a <!----> b</p><!--->", "<p>A <!----> B</p><!--->"),
        ("<!--><p>a</p><!-- b --><p>c</p><!-- d", "<!--><p>A</p><!-- b --><p>C</p><!-- d"),
        ("<!-- a <!--> b", "<!-- a <!--> B"),
        ("<script>a<!-->b</script> c", "<script>a<!-->b</script> C"),
        ("<svg><text><![CDATA[a > b --> c <!-- d]]></text></svg> e", None),
        ("<math><mi><![CDATA[<b>a</b>]]></mi></math> e", None),
        ("<svg><title>a<![CDATA[b\n> c]]></title></svg>", "<svg><title>A<![CDATA[b\n> c]]></title></svg>"),
        ("a<![CDATA[b", "A<![CDATA[b"),
    ],
)
def test_empty_comments_and_cdata_are_no_text(text, expected):
    """Versions of Python's parser differ here; HTML Living Standard, sections 13.2.5.43 and 13.2.5.69."""
    assert translate_markup(text, "html", identity) == text
    assert translate_markup(text, "html", upper) == (expected or text.removesuffix("e") + "E")
