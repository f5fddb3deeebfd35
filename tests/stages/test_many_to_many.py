"""Several corpora with tags, from text to scores: each direction is translated with its tag."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.messages import says
from helpers.tiny import status_and_error, write_experiment

from transformer_mt import average, evaluate, prepare, train, translate
from transformer_mt.batches.encoded import EncodedCorpus
from transformer_mt.settings.reading import load_config
from transformer_mt.text.tokenizer import Tokenizer

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a prepared experiment with both directions."""
    directory = tmp_path_factory.mktemp("both")
    path = write_experiment(directory)
    content = yaml.safe_load(path.read_text())
    to_de, to_en = {"source": "en", "target": "de", "tag": "<2de>"}, {"source": "de", "target": "en", "tag": "<2en>"}

    def of(text: str, direction: dict[str, str], **more: object) -> dict[str, object]:
        return {"path": str(directory / text), **direction, **more}

    content["corpus"] |= {
        "train": [of("train", to_de, name="en_de"), of("train", to_en, name="de_en", weight=0.5)],
        "valid": of("valid", to_de),
        "test": {"en_de": of("test", to_de), "de_en": of("test", to_en)},
    }
    path.write_text(yaml.safe_dump(content))
    assert prepare.main([str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def run(experiment: Path) -> Path:
    assert train.main([str(experiment)]) == 0
    run = Path(load_config(experiment).run_dir)
    assert average.main([str(run)]) == 0
    return run


def test_each_source_begins_with_its_tag_as_one_piece(experiment: Path) -> None:
    data = experiment.parent / "data"
    corpus, tokenizer = EncodedCorpus.load(data / "train"), Tokenizer.load(data)
    tags = [int(tokenizer.source.piece_to_id(tag)) for tag in ("<2de>", "<2en>")]
    assert len(corpus.sizes) == 2 and corpus.sizes[0] == corpus.sizes[1]
    for pair in range(len(corpus)):
        ids, _ = corpus.source.gather(np.array([pair]))
        assert [i for i in ids.tolist() if i in tags] == [tags[pair >= corpus.sizes[0]]]


def test_each_test_set_is_translated_with_its_tag_and_scored(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert evaluate.main([str(run), "beam_size=1"]) == 0
    assert "tag" not in capsys.readouterr().err
    scores = json.loads((run / "evaluation" / "scores.json").read_text())["test_sets"]
    assert {"en_de", "de_en"} <= scores.keys()


def test_a_tag_for_all_lines_must_be_one_of_the_model(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").write_text("A dog.\n\nThe man sleeps.\n")
    (tmp_path / "tagged").write_text("<2de> A dog.\n\n<2de> The man sleeps.\n")
    found = []
    for name, options in (("plain", ["--tag", "<2de>"]), ("tagged", [])):
        capsys.readouterr()
        assert translate.main([str(run / "model"), "--quiet", "--input", str(tmp_path / name), *options]) == 0
        output = capsys.readouterr()
        assert output.err == ""
        found.append(output.out)
    assert found[0] == found[1] and found[0].splitlines()[1] == ""
    arguments = [run / "model", "--input", tmp_path / "plain", "--tag", "<2fr>"]
    status, error = status_and_error(translate.main, *arguments, capsys=capsys)
    assert status == 2 and says(error, "tag-unknown-to-model", "--tag <2fr>", "<2fr>", "<2de>, <2en>")


def test_other_weights_need_no_new_preparation_but_another_run(
    experiment: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    other = tmp_path / "other.yaml"
    other.write_text(experiment.read_text().replace("weight: 0.5", "weight: 2"))
    assert prepare.main([str(other)]) == 0
    assert capsys.readouterr().out.startswith("already prepared")
    status, error = status_and_error(train.main, other, capsys=capsys)
    assert status == 2 and "corpus.train.de_en.weight: 0.5, now 2" in error
    assert run.exists()
