"""How fast a model is trained is measured after the first updates, which are slow."""

import numpy as np
import pytest

from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.training_settings import TrainingConfig
from transformer_mt.training.run import beginning

LENGTHS = np.full(64, 10)
TINY = TransformerConfig(encoder_layers=1, decoder_layers=1, d_model=8, ffn_dim=8, num_heads=1)


@pytest.mark.parametrize(
    ("seconds_of_update", "num_timed"),
    [
        pytest.param(lambda step: 1.5 if step < 4 else 1.0, 5, id="at-least-5-updates"),
        pytest.param(lambda step: 0.25, 20, id="at-least-so-many-seconds"),
        pytest.param(lambda step: 10.0, 2, id="not-many-more"),
    ],
)
def test_the_speed_is_that_of_the_timed_updates(monkeypatch, seconds_of_update, num_timed):
    now, steps, real = 0.0, [], beginning.one_update

    def one_update(learner, batches, rate, step, settings, ranks):
        nonlocal now
        made = real(learner, batches, rate, step, settings, ranks)
        now += seconds_of_update(step)
        steps.append((step, made.num_labels))
        return made

    monkeypatch.setattr(beginning, "one_update", one_update)
    monkeypatch.setattr(beginning.time, "perf_counter", lambda: now)
    settings = TrainingConfig(tokens_per_batch=40, device="cpu", precision="fp32", num_threads=1)
    found = beginning.tokens_per_second(TINY, settings, 50, (LENGTHS, LENGTHS), 5.0)
    timed = steps[-num_timed:]
    assert [step for step, _ in steps] == list(range(1, len(steps) + 1)) and len(steps) - num_timed in (1, 3)
    taken = sum(seconds_of_update(step) for step, _ in timed)
    assert found == pytest.approx(sum(labels for _, labels in timed) / taken)
