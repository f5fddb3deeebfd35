"""What lies where compiled code is kept is run: it has to be ours."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_mt.compiler_files import TORCH, TRITON, refuse_strangers, use_own_cache
from transformer_mt.errors import CompilerFilesError

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has other rights")
as_root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
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


@pytest.mark.parametrize("variable", [TORCH, TRITON])
def test_a_directory_that_the_user_names_is_used_after_the_same_checks(variable, tmp_path, monkeypatch):
    named = tmp_path / "named"
    monkeypatch.setenv(variable, str(named))
    use_own_cache()
    assert os.environ[variable] == str(named)
    named.chmod(0o770)
    with pytest.raises(CompilerFilesError, match=r"named: other users may write to it"):
        use_own_cache()
    named.chmod(0o700)
    (named / "link").symlink_to(tmp_path)
    with pytest.raises(CompilerFilesError, match=r"link: is a link.*remove .*named$"):
        use_own_cache()


def test_a_way_that_others_may_change_is_refused(home, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(CompilerFilesError, match=r"open: other users may write to it"):
        refuse_strangers(tmp_path / "open" / "below")
    home.symlink_to(tmp_path / "open" / "below")
    with pytest.raises(CompilerFilesError, match=r"open: other users may write to it"):
        use_own_cache()
    assert not (tmp_path / "open" / "below").exists()
    (tmp_path / "open").chmod(0o1777)
    (tmp_path / "open" / "below").mkdir(mode=0o700)
    use_own_cache()
    assert Path(os.environ[TORCH]).is_relative_to(tmp_path / "open" / "below"), "by its name without links"


def test_links_in_a_circle_are_refused(home):
    home.symlink_to(home)
    with pytest.raises(CompilerFilesError, match="circle"):
        use_own_cache()


@as_root
def test_what_belongs_to_another_user_is_refused(home, tmp_path):
    use_own_cache()
    planted = home / "transformer_mt" / "torch" / "ab" / "cab.py"
    planted.parent.mkdir()
    planted.write_text("", encoding="utf-8")
    os.chown(planted, STRANGER, STRANGER)
    with pytest.raises(CompilerFilesError, match=r"cab\.py: belongs to another user \(number 4242\)"):
        use_own_cache()
    planted.unlink()
    use_own_cache()
    os.chown(home, STRANGER, STRANGER)
    with pytest.raises(CompilerFilesError, match=r"home: belongs to another user"):
        use_own_cache()
    os.chown(home, 0, 0)
    real = home.rename(tmp_path / "real")
    home.symlink_to(real)
    use_own_cache()
    os.chown(home, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(CompilerFilesError, match=r"home: belongs to another user"):
        use_own_cache()


TRAIN = """
import torch
from transformer_mt.compiler_files import use_own_cache
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
