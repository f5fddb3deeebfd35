"""Several processes that translate one file: whoever dies, hangs or comes late, the bytes are those of one process."""

import os
import random
import shutil
import time

import pytest
from helpers.crowd import Crowd
from helpers.directories import tree
from helpers.messages import says
from helpers.processes import ended, start_ranks, start_torchrun
from helpers.processes import said as said_by
from helpers.thorough import thorough
from helpers.tiny import demo_pairs

from transformer_mt import translate
from transformer_mt.base.errors import TranslationError
from transformer_mt.storage import claims
from transformer_mt.terminal import cli, file_to_file, translation_output
from transformer_mt.terminal.translation_output import translate_block

LINES = [*(source for source, _ in demo_pairs(10)), "", "He sees it. She sleeps."]
CONTENT = "".join(f"{line}\n" for line in LINES)
SAMPLED = ["sampling=true", "seed=5", "max_extra_length=5", "--buffer-lines", "3"]
LEASE = 1.0


@pytest.fixture
def files(tmp_path):
    """A directory with an input of four parts."""
    (tmp_path / "in").write_text(CONTENT)
    return tmp_path


@pytest.fixture
def command(model_dir, files):
    """A function that returns the arguments of `translate` for this output."""

    def arguments(output, *more):
        where = ["--input", files / "in", "--output", files / output]
        return list(map(str, [model_dir, "--device", "cpu", "--workers", 1, *where, *SAMPLED, *more]))

    return arguments


@pytest.fixture
def unbroken(command):
    """A function that returns the bytes that one process writes."""

    def make(files):
        assert cli.run(translate.main, command("unbroken.gz")) == 0
        return (files / "unbroken.gz").read_bytes()

    return make


@pytest.fixture
def short_lease(monkeypatch):
    monkeypatch.setattr(claims, "LEASE", LEASE)
    monkeypatch.setattr(claims, "POLL", 0.05)
    monkeypatch.setattr(file_to_file, "POLL", 0.05)


def disturbed(files, command, number, seed, disturbances, *more):
    """Let that many processes write out.gz, and disturb them as often. Returns what they have said."""
    print("seed", seed)
    dice, until_done = random.Random(seed), 0
    with Crowd(lambda: cli.run(translate.main, command("out.gz", *more)), number, files / "said") as crowd:
        for _ in range(disturbances):
            until_done += not (files / "out.gz").exists()
            crowd.disturb(dice, within=0.4, pause=LEASE * 1.5)
        crowd.fill()
        crowd.end()
    assert until_done > 2
    return (files / "said").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 5, 9])
@pytest.mark.usefixtures("short_lease")
def test_killed_and_stopped_at_random_they_end_with_the_same_bytes(files, command, unbroken, number):
    (files / "in").write_text(CONTENT * 20 * number)
    whole = unbroken(files)
    text = disturbed(files, command, number, random.randrange(10**6), 10 * number, "--once")
    assert (files / "out.gz").read_bytes() == whole
    assert tree(files / "out.gz.parts").keys() == {"lock", "parts.json"}, text
    assert "Traceback" not in text


@pytest.mark.thorough
@pytest.mark.usefixtures("short_lease")
def test_some_of_three_are_killed_or_stopped_and_nothing_stays(files, command, unbroken):
    (files / "in").write_text(CONTENT * 10)
    whole = unbroken(files)
    text = disturbed(files, command, 3, random.randrange(10**6), 4)
    assert (files / "out.gz").read_bytes() == whole
    assert not (files / "out.gz.parts").exists()
    assert "120 lines" in text and "Traceback" not in text


# What a process says, and when it ends


def shared(files, command, output, *more, number=2, work=None):
    """Let so many processes write an output. Returns what they have said."""
    with Crowd(work or (lambda: cli.run(translate.main, command(output, *more))), number, files / "said") as crowd:
        crowd.end()
    return (files / "said").read_text()


@pytest.mark.thorough
@pytest.mark.usefixtures("short_lease")
def test_each_part_is_translated_once_and_another_number_of_processes_goes_on(files, command, unbroken, monkeypatch):
    whole = unbroken(files)

    def noted(translator, block, *arguments):
        time.sleep(0.3)  # so that the other process gets a part
        with (files / "noted").open("a") as file:
            file.write(f"{os.getpid()} {block.first_line}\n")
        return translate_block(translator, block, *arguments)

    monkeypatch.setattr(translation_output, "translate_block", noted)
    text = shared(files, command, "out.gz")
    assert (files / "out.gz").read_bytes() == whole
    made = [line.split() for line in (files / "noted").read_text().splitlines()]
    assert sorted(int(line) for _, line in made) == [1, 4, 7, 10]
    assert len({process for process, _ in made}) == 2
    assert not (files / "out.gz.parts").exists()
    assert text.count(" blank; ") == text.count("another process has completed") == 1


