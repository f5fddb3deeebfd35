"""A translation from file to file: whatever stops it, the same command resumes, and ends with the same bytes."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from helpers.directories import tree
from helpers.messages import says
from helpers.processes import python_path
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import ROOT, demo_pairs

from transformer_mt import translate
from transformer_mt.base.errors import TranslationError
from transformer_mt.decoding.loading import EngineOptions
from transformer_mt.terminal import cli, file_to_file, translation_output
from transformer_mt.terminal.translation_output import translate_block

LINES = [*(source for source, _ in demo_pairs(9)), "", "He sees it. She sleeps.", " ".join(["the"] * 40)]
CONTENT = "".join(f"{line}\n" for line in LINES)
IN_PARTS = ["beam_size=1", "--buffer-lines", "3"]  # four parts
SAMPLED = ["sampling=true", "seed=5", "n_best=2", "--buffer-lines", "3"]


@pytest.fixture
def files(tmp_path):
    """A directory with an input, and prefixes of its translations."""
    (tmp_path / "in").write_text(CONTENT)
    (tmp_path / "prefixes").write_text("Ein\n\n" * (len(LINES) // 2))
    return tmp_path


@pytest.fixture
def start(run_stage, model_dir, files):
    """A function that translates the file `in` with these arguments; its exit status."""

    def run(*arguments, source="in", output="out"):
        where = ["--input", files / source, "--output", files / output]
        status, written = run_stage(translate.main, b"not read", model_dir, "--device", "cpu", *where, *arguments)
        assert written == b""
        return status

    return run


def stop_after(monkeypatch, num_parts, error=KeyboardInterrupt):
    """Let the next command stop when it has made so many parts and translated all lines of the next."""
    begun = []

    def stopping(*arguments):
        begun.append(1)
        found = translate_block(*arguments)
        if len(begun) > num_parts:
            raise error
        return found

    monkeypatch.setattr(translation_output, "translate_block", stopping)


def resume(monkeypatch):
    """Let the next command do its work."""
    monkeypatch.setattr(translation_output, "translate_block", translate_block)


# Resuming


@pytest.mark.parametrize("output", ["out.gz", *thorough("out")])
@pytest.mark.parametrize(
    "arguments", [SAMPLED, *thorough(IN_PARTS), [*IN_PARTS, "--prefix", "prefixes", "--scores", "--alignment"]]
)
def test_stopped_after_any_part_it_goes_on_and_ends_with_the_same_bytes(
    start, files, monkeypatch, capsys, output, arguments
):
    arguments = [str(files / each) if each == "prefixes" else each for each in arguments]
    assert start(*arguments, output=f"unbroken-{output}") == 0
    whole = (files / f"unbroken-{output}").read_bytes()
    unpacked = gzip.decompress(whole) if output == "out.gz" else whole
    assert unpacked.count(b"\n") == len(LINES) + ("n_best=2" in arguments) * (len(LINES) - 1)
    for num_parts in (0, 2, 1):
        stop_after(monkeypatch, num_parts)
        capsys.readouterr()
        assert start(*arguments, output=output) == 130
        assert not (files / output).exists()
        assert ("keeps" in capsys.readouterr().err) == (num_parts > 0)
        assert (files / f"{output}.parts").exists() == (num_parts > 0)
    resume(monkeypatch)
    assert start(*arguments, output=output) == 0
    assert (files / output).read_bytes() == whole
    assert sorted(path.name for path in files.iterdir()) == sorted(["in", "prefixes", output, f"unbroken-{output}"])
    error = capsys.readouterr().err
    assert "resuming: 9 of 12 lines are translated already" in error
    assert "12 lines, 9 of them by earlier starts; the others in" in error
    assert "; 1 blank; 1 split into 2 parts;" in error, "which is of all lines"


@pytest.mark.thorough
def test_it_is_what_a_pipe_gives(start, files, run_stage, model_dir):
    for arguments in (IN_PARTS, SAMPLED):
        assert start(*arguments) == 0
        status, piped = run_stage(translate.main, CONTENT.encode(), model_dir, "--device", "cpu", *arguments)
        assert (status, piped) == (0, (files / "out").read_bytes())


@pytest.mark.thorough
def test_objects_of_json_are_the_same_but_for_the_time(start, files, monkeypatch):
    def objects(name):
        found = [json.loads(line) for line in (files / name).read_text().splitlines()]
        assert all(each.pop("seconds") >= 0 for each in found)
        return found

    assert start(*IN_PARTS, "--json", output="unbroken") == 0
    stop_after(monkeypatch, 2)
    assert start(*IN_PARTS, "--json") == 130
    resume(monkeypatch)
    assert start(*IN_PARTS, "--json") == 0
    assert objects("out") == objects("unbroken")
    assert [each["line"] for each in objects("out")] == list(range(1, len(LINES) + 1))


@pytest.mark.parametrize("content", ["", *thorough("A dog.", "\n\n")])
def test_a_short_input_has_an_output(start, files, content):
    (files / "in").write_text(content)
    for output in ("out", "out.gz"):
        assert start(*IN_PARTS, output=output) == 0
    found = gzip.decompress((files / "out.gz").read_bytes())
    assert found == (files / "out").read_bytes()
    assert found.count(b"\n") == len(content.splitlines())


@pytest.mark.thorough
def test_what_changes_only_speed_and_memory_may_be_another_when_it_goes_on(start, files, monkeypatch):
    assert start(*IN_PARTS, output="unbroken") == 0
    stop_after(monkeypatch, 2)
    assert start(*IN_PARTS) == 130
    resume(monkeypatch)
    assert start("beam_size=1", "--buffer-lines", 1, "--workers", 1, "tokens_per_batch=50", "--quiet") == 0
    assert (files / "out").read_bytes() == (files / "unbroken").read_bytes()


def test_a_failure_keeps_what_is_translated_too(start, files, monkeypatch, capsys):
    stop_after(monkeypatch, 2, TranslationError("no memory"))
    assert start(*IN_PARTS) == 2
    error = capsys.readouterr().err
    assert "out.parts keeps 2 parts of the translation: the same command resumes from there" in error
    assert error.endswith("error: no memory\n")
    assert tree(files / "out.parts").keys() == {"lock", "parts.json", "000000", "000001"}
    resume(monkeypatch)
    assert start(*IN_PARTS) == 0


# What does not belong together


@pytest.fixture
def kept(start, files, monkeypatch, capsys):
    """Two parts of a translation that was stopped; the content of their directory."""
    stop_after(monkeypatch, 2)
    assert start(*IN_PARTS) == 130
    resume(monkeypatch)
    capsys.readouterr()
    return tree(files / "out.parts")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        (["beam_size=2"], "(beam_size: 1 there, 2 now)"),
        (["--ensemble", "model", "--scores"], "(the model, --scores: False there, True now)"),
        *thorough_rows(
            (["--json"], "(--json: False there, True now)"),
            (["--alignment"], "(--alignment: False there, True now)"),
            (["--dtype", "bf16"], "(--dtype: fp32 there, bf16 now)"),
            (["sampling=true", "seed=2"], "(sampling: False there, True now, seed: 1 there, 2 now)"),
            (["--prefix", "prefixes"], "(--prefix: False there, True now)"),
            (["--terms", "terms", "beam_size=2"], "(the terms, beam_size: 1 there, 2 now)"),
        ),
    ],
)
def test_other_settings_are_refused_and_named(start, files, model_dir, kept, capsys, arguments, difference):
    places = {"prefixes": files / "prefixes", "terms": files / "terms", "model": model_dir}
    places["terms"].write_text("dog\tHund\n")
    assert start(*IN_PARTS, *(places.get(each, each) for each in arguments)) == 2
    error = capsys.readouterr().err
    assert says(error, "parts-of-other-translation", "out.parts", difference)
    assert says(error, "advice-delete-parts", "out.parts") and "keeps" not in error
    assert tree(files / "out.parts") == kept
    assert start(*IN_PARTS) == 0


def test_a_translation_is_resumed_in_the_precision_that_began_it(start, files, kept, monkeypatch, capsys):
    """What counts is the precision that `--dtype auto` means on this device, not the word."""
    with monkeypatch.context() as patch:
        patch.setattr(EngineOptions, "resolved", lambda options: replace(options, dtype="bf16"))  # as on a GPU
        assert start(*IN_PARTS, "--dtype", "auto") == 2
    assert says(capsys.readouterr().err, "parts-of-other-translation", "(--dtype: fp32 there, bf16 now)")
    assert tree(files / "out.parts") == kept
    assert start(*IN_PARTS, "--dtype", "auto") == 0


@pytest.mark.thorough
def test_compressed_parts_are_not_joined_with_plain_ones(start, files, monkeypatch, capsys):
    (files / "out.gz").symlink_to("out")
    stop_after(monkeypatch, 2)
    assert start(*IN_PARTS, output="out.gz") == 130
    resume(monkeypatch)
    before = tree(files)
    assert start(*IN_PARTS) == 2
    assert says(capsys.readouterr().err, "parts-of-other-translation", "out.parts", "--output as .gz: True")
    assert tree(files) == before
    assert start(*IN_PARTS, output="out.gz") == start(*IN_PARTS, output="plain") == 0
    assert gzip.decompress((files / "out").read_bytes()) == (files / "plain").read_bytes()


def test_a_copy_of_the_model_is_the_same_model_and_a_changed_one_is_another(
    run_stage, start, files, model_dir, tmp_path, kept, capsys
):
    copy = shutil.copytree(model_dir, tmp_path / "model")
    record = json.loads((files / "out.parts" / "parts.json").read_text())
    record["settings"]["the model"][0]["model.safetensors"] = "0" * 64
    changed = json.dumps(record)
    (files / "out.parts" / "parts.json").write_text(changed)
    assert start(*IN_PARTS) == 2
    assert says(capsys.readouterr().err, "parts-of-other-translation", "(the model)")
    (files / "out.parts" / "parts.json").write_bytes(kept["parts.json"])
    where = ["--input", files / "in", "--output", files / "out"]
    assert run_stage(translate.main, b"", copy, "--device", "cpu", *where, *IN_PARTS)[0] == 0
    assert "resuming: 6 of 12 lines" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("what", [*thorough("in"), "prefixes"])
def test_lines_that_have_changed_are_named_and_can_be_translated_again(start, files, monkeypatch, capsys, what):
    arguments = [*IN_PARTS, "--prefix", files / "prefixes"]
    stop_after(monkeypatch, 2)
    assert start(*arguments) == 130
    resume(monkeypatch)
    lines = (files / what).read_text().splitlines()
    (files / what).write_text("".join(f"{line}\n" for line in [*lines[:4], "Das", *lines[5:]]))
    capsys.readouterr()
    before = tree(files / "out.parts")
    assert start(*arguments) == 2
    error = capsys.readouterr().err
    place = str(files / "in"), str(files / "out.parts" / "000001")
    assert says(error, "input-changed-since-parts", " 4 ", " 6.", *place)
    assert tree(files / "out.parts") == before
    (files / "out.parts" / "000001").unlink()
    assert start(*arguments) == 0
    assert start(*arguments, output="anew") == 0
    assert (files / "out").read_bytes() == (files / "anew").read_bytes()


@pytest.mark.thorough
def test_lines_that_are_not_translated_yet_may_change(start, files, kept):
    (files / "in").write_text(CONTENT.replace("He sees it.", "She sees it."))
    assert start(*IN_PARTS) == 0
    assert start(*IN_PARTS, output="anew") == 0
    assert (files / "out").read_bytes() == (files / "anew").read_bytes()


@pytest.mark.thorough
def test_an_input_may_grow_but_not_lose_what_is_translated(start, files, kept, capsys):
    (files / "in").write_text("".join(CONTENT.splitlines(keepends=True)[:3]))
    assert start(*IN_PARTS) == 2
    assert says(capsys.readouterr().err, "input-changed-since-parts", " 4 ", " 6.")
    assert tree(files / "out.parts") == kept
    (files / "in").write_text(CONTENT + "One more.\n")
    assert start(*IN_PARTS) == start(*IN_PARTS, output="anew") == 0
    assert (files / "out").read_bytes() == (files / "anew").read_bytes()


def test_bad_lines_are_named_before_the_first_is_translated_and_cost_nothing(start, files, capsys):
    (files / "in").write_bytes(CONTENT.encode() + b"br\xf6ken\n")
    assert start(*IN_PARTS) == 2
    assert says(capsys.readouterr().err, "line-not-utf-8", f"in:{len(LINES) + 1}:")
    packed = gzip.compress(CONTENT.encode() * 100)
    (files / "cut.gz").write_bytes(packed[:-20])
    assert start(*IN_PARTS, source="cut.gz") == 2
    assert says(capsys.readouterr().err, "text-cannot-be-read", "cut.gz", "Compressed file ended before")
    (files / "in").write_text(CONTENT)
    (files / "prefixes").write_text("Ein\n")
    assert start(*IN_PARTS, "--prefix", files / "prefixes") == 2
    assert says(capsys.readouterr().err, "line-beside-missing", "prefixes", "2")
    assert not list(files.glob("out*"))


# A file that changes meanwhile

CHANGES = {
    "shorter": lambda path: path.write_text("".join(path.read_text().splitlines(keepends=True)[:2])),
    "longer": lambda path: path.write_text(path.read_text() + "One more.\n" * len(LINES)),
    "other lines": lambda path: path.write_text(path.read_text().swapcase()),
    "gone": lambda path: path.unlink(),
}
changes = pytest.mark.parametrize("how", ["shorter", *thorough("longer", "other lines", "gone")])


@pytest.fixture
def without_end():
    """A test that does not end within a minute fails."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it has no end"))
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@changes
@pytest.mark.parametrize("what", ["in", "prefixes"])
def test_a_change_while_it_translates_is_an_error_at_the_next_block(
    start, files, monkeypatch, capsys, without_end, how, what
):
    arguments = [*IN_PARTS, "--prefix", files / "prefixes"]
    assert start(*arguments, output="unbroken") == 0
    path, blocks = files / what, []

    def changing(*given):
        blocks.append(given[1])
        found = translate_block(*given)
        if len(blocks) == 2:
            CHANGES[how](path)
        return found

    content = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(translation_output, "translate_block", changing)
        assert start(*arguments) == 2
    error = capsys.readouterr().err
    assert says(error, "text-changed-while-read", str(path)) and "2 parts" in error
    assert len(blocks) == 2 and not (files / "out").exists()
    path.write_bytes(content)
    assert start(*arguments) == 0
    assert "resuming: 6 of 12 lines" in capsys.readouterr().err
    assert (files / "out").read_bytes() == (files / "unbroken").read_bytes()


