"""What version 0.1.0 wrote before its modules moved into rooms is used as if this version had written it.

earlier_version.zip holds what its stages made of 300 pairs of the demo corpus: prepared data, a run stopped after 6 of
12 updates, the weights that the same code had after 12, a Transformer and a recurrent model, and the scores of both
for 20 pairs.
"""

import zipfile
from pathlib import Path

import pytest
import torch
from helpers.tiny import weights_at
from safetensors.torch import load_file

from transformer_mt import prepare, score, train

WHAT_IT_WROTE = Path(__file__).parent / "earlier_version.zip"


@pytest.fixture
def earlier(tmp_path, monkeypatch):
    """The directory of what it wrote, which is the current one."""
    with zipfile.ZipFile(WHAT_IT_WROTE) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "run" / "checkpoints" / "best").symlink_to("step-00000006")  # no archive of files holds a link
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_goes_on_to_the_weights_it_would_have_had(earlier, capsys):
    assert prepare.main(["tiny.yaml"]) == 0
    assert train.main(["tiny.yaml"]) == 0
    output = capsys.readouterr().out
    assert "already prepared" in output and "going on from update 6" in output
    expected = load_file(earlier / "weights_at_12.safetensors")
    ours = weights_at(earlier / "run", 12)
    assert ours.keys() == expected.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("model", ["run", "rnn"])
def test_a_model_gives_the_scores_it_gave(model, earlier, capsys):
    assert score.main([f"{model}_model", "test.en", "test.de", "--device", "cpu"]) == 0
    ours = [[float(number) for number in line.split()] for line in capsys.readouterr().out.splitlines()]
    expected = [
        [float(number) for number in line.split()]
        for line in (earlier / f"{model}_scores.txt").read_text(encoding="utf-8").splitlines()
    ]
    assert len(ours) == 20
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(expected), rtol=1e-4, atol=1e-3)
