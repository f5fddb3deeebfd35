"""Messages agree with their numbers."""

import pytest

from transformer_mt.base.wording import beginning, counted, duration, two_decimals


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1200, "1,200 lines"), (-1, "-1 lines")]
)
def test_one_is_not_many(number, said):
    assert counted(number, "line") == said


def test_a_plural_may_be_its_own():
    assert [counted(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]


@pytest.mark.parametrize(
    ("number", "said"), [(0.004, "0.00"), (999_999.4, "999999.40"), (2e6, "2e+06"), (1e304, "over 1e+09")]
)
def test_a_number_of_a_run_that_diverged_stays_short(number, said):
    assert two_decimals(number) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", ""),
        ("a dog runs", "a dog runs"),  # as long as it may be
        ("a cat jumps", "a cat …"),
        ("a cat is up", "a cat is …"),
        ("Donaudampfschiff", "Donaudamp…"),
        ("ab Donaudampf", "ab Donaud…"),  # a space so early would leave too little
        ("彼は犬と走っている、毎日", "彼は犬と走っている…"),
    ],
)
def test_a_line_is_cut_between_words_and_shows_it(line, said):
    assert beginning(line, 10) == said and len(said) <= 10


@pytest.mark.parametrize(
    ("seconds", "said"), [(9.6, "10 s"), (100, "2 min"), (5400, "1 h 30 min"), (9e6, "104 days 4 h")]
)
def test_a_time_has_the_units_that_it_needs(seconds, said):
    assert duration(seconds) == said