@pytest.mark.thorough
def test_torchrun_itself(files, command, unbroken):
    whole = unbroken(files)
    agent = start_torchrun(2, files / "said", "-m", "transformer_mt.translate", *command("out.gz", "--once"))
    assert ended(agent) == [0], said_by(agent)
    assert (files / "out.gz").read_bytes() == whole
    assert said_by(agent).count(" blank; ") == 1, "the summary is printed once"


@pytest.mark.thorough
@pytest.mark.usefixtures("short_lease")
def test_a_process_that_comes_after_the_end_translates_nothing_again(files, command, monkeypatch, capsys):
    assert cli.run(translate.main, command("out.gz", "--once")) == 0
    whole = (files / "out.gz").read_bytes()
    assert tree(files / "out.gz.parts").keys() == {"lock", "parts.json"}
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(translation_output, "translate_block", None)
        assert cli.run(translate.main, command("out.gz", "--once")) == 0
        said = capsys.readouterr().err
        assert (
            f"out.gz is already complete; to translate it again, delete the directory {files / 'out.gz.parts'}" in said
        )
    for change in ((files / "out.gz").unlink, lambda: (files / "in").write_text(CONTENT + "One more.\n")):
        change()
        assert cli.run(translate.main, command("out.gz", "--once")) == 0
        assert ((files / "out.gz").read_bytes() == whole) == ((files / "in").read_text() == CONTENT)
    assert cli.run(translate.main, command("out.gz", "beam_size=2", "sampling=false")) == 0
    assert not (files / "out.gz.parts").exists()


@pytest.mark.thorough
@pytest.mark.usefixtures("short_lease")
def test_while_a_process_translates_others_need_the_same_settings_and_a_clean_end_leaves_nothing(
    files, command, monkeypatch, capsys
):
    def meanwhile(*arguments):
        assert cli.run(translate.main, command("out", "seed=6")) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr(translation_output, "translate_block", meanwhile)
    assert cli.run(translate.main, command("out")) == 130
    assert says(capsys.readouterr().err, "parts-of-other-translation", "(seed: 5 there, 6 now)")
    assert list(files.iterdir()) == [files / "in"]


@pytest.mark.parametrize("number", [1, *thorough(3)])
@pytest.mark.usefixtures("short_lease")
def test_what_stops_all_is_said_by_each(files, command, number):
    def failing(translator, block, *arguments):
        if block.first_line == 4:
            raise TranslationError("line 4 cannot be translated")
        return translate_block(translator, block, *arguments)

    def fails():
        translation_output.translate_block = failing
        return 0 if cli.run(translate.main, command("out")) == 2 else 1

    text = shared(files, command, "out", number=number, work=fails)
    assert text.count("error: line 4 cannot be translated") == number
    assert {"000000"} < tree(files / "out.parts").keys() <= {"lock", "parts.json", "000000", "000002", "000003"}
    assert cli.run(translate.main, command("out")) == 0
    assert not (files / "out.parts").exists()


@pytest.mark.usefixtures("short_lease")
def test_without_the_record_a_process_stops(files, command, monkeypatch, capsys):
    def deleting(*arguments):
        shutil.rmtree(files / "out.parts", ignore_errors=True)
        return translate_block(*arguments)

    monkeypatch.setattr(translation_output, "translate_block", deleting)
    assert cli.run(translate.main, command("out")) == 2
    assert says(capsys.readouterr().err, "parts-deleted", "out.parts")
    assert list(files.iterdir()) == [files / "in"]


@pytest.mark.thorough
def test_a_part_with_other_settings_is_not_joined(files, command, monkeypatch, capsys):
    """As of a process that hung, while its output was completed and another translation began."""

    def stopping(translator, block, *arguments):
        if block.first_line == 4:
            raise KeyboardInterrupt
        return translate_block(translator, block, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(translation_output, "translate_block", stopping)
        assert cli.run(translate.main, command("out")) == 130
        assert cli.run(translate.main, command("other", "seed=6")) == 130
    shutil.copy(files / "other.parts" / "000000", files / "out.parts" / "000000")
    assert cli.run(translate.main, command("out")) == 2
    assert says(capsys.readouterr().err, "input-changed-since-parts", " 1 ", " 3.")
    assert not (files / "out").exists()


@pytest.mark.slow
def test_each_process_of_torchrun_needs_its_own_gpu(files, command):
    ranks = start_ranks(2, files / "said", "-m", "transformer_mt.translate", *command("out", "--device", "cuda:0"))
    assert ended(*ranks) == [2, 2]
    assert says(said_by(ranks[0]), "torchrun-on-one-gpu", "--device cuda:0", " 2 ")
