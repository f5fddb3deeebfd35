"""SHA256SUMS of a directory: what sha256sum reads, and what is no checksum of a file below it."""

import errno
import os
import shutil
import socket
import subprocess

import pytest
from helpers.messages import message, says

from transformer_mt.storage.checksums import SUMS, fault, read_sums, write_sums
from transformer_mt.storage.files import read_regular

NAMES = ["a.txt", "b/c.bin"]
DIGEST = "0" * 64


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b/c.bin").write_bytes(bytes(300_000))
    write_sums(tmp_path, NAMES)
    return tmp_path


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum here")
def test_sha256sum_reads_what_is_written_and_the_reverse(directory):
    check = ["sha256sum", "--check", "--strict", SUMS]
    assert subprocess.run(check, cwd=directory, capture_output=True, check=False).returncode == 0
    assert fault(directory, NAMES) is None
    (directory / "a.txt").write_text("One")
    assert subprocess.run(check, cwd=directory, capture_output=True, check=False).returncode == 1
    written = subprocess.run(["sha256sum", *NAMES], cwd=directory, capture_output=True, text=True, check=True)
    (directory / SUMS).write_text(written.stdout)
    assert fault(directory, NAMES) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_first_file_that_is_not_as_it_was_is_named(directory, name):
    content = bytearray((directory / name).read_bytes())
    content[-1] ^= 1
    (directory / name).write_bytes(content)
    assert says(str(fault(directory, NAMES)), "file-differs-from-sum", f"{name} ")
    assert fault(directory, [other for other in NAMES if other != name]) is None, "for nobody reads it"
    (directory / name).unlink()
    assert says(str(fault(directory, NAMES)), "summed-file-missing", f"{name} ")


def test_a_file_without_a_checksum_is_a_fault_and_one_that_is_nowhere_is_none(directory):
    assert fault(directory, [*NAMES, "new"]) is None
    (directory / "new").touch()
    assert says(str(fault(directory, [*NAMES, "new"])), "file-without-sum", "new ")


@pytest.mark.parametrize(
    "line",
    [
        f"{DIGEST}  ../a.txt",
        f"{DIGEST}  b/../../a.txt",
        f"{DIGEST}  /etc/passwd",
        f"{DIGEST} a.txt",
        f"{DIGEST}  ",
        f"{DIGEST[1:]}  b",
        f"{'G' * 64}  b",
        f"{DIGEST}  a.txt",
        "",
        "a.txt",
        "\0",
    ],
)
def test_what_is_no_checksum_of_a_file_below_is_named_by_its_line(directory, line):
    with (directory / SUMS).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=message("sums-malformed", "3")):
        read_sums(directory)
    found = fault(directory, NAMES)
    assert found.name == SUMS and says(found.what, "sums-malformed", " 3 ")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe" * 40, bytes(2**20), b"\n" * (2**20 + 1)])
def test_a_damaged_list_is_a_fault(directory, content):
    (directory / SUMS).write_bytes(content)
    assert fault(directory, NAMES) is not None


def test_a_list_that_would_fill_the_memory_is_not_read(directory):
    os.truncate(directory / SUMS, 10**12)  # which takes no room on the disk
    assert os.strerror(errno.EFBIG) in fault(directory, NAMES).what


@pytest.mark.parametrize("name", ["a.txt", SUMS])
@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "socket", "link to nowhere"])
def test_nothing_but_a_regular_file_is_read_and_nobody_waits(directory, at_once, monkeypatch, name, kind):
    path = directory / name
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                monkeypatch.chdir(directory)  # the path of a socket is short
                listener.bind(name)
        case _:
            path.symlink_to(directory / "nowhere")
    found = fault(directory, NAMES)
    assert found.name == name and ("cannot be read (" in found.what or "is missing" in found.what)
    with pytest.raises(OSError):
        read_regular(path)
