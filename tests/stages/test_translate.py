"""The stage translate and its Python API."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from helpers.messages import says
from helpers.optional import skip_without_package_of
from helpers.processes import python_path
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import ROOT, demo_pairs, renew_sums, write_experiment

from transformer_mt import export, plot, prepare, score, translate
from transformer_mt.base.languages import PAD
from transformer_mt.decoding.constraints import Constraints
from transformer_mt.decoding.search import beam_search
from transformer_mt.decoding.translator import Translator
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.reading import load_config
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.storage.files import own_name, replacing
from transformer_mt.text.tokenizer import Tokenizer


@pytest.fixture
def run_translate(run_stage, model_dir):
    """A function that translates these bytes with these arguments: exit status, and what was written."""
    return lambda content, *arguments: run_stage(translate.main, content, model_dir, "--device", "cpu", *arguments)


SENTENCES = [source for source, _ in demo_pairs(12)]


def test_as_many_lines_out_as_in_in_order_empty_for_empty(run_translate, translator):
    long = " ".join(SENTENCES[:8])
    lines = [
        SENTENCES[0],
        "",
        "   \t ",
        long,
        "one\u2028line\u2029still\x0b\x0c\x85the same",
        "日本語 🙂 \x00 \x7f ▁ @@ <s> </s> <pad>",
        "\u200b",
        SENTENCES[1],
    ]
    content = "\r\n".join(lines).encode() + b"\r\n"
    status, output = run_translate(b"\xef\xbb\xbf" + content)
    assert status == 0
    assert output.endswith(b"\n")
    translations = output.decode().split("\n")[:-1]
    assert len(translations) == len(lines)
    assert translations[1] == translations[2] == ""
    for number in (0, 3, 7):
        assert translations[number] == translator.translate([lines[number]])[0] != ""


@pytest.mark.thorough
@pytest.mark.parametrize(("content", "count"), [(b"", 0), (b"\n", 1), (b"A dog", 1), (b"A dog\n\n", 2), (b"\n\nA", 3)])
def test_line_ends(run_translate, content, count):
    status, output = run_translate(content)
    assert (status, output.count(b"\n")) == (0, count)


def test_files_and_gzip(run_translate, translator, tmp_path):
    with gzip.open(tmp_path / "lines.gz", "wt") as file:
        file.write("\n".join(SENTENCES) + "\n")
    files = ["--input", str(tmp_path / "lines.gz"), "--output", str(tmp_path / "out.txt")]
    assert run_translate(b"not read", *files) == (0, b"")
    assert (tmp_path / "out.txt").read_text().split("\n")[:-1] == translator.translate(SENTENCES)


def test_blocks_of_lines_are_joined_in_order(run_translate, monkeypatch, translator):
    _, output = run_translate("\n".join(SENTENCES).encode(), "--buffer-lines", 5)
    assert output.decode().split("\n")[:-1] == translator.translate(SENTENCES)


def test_translation_does_not_depend_on_the_batch(translator):
    together = translator.translate(SENTENCES)
    assert len(set(together)) > 1
    assert together == [translator.translate([line])[0] for line in SENTENCES]
    assert together == translator.translate(
        SENTENCES, DecodingConfig(beam_size=2, max_extra_length=10, tokens_per_batch=1)
    )
    assert together[::-1] == translator.translate(SENTENCES[::-1])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tokens_per_batch", "beam_size"), [(1, 1), *thorough_rows((60, 1)), (60, 3), *thorough_rows((100, 2), (10_000, 4))]
)
def test_batches_are_as_large_as_the_budget_lets_them_be(monkeypatch, translator, tokens_per_batch, beam_size):
    lengths, real_start = [], translator.engine.searched.start

    def start(source_BS, width):
        lengths.append((source_BS != PAD).sum(dim=1).tolist())
        assert source_BS.shape[1] == max(lengths[-1])
        return real_start(source_BS, width)

    monkeypatch.setattr(translator.engine.searched, "start", start)
    translator.translate(SENTENCES, DecodingConfig(beam_size=beam_size, tokens_per_batch=tokens_per_batch))
    for batch, following in zip(lengths, [*lengths[1:], None], strict=True):
        assert len(batch) == 1 or len(batch) * max(batch) * beam_size <= tokens_per_batch
        assert following is None or (len(batch) + 1) * max(batch) * beam_size > tokens_per_batch
    expected = sorted(map(len, translator.tokenizer.encode_source(SENTENCES)), reverse=True)
    assert [length for batch in lengths for length in batch] == expected


def test_a_model_is_loaded_ready_in_full_precision_on_any_processor(monkeypatch, model_dir):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True, "amx_bf16": True})
    translator = Translator.load(model_dir, "cpu")
    assert translator.engine.device.torch_device == torch.device("cpu")
    assert translator.engine.device.dtype == torch.float32
    assert not translator.engine.model.training


def test_the_device_is_the_one_asked_for(run_translate, capsys):
    assert run_translate(b"A\n", "--device", "tpu9") == (2, b"")
    assert says(capsys.readouterr().err, "device-unusable", "tpu9")


@pytest.mark.parametrize("alpha", [*thorough(0.0), 3.0])
def test_a_translation_is_the_best_hypothesis_of_the_search(model_dir, alpha):
    translator = Translator.load(model_dir, "cpu")
    torch.manual_seed(3)
    vocab_size = translator.tokenizer.target_vocab_size
    fresh = Transformer(load_config(model_dir / "config.yaml").model, vocab_size, vocab_size)
    with torch.no_grad():
        # Strong opinions, so that hypotheses of all lengths compete, whatever training has made of the model.
        for name, parameter in translator.engine.model.named_parameters():
            parameter.copy_(1.5 * fresh.get_parameter(name) + 0.1 * torch.randn_like(parameter))
    best, last = [], []
    for ids in translator.tokenizer.encode_source(SENTENCES):
        decoding = DecodingConfig(beam_size=4, n_best=4, length_penalty=alpha)
        constraints = Constraints([len(ids) + 10], utf8=translator.engine.utf8)
        [found] = beam_search(translator.engine.model, torch.tensor([ids]), constraints, decoding)
        best.append(translator.tokenizer.decode_target(found[0].tokens))
        last.append(translator.tokenizer.decode_target(found[-1].tokens))
    assert translator.translate(SENTENCES, beam_size=4, length_penalty=alpha) == best != last
    assert translator.translate(SENTENCES, beam_size=4, length_penalty=3.0 - alpha) != best


def test_settings_reach_the_search(run_translate, translator):
    content = "\n".join(SENTENCES).encode()
    _, default = run_translate(content)
    _, greedy = run_translate(content, "beam_size=1")
    _, short = run_translate(content, "decoding.max_extra_length=0")
    _, wide = run_translate(content, "beam_size=6", "length_penalty=2")
    assert greedy.decode().split("\n")[:-1] == translator.translate(SENTENCES, beam_size=1)
    assert wide.decode().split("\n")[:-1] == translator.translate(SENTENCES, beam_size=6, length_penalty=2.0)
    assert len({default, greedy, short, wide}) == 4


def test_an_unknown_setting_is_an_error(run_translate, capsys):
    assert run_translate(b"A\n", "beam_sise=2")[0] == 2
    assert says(capsys.readouterr().err, "no-such-key", "beam_sise", "'beam_size'")


@pytest.mark.thorough
def test_a_line_of_all_positions_is_translated_as_it_is_and_a_longer_one_with_a_warning(
    run_translate, translator, caplog
):
    longest = " ".join(["the"] * 1023)
    assert [len(ids) for ids in translator.tokenizer.encode_source([longest, "the " + longest])] == [1024, 1025]
    fits = run_translate(f"a\n{longest}\n".encode(), "beam_size=1")
    assert (fits[0], fits[1].count(b"\n"), caplog.messages) == (0, 2, [])
    longer = run_translate(f"a\nb\nthe {longest}\nc".encode(), "beam_size=1", "--buffer-lines", 2)
    assert (longer[0], longer[1].count(b"\n")) == (0, 4)
    [warning] = caplog.messages
    assert warning.startswith("warning: line 3: 1,025 subword pieces would be translated together, but the model takes")


def test_invalid_utf8_is_named_by_its_line(run_translate, capsys):
    status, _ = run_translate(b"fine\nbr\xf6ken\n")
    assert status == 2
    assert says(capsys.readouterr().err, "line-not-utf-8", "standard input:2:")


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "tokenizer.model"])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_model_without_one_of_its_files_or_with_a_part_of_one_names_it(
    run_stage, model_dir, tmp_path, name, damaged, capsys
):
    broken = shutil.copytree(model_dir, tmp_path / "model")
    content = (broken / name).read_bytes()
    (broken / name).unlink()
    if damaged:
        (broken / name).write_bytes(content[: len(content) // 8])
    assert run_stage(translate.main, b"A\n", broken) == (2, b"")
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert name in error


@pytest.mark.parametrize(
    ("engine", "said"), [("torch", "--engine ctranslate2"), ("ctranslate2", "transformer_mt.export")]
)
def test_a_model_of_the_other_engine_is_recognised(run_stage, model_dir, tmp_path, engine, said, capsys):
    other = shutil.copytree(model_dir, tmp_path / "model")
    if engine == "torch":
        (other / "model.safetensors").rename(other / "model.bin")
    assert run_stage(translate.main, b"A\n", other, "--engine", engine) == (2, b"")
    error = capsys.readouterr().err
    assert says(error, "model-file-missing", "model.safetensors" if engine == "torch" else "model.bin")
    assert said in error


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_what_is_no_model_directory_is_named(run_stage, tmp_path, name, capsys):
    (tmp_path / "file").touch()
    assert run_stage(translate.main, b"A\n", tmp_path / name) == (2, b"")
    assert says(capsys.readouterr().err, "model-directory-missing", f"{name}:")


def test_a_configuration_in_place_of_a_model_is_told_where_that_is(run_stage, tmp_path, capsys):
    (tmp_path / "x.yaml").write_text("run_dir: runs/x")
    assert run_stage(translate.main, b"A\n", tmp_path / "x.yaml") == (2, b"")
    assert says(capsys.readouterr().err, "model-directory-missing", "x.yaml:", "configuration")


def test_an_input_or_output_that_cannot_be_opened_is_an_error(run_translate, capsys):
    assert run_translate(b"", "--input", "/nowhere/lines.txt")[0] == 2
    assert run_translate(b"", "--output", "/nowhere/lines.txt")[0] == 2
    assert capsys.readouterr().err.count("error: /nowhere/lines.txt") == 2


@pytest.mark.thorough
def test_a_closed_pipe_ends_quietly(model_dir):
    # One thread: two that wait for each other on a busy machine take ten times as long.
    translate_all = f"OMP_NUM_THREADS=1 {sys.executable} -m transformer_mt.translate {model_dir} beam_size=1"
    command = f"yes 'A dog.' | head -n 5000 | {translate_all} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.parametrize("main", [translate.main, score.main, plot.main, export.main])
@pytest.mark.parametrize("size", [400, 500])  # another one than the model's, and the same
def test_another_tokenizer_is_refused(model_dir, tmp_path, capsys, run_stage, main, size):
    skip_without_package_of(main.__module__)
    changed = shutil.copytree(model_dir, tmp_path / "model")
    sources, targets = zip(*demo_pairs(200), strict=True)
    other = Tokenizer.train(sources, targets, TokenizerConfig(vocab_size=size))
    other.save(changed)
    renew_sums(changed)
    arguments = {
        plot.main: ["--source", "A dog.", "--output", tmp_path / "picture.png"],
        export.main: [tmp_path / "exported", "--format", "ctranslate2"],
    }
    status, output = run_stage(main, b"A dog.\tEin Hund.\n", changed, *arguments.get(main, []))
    assert (status, output) == (2, b"")
    ours = Tokenizer.load(model_dir).digest[:8]
    expected = (
        f"{changed / 'model.safetensors'} was trained with another tokenizer (digest {ours}) than the one in {changed}"
    )
    assert f"{expected} ({other.digest[:8]})" in capsys.readouterr().err


def test_a_line_without_end_is_one_error(model_dir, run_stage, capsys):
    assert run_stage(translate.main, b"", model_dir, "--input", "/dev/zero") == (2, b"")
    assert says(capsys.readouterr().err, "line-too-long", "/dev/zero:1:", "67,108,864")


@pytest.mark.parametrize("option", ["--input", "--prefix", "--terms"])
@pytest.mark.parametrize("name", ["lines", "link"])
def test_what_is_read_is_not_replaced_by_its_translations(run_stage, tmp_path, capsys, option, name):
    path = tmp_path / "lines"
    path.write_text("A dog.\n")
    (tmp_path / "link").symlink_to("lines")
    assert run_stage(translate.main, b"A dog.\n", "no_model", option, path, "--output", tmp_path / name) == (2, b"")
    assert (
        f"--output {tmp_path / name}: this command reads the file, or it is in the directory of the model"
        in capsys.readouterr().err
    )
    assert path.read_text() == "A dog.\n"


@pytest.mark.parametrize("ending", ["xz", "zst"])
def test_an_output_that_would_be_packed_only_by_its_name_is_refused(run_stage, tmp_path, capsys, ending):
    output = tmp_path / f"lines.de.{ending}"
    assert run_stage(translate.main, b"A dog.\n", "no_model", "--output", output) == (2, b"")
    assert says(capsys.readouterr().err, "output-suffix-unknown", f" .{ending}", str(tmp_path / "lines.de.gz"))


def test_a_failed_translation_leaves_the_output_file_as_it_was(run_translate, tmp_path):
    path = tmp_path / "out"
    path.write_text("precious")
    assert run_translate(b"br\xf6ken\n", "--output", str(path))[0] == 2
    assert path.read_text() == "precious"


def test_a_second_writer_of_an_output_file_is_refused(model_dir, tmp_path, run_stage, capsys):
    path = tmp_path / "out"
    with replacing(path) as file:
        file.write(b"first\n")
        assert run_stage(translate.main, b"A dog.\n", model_dir, "--output", path) == (2, b"")
        assert (
            f"error: {path}: another process is writing this file; wait until it has ended" in capsys.readouterr().err
        )
    assert path.read_text() == "first\n"


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "link"])
def test_the_model_is_not_replaced_by_its_translations(model_dir, tmp_path, run_stage, capsys, name):
    model = shutil.copytree(model_dir, tmp_path / "model")
    (tmp_path / "link").symlink_to(model / "config.yaml")
    path = tmp_path / "link" if name == "link" else model / name
    before = path.read_bytes()
    assert run_stage(translate.main, b"A dog.\n", model, "--output", path) == (2, b"")
    assert (
        f"error: --output {path}: this command reads the file, or it is in the directory of the model"
        in capsys.readouterr().err
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["new.txt", "link"])
def test_no_new_file_is_written_beside_the_model(model_dir, tmp_path, run_stage, capsys, name):
    model = shutil.copytree(model_dir, tmp_path / "model")
    (tmp_path / "link").symlink_to(model / "new.txt")
    path, before = (tmp_path / "link" if name == "link" else model / name), set(model.iterdir())
    assert run_stage(translate.main, b"A dog.\n", model, "--output", path) == (2, b"")
    assert says(capsys.readouterr().err, "output-would-replace-input", str(path))
    assert set(model.iterdir()) == before


def test_files_of_the_user_beside_the_output_stay(run_translate, tmp_path):
    victim, link = tmp_path / "victim", tmp_path / own_name("out")
    victim.write_text("mine")
    (tmp_path / "out.partial").symlink_to(victim)
    link.symlink_to(victim)
    assert run_translate(b"A dog.\n", "--output", tmp_path / "out")[0] == 2
    link.unlink()
    assert run_translate(b"A dog.\n", "--output", tmp_path / "out")[0] == 0
    assert (tmp_path / "out.partial").is_symlink() and victim.read_text() == "mine"


def test_a_line_of_nothing_but_piece_marks_is_blank(translator):
    assert translator.translate(["\u2581", " \u2581\u2581 "]) == ["", ""]


def start(model_dir, *arguments, **streams):
    """A process that translates."""
    command = [sys.executable, "-m", "transformer_mt.translate", str(model_dir), "--device", "cpu", *arguments]
    # Buffered, as by default: what is seen was flushed.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONPATH": python_path(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, **streams)


@pytest.fixture
def heeded_ctrl_c():
    """A shell's command in the background ignores it, and so do its children; but not if it has a handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_ctrl_c")
