"""The stage export, and what it writes for CTranslate2: scores as ours, words as ours, all in one directory."""

import json
import shutil
import sys

import pytest
from helpers.messages import message, says
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import demo_pairs, status_and_error
from helpers.untrained import write_untrained

from transformer_mt import export
from transformer_mt.base.errors import UserError
from transformer_mt.decoding.translator import Translator
from transformer_mt.exporting.trained_model import random_pairs, read_trained, unsupported_setting
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.text.tokenizer import Tokenizer

ctranslate2 = pytest.importorskip("ctranslate2")

LINES = [source for source, _ in demo_pairs(30)]


@pytest.fixture(scope="module")
def exported(model_dir, tmp_path_factory):
    """A trained model for CTranslate2; to be read alone."""
    directory = tmp_path_factory.mktemp("exported") / "ctranslate2"
    export.export(model_dir, directory, "ctranslate2")
    return directory


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# Exported is ours


def assert_same_scores(model_dir, exported):
    """Positions too: the longest sources have 30 pieces."""
    export.export(model_dir, exported, "ctranslate2")
    ours = Translator.load(model_dir, "cpu")
    theirs = Translator.load(exported, "cpu", engine="ctranslate2")
    pairs = random_pairs(read_trained(model_dir, []), 12)
    assert max(map(len, sum(pairs, ()))) > 25
    for our_T, their_T in zip(ours.engine.score(pairs), theirs.engine.score(pairs), strict=True):
        assert their_T == pytest.approx(our_T, abs=1e-4)


@pytest.mark.parametrize("norm", [*thorough("post"), "pre"])
@pytest.mark.parametrize("activation", [*thorough("relu", "gelu"), "swiglu"])
def test_scores_are_ours_whatever_the_layers(norm, activation, joint_tokenizer, tmp_path):
    model_dir = write_untrained(tmp_path / "model", joint_tokenizer, norm=norm, activation=activation)
    assert_same_scores(model_dir, tmp_path / "exported")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("joint", "ties"),
    [(True, "all"), (False, "none"), *thorough_rows((True, "target"), (True, "none"), (False, "target"))],
)
def test_scores_are_ours_whatever_the_vocabularies(joint, ties, joint_tokenizer, separate_tokenizer, tmp_path):
    tokenizer = joint_tokenizer if joint else separate_tokenizer
    assert_same_scores(write_untrained(tmp_path / "model", tokenizer, tied_embeddings=ties), tmp_path / "exported")


@pytest.mark.parametrize("ties", ["all", *thorough("target", "none")])
def test_scores_are_ours_with_an_output_bias(ties, joint_tokenizer, tmp_path):
    model_dir = write_untrained(tmp_path / "model", joint_tokenizer, tied_embeddings=ties, output_bias=True)
    assert_same_scores(model_dir, tmp_path / "exported")


@pytest.mark.thorough
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_scores_are_ours_with_learned_positions(norm, joint_tokenizer, tmp_path):
    model_dir = write_untrained(tmp_path / "model", joint_tokenizer, norm=norm, positions="learned")
    assert_same_scores(model_dir, tmp_path / "exported")


@pytest.mark.thorough
def test_words_are_ours(model_dir, exported):
    ours = Translator.load(model_dir, "cpu")
    theirs = Translator.load(exported, "cpu", engine="ctranslate2")
    for beam_size in (1, 3):
        assert theirs.translate(LINES, beam_size=beam_size) == ours.translate(LINES, beam_size=beam_size)


@pytest.mark.thorough
def test_those_who_use_ctranslate2_alone_need_nothing_else(model_dir, exported):
    """Pieces of the tokenizer in, pieces out, with the options that lie there."""
    options = json.loads((exported / "config.json").read_text())["translate_batch"]
    pieces = Tokenizer.load(exported).source.encode(LINES, out_type=str)
    results = ctranslate2.Translator(str(exported)).translate_batch(pieces, **options)
    texts = [Tokenizer.load(exported).target.decode_pieces(result.hypotheses[0]) for result in results]
    assert [" ".join(text.split()) for text in texts] == Translator.load(model_dir, "cpu").translate(LINES)