@changes
@pytest.mark.parametrize("what", ["in", *thorough("prefixes")])
def test_a_change_between_two_readings_is_an_error(start, files, monkeypatch, capsys, without_end, how, what):
    """As on a machine that does not see the new time of the file at once."""
    path, arguments = files / what, [*IN_PARTS, *(["--prefix", files / "prefixes"] if what == "prefixes" else [])]
    content, translate_parts = path.read_bytes(), file_to_file._FileTranslation._translate

    def changing(*given):
        CHANGES[how](path)
        translate_parts(*given)

    with monkeypatch.context() as patch:
        patch.setattr(file_to_file._FileTranslation, "_translate", changing)
        assert start(*arguments) == 2
    error = capsys.readouterr().err
    assert error.rpartition("error: ")[2].count("\n") == 1
    if how == "other lines" or (what == "in" and how != "gone"):  # nobody knows which of the two files has changed
        assert says(error, "input-changed-since-parts", str(files / "in"))
    else:
        assert str(path) in error
    path.write_bytes(content)
    assert start(*arguments) == start(*arguments, output="anew") == 0
    assert (files / "out").read_bytes() == (files / "anew").read_bytes()


def test_terms_that_change_meanwhile_are_those_of_the_beginning(start, files, monkeypatch, capsys):
    terms = files / "terms"
    terms.write_text("dog\tKatze\n")
    arguments = ["beam_size=2", "--buffer-lines", "3", "--terms", terms]
    assert start(*arguments, output="unbroken") == 0
    with monkeypatch.context() as patch:
        patch.setattr(
            translation_output, "translate_block", lambda *given: (terms.unlink(True), translate_block(*given))[1]
        )
        assert start(*arguments) == 0
    assert (files / "out").read_bytes() == (files / "unbroken").read_bytes()
    stop_after(monkeypatch, 1)
    terms.write_text("dog\tKatze\n")
    assert start(*arguments) == 130
    terms.write_text("dog\tMaus\n")
    assert start(*arguments) == 2
    assert says(capsys.readouterr().err, "parts-of-other-translation", "(the terms)")


