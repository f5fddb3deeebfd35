"""The API under /v1, and what holds for all routes."""

import math
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.tiny import ROOT, demo_pairs

SENTENCES = [source for source, _ in demo_pairs(40)]
EN_DE = {"source": "en", "target": "de"}


def test_a_translation_has_what_the_translator_has(server, translator):
    body = {**EN_DE, "texts": SENTENCES[:3], "n_best": 2, "alignment": True}
    answer = server.post("/v1/translate", json=body).json()
    assert {"source": "en", "target": "de"}.items() <= answer.items()
    expected = translator.translations(SENTENCES[:3], n_best=2, alignment=True)
    for text, translation, best in zip(SENTENCES, answer["translations"], expected, strict=False):
        [sentence] = translation["sentences"]
        assert (sentence["source"], sentence["space"]) == (text, "")
        assert translation["text"] == sentence["text"] == best[0].text
        found = [sentence, *sentence["alternatives"]]
        assert [each["text"] for each in found] == [each.text for each in best]
        for each, other in zip(found, best, strict=True):
            assert math.isclose(each["score"], other.score, rel_tol=1e-5)
            assert [tuple(pair) for pair in each["alignment"]] == other.alignment


def test_text_is_cut_into_sentences_if_asked(server, translator):
    body = {**EN_DE, "text": "The child is sleeping.  A dog sees it.\n\nYes.\n", "by_sentence": True}
    [found] = server.post("/v1/translate", json=body).json()["translations"]
    assert [each["source"] for each in found["sentences"]][:3] == ["The child is sleeping.", "A dog sees it.", "Yes."]
    assert "".join(each["space"] + each["source"] for each in found["sentences"]) == body["text"]
    assert found["text"].endswith("\n")


def test_documents_prefixes_terms_and_the_width_of_the_beam(server, translator):
    def first(**fields):
        answer = server.post("/v1/translate", json={**EN_DE, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["translations"][0]

    document = first(text="<p>A dog.</p>", format="html")
    assert document["text"] == translator.translate_document("<p>A dog.</p>", "html")
    assert document["sentences"][0]["score"] is None
    assert first(text=SENTENCES[0], prefixes=["Das ist"])["text"].startswith("Das ist")
    assert "Katze" in first(text="A dog.", terms=[{"source": "dog", "targets": ["Katze"]}])["text"]
    assert first(text=SENTENCES[0], beam_size=1)["text"] == translator.translate(SENTENCES[:1], beam_size=1)[0]


def test_auto_says_what_it_found(server):
    body = {"source": "auto", "target": "de", "text": "This is the house of my old friend."}
    detected = server.post("/v1/translate", json=body).json()["detected"]
    assert detected["language"] == "en" and 50 < detected["confidence"] <= 100
    refused = server.post("/v1/translate", json=body | {"text": "Das ist das alte Haus meines Freundes."})
    assert (refused.status_code, "not available as a target language" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"text": None}, "give either text or texts"),
        ({"texts": ["a"]}, "give either text or texts"),
        ({"text": None, "texts": []}, "texts"),
        ({"text": 5}, "text: "),
        ({"n_best": 12}, "n_best: "),
        ({"beam_size": 33}, "beam_size: "),
        ({"beam_size": True}, "beam_size: "),
        ({"secret": "x"}, "secret: "),
        ({"terms": [{"source": "a"}]}, "terms.0.targets: "),
        ({"source": None}, "give source and target"),
        ({"target": "xx"}, "xx is not supported"),
        ({"prefixes": ["a", "b"]}, "prefixes"),
        ({"prefixes": ["a" * 3000]}, "exceeds text limit"),
        ({"format": "html", "n_best": 2}, "n_best"),
    ],
)
def test_wrong_fields(server, fields, expected):
    response = server.post("/v1/translate", json={**EN_DE, "text": "A dog."} | fields)
    assert response.status_code == 400, response.text
    assert expected in response.json()["error"]


@pytest.mark.thorough
def test_an_answer_does_not_depend_on_the_others(server, translator):
    drawn = random.Random(4)
    asked = [drawn.choices(SENTENCES, k=drawn.randint(1, 4)) for _ in range(24)]
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda texts: server.translated(texts)["translatedText"], asked))
    assert found == [translator.translate(texts) for texts in asked]


def test_models(server):
    models = server.get("/v1/models").json()["models"]
    assert [(each["source"], each["target"], each["engine"]) for each in models] == [
        ("en", "de", "torch"),
        ("de", "en", "torch"),
    ]
    assert all("/" not in each["name"] for each in models)


def test_the_description_names_all_routes_and_refers_to_nothing_outside(server):
    document = server.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    names = set(document["components"]["schemas"])
    references = []

    def walk(value):
        if isinstance(value, dict):
            references.extend([value["$ref"]] if "$ref" in value else [])
            value = list(value.values())
        for each in value if isinstance(value, list) else []:
            walk(each)

    walk(document)
    assert references and {each.removeprefix("#/components/schemas/") for each in references} <= names
    for path, methods in document["paths"].items():
        [method] = methods
        response = server.get(path.replace("{name}", "x"))
        assert (response.status_code == 405) == (method == "post"), path


def test_the_page_and_its_headers(server):
    page = ROOT / "transformer_mt" / "serving" / "page"
    for path, name, kind in (
        ("/", "index.html", "html"),
        ("/page.js", "page.js", "javascript"),
        ("/page.css", "page.css", "css"),
    ):
        response = server.get(path)
        assert response.content == (page / name).read_bytes()
        assert kind in response.headers["content-type"]
    for path in ("/", "/health", "/nothing"):
        headers = server.get(path, headers={"Origin": "https://example.org"}).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.lower().startswith("access-control") or name.lower() == "server"]


def test_metrics_and_the_log_count_without_saying_what(server):
    before = server.get("/metrics").text
    server.translated("Confidential confession", api_key="verysecretkey")
    server.post("/translate?q=Confidential+query&source=en&target=de")
    server.get("/Confidential/path")
    server.translated("<2Confidential> x")
    after = server.get("/metrics").text

    def count(text: str, name: str) -> float:
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    route = 'transformer_mt_requests_total{method="POST",route="/translate",status="200"}'
    assert count(after, route) == count(before, route) + 3
    assert count(after, "transformer_mt_sentences_total") == count(before, "transformer_mt_sentences_total") + 3
    assert count(after, "transformer_mt_waiting_sentences") == 0
    line = server.logged(route="other", status=404)
    assert {"time", "method", "route", "status", "seconds", "client", "sentences"} == line.keys()
    said = server.running.err.read_text() + server.running.out.read_text() + after
    assert "Confidential" not in said and "confession" not in said and "verysecretkey" not in said