@pytest.mark.thorough
def test_quantised_weights_are_smaller_and_give_scores_that_are_near(model_dir, exported, tmp_path):
    pairs = [([5, 6, 7, 3], [8, 9, 10, 3])]
    ours = Translator.load(model_dir, "cpu").engine.score(pairs)[0]
    for quantization, size in (("int8", 0.65), ("int16", 0.8), ("float16", 0.65)):
        export.export(model_dir, tmp_path / "exported", "ctranslate2", quantization)
        assert (tmp_path / "exported/model.bin").stat().st_size < size * (exported / "model.bin").stat().st_size
        theirs = Translator.load(tmp_path / "exported", "cpu", engine="ctranslate2").engine.score(pairs)[0]
        assert theirs == pytest.approx(ours, abs=0.5)
        assert theirs != pytest.approx(ours, abs=1e-6)


def test_the_directory_is_all_that_is_needed(model_dir, exported, tmp_path, run_stage):
    from transformer_mt import translate

    alone = shutil.copytree(exported, tmp_path / "elsewhere")
    text = "\n".join(LINES).encode()
    _, expected = run_stage(translate.main, text, model_dir, "--device", "cpu")
    assert run_stage(translate.main, text, alone, "--engine", "ctranslate2", "--device", "cpu") == (0, expected)


def test_overrides_are_the_new_defaults(model_dir, tmp_path):
    assert export.main([str(model_dir), str(tmp_path / "x"), "--format", "ctranslate2", "beam_size=7"]) == 0
    assert Translator.load(tmp_path / "x", engine="ctranslate2").decoding.beam_size == 7
    assert json.loads((tmp_path / "x/config.json").read_text())["translate_batch"]["beam_size"] == 7


# It is looked at before it is kept


def test_a_model_that_computes_something_else_is_refused(joint_tokenizer, tmp_path):
    trained = read_trained(write_untrained(tmp_path / "one", joint_tokenizer), [])
    write_untrained(tmp_path / "other", joint_tokenizer, num_heads=4)
    one, other = (Translator.load(tmp_path / name, "cpu").engine for name in ("one", "other"))
    export.compare(one, one, trained, "float32")
    export.compare(one, other, trained, "int8")
    with pytest.raises(UserError, match=message("export-computes-otherwise")):
        export.compare(one, other, trained, "float32")


# Where it is written


def test_what_is_no_export_stays(model_dir, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("...")
    status, error = status_and_error(
        export.main, model_dir, tmp_path / "mine", "--format", "ctranslate2", capsys=capsys
    )
    assert status == 2
    assert says(error, "directory-not-by-export", "mine ", "thesis.tex")
    assert files(tmp_path / "mine") == {"thesis.tex": b"..."}
    status, error = status_and_error(
        export.main, model_dir, tmp_path / "mine/thesis.tex", "--format", "ctranslate2", capsys=capsys
    )
    assert status == 2
    assert says(error, "export-place-not-directory", "thesis.tex")


def test_an_earlier_export_and_an_empty_directory_are_replaced(model_dir, tmp_path):
    (tmp_path / "exported").mkdir()
    for format in ("ctranslate2", "huggingface", "ctranslate2"):
        export.export(model_dir, tmp_path / "exported", format)
        assert ("model.bin" in files(tmp_path / "exported")) == (format == "ctranslate2")
        assert ("vocab.json" in files(tmp_path / "exported")) == (format == "huggingface")
    assert [path.name for path in tmp_path.iterdir()] == ["exported"]


def test_an_export_that_something_was_added_to_is_refused_and_stays(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "exported")
    export.check_output(tmp_path / "exported")
    for name in ("notes.txt", "evaluation"):
        (tmp_path / "exported" / name).mkdir()
        with pytest.raises(UserError, match=message("directory-not-by-export", name)):
            export.check_output(tmp_path / "exported")
        (tmp_path / "exported" / name).rmdir()


@pytest.mark.parametrize("content", ["mine", "{}", "[1]", '{"format": 1}'])
def test_a_file_of_the_name_of_our_mark_makes_no_export(tmp_path, content):
    (tmp_path / export.MARK).write_text(content)
    with pytest.raises(UserError, match=message("directory-not-by-export", "export.json")):
        export.check_output(tmp_path)


def test_directories_of_the_user_beside_the_export_stay(model_dir, tmp_path):
    for name in ("exported.old", "exported.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.tex").write_text("...")
    for _ in range(2):
        export.export(model_dir, tmp_path / "exported", "huggingface")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.parent.name != "exported") == [
        *("exported", "exported.old", "exported.partial", "thesis.tex", "thesis.tex")
    ]


