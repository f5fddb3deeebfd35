"""What lies where compiled code is kept is run: it has to be ours."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.messages import message

from transformer_mt.base.errors import ConfigError
from transformer_mt.storage.weights import TORCH, TRITON, use_own_cache

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
STRANGER = 4242


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A cache directory of its own, and an environment that is put back."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for variable in (TORCH, TRITON, "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"):
        monkeypatch.setenv(variable, "")
    return tmp_path / "home"


def test_the_cache_is_ours_alone(home, tmp_path):
    before = os.umask(0)
    try:
        use_own_cache()
    finally:
        os.umask(before)
    for name in ("", "transformer_mt", "transformer_mt/torch", "transformer_mt/triton"):
        assert (home / name).stat().st_mode & 0o777 == 0o700
    assert os.environ[TORCH] == str(home / "transformer_mt" / "torch")
    assert os.environ[TRITON] == str(home / "transformer_mt" / "triton")
    use_own_cache()


def test_the_default_of_pytorch_is_not_used(home, monkeypatch):
    """It sets the variable itself, if it was there before."""
    monkeypatch.setenv(TORCH, "/tmp/torchinductor_root")
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp")
    use_own_cache()
    assert os.environ[TORCH] == str(home / "transformer_mt" / "torch")


@pytest.mark.parametrize("name", ["named", "torchinductor_mine"])
@pytest.mark.parametrize("variable", [TORCH, TRITON])
def test_a_directory_that_the_user_names_is_used(variable, name, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, str(tmp_path / name))
    use_own_cache()
    assert os.environ[variable] == str(tmp_path / name)


def test_nobody_else_can_enter_a_directory_that_was_open_to_be_read(home):
    """Files that PyTorch makes in it have the rights that the umask leaves, and these often let a group write."""
    (home / "transformer_mt").mkdir(parents=True)
    home.chmod(0o755)
    (home / "transformer_mt").chmod(0o755)
    use_own_cache()
    assert (home / "transformer_mt").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_directory_that_others_may_write_to_is_refused(home, mode):
    """They may have put something there already."""
    (home / "transformer_mt").mkdir(parents=True)
    (home / "transformer_mt").chmod(mode)
    with pytest.raises(ConfigError, match=message("directory-of-other-user", "transformer_mt")):
        use_own_cache()


def test_a_way_that_others_may_change_is_refused(home, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    home.symlink_to(tmp_path / "open" / "below")
    with pytest.raises(ConfigError, match=message("directory-of-other-user", "open")):
        use_own_cache()
    assert not (tmp_path / "open" / "below").exists()
    (tmp_path / "open").chmod(0o1777)
    (tmp_path / "open" / "below").mkdir(mode=0o700)
    use_own_cache()
    assert Path(os.environ[TORCH]).is_relative_to(tmp_path / "open" / "below"), "by its name without links"


def test_a_place_that_cannot_be_used_is_an_error_that_says_what_to_do(home):
    home.write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match=message("no-safe-directory", "XDG_CACHE_HOME")):
        use_own_cache()
    home.unlink()
    home.symlink_to(home)
    with pytest.raises(ConfigError, match=message("no-safe-directory", "XDG_CACHE_HOME")):
        use_own_cache()


@as_root
@pytest.mark.parametrize("name", ["home", "home/transformer_mt"])
def test_what_belongs_to_another_user_is_refused(name, tmp_path):
    use_own_cache()
    os.chown(tmp_path / name, STRANGER, STRANGER)
    with pytest.raises(ConfigError, match=message("directory-of-other-user", name)):
        use_own_cache()


TRAIN = """
import torch
from transformer_mt.storage.weights import use_own_cache
use_own_cache()
assert torch.compile(lambda x: x.sin() + 1)(torch.zeros(8)).tolist() == [1.0] * 8
"""


@as_root
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")
@pytest.mark.slow
def test_a_cache_in_the_temporary_directory_is_not_looked_at(home, tmp_path):
    """One that a stranger made before us, under PyTorch's name for it, stays unread and empty."""
    stranger = tmp_path / "tmp" / "torchinductor_root"
    stranger.mkdir(parents=True)
    stranger.parent.chmod(0o1777)
    os.chown(stranger, STRANGER, STRANGER)
    old = stranger.stat().st_mtime_ns, stranger.stat().st_atime_ns
    environment = os.environ | {"TMPDIR": str(stranger.parent), "USER": "root", "LOGNAME": "root", TORCH: ""}
    subprocess.run([sys.executable, "-c", TRAIN], env=environment, check=True)
    assert (stranger.stat().st_mtime_ns, stranger.stat().st_atime_ns) == old
    assert not any(stranger.iterdir())
    assert any((home / "transformer_mt" / "torch").rglob("*.so")), "it was compiled into ours"
