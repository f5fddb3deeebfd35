"""LibreTranslate's API: every route, every error, and the clients that exist for it."""

import pytest
from helpers.tiny import demo_pairs

requests = pytest.importorskip("requests")

SENTENCES = [source for source, _ in demo_pairs(8)]
EN_DE = {"source": "en", "target": "de"}


def error_of(response: requests.Response, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.json().keys() == {"error"}
    return response.json()["error"]


@pytest.mark.parametrize("sent", ["json", "data", "params", "files"])
def test_fields_come_as_json_as_a_form_or_in_the_query(server, translator, sent):
    fields = {"q": SENTENCES[0], **EN_DE}
    if sent == "files":
        fields = {name: (None, value) for name, value in fields.items()}
    answer = server.post("/translate", **{sent: fields}).json()
    assert answer == {"translatedText": translator.translate(SENTENCES[:1])[0]}


def test_a_list_is_answered_by_a_list(server, translator):
    texts = [*SENTENCES, "", "  ", "two\nlines\n"]
    found = server.translated(texts)["translatedText"]
    assert found[: len(SENTENCES)] == translator.translate(SENTENCES)
    two = "\n".join(translator.translate(["two", "lines"])) + "\n"
    assert found[len(SENTENCES) :] == ["", "  ", two]


def test_alternatives_are_different_translations_and_only_given_if_asked_for(server):
    one = server.translated(SENTENCES[0], alternatives=3)
    assert 0 < len(one["alternatives"]) <= 3
    assert len({one["translatedText"], *one["alternatives"]}) == 1 + len(one["alternatives"])
    assert server.translated([SENTENCES[0]], alternatives="3")["alternatives"] == [one["alternatives"]]
    assert server.translated(SENTENCES[0], alternatives=2, format="html")["alternatives"] == []
    assert "alternatives" not in server.translated(SENTENCES[0], alternatives=0)


def test_markup_stays_and_signs_that_would_be_markup_stay_text(server, translator):
    html = f'<p class="a">{SENTENCES[0]}</p>\n<pre>x  &lt;b&gt; y</pre>'
    found = server.translated([html], format="html")["translatedText"][0]
    assert found.startswith('<p class="a">') and found.endswith("</p>\n<pre>x  &lt;b&gt; y</pre>")
    assert found == translator.translate_document(html, "html")


@pytest.mark.parametrize("text", ["🙂", "…", "\u200b", "\x00", "日本語", "<2de>", "\u2028"])
def test_no_translation_is_empty(server, text):
    assert server.translated(text)["translatedText"].strip("\n") or not text.strip()


def test_the_source_language_is_found(server, translator):
    found = server.translated("This is the house of my old friend.", source="auto")
    assert found["detectedLanguage"]["language"] == "en"
    assert 50 < found["detectedLanguage"]["confidence"] <= 100
    assert found["translatedText"] == translator.translate(["This is the house of my old friend."])[0]
    both = server.translated(["Ich sehe das alte Haus", "und die Kinder"], source="auto", target="en")
    assert [each["language"] for each in both["detectedLanguage"]] == ["de", "de"]
    german = server.translated("Das ist das alte Haus meines Freundes.", source="AUTO")
    assert german["detectedLanguage"]["language"] == "de"
    assert german["translatedText"] == "Das ist das alte Haus meines Freundes.", "which is German already"
    assert server.translated("12", source="auto")["detectedLanguage"] == {"language": "en", "confidence": 0}


def test_detect(server):
    found = server.post("/detect", data={"q": "Das ist ein altes Haus, und ich sehe es."}).json()
    assert [each["language"] for each in found] == ["de", "en"]
    assert found[0]["confidence"] > found[1]["confidence"]
    assert server.post("/detect", json={"q": "123 !"}).json() == [{"confidence": 0, "language": "en"}]


def test_languages_and_settings(server):
    assert server.get("/languages", data="ignored").json() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    settings = server.get("/frontend/settings").json()
    assert settings["charLimit"] == 3000
    assert not settings["keyRequired"] and not settings["apiKeys"] and not settings["suggestions"]
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert {".txt", ".html", ".xml", ".srt", ".vtt"} <= set(settings["supportedFilesFormat"])
    assert server.get("/health").json() == {"status": "ok"}


SRT = "1\r\n00:00:01,000 --> 00:00:02,000\r\n{}\r\n"
PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{}"\nmsgstr ""\n'


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "form", "content"),
    [
        ("a b.TXT", "text", "{}\r\n\r\nA dog.\r\n"),
        ("../../x.html", "html", "<title>{}</title>"),
        ("x.xml", "xml", "<a>{}</a>"),
        ("x.md", "markdown", "# {}\n\n```\ncode\n```\n"),
        ("x.srt", "srt", SRT),
        ("x.vtt", "vtt", "WEBVTT\n\nNOTE A dog.\n\n00:01.000 --> 00:02.000 line:1\n<v Ann>{}\n"),
        ("x.po", "po", PO),
    ],
)
def test_files(server, translator, name, form, content):
    if form in ("po", "markdown"):
        pytest.importorskip({"po": "polib", "markdown": "markdown_it"}[form])
    text = content.format(SENTENCES[0])
    answer = server.post("/translate_file", data=EN_DE, files={"file": (name, b"\xef\xbb\xbf" + text.encode())})
    assert answer.status_code == 200, answer.text
    url = answer.json()["translatedFileUrl"]
    assert url.startswith(server.url + "/download_file/")
    got = requests.get(url, timeout=60)
    expected = translator.translate([SENTENCES[0], "A dog."])
    wanted = "{}\r\n\r\n{}\r\n".format(*expected) if form == "text" else translator.translate_document(text, form)
    assert got.content.decode() == wanted
    assert got.headers["content-disposition"].startswith("attachment"), "a page that a client sends never runs here"


