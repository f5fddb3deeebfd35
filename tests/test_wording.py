"""Messages agree with their numbers."""

import pytest

from transformer_mt.wording import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1200, "1,200 lines"), (-1, "-1 lines")]
)
def test_one_is_not_many(number, said):
    assert counted(number, "line") == said


def test_a_plural_may_be_its_own():
    assert [counted(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]
