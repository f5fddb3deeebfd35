"""sacreBLEU's named test sets, from a cache in the form that sacreBLEU makes; nothing is downloaded."""

import json
import os
import subprocess
import sys
import urllib.request
from urllib.error import URLError

import pytest
from sacrebleu.dataset import DATASETS

from transformer_mt.base.errors import EvaluationError
from transformer_mt.evaluation.evaluated_texts import read_named_sets
from transformer_mt.evaluation.metrics import NamedSet, file_name, find_named, key_of, read_named
from transformer_mt.evaluation.scores_json import ONLY_SCORES, score_lines
from transformer_mt.settings.corpus_settings import CorpusConfig

SOURCES = ["The dog sleeps.", "She sees a big house."]
REFERENCES = ["Der Hund schläft.", "Sie sieht ein großes Haus."]
OTHERS = ["Es schläft der Hund.", "Ein großes Haus sieht sie."]
HYPOTHESES = ["Der Hund schläft dort.", "Sie sieht ein Haus."]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A function that puts a test set into the cache: its source and its references. There is no network."""

    def no_network(*_, **__):
        raise URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    for name, dataset in DATASETS.items():
        monkeypatch.setattr(dataset, "_outdir", str(tmp_path / name))
        monkeypatch.setattr(dataset, "_rawdir", str(tmp_path / name / "raw"))

    def fill(name: str, pair: str, *references: list[str]) -> None:
        fields = {"src": SOURCES, "docid": ["d", "d"], "genre": ["g", "g"], "origlang": ["en", "en"]}
        names = ["ref"] if len(references) == 1 else [f"ref-{number}" for number in range(len(references))]
        for field, lines in (fields | dict(zip(names, references, strict=True))).items():
            path = tmp_path / name / f"{name.replace('/', '_')}.{pair}.{field}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    return fill


def corpus(train: object = "t", source: str = "en", target: str = "de") -> CorpusConfig:
    languages = {"source_language": source, "target_language": target}
    return CorpusConfig.model_validate({**languages, "train": train, "valid": "v", "test": {}})


def test_scores_are_those_of_sacrebleus_command_and_the_signature_names_the_test_set(cache, tmp_path):
    cache("wmt14/full", "en-de", REFERENCES)
    [(key, text)] = read_named_sets(["wmt14/full"], corpus()).items()
    assert (key, text.sources, text.references) == ("sacrebleu:wmt14/full", SOURCES, [REFERENCES])
    names = ["hypotheses", "reference"]
    found = score_lines(HYPOTHESES, text.references, "de", names, ONLY_SCORES, text.sources, named=text.named)
    bleu = found["scores"]["BLEU"]

    (tmp_path / "hypotheses").write_text("".join(f"{line}\n" for line in HYPOTHESES), encoding="utf-8")
    arguments = ["-t", "wmt14/full", "-l", "en-de", "-i", str(tmp_path / "hypotheses"), "-w", "9"]
    command, place = [sys.executable, "-m", "sacrebleu", *arguments], os.environ | {"SACREBLEU": str(tmp_path)}
    theirs = json.loads(subprocess.run(command, env=place, capture_output=True, text=True, check=True).stdout)
    assert bleu.value == pytest.approx(theirs["score"])
    assert bleu.signature == theirs["signature"].replace("nrefs:1|", "nrefs:1|test:wmt14/full|lang:en-de|")
    assert all("|test:wmt14/full|lang:en-de|" in score.signature for score in found["scores"].values())


def test_all_references_are_taken(cache):
    cache("wmt20/tworefs", "en-de", REFERENCES, OTHERS)
    [text] = read_named_sets(["wmt20/tworefs"], corpus()).values()
    assert text.references == [REFERENCES, OTHERS]


@pytest.mark.parametrize(
    ("train", "begin"),
    [
        ([{"name": "a", "tag": "<2de>", "path": "a"}, {"name": "b", "tag": "<2en>", "path": "b"}], ""),
        ([{"name": "a", "tag": "<2de>", "path": "a"}], "<2de> "),
        ([{"name": "a", "tag": "<2de>", "path": "a"}, {"name": "b", "path": "b"}], ""),
    ],
)
def test_sources_begin_with_the_tag_of_their_languages_if_there_is_only_one(cache, train, begin):
    cache("wmt14/full", "en-de", REFERENCES)
    [text] = read_named_sets(["wmt14/full"], corpus(train)).values()
    assert text.sources == [begin + source for source in SOURCES]


def test_codes_of_other_forms_are_understood():
    assert find_named("wmt20", ("en", "zho_Hans")) == NamedSet("wmt20", "en-zh")
    assert find_named("wmt20", ("en", "zh-CN")) == NamedSet("wmt20", "en-zh")


def test_names_cannot_be_those_of_a_configuration_nor_leave_their_directory():
    assert file_name(key_of("wmt14/full")) == "sacrebleu.wmt14_full" and file_name("news") == "news"
    with pytest.raises(ValueError, match="String should match pattern"):
        CorpusConfig.model_validate(corpus().model_dump() | {"test": {key_of("wmt17"): "x"}})


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        ("wmt71", ("en", "de"), r"--test-set wmt71: sacreBLEU knows no such test set; did you mean wmt"),
        ("../../etc", ("en", "de"), r"`python -m sacrebleu --list` lists all"),
        ("wmt17/tworefs", ("en", "de"), r"is not for en-de, .* it has en-fi"),
    ],
)
def test_unknown_names_and_other_languages_are_told(name, languages, message):
    with pytest.raises(EvaluationError, match=message):
        find_named(name, languages)


@pytest.mark.parametrize("name", ["wmt17", "wmt21", "mtnt2019"])
def test_what_is_neither_here_nor_can_be_downloaded_is_refused_with_the_reason_and_the_cure(cache, name):
    pair = next(iter(DATASETS[name].langpairs))
    with pytest.raises(
        EvaluationError, match=rf"--test-set {name}: is not in .*no network.* --download {name} -l {pair}"
    ):
        read_named(NamedSet(name, pair))


def test_a_download_that_ends_the_process_is_refused_likewise(cache, monkeypatch):
    monkeypatch.setattr(DATASETS["wmt17"], "maybe_download", lambda: sys.exit(1))
    with pytest.raises(EvaluationError, match="cannot get it"):
        read_named(NamedSet("wmt17", "en-de"))
