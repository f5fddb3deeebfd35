"""CTranslate2 behind our contract: it finds what our search finds, and its scores are those of forced decoding."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain, pairwise
from pathlib import Path

import pytest
import torch
from helpers.messages import message, says
from helpers.processes import python_path
from helpers.thorough import thorough
from helpers.tiny import ROOT, demo_pairs, renew_sums

from transformer_mt import export
from transformer_mt.base.errors import CheckpointError, TranslationError
from transformer_mt.base.languages import BOS, EOS
from transformer_mt.decoding.ctranslate2_engine import CTranslate2Engine, Search, compute_type
from transformer_mt.decoding.engine import Sentence, Wanted
from transformer_mt.decoding.hypothesis import length_penalty
from transformer_mt.decoding.translator import Translator
from transformer_mt.models.attention_weights import attention_weights
from transformer_mt.settings.search_settings import DecodingConfig

LINES = [source for source, _ in demo_pairs(24)]
SETTINGS = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "n_best": 3, "patience": 0.0},
    "average": {"beam_size": 3, "n_best": 3, "patience": 0.0, "length_penalty": 1.0, "length_penalty_form": "average"},
    "no penalty": {"beam_size": 3, "n_best": 3, "patience": 0.0, "length_penalty_form": "none"},
    "short": {"beam_size": 3, "n_best": 3, "patience": 0.0, "max_extra_length": 0},
    "long": {"beam_size": 3, "n_best": 3, "patience": 0.0, "min_length": 20, "max_extra_length": 30},
    "no repetition": {"beam_size": 3, "n_best": 3, "patience": 0.0, "no_repeat_ngram": 2},
    "coverage": {"beam_size": 3, "n_best": 3, "patience": 0.0, "coverage_penalty": 0.2},
    "sampling": {"sampling": True, "n_best": 5, "temperature": 0.8, "top_k": 20, "top_p": 0.9},
}
RARER = ("average", "no penalty", "short")
all_settings = pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=name, marks=pytest.mark.thorough if name in RARER else ())
        for name, settings in SETTINGS.items()
    ],
)


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    """To be read alone."""
    pytest.importorskip("ctranslate2")
    directory = tmp_path_factory.mktemp("exported") / "ctranslate2"
    export.export(model_dir, directory, "ctranslate2")
    return directory


@pytest.fixture(scope="module")
def engine(exported):
    return CTranslate2Engine(exported, max_positions=1024, alignment_layer=0, device="cpu", workers=2)


@pytest.fixture(scope="module")
def sentences(translator):
    return [Sentence(ids, number=number) for number, ids in enumerate(translator.tokenizer.encode_source(LINES))]


def tokens_of(found):
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


# What is found


@pytest.mark.parametrize(
    "settings", [SETTINGS["beam"], *thorough(*(SETTINGS[name] for name in ("greedy", "average", "no penalty")))]
)
def test_the_best_translation_is_that_of_our_search(settings, engine, translator, sentences):
    if "length_penalty_form" in settings:
        decoding = DecodingConfig(beam_size=3, length_penalty=0.0)
    else:
        decoding = DecodingConfig(**settings)
    ours, theirs = translator.engine.translate(sentences, decoding), engine.translate(sentences, decoding)
    for our, their in zip(ours, theirs, strict=True):
        assert their[0].tokens == our[0].tokens
        assert their[0].score == pytest.approx(our[0].score, abs=1e-4)


@pytest.mark.thorough
@all_settings
def test_every_log_probability_is_that_of_forced_decoding(settings, engine, translator, sentences):
    found = engine.translate(sentences, DecodingConfig(**settings))
    for sentence, hypotheses in zip(sentences, found, strict=True):
        scores = translator.engine.score([(sentence.source, hypothesis.tokens) for hypothesis in hypotheses])
        for hypothesis, log_probs_T in zip(hypotheses, scores, strict=True):
            assert hypothesis.log_prob == pytest.approx(sum(log_probs_T), abs=1e-3)


@all_settings
def test_hypotheses_end_and_are_best_first_and_at_most_n_best(settings, engine, sentences):
    decoding = DecodingConfig(**settings)
    for sentence, hypotheses in zip(sentences, engine.translate(sentences, decoding), strict=True):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert 1 <= len(scores) <= decoding.n_best
        assert scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            *words, last = hypothesis.tokens
            assert last == EOS
            assert not {BOS, EOS} & set(words)
            assert len(hypothesis.tokens) <= len(sentence.source) + decoding.max_extra_length
        if not decoding.sampling:
            assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == len(hypotheses)


@pytest.mark.parametrize("form", ["gnmt", "average", "none"])
def test_scores_are_divided_by_our_length_penalty(form, engine, sentences):
    decoding = DecodingConfig(beam_size=3, n_best=3, length_penalty=0.8, length_penalty_form=form)
    for hypotheses in engine.translate(sentences, decoding):
        for hypothesis in hypotheses:
            penalty = length_penalty(len(hypothesis.tokens), 0.8, form)
            assert hypothesis.score == pytest.approx(hypothesis.log_prob / penalty)


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [SETTINGS[name] for name in SETTINGS if name != "sampling"])
def test_neither_batch_nor_neighbours_nor_workers_matter(settings, exported, engine, sentences):
    """But to samples, which are drawn one after the other."""
    decoding = DecodingConfig(**settings)
    expected = tokens_of(engine.translate(sentences, decoding))
    one = CTranslate2Engine(exported, 1024, 0, device="cpu", workers=1)
    assert tokens_of(one.translate(sentences, decoding)) == expected
    small = decoding.model_copy(update={"tokens_per_batch": 60})
    assert tokens_of(engine.translate(sentences, small)) == expected
    assert tokens_of(engine.translate(sentences[::-1], decoding))[::-1] == expected


def test_progress_is_told_of_each_sentence_once(engine, sentences):
    told = []
    engine.translate(sentences, DecodingConfig(tokens_per_batch=100), Wanted(progress=told.append))
    assert len(told) > 1
    assert sum(told) == len(sentences)
    assert engine.translate([], DecodingConfig(), Wanted(progress=told.append)) == []


# Constraints


@pytest.mark.thorough
@pytest.mark.parametrize("beam_size", [1, 3])
def test_prefixes_are_begun_with_and_scored(beam_size, engine, translator, sentences):
    prefixes = [[50 + i, 60, 70][: i % 4] for i in range(len(sentences))]
    forced = [Sentence(s.source, prefix, s.number) for s, prefix in zip(sentences, prefixes, strict=True)]
    found = engine.translate(forced, DecodingConfig(beam_size=beam_size, n_best=beam_size))
    for sentence, hypotheses in zip(forced, found, strict=True):
        for hypothesis in hypotheses:
            assert hypothesis.tokens[: len(sentence.prefix)] == sentence.prefix
            log_probs_T = translator.engine.score([(sentence.source, hypothesis.tokens)])[0]
            assert hypothesis.log_prob == pytest.approx(sum(log_probs_T), abs=1e-3)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translations_are_as_long_as_asked_for(beam_size, engine, sentences):
    def shortest(min_length):
        decoding = DecodingConfig(beam_size=beam_size, n_best=beam_size, min_length=min_length)
        return min(len(h.tokens) - 1 for found in engine.translate(sentences, decoding) for h in found)

    assert shortest(0) < 40 <= shortest(40)


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 3}, {"sampling": True}])
def test_a_least_length_above_the_greatest_gives_way(settings, engine, sentences):
    found = engine.translate(sentences, DecodingConfig(min_length=500, max_extra_length=2, **settings))
    for sentence, [hypothesis, *_] in zip(sentences, found, strict=True):
        assert len(hypothesis.tokens) <= sentence.max_length(2, 1024)


def test_no_sequence_comes_twice(engine, sentences):
    def repeats(decoding):
        found = [hypotheses[0].tokens for hypotheses in engine.translate(sentences, decoding)]
        pairs = [list(pairwise(tokens)) for tokens in found]
        return sum(len(pair) - len(set(pair)) for pair in pairs)

    assert repeats(DecodingConfig(beam_size=3)) > 0
    assert repeats(DecodingConfig(beam_size=3, no_repeat_ngram=2)) == 0


def test_a_beam_wider_than_the_vocabulary_is_one_of_everything(engine, sentences):
    found = engine.translate(sentences[:1], DecodingConfig(beam_size=600, max_extra_length=0))
    assert len(found[0]) == 1


# Sampling


def test_a_seed_says_what_is_drawn(engine, sentences):
    decoding = DecodingConfig(sampling=True, n_best=3)
    found = tokens_of(engine.translate(sentences, decoding))
    assert tokens_of(engine.translate(sentences, decoding)) == found
    assert tokens_of(engine.translate(sentences, decoding.model_copy(update={"seed": 2}))) != found


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"temperature": 1e-4}, {"top_p": 1e-6}])
def test_drawing_from_the_best_word_alone_is_greedy(settings, engine, sentences):
    drawn = engine.translate(sentences, DecodingConfig(sampling=True, **settings))
    assert tokens_of(drawn) == tokens_of(engine.translate(sentences, DecodingConfig(beam_size=1)))


def test_samples_from_the_best_word_alone_are_equal_and_as_many_as_those_of_our_engine(engine, translator, sentences):
    decoding = DecodingConfig(sampling=True, top_k=1, n_best=2)
    found = tokens_of(engine.translate(sentences, decoding))
    assert found == tokens_of(translator.engine.translate(sentences, decoding))
    assert all(one == other for one, other in found)


# Attention


def attention_of(translator, sentence, tokens):
    """Of the last decoder layer but one, the mean over heads."""
    source_1S, decoder_input_1T = torch.tensor([sentence.source]), torch.tensor([[BOS, *tokens[:-1]]])
    weights = attention_weights(translator.engine.model, source_1S, decoder_input_1T)
    return weights.cross_LBHTS[-2, 0].mean(dim=0)


@torch.no_grad()
def test_alignments_are_where_our_attention_is_largest(engine, translator, sentences):
    found = engine.translate(sentences, DecodingConfig(beam_size=2, n_best=2), Wanted(alignment=True))
    for sentence, hypotheses in zip(sentences, found, strict=True):
        for hypothesis in hypotheses:
            attention_TS = attention_of(translator, sentence, hypothesis.tokens)[:-1, :-1]
            seen_T = attention_TS[range(len(hypothesis.alignment)), hypothesis.alignment]
            torch.testing.assert_close(seen_T, attention_TS.amax(dim=1), rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_coverage_penalty_is_ours(engine, translator, sentences):
    decoding = DecodingConfig(beam_size=2, n_best=2, coverage_penalty=0.3)
    for sentence, hypotheses in zip(sentences, engine.translate(sentences, decoding), strict=True):
        for hypothesis in hypotheses:
            received_S = attention_of(translator, sentence, hypothesis.tokens).sum(dim=0).clamp(max=1.0)
            expected = hypothesis.log_prob / length_penalty(len(hypothesis.tokens), 0.6)
            assert hypothesis.score == pytest.approx(expected + 0.3 * received_S.log().sum().item(), abs=1e-3)
            assert hypothesis.alignment is None


def test_the_lists_of_a_result_are_copied_once_whatever_the_number_of_hypotheses(engine, sentences, monkeypatch):
    """CTranslate2 makes the lists of all hypotheses anew at each access: one for each hypothesis takes minutes."""
    read, found = [], Search._found

    class Counted:
        def __init__(self, result):
            self.result = result

        def __getattr__(self, name):
            read.append(name)
            return getattr(self.result, name)

    monkeypatch.setattr(Search, "_found", lambda self, result: found(self, Counted(result)))
    decoding = DecodingConfig(beam_size=8, n_best=8, coverage_penalty=0.2)
    [(_, [hypotheses])] = engine.translate_unordered(sentences[:1], decoding)
    assert len(hypotheses) > 4
    assert sorted(read) == ["attention", "hypotheses", "scores"]


def test_the_attention_of_another_layer_is_not_there(engine, sentences):
    decoding = DecodingConfig(alignment_layer=1)
    engine.translate(sentences, decoding)
    for asked in (
        lambda: engine.translate(sentences, decoding, Wanted(alignment=True)),
        lambda: engine.translate(sentences, decoding.model_copy(update={"coverage_penalty": 0.1})),
    ):
        with pytest.raises(TranslationError, match=message("export-other-alignment-layer", "1", "0")):
            asked()


# Mistakes


def test_damaged_and_missing_files_are_named(exported, tmp_path):
    for name, code, missing in (
        ("model.bin", "export-cannot-be-loaded", "model-file-missing"),
        ("shared_vocabulary.json", "export-vocabulary-unreadable", "export-vocabulary-unreadable"),
    ):
        damaged = shutil.copytree(exported, tmp_path / name)
        os.truncate(damaged / name, 1000)
        expected = message("file-differs-from-sum", str(damaged / name))
        with pytest.raises(CheckpointError, match=expected) as error:
            Translator.load(damaged, "cpu", engine="ctranslate2")
        assert says(str(error.value), "advice-export-again")
        renew_sums(damaged)
        with pytest.raises(CheckpointError, match=message(code, str(damaged))):
            Translator.load(damaged, "cpu", engine="ctranslate2")
        (damaged / name).unlink()
        renew_sums(damaged)
        with pytest.raises(
            CheckpointError,
            match=message(missing, name.replace("shared", "source")),
        ):
            Translator.load(damaged, "cpu", engine="ctranslate2")


def test_another_tokenizer_than_that_of_the_export_is_refused(exported, joint_tokenizer, tmp_path):
    changed = shutil.copytree(exported, tmp_path / "changed")
    joint_tokenizer.save(changed)
    renew_sums(changed)
    with pytest.raises(CheckpointError, match=message("export-of-other-tokenizer", str(changed))):
        Translator.load(changed, "cpu", engine="ctranslate2")


def test_a_type_that_is_none_is_named(exported):
    with pytest.raises(TranslationError, match=message("ctranslate2-option-refused", "Invalid compute type: int4")):
        CTranslate2Engine(exported, 1024, 0, device="cpu", compute_type="int4")


def test_ours_and_their_words_for_types():
    assert compute_type("fp32", "none") == "default"
    assert compute_type("fp32", "int8") == "int8_float32"
    assert compute_type("bf16", "none") == "bfloat16"
    assert compute_type("bf16", "int8") == "int8_bfloat16"
    assert compute_type("fp16", "none") == "float16"
    assert compute_type("fp16", "int8") == "int8_float16"


def test_int8_on_loading_is_that_of_an_export(model_dir, exported, engine, sentences, tmp_path):
    """Whose scores are near those of fp32."""
    export.export(model_dir, tmp_path / "int8", "ctranslate2", "int8")
    on_loading = CTranslate2Engine(exported, 1024, 0, device="cpu", compute_type=compute_type("fp32", "int8"))
    pairs = [(sentence.source, [5, 6, EOS]) for sentence in sentences]
    in_fp32, found, expected = (
        list(chain(*one.score(pairs)))
        for one in (engine, on_loading, CTranslate2Engine(tmp_path / "int8", 1024, 0, device="cpu"))
    )
    assert found == pytest.approx(expected, abs=1e-4)
    assert found != pytest.approx(in_fp32, abs=1e-2)


# What it takes


@pytest.mark.thorough
def test_pytorch_is_not_imported(exported):
    program = """