def test_a_translation_comes_before_the_input_ends_and_ctrl_c_ends_it_while_it_waits(model_dir, translator):
    pipe = subprocess.PIPE
    with start(model_dir, "beam_size=1", "--quiet", stdin=pipe, stdout=pipe, stderr=pipe) as process:
        for line in SENTENCES[:3]:
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode() == translator.translate([line], beam_size=1)[0] + "\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"interrupted\n"


def test_scores_are_those_of_the_translator(run_translate, translator):
    found = translator.translations([*SENTENCES, ""], beam_size=3, n_best=3)
    content = "\n".join([*SENTENCES, ""]).encode() + b"\n"
    status, scores = run_translate(content, "--scores", "--workers", "1", "beam_size=3")
    assert status == 0
    assert scores.decode().split("\n")[:-1] == [f"{best.score:.4f}\t{best.text}" for best, *_ in found]
    _, output = run_translate(content, "--workers", "1", "n_best=3", "beam_size=3")
    assert output.decode().split("\n")[:-1] == [
        f"{line}\t{translation.score:.4f}\t{translation.text}"
        for line, translations in enumerate(found, start=1)
        for translation in translations
    ]


def test_json_lines_are_numbered_and_tell_their_time(run_translate, translator):
    content = "\n".join([*SENTENCES, ""]).encode() + b"\n"
    status, output = run_translate(content, "--json", "n_best=2", "--buffer-lines", 5)
    objects = [json.loads(line) for line in output.decode().split("\n")[:-1]]
    assert status == 0
    assert [found["line"] for found in objects] == list(range(1, len(SENTENCES) + 2))
    assert [found["translation"] for found in objects] == translator.translate([*SENTENCES, ""])
    assert all(found["n_best"][0]["pieces"] == found["pieces"] for found in objects)
    assert all(found["seconds"] > 0.0 for found in objects)


