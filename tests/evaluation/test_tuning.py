"""Settings are tried in order, and the best on the validation set are taken."""

import pytest
from helpers.messages import message

from transformer_mt.base.errors import ConfigError
from transformer_mt.evaluation.metrics import corpus_score
from transformer_mt.evaluation.variations import choices_of, tune
from transformer_mt.settings.search_settings import DecodingConfig

REFERENCES = ["a b c d e f", "g h i j k l"]


def test_all_combinations_are_tried_and_the_best_is_taken(capsys):
    choices = [(each, DecodingConfig(beam_size=int(each[0][-1]))) for each in choices_of(["beam_size=1,2,3"])]
    texts = {1: ["a b c d", "x"], 2: REFERENCES, 3: REFERENCES}
    tuned = tune(choices, lambda decoding: texts[decoding.beam_size], REFERENCES, "bleu", "")
    assert [trial.settings for trial in tuned.trials] == [[f"beam_size={n}"] for n in (1, 2, 3)]
    assert tuned.trials[0].score == corpus_score("bleu", texts[1], REFERENCES)
    assert (tuned.best, tuned.chosen, tuned.num_lines) == (1, ["beam_size=2"], 2)  # of equal ones the first
    told = [f"validation set  bleu {trial.score:5.2f}  {trial.settings[0]}" for trial in tuned.trials]
    assert capsys.readouterr().out.splitlines() == told


def test_values_are_combined():
    found = choices_of(["length_penalty=0.2,1", "beam_size=4,8"])
    assert found == [
        [f"length_penalty={penalty}", f"beam_size={size}"] for penalty in ("0.2", "1") for size in ("4", "8")
    ]


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        (["beam_size"], "tune-values-missing"),
        (["beam_size=4,,8"], "tune-values-missing"),
        (["beam_size=4", "beam_size=8"], "tune-key-twice"),
    ],
)
def test_mistakes_are_named(keys, code):
    with pytest.raises(ConfigError, match=message(code, "beam_size")):
        choices_of(keys)
