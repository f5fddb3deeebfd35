"""What lies where compiled code is kept is run: it has to be ours."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from transformer_mt.errors import CompilerFilesError
from transformer_mt.storage.compiler_files import TORCH, TRITON, refuse_strangers, use_own_cache

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


def test_a_file_that_others_can_write_to_is_refused(home):
    """Unless nobody else can enter the directory: many a umask lets the group write to all that PyTorch makes."""
    use_own_cache()
    directory = home / "transformer_mt" / "torch"
    (directory / "ab").mkdir()
    planted = directory / "ab" / "cab.py"
    planted.write_text("", encoding="utf-8")
    for mode in (0o664, 0o646):
        planted.chmod(mode)
        directory.chmod(0o700)
        use_own_cache()
        directory.chmod(0o755)
        with pytest.raises(CompilerFilesError, match=r"cab\.py: other users may write to it.*remove .*torch "):
            use_own_cache()
    planted.chmod(0o644)
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


BEGIN_TRAINING = """
import os
import torch
from transformer_mt.device import Device
from transformer_mt.settings.model import TransformerConfig
from transformer_mt.models.transformer import Transformer
from transformer_mt.settings.experiment import TrainingConfig
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.learner import new_learner
model = Transformer(TransformerConfig(d_model=4, num_heads=2, ffn_dim=4, encoder_layers=1, decoder_layers=1), 20, 20)
new_learner(model, TrainingConfig(), "padded", Device(torch.device("cpu"), torch.float32, "CPU"), Ranks())
assert os.environ.get("TORCHINDUCTOR_CACHE_DIR") is None
"""


@pytest.mark.thorough
def test_a_run_that_compiles_nothing_makes_no_cache(home, tmp_path):
    """And is not stopped by what a stranger put where PyTorch makes it."""
    (tmp_path / "tmp").mkdir()
    stranger = tmp_path / "tmp" / "torchinductor_root"
    stranger.write_text("no directory", encoding="utf-8")
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "USER": "root", "LOGNAME": "root"}
    del environment[TORCH], environment[TRITON]
    subprocess.run([sys.executable, "-c", BEGIN_TRAINING], env=environment, check=True)
    assert list((tmp_path / "tmp").iterdir()) == [stranger]
    assert not home.exists()


TRAIN = """
import torch
from transformer_mt.storage.compiler_files import use_own_cache
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


def translate(model_dir, environment):
    """Exit status, what is written, and what is said, of a process that translates with compiled steps."""
    command = [sys.executable, "-m", "transformer_mt.translate", str(model_dir), "--device", "cpu", "--workers", "1"]
    done = subprocess.run(
        [*command, "--compile", "beam_size=1"],
        input="a b c\n",
        text=True,
        capture_output=True,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@as_root
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")
@pytest.mark.slow
def test_damaged_or_strange_packages_are_never_run(model_dir, home, tmp_path):
    """Flipped bits and cut ends: compiled anew, said in a line. Of others, open to them, a link: refused."""
    temporary = tmp_path / "tmp"
    stranger = temporary / "torchinductor_root"
    stranger.mkdir(parents=True)
    temporary.chmod(0o1777)
    marker = stranger / "marker.py"
    marker.write_text("raise SystemExit('a stranger is run')", encoding="utf-8")
    for place in (stranger, marker):
        os.chown(place, STRANGER, STRANGER)
        os.utime(place, (1, 1))  # as old as this, reading would change it, even with relatime
    environment = os.environ | {"TMPDIR": str(temporary), "USER": "root", "LOGNAME": "root"}
    del environment[TORCH], environment[TRITON]
    status, expected, said = translate(model_dir, environment)
    assert status == 0, said
    (path,) = (home / "transformer_mt").glob("*.pt2")
    whole, random = path.read_bytes(), Random(18)
    damaged = [whole[: random.randrange(len(whole))] for _ in range(2)]
    for _ in range(5):
        flipped = bytearray(whole)
        flipped[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        status, found, said = translate(model_dir, environment)
        assert (status, found) == (0, expected), said
        assert said.count(f"{path} is damaged, and compiled anew\n") == 1
        (path,) = (home / "transformer_mt").glob("*.pt2")

    assert translate(model_dir, environment)[:2] == (0, expected)
    path.chmod(0o602)
    assert_refused(translate(model_dir, environment), f"{path}: other users may write to it")
    path.chmod(0o600)
    os.chown(path, STRANGER, STRANGER)
    assert_refused(translate(model_dir, environment), f"{path}: belongs to another user")
    os.chown(path, 0, 0)
    real = path.rename(tmp_path / "elsewhere")
    path.symlink_to(real)
    assert_refused(translate(model_dir, environment), f"{path}: is a link")
    assert [*temporary.iterdir(), *stranger.iterdir()] == [stranger, marker]
    for place in (stranger, marker):
        assert place.stat().st_mtime == 1
    assert marker.stat().st_atime == 1, "it was not read"


def assert_refused(done, message):
    status, found, said = done
    assert (status, found) == (2, "")
    assert message in said
    assert "Traceback" not in said