def test_the_output_is_packed_if_it_is_called_gz(run_translate, translator, tmp_path):
    path = tmp_path / "out.gz"
    assert run_translate("\n".join(SENTENCES).encode(), "--output", path) == (0, b"")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert file.read().split("\n")[:-1] == translator.translate(SENTENCES)


def test_bytes_that_are_not_utf8_are_replaced_if_asked_for(run_translate, translator, caplog):
    status, output = run_translate(b"A dog.\nbr\xf6ken\n\x00\xff\xfe\x01\n", "--errors", "replace")
    assert status == 0
    assert output.decode().split("\n")[:-1] == translator.translate(["A dog.", "br\ufffdken", "\x00\ufffd\ufffd\x01"])
    assert "standard input:2: is not UTF-8" in caplog.messages[0]


def test_bytes_of_prefixes_that_are_not_utf8_are_replaced_too(run_translate, tmp_path):
    (tmp_path / "prefixes").write_bytes(b"D\xf6r\n")
    (tmp_path / "lines").write_text("A dog.\n")
    for source in ([], ["--input", tmp_path / "lines", "--output", tmp_path / "out"]):
        assert run_translate(b"A dog.\n", "--prefix", tmp_path / "prefixes", *source)[0] == 2
        arguments = ["--errors", "replace", "beam_size=1"]
        assert run_translate(b"A dog.\n", "--prefix", tmp_path / "prefixes", *source, *arguments)[0] == 0
    assert (tmp_path / "out").read_text().startswith("D\ufffdr")


