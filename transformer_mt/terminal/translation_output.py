"""Writes translations as lines of text or of JSON."""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_mt.decoding.translation import Translation
from transformer_mt.settings.decoding import DecodingConfig
from transformer_mt.storage.json_text import finite


@dataclass(frozen=True)
class OutputForm:
    """What is written for each line of the input."""

    n_best: bool = False
    """Whether every translation that was found is written, on a line of its own, after the number of the input line and
    its score."""
    scores: bool = False
    """Whether the score is written before the translation."""
    alignment: bool = False
    """Whether the alignment is written after the translation."""
    json: bool = False
    """Whether one JSON object is written for each input line instead of columns."""

    @classmethod
    def of(cls, arguments: Namespace, decoding: DecodingConfig) -> "OutputForm":
        """Return the form that the arguments of `translate` ask for."""
        return cls(decoding.n_best > 1, arguments.scores, arguments.alignment, arguments.json)


def output_lines(translations: Sequence[Translation], line: int, seconds: float, form: OutputForm) -> str:
    """Return the text to write for an input line, which is numbered from 1; `seconds` is the time it took."""
    if form.json:
        return json.dumps(_object(translations, line, seconds, form), ensure_ascii=False) + "\n"
    chosen = translations if form.n_best else translations[:1]
    return "".join("\t".join(_columns(translation, line, form)) + "\n" for translation in chosen)


def _columns(translation: Translation, line: int, form: OutputForm) -> list[str]:
    columns = [str(line)] if form.n_best else []
    if form.n_best or form.scores:
        columns.append(f"{translation.score:.4f}")
    columns.append(translation.text)
    if form.alignment:
        columns.append(_pharaoh(translation))
    return columns


def _object(translations: Sequence[Translation], line: int, seconds: float, form: OutputForm) -> dict[str, object]:
    best, *_ = translations
    found: dict[str, object] = {"line": line, **_fields(best, form)}
    if form.n_best:
        found["n_best"] = [_fields(translation, form) for translation in translations]
    return found | {"seconds": round(seconds, 6)}


def _fields(translation: Translation, form: OutputForm) -> dict[str, object]:
    fields: dict[str, object] = {
        "translation": translation.text,
        "score": finite(translation.score, 6),
        "log_prob": finite(translation.log_prob, 6),
        "pieces": translation.pieces,
    }
    if form.alignment:
        fields["alignment"] = _pharaoh(translation)
    if translation.num_parts > 1:
        fields["parts"] = translation.num_parts
    if translation.is_short:
        fields["short"] = True
    if translation.at_limit:
        fields["at_limit"] = True
    return fields


def _pharaoh(translation: Translation) -> str:
    return " ".join(f"{source}-{target}" for source, target in translation.alignment or [])
