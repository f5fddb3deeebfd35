"""What is exported for Argos Translate: it installs the file, and translates as our engine does."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec

import pytest
from helpers.messages import message
from helpers.tiny import demo_pairs

from transformer_mt import export
from transformer_mt.base.errors import UserError
from transformer_mt.decoding.translator import Translator

pytestmark = pytest.mark.skipif(find_spec("ctranslate2") is None, reason="ctranslate2 is not installed")

LINES = [source for source, _ in demo_pairs(12)]
# Argos Translate splits text into sentences by a model that it downloads. Here each text is one sentence.
ARGOS = """
import sys
from argostranslate import package, translate

class OneSentence:
    def split_sentences(self, text):
        return [text]

package.install_from_path(sys.argv[1])
languages = {language.code: language for language in translate.get_installed_languages()}
translation = languages["en"].get_translation(languages["de"])
inner = translation
while not hasattr(inner, "sentencizer"):
    inner = inner.underlying
inner.sentencizer = OneSentence()
for line in sys.stdin.read().splitlines():
    print(translation.translate(line))
"""


@pytest.fixture(scope="module")
def packed(model_dir, tmp_path_factory):
    """A trained model; to be read alone."""
    path = tmp_path_factory.mktemp("argos") / "en_de.argosmodel"
    assert export.main([str(model_dir), str(path), "--format", "argos"]) == 0
    return path


def test_the_archive_has_what_argos_translate_reads(packed):
    with zipfile.ZipFile(packed) as archive:
        names = archive.namelist()
        metadata = json.loads(archive.read("translate-en_de-1_0/metadata.json"))
    assert {name.split("/")[0] for name in names} == {"translate-en_de-1_0"}
    assert {name.partition("/")[2] for name in names} == {
        *("metadata.json", "README.md", "sentencepiece.model"),
        *("model/config.json", "model/model.bin", "model/shared_vocabulary.json"),
    }
    assert (metadata["from_code"], metadata["from_name"]) == ("en", "English")
    assert (metadata["to_code"], metadata["to_name"]) == ("de", "German")


@pytest.mark.skipif(find_spec("argostranslate") is None, reason="argostranslate is not installed")
def test_argos_translate_translates_as_we_do(packed, model_dir, tmp_path):
    places = {f"XDG_{name}_HOME": str(tmp_path) for name in ("DATA", "CONFIG", "CACHE")}
    command = [sys.executable, "-c", ARGOS, str(packed)]
    text = "\n".join(LINES)
    done = subprocess.run(command, input=text, env={**os.environ, **places}, capture_output=True, text=True, check=True)
    export.export(model_dir, tmp_path / "ct2", "ctranslate2")
    ours = Translator.load(tmp_path / "ct2", "cpu", engine="ctranslate2")
    wanted = {"beam_size": 4, "length_penalty": 0.2, "length_penalty_form": "average", "max_extra_length": 500}
    decoding = ours.decoding.model_copy(update=wanted | {"split_sentences": "never"})
    found = [each[0] for each in ours.translations(LINES, decoding)]
    theirs = done.stdout.splitlines()
    ended = [i for i, each in enumerate(found) if len(each.pieces) < 100]
    assert len(ended) > 6
    assert [" ".join(theirs[i].split()) for i in ended] == [found[i].text.replace("_", " ") for i in ended]


def test_only_a_file_with_this_ending_is_written(model_dir, tmp_path):
    with pytest.raises(UserError, match=message("argos-writes-a-file", "exported.argosmodel")):
        export.main([str(model_dir), str(tmp_path / "exported"), "--format", "argos"])
    assert list(tmp_path.iterdir()) == []


def test_a_model_with_two_vocabularies_is_refused(separate_tokenizer, tmp_path):
    from helpers.untrained import write_untrained

    model_dir = write_untrained(tmp_path / "model", separate_tokenizer, tied_embeddings="target")
    with pytest.raises(UserError, match=message("cannot-be-exported-as-argos", "one for each language")):
        export.main([str(model_dir), str(tmp_path / "exported.argosmodel"), "--format", "argos"])
    assert not (tmp_path / "exported.argosmodel").exists()
