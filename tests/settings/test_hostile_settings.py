"""Whatever a configuration or a command says, it works, or ends with an error that names the key."""

import re

import pytest
from helpers.hostile import Case, configurations, decodings, time_limit
from helpers.tiny import ROOT

from transformer_mt import export
from transformer_mt.base.errors import UserError
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.settings.section import fingerprint
from transformer_mt.storage.files import parse_json
from transformer_mt.terminal.translation_output import OutputForm, output_lines

BASE = (ROOT / "configs/demo_en_de.yaml").read_text(encoding="utf-8")
LINES = ["The child is sleeping.", "", "A dog sees the old house. The child is sleeping."]
SMALL = {"mbr_candidates": 8, "beam_size": 9, "n_best": 9, "max_extra_length": 15, "min_length": 15}
LARGE = {"mbr_candidates": 60, "beam_size": 1000, "n_best": 1000, "max_extra_length": 60, "min_length": 60}
JSON = OutputForm(n_best=True, scores=True, alignment=False, json=True)


def try_configuration(case: Case, directory) -> bool:
    """Whether it is allowed; its error says of each override that it is about, which key and what is wrong with it."""
    path = directory / "x.yaml"
    path.write_text(case.text, encoding="utf-8")
    try:
        with time_limit(30):
            config = load_config(path, case.overrides)
            config.training.schedule_warning()
            fingerprint(config)
            (directory / "again.yaml").write_text(dump_config(config), encoding="utf-8")
            assert load_config(directory / "again.yaml") == config
    except UserError as error:
        message = str(error)
        assert re.match(r"(override |\S*x\.yaml|.*: is not a setting)", message, re.DOTALL), message
        assert len(message) < 20_000
        return False
    return True


def try_decoding(overrides: list[str], translator: Translator, model_dir) -> bool:
    """Whether it is allowed; then each line has its translations, and they are written as JSON."""
    try:
        with time_limit(300):
            decoding = load_config(model_dir / "config.yaml", overrides, "decoding").decoding
            found = translator.translations(LINES, decoding)
    except UserError as error:
        assert any(override.partition("=")[0] in str(error) for override in overrides), error
        return False
    assert len(found) == len(LINES)
    assert all(1 <= len(translations) <= decoding.n_best for translations in found)
    for number, translations in enumerate(found, start=1):
        assert parse_json(output_lines(translations, number, 0.0, JSON, ""))["line"] == number
    return True


@pytest.mark.thorough
def test_configurations_work_or_are_refused(tmp_path):
    allowed = [try_configuration(case, tmp_path) for case in configurations(BASE, 60, seed=2)]
    assert 4 < sum(allowed) < 40  # the cases are of both kinds


@pytest.mark.thorough
def test_decoding_settings_work_or_are_refused(translator, model_dir):
    allowed = [try_decoding(overrides, translator, model_dir) for overrides in decodings(30, seed=1, sizes=SMALL)]
    assert 6 < sum(allowed) < 27


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_configurations_work_or_are_refused(tmp_path, seed):
    for case in configurations(BASE, 200, seed):
        try_configuration(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_many_decoding_settings_work_or_are_refused(translator, model_dir, tmp_path, engine, seed):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
        model_dir, trained = tmp_path / "export", model_dir
        assert export.main([str(trained), str(model_dir), "--format", "ctranslate2"]) == 0
        translator = Translator.load(model_dir, "cpu", engine="ctranslate2", workers=1)
    for overrides in decodings(50, seed, LARGE):
        try_decoding(overrides, translator, model_dir)