@pytest.mark.thorough
def test_files_in_other_encodings(server, translator):
    pytest.importorskip("polib")
    catalogue = PO.replace("UTF-8", "ISO-8859-15").format(SENTENCES[0]) + "# \u20ac\n"
    for name, content in (("x.txt", SENTENCES[0].encode("utf-16")), ("x.po", catalogue.encode("iso-8859-15"))):
        answer = server.post("/translate_file", data=EN_DE, files={"file": (name, content)}).json()
        got = requests.get(answer["translatedFileUrl"], timeout=60).content.decode()
        assert translator.translate([SENTENCES[0]])[0] in got and "ISO" not in got


def test_errors_of_files(server):
    def send(content: bytes, name: str, **fields):
        return server.post("/translate_file", data=EN_DE | fields, files={"file": (name, content)})

    assert error_of(send(b"x", "x.pdf"), 400) == ".pdf format is not supported"
    assert "UTF-8" in error_of(send(b"\xff\xfe\x00", "x.txt"), 400)
    assert error_of(send(b"<a><b></a>", "x.xml"), 400)
    assert error_of(send(b"x", "x.txt", target="zz"), 400) == "zz is not supported"
    assert "exceeds text limit (3000)" in error_of(send(b"x" * 3001, "x.txt"), 400)
    assert error_of(server.post("/translate_file", data=EN_DE), 400) == "Invalid request: missing file parameter"
    for name in ("x.txt", "..%2f..%2fetc%2fpasswd", "%00", ""):
        error_of(server.get(f"/download_file/{name}"), 404)