def test_a_directory_of_somebody_else_is_not_used(start, files, capsys):
    (files / "out.parts").mkdir()
    (files / "out.parts" / "000000").write_text("mine")
    assert start(*IN_PARTS) == 2
    assert says(capsys.readouterr().err, "directory-of-others", "out.parts", "`translate`", "000000")
    assert tree(files / "out.parts") == {"000000": b"mine"}
    assert not (files / "out").exists()


@pytest.mark.parametrize("content", [*thorough("", "[]", "NaN"), '{"form": 1}'])
def test_a_damaged_or_older_record_is_named(start, files, kept, capsys, content):
    (files / "out.parts" / "parts.json").write_text(content)
    assert start(*IN_PARTS) == 2
    error = capsys.readouterr().err
    assert says(error, "advice-delete-parts", "out.parts", "out.parts")
    assert tree(files / "out.parts") == kept | {"parts.json": content.encode()}


def changed_letter(content):
    return content[:-2] + b"#\n"


def without_last_line(content):
    return content[: content.rindex(b"\n", 0, -1) + 1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "damage", [*thorough(lambda content: b"", lambda content: b"[]\nno", without_last_line), changed_letter]
)
def test_a_damaged_part_is_named_and_can_be_made_again(start, files, kept, capsys, damage):
    part = files / "out.parts" / "000001"
    part.write_bytes(damage(part.read_bytes()))
    assert start(*IN_PARTS) == 2
    assert says(capsys.readouterr().err, "part-damaged", "000001")
    (files / "out.parts" / "000001").unlink()
    assert start(*IN_PARTS) == start(*IN_PARTS, output="anew") == 0
    assert (files / "out").read_bytes() == (files / "anew").read_bytes()