def test_an_export_that_fails_leaves_the_earlier_one(model_dir, joint_tokenizer, tmp_path, capsys):
    export.export(model_dir, tmp_path / "exported", "ctranslate2")
    before = files(tmp_path / "exported")
    pre = write_untrained(tmp_path / "pre", joint_tokenizer, norm="pre")
    status, error = status_and_error(export.main, pre, tmp_path / "exported", "--format", "huggingface", capsys=capsys)
    assert status == 2
    assert says(error, "cannot-be-exported", str(pre), "huggingface", "MarianMTModel")
    assert files(tmp_path / "exported") == before


# Mistakes


def test_a_setting_that_a_format_knows_nothing_of_is_refused():
    class Newer(TransformerConfig):
        memory_tokens: int = 0

    held = set(TransformerConfig.model_fields)
    assert unsupported_setting(Newer(), held) is None
    assert unsupported_setting(Newer(d_model=32, dropout=0.5, attention_dropout=0.5), held) is None
    assert unsupported_setting(Newer(memory_tokens=5), held) == "it does not support model.memory_tokens=5"
    assert unsupported_setting(TransformerConfig(norm="pre"), held - {"norm"}) == "it does not support model.norm=pre"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("format", "setting"),
    [
        ("ctranslate2", "attention_score=additive"),
        ("ctranslate2", "attention_window=3"),
        ("huggingface", "attention_score=dot"),
        ("huggingface", "attention_window=1"),
        ("huggingface", "positions=learned"),
    ],
)
def test_what_a_format_does_not_compute_is_refused(format, setting, joint_tokenizer, tmp_path, capsys):
    key, value = setting.split("=")
    settings = {key: int(value) if value.isdigit() else value}
    model_dir = write_untrained(tmp_path / "model", joint_tokenizer, **settings)
    status, error = status_and_error(export.main, model_dir, tmp_path / "x", "--format", format, capsys=capsys)
    assert status == 2
    assert says(error, "cannot-be-exported", format, f"model.{setting}")
    assert not (tmp_path / "x").exists()


def test_a_missing_package_is_named(model_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    status, error = status_and_error(export.main, model_dir, tmp_path / "x", "--format", "ctranslate2", capsys=capsys)
    assert status == 2
    assert says(error, "ctranslate2-not-installed")


def test_quantisation_is_of_one_format(model_dir, tmp_path, capsys):
    arguments = (model_dir, tmp_path / "x", "--format", "huggingface", "--quantization", "int8")
    status, error = status_and_error(export.main, *arguments, capsys=capsys)
    assert status == 2
    assert says(error, "quantization-needs-another-format")


def test_a_directory_that_is_no_model_is_named(tmp_path, capsys):
    status, error = status_and_error(
        export.main, tmp_path / "none", tmp_path / "x", "--format", "ctranslate2", capsys=capsys
    )
    assert status == 2
    assert says(error, "model-directory-missing", "none:")
