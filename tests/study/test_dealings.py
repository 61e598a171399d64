"""Dealings: the same as ever, and kept in little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from eureka.study.dealings import EXACT_UP_TO, _dealings, two_sided


@pytest.mark.parametrize(("n", "group"), [(20, 10), (60, 13)])
def test_dealings_at_random_are_the_first_of_all_numbers_in_a_random_order(n: int, group: int) -> None:
    order = np.argsort(np.random.default_rng(3).random((EXACT_UP_TO, n)), axis=1)
    assert np.array_equal(_dealings(n, group, 3), order[:, :group])


def test_what_is_kept_of_a_test_is_two_bytes_a_member_of_the_group() -> None:
    scores = np.linspace(-1, 1, 200)
    _dealings.cache_clear()
    tracemalloc.start()
    try:
        two_sided(scores, 5)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1.2 * EXACT_UP_TO * 5 * 2
    assert peak < EXACT_UP_TO * len(scores) * 8 / 4, "not all random numbers are there at once"