# Real kills


def arguments_of(model_dir, files, output, *more):
    """What a process of Python gets."""
    where = ["--input", files / "in", "--output", files / output]
    return ["-m", "transformer_mt.translate", model_dir, "--device", "cpu", "--workers", 1, *where, *SAMPLED, *more]


def killed_before(number, command):
    """Whether a process that translates was killed before it changed the disk for that time."""
    changes, count = {os.fsync, os.replace, os.unlink, os.rmdir, os.mkdir, os.ftruncate}, 0

    def watch(frame, event, function):
        nonlocal count
        count += event == "c_call" and function in changes
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        sys.setprofile(watch)
        os._exit(cli.run(translate.main, command))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


@pytest.mark.slow
def test_killed_before_any_change_of_the_disk_it_ends_with_the_same_bytes(model_dir, files, start):
    (files / "in").write_text("".join(CONTENT.splitlines(keepends=True)[:5]))  # two parts
    assert start(*SAMPLED, output="unbroken.gz") == 0
    whole = (files / "unbroken.gz").read_bytes()
    command = list(map(str, arguments_of(model_dir, files, "out.gz", "--quiet")[2:]))
    for number in range(1, 200):
        was_killed = killed_before(number, command)
        assert not (files / "out.gz").exists() or (files / "out.gz").read_bytes() == whole
        assert start(*SAMPLED, "--quiet", output="out.gz") == 0
        assert (files / "out.gz").read_bytes() == whole
        assert sorted(path.name for path in files.iterdir()) == ["in", "out.gz", "prefixes", "unbroken.gz"]
        (files / "out.gz").unlink()
        if not was_killed:
            break
    assert number > 15


def test_ranks_need_files(run_stage, model_dir, files, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run_stage(translate.main, b"A dog.\n", model_dir, "--output", files / "out") == (2, b"")
    assert "give --input FILE and --output FILE" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(model_dir, files):
    (files / "in").write_text(CONTENT * 100)
    command = [sys.executable, *map(str, arguments_of(model_dir, files, "out"))]
    environment = os.environ | {"PYTHONPATH": python_path(ROOT), "OMP_NUM_THREADS": "1"}
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            before = len(list(files.glob("out.parts/0*")))
            while len(list(files.glob("out.parts/0*"))) < before + 2:
                assert process.poll() is None, process.stderr.read()
            process.send_signal(number)
            assert process.wait(60) == status
            assert "of the translation: the same command resumes from there\n" in process.stderr.read()
