"""Packs an export for CTranslate2 as an .argosmodel, which Argos Translate and LibreTranslate install.

It is a zip archive of one directory, with metadata.json, the model of CTranslate2 in model/, and sentencepiece.model.
"""

import json
import zipfile
from pathlib import Path

from transformer_mt.base.languages import short_code
from transformer_mt.exporting.trained_model import Trained
from transformer_mt.storage.files import replacing
from transformer_mt.version import __version__

ENDING = ".argosmodel"
_ARGOS_VERSION = "1.9.0"  # the oldest version that reads this form
_MODEL_FILES = ("config.json", "model.bin", "shared_vocabulary.json")
_NAMES = dict(
    pair.split(":")
    for pair in "ar:Arabic bg:Bulgarian cs:Czech da:Danish de:German el:Greek en:English es:Spanish et:Estonian "
    "fi:Finnish fr:French he:Hebrew hi:Hindi hu:Hungarian id:Indonesian is:Icelandic it:Italian ja:Japanese ko:Korean "
    "lt:Lithuanian lv:Latvian nl:Dutch no:Norwegian pl:Polish pt:Portuguese ro:Romanian ru:Russian sk:Slovak "
    "sl:Slovenian sv:Swedish th:Thai tr:Turkish uk:Ukrainian vi:Vietnamese zh:Chinese".split()
)


def unsupported(trained: Trained) -> str | None:
    """The reason why Argos Translate cannot run this model; None if it can."""
    if trained.tokenizer.source is not trained.tokenizer.target:
        return "an .argosmodel has one sentencepiece model, and this model has one for each language"
    if trained.config.corpus.tags:
        return "Argos Translate writes no tags before sources, which this model needs"
    return None


def pack(directory: Path, trained: Trained, output: Path) -> None:
    """Write an export for CTranslate2, which is in `directory`, as the file `output`, completely or not at all."""
    source, target = (
        short_code(code) for code in (trained.config.corpus.source_language, trained.config.corpus.target_language)
    )
    name = f"translate-{source}_{target}-1_0"
    metadata = {
        "package_version": "1.0",
        "argos_version": _ARGOS_VERSION,
        "from_code": source,
        "from_name": _NAMES.get(source, source),
        "to_code": target,
        "to_name": _NAMES.get(target, target),
    }
    readme = f"# {metadata['from_name']} to {metadata['to_name']}\n\nMade by transformer_mt {__version__}.\n"
    with replacing(output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=2) + "\n")
        archive.writestr(f"{name}/README.md", readme)
        archive.write(directory / "tokenizer.model", f"{name}/sentencepiece.model")
        for part in _MODEL_FILES:
            archive.write(directory / part, f"{name}/model/{part}")