def test_terms_stand_in_each_translation(run_translate, tmp_path, capsys):
    path = tmp_path / "terms.tsv"
    path.write_text("dog\tDackel|Pudel\n")
    (tmp_path / "lines").write_text("A dog.\nA house.\n")
    arguments = ["beam_size=4", "--terms", path]
    status, output = run_translate(b"A dog.\nA house.\n", *arguments)
    first, second, _ = output.decode().split("\n")
    assert status == 0
    assert "Dackel" in first or "Pudel" in first
    assert second.encode() == run_translate(b"A house.\n", "beam_size=4")[1].strip()
    files = ["--input", tmp_path / "lines", "--output", tmp_path / "out"]
    assert run_translate(b"", *files, *arguments)[0] == 0
    assert (tmp_path / "out").read_bytes() == output
    path.write_text("dog\n")
    for source in ([], files):
        assert run_translate(b"A dog.\n", *source, *arguments)[0] == 2
        assert says(capsys.readouterr().err, "no-term-with-translation", f"{path}:1", "Found: dog")


def test_prefixes_are_as_many_as_lines(run_translate, tmp_path, capsys):
    path = tmp_path / "prefixes"
    path.write_text("Der\n\nEin\n")
    assert run_translate(b"A dog.\nA dog.\nA dog.\nA dog.\n", "--prefix", path, "--buffer-lines", 2)[0] == 2
    assert says(capsys.readouterr().err, "line-beside-missing", "prefixes:", "4")
    assert run_translate(b"A dog.\n", "--prefix", path)[0] == 2
    assert says(capsys.readouterr().err, "line-beside-too-many", "prefixes:", "2", "1 line")
    (tmp_path / "lines").write_text("A dog.\nA dog.\n")
    arguments = ["--input", tmp_path / "lines", "--prefix", path, "--buffer-lines", 1]
    assert run_translate(b"", *arguments) == (2, b"")
    assert says(capsys.readouterr().err, "line-beside-too-many", "prefixes:", "3", "2 lines")


