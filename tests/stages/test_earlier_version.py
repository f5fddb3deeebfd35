"""What version 0.1.0 wrote before its modules moved into rooms is used as if this version had written it.

earlier_version.zip holds what its stages made of 300 pairs of the demo corpus: prepared data, a run stopped after 6 of
12 updates, the weights that the same code had after 12, a Transformer and a recurrent model, and the scores of both
for 20 pairs.
"""

import json
import zipfile
from pathlib import Path

import pytest
import torch
from helpers.tiny import renew_sums, weights_at
from safetensors.torch import load_file

from transformer_mt import prepare, score, train
from transformer_mt.errors import CorpusError
from transformer_mt.storage.checksums import has_sums

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


def as_if_there_were_overlaps(directory):
    summary = json.loads((directory / "data" / "prepare.json").read_text())
    assert "filters" not in summary
    summary["also_in_training"] = {
        "valid": {"sources": 2, "targets": 1, "pairs": 1},
        "test/tiny": {"sources": 0, "targets": 0, "pairs": 0},
    }
    (directory / "data" / "prepare.json").write_text(json.dumps(summary))
    if has_sums(directory / "data"):
        renew_sums(directory / "data")


def test_data_that_were_prepared_without_filters_are_used_and_what_is_held_out_is_said(earlier, capsys):
    assert prepare.main(["tiny.yaml"]) == 0
    assert "filters.held_out" not in capsys.readouterr().out, "nothing of the sets is in the training text"
    as_if_there_were_overlaps(earlier)
    for overrides, is_said in (([], True), (["filters.held_out=false"], False), (["filters.on_bad_line=skip"], True)):
        assert prepare.main(["tiny.yaml", *overrides]) == 0
        output = capsys.readouterr().out
        assert "already prepared" in output
        note = "sentences of the validation and test sets in its training pairs (valid: 2 sources and 1 target). They"
        assert (note in output) == is_said
    assert train.main(["tiny.yaml"]) == 0


def test_data_that_were_prepared_without_filters_are_not_taken_for_filtered_ones(earlier):
    with pytest.raises(CorpusError, match=r"cannot be used .*: filters\.identical: False, now True\. Choose another"):
        prepare.main(["tiny.yaml", "filters.identical=true"])
    with pytest.raises(CorpusError, match=r"data was prepared with another filters: choose another data_dir"):
        train.main(["tiny.yaml", "run_dir=other", "filters.identical=true"])


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