import sys
from transformer_mt.decoding.translator import Translator
translator = Translator.load(sys.argv[1], "cpu", engine="ctranslate2")
assert translator.translate(["The dog sleeps."]) != [""]
print(sorted({"torch", "numpy", "safetensors", "datasets", "transformers"} & sys.modules.keys()))
"""
    root = Path(__file__).parent.parent.parent
    found = subprocess.run(
        [sys.executable, "-c", program, str(exported)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": python_path(root)},
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("max_extra_length", [0, 2])
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_prefix_longer_than_its_source_is_written_whole(is_ours, max_extra_length, engine, translator, sentences):
    prefix = [50, 60, 70] * 5
    source = [*sentences[0].source[:3], EOS]
    decoding = DecodingConfig(beam_size=1, max_extra_length=max_extra_length)
    [[found]] = (translator.engine if is_ours else engine).translate([Sentence(source, prefix)], decoding)
    assert found.tokens[: len(prefix)] == prefix


@pytest.mark.thorough
def test_the_packages_that_the_documentation_installs_are_enough_without_pytorch(exported, tmp_path):
    page = (ROOT / "docs/exporting.md").read_text(encoding="utf-8")
    [installed] = re.findall(r"^pip install (ctranslate2 .*)$", page, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {re.match(r"[\w-]+", dependency)[0] for dependency in project["dependencies"]}
    missing = asked - {*installed.split(), "numpy"}  # which comes with CTranslate2
    assert "torch" in missing
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].lower().replace("yaml", "pyyaml") in {missing}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from transformer_mt import score, translate
sys.stderr.isatty = lambda: True  # so that there is a progress bar
files = ["source.txt", "found.txt", "--engine", "ctranslate2", "--workers", "1"]
assert translate.main([sys.argv[1], "--input", files[0], "--output", files[1], *files[2:]]) == 0
assert score.main([sys.argv[1], *files]) == 0
"""
    (tmp_path / "source.txt").write_text("\n".join(LINES[:3]) + "\n")
    command = [sys.executable, "-c", program, str(exported)]
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