def test_a_beam_wider_than_the_vocabulary_and_more_translations_than_it_are_no_traceback(run_translate, capsys):
    assert run_translate(b"A dog.\n\n", "beam_size=600", "max_extra_length=0")[1].count(b"\n") == 2
    assert run_translate(b"A dog.\n", "beam_size=2", "n_best=3") == (2, b"")
    assert says(capsys.readouterr().err, "n-best-above-beam", "n_best=3", "beam_size=2")


def test_an_ensemble_of_a_model_with_itself_is_the_model(run_translate, model_dir, translator):
    status, output = run_translate("\n".join(SENTENCES).encode(), "--ensemble", model_dir)
    assert (status, output.decode().split("\n")[:-1]) == (0, translator.translate(SENTENCES))


def test_models_of_other_vocabularies_are_no_ensemble(run_translate, model_dir, tmp_path, capsys):
    config = write_experiment(tmp_path)
    prepare.main([str(config), "tokenizer.algorithm=unigram"])
    other = shutil.copytree(model_dir, tmp_path / "model")
    shutil.copy(tmp_path / "data" / "tokenizer.model", other / "tokenizer.model")
    renew_sums(other)
    capsys.readouterr()
    assert run_translate(b"A dog.\n", "--ensemble", other) == (2, b"")
    assert says(capsys.readouterr().err, "ensemble-vocabularies-differ", str(other), str(model_dir))


@pytest.mark.parametrize("size", ["0", "-1", "x", "1.5"])
def test_a_buffer_has_room_for_a_line(run_translate, size, capsys):
    with pytest.raises(SystemExit, match="2"):
        run_translate(b"", "--buffer-lines", size)
    assert f"{size} is not a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["translate", *thorough("score", "decoding.translator", "decoding.scorer")])
def test_nothing_is_imported_that_one_line_does_not_need(module):
    heavy = ["torch", "numpy", "datasets", "pandas", "sacrebleu", "tqdm", "transformers", "ctranslate2", "safetensors"]
    program = f"import sys, transformer_mt.{module}; print([name for name in {heavy} if name in sys.modules])"
    environment = os.environ | {"PYTHONPATH": python_path(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[]\n"
