"""The variables of torchrun: one that is missing or wrong is named before a process waits for others."""

from datetime import timedelta

import pytest
from helpers.messages import message, says
from helpers.tiny import status_and_error

from transformer_mt import train, translate
from transformer_mt.base import torchrun
from transformer_mt.base.errors import ConfigError
from transformer_mt.training import distributed

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture
def environment(monkeypatch):
    """A function that leaves nothing of torchrun's in the environment but these variables, after some that are right.

    None unsets a variable.
    """

    def has(**variables):
        right = dict.fromkeys(NAMES) | {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "MASTER_ADDR": "127.0.0.1"}
        for name, value in (right | {"MASTER_PORT": 29500} | variables).items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, str(value))

    return has


def test_the_place_of_a_process_is_what_torchrun_says(environment):
    environment()
    assert torchrun.place() == (1, 2, 1, 1)
    environment(WORLD_SIZE=4, LOCAL_WORLD_SIZE=2, RANK=3)
    assert torchrun.place() == (3, 4, 1, 2)
    environment(WORLD_SIZE=None)
    assert torchrun.place() is None
    assert torchrun.num_processes() == 0


@pytest.mark.parametrize(
    ("restarts", "shared", "warns"), [(3, True, True), (3, False, False), (0, True, False), (None, None, False)]
)
def test_a_restart_that_may_fail_is_announced(environment, monkeypatch, restarts, shared, warns):
    for name, value in {"MAX_RESTARTS": restarts, "USE_AGENT_STORE": shared}.items():
        monkeypatch.delenv(f"TORCHELASTIC_{name}", raising=False)
        if value is not None:
            monkeypatch.setenv(f"TORCHELASTIC_{name}", str(value))
    assert torchrun.may_restart() is bool(restarts)
    assert ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in torchrun.restart_warning()) is warns


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in NAMES[:4] for value in ("", "x", "-1", "1.0", "²")),
        *(("RANK", value) for value in (None, 2)),
        *(("LOCAL_RANK", value) for value in (None, 2)),
        *(("WORLD_SIZE", 0), ("LOCAL_WORLD_SIZE", 0)),
        *(("MASTER_ADDR", value) for value in (None, "")),
        *(("MASTER_PORT", value) for value in (None, "", "abc", 0, 65536)),
    ],
)
def test_variables_that_cannot_be_torchruns_are_an_error(environment, name, value):
    environment(**{name: value})
    with pytest.raises(ConfigError, match=message("torchrun-variable-wrong")):
        torchrun.place()


@pytest.mark.parametrize("wrong", [{"MASTER_PORT": "99999"}, {"RANK": "2"}, {"MASTER_ADDR": None}, {"WORLD_SIZE": "0"}])
def test_the_commands_that_torchrun_starts_end_with_one_line(
    environment, model_dir, tmp_path, monkeypatch, capsys, wrong
):
    environment(**wrong)
    monkeypatch.setattr(distributed, "TIMEOUT", timedelta(seconds=0.3))  # for a process that waits all the same
    source = tmp_path / "source.txt"
    source.write_text("A line.\n", encoding="utf-8")
    to_file = [model_dir, "--input", source, "--output", tmp_path / "target.txt"]
    for main, arguments in ((train.main, ["any.yaml"]), (translate.main, to_file)):
        status, said = status_and_error(main, *arguments, capsys=capsys)
        assert status == 2
        assert says(said, "torchrun-variable-wrong")
        assert said.count("\n") == 1
    assert not (tmp_path / "target.txt").exists()