@pytest.mark.parametrize("name", ["q", "source", "target"])
@pytest.mark.parametrize("sent", ["json", "data"])
def test_a_missing_or_empty_field_is_named(server, name, sent):
    fields = {"q": "x", **EN_DE}
    for lacking in ({key: value for key, value in fields.items() if key != name}, fields | {name: ""}):
        assert (
            error_of(server.post("/translate", **{sent: lacking}), 400) == f"Invalid request: missing {name} parameter"
        )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"alternatives": "x"}, "alternatives parameter is not a number"),
        ({"alternatives": [1]}, "alternatives parameter is not a number"),
        ({"alternatives": 11}, "alternatives parameter must be <= 10"),
        ({"alternatives": -1}, "alternatives parameter must be >= 0"),
        ({"q": "x" * 3001}, "request (3001) exceeds text limit (3000)"),
        ({"q": ["x"] * 41}, "request (41) exceeds text limit (40)"),
        ({"q": 5}, "q parameter is not"),
        ({"q": ["x", 5]}, "q parameter is not"),
        ({"source": "zz"}, "zz is not supported"),
        ({"source": ["en"]}, "source parameter is not a text"),
        ({"target": "\ud83d\ude42" * 500}, "is not supported"),
        ({"format": "markdown"}, "markdown format is not supported"),
        ({"target": "en"}, "English (en) is not available as a target language from English (en)"),
    ],
)
def test_wrong_fields(server, fields, expected):
    found = error_of(server.post("/translate", json={"q": "x", **EN_DE} | fields), 400)
    assert expected in found
    assert len(found) < 150


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"q"', b"null", b'{"q": NaN}', b'{"q": "\\ud800"}', b"[" * 9999, b"\xff"]
)
def test_what_is_no_object_of_json(server, body):
    response = server.post("/translate", data=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert error_of(response, 400) == "Invalid JSON format"


@pytest.mark.parametrize("charset", ["unicode_escape", "punycode", '"UTF-7"'])
def test_a_form_in_a_dangerous_charset_is_refused(server, charset):
    parts = [
        f'--X\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {"q": "\\ud800 +2AA-", **EN_DE}.items()
    ]
    headers = {"Content-Type": f"multipart/form-data; boundary=X; charset={charset}"}
    response = server.post("/translate", data="".join(parts) + "--X--\r\n", headers=headers)
    assert "charset" in error_of(response, 400)


def test_a_number_that_is_infinite_for_a_computer(server):
    body = b'{"q": "x", "source": "en", "target": "de", "alternatives": 1e999}'
    response = server.post("/translate", data=body, headers={"Content-Type": "application/json"})
    assert "is not a number" in error_of(response, 400)


def test_the_description_is_also_where_libretranslate_has_it(server):
    document = server.get("/spec").json()
    assert document == server.get("/openapi.json").json()
    assert {"/translate", "/detect", "/languages", "/frontend/settings"} <= document["paths"].keys()


def test_wrong_methods_and_routes(server):
    for path in ("/detect", "/translate", "/v1/translate", "/translate_file"):
        assert error_of(server.get(path), 405) == "Method Not Allowed"
    for path in ("/languages", "/health", "/spec", "/v1/models"):
        assert error_of(server.post(path, data={}), 405) == "Method Not Allowed"
    assert error_of(server.get("/nothing/here"), 404) == "Not Found"
    assert "disabled" in error_of(server.post("/suggest", data={"q": "x", "s": "y"}), 403)


def test_libretranslatepy(server, translator):
    api = pytest.importorskip("libretranslatepy").LibreTranslateAPI(server.url)
    assert api.translate(SENTENCES[1], "en", "de") == translator.translate([SENTENCES[1]])[0]
    assert api.detect("Das ist ein altes Haus.")[0]["language"] == "de"
    assert {each["code"] for each in api.languages()} == {"de", "en"}


def test_deep_translator(server, translator):
    pytest.importorskip("deep_translator")
    from deep_translator import LibreTranslator

    client = LibreTranslator(source="en", target="de", api_key="any", custom_url=server.url + "/")
    assert client.translate(SENTENCES[2]) == translator.translate([SENTENCES[2]])[0]


def test_weblate_and_wagtail_localize(server, translator):
    weblate = {"api_key": "", "q": SENTENCES[:3], **EN_DE}
    assert server.post("/translate", json=weblate).json() == {"translatedText": translator.translate(SENTENCES[:3])}
    wagtail = {"q": [f"<b>{SENTENCES[0]}</b>"], **EN_DE, "format": "html"}
    [found] = server.post("/translate", json=wagtail).json()["translatedText"]
    assert found == f"<b>{translator.translate(SENTENCES[:1])[0]}</b>"
