"""What the HTTP part makes of what a model answers, with a stand-in for the model."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from helpers.optional import skip_without_package_of

from transformer_mt.base.errors import TranslationError
from transformer_mt.serving.jobs import Answer, Found, Sentence

skip_without_package_of("serve")

from transformer_mt.serving import libretranslate  # noqa: E402
from transformer_mt.serving.app import application  # noqa: E402
from transformer_mt.serving.libretranslate import KeptFiles  # noqa: E402
from transformer_mt.serving.limits import Limits  # noqa: E402
from transformer_mt.serving.model_process import Unavailable  # noqa: E402
from transformer_mt.serving.service import Service  # noqa: E402

PAIRS = [("zh", "en", "<2en>"), ("zt", "en", None), ("en", "pb", None), ("de_AT", "en", None)]


class Echo:
    """Answers a job by its tag and its texts, or raises an error."""

    def __init__(self, error: Exception | None = None, gives_nothing: bool = False) -> None:
        self.info = SimpleNamespace(name="echo", pairs=PAIRS, engine="torch")
        self.error, self.gives_nothing = error, gives_nothing

    async def answer(self, job) -> Answer:
        if self.error:
            raise self.error
        found = ["" if self.gives_nothing else f"{job.tag} {text}" for text in job.texts]
        one = [(Found(text=text, score=None, log_prob=-1.0, doubts=[]),) for text in found]
        return tuple((Sentence(text, "", "", each),) for text, each in zip(job.texts, one, strict=True))


ECHO = Echo()


@pytest.fixture(scope="module", autouse=True)
def app():
    """One for all tests, because it takes a moment to load the identifier of languages."""
    ask.app = application(Service([ECHO], Limits(queue=9, characters=99, texts=9, seconds=9)))


def ask(model: Echo, path: str, body: dict | None = None, leaves: bool = False) -> tuple[int, object]:
    """The status and the answer of one request, of which `body` is the JSON, if the model is like this one.

    With `leaves`, the client closes its connection after it has sent the request.
    """
    content, sent = b"" if body is None else json.dumps(body).encode(), []
    scope = {
        "type": "http",
        "method": "GET" if body is None else "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))],
        "state": {},
    }

    messages = [{"type": "http.request", "body": content}, *([{"type": "http.disconnect"}] if leaves else [])]

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    async def answered():
        await ask.app(scope, receive, send)
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something goes on after the answer"

    vars(ECHO).update(vars(model))
    asyncio.run(answered())
    start, *parts = sent
    return start["status"], json.loads(b"".join(part["body"] for part in parts))


@pytest.mark.thorough
def test_an_unexpected_error_tells_the_client_nothing_and_the_log_no_text(capsys):
    for path in ("/translate", "/v1/translate"):
        body = {"source": "zh", "target": "en"} | ({"q": "x"} if path == "/translate" else {"text": "x"})
        answer = ask(Echo(ValueError("a secret text in /home/me")), path, body)
        assert answer == (500, {"error": "internal error"})
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert line["failure"][0] == "ValueError"
    assert "test_app.py" in line["failure"][-1]
    assert "secret" not in str(line)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (TranslationError("too many tags"), 400, "too many tags"),
        (Unavailable("process 7"), 503, "try again"),
        (TimeoutError(), 504, "no answer"),
    ],
)
def test_other_errors_of_a_model(error, status, text):
    found, answer = ask(Echo(error), "/translate", {"q": "x", "source": "zh", "target": "en"})
    assert found == status and text in answer["error"]
    assert "process 7" not in answer["error"]


def test_the_job_of_a_client_that_leaves_is_given_up(capsys, monkeypatch):
    ends = []

    async def answer(job):
        try:
            await asyncio.sleep(30)
        finally:
            ends.append(job.texts)

    monkeypatch.setattr(ECHO, "answer", answer)
    for path, name in (("/translate", "q"), ("/v1/translate", "text")):
        assert ask(Echo(), path, {name: "x", "source": "zh", "target": "en"}, leaves=True)[0] == 400
    assert ends == [("x",), ("x",)]
    assert json.loads(capsys.readouterr().err.splitlines()[-1])["status"] == 400


@pytest.mark.parametrize("code", ["zh", "zh-Hans", "ZH_hans", "zh-CN"])
def test_codes_that_stand_for_one_language(code):
    assert ask(Echo(), "/translate", {"q": "x", "source": code, "target": "EN"}) == (200, {"translatedText": "<2en> x"})
    other = {"q": "x", "source": "zh-TW", "target": "en"}
    assert ask(Echo(), "/translate", other) == (200, {"translatedText": "None x"})


def test_languages_have_the_codes_of_libretranslate_and_names():
    _, languages = ask(Echo(), "/languages")
    assert {each["code"]: (each["name"], each["targets"]) for each in languages} == {
        "de-AT": ("German (de-AT)", ["en"]),
        "en": ("English", ["pt-BR"]),
        "pt-BR": ("Portuguese (Brazil)", []),
        "zh-Hans": ("Chinese", ["en"]),
        "zh-Hant": ("Chinese (traditional)", ["en"]),
    }


def test_a_text_for_which_the_model_finds_nothing_stays():
    texts = {"q": ["x", "", " "], "source": "zh", "target": "en"}
    assert ask(Echo(gives_nothing=True), "/translate", texts) == (200, {"translatedText": ["x", "", " "]})
    _, answer = ask(Echo(gives_nothing=True), "/v1/translate", {"text": "x", "source": "zh", "target": "en"})
    assert answer["translations"][0]["text"] == "", "where the doubts say why"


def test_files_are_kept_up_to_a_size_the_newest_and_for_a_while(monkeypatch):
    files = KeptFiles()

    async def kept():
        names = [files.keep(bytes(2**25), ".txt") for _ in range(3)]
        monkeypatch.setattr(libretranslate, "_SECONDS", 0.01)
        short = files.keep(b"", ".txt")
        assert short in files
        await asyncio.sleep(0.1)
        return [*names, short]

    names = asyncio.run(kept())
    assert [name in files for name in names] == [False, True, True, False]
    assert len(set(names)) == 4 and all(len(name) > 30 for name in names)
