"""Thinning keeps whatever could be seen."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eureka.thinning import BUCKETS, thin


@settings(max_examples=20, deadline=None)
@given(st.integers(2 * BUCKETS + 1, 6000), st.integers(0, 10**6))
def test_every_bucket_keeps_its_lowest_and_highest_value_of_every_column(n: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    columns = [draw.normal(size=n), draw.random(n).round(1)]
    kept = thin(columns)
    assert list(kept) == sorted(set(kept))
    assert {0, n - 1} <= set(kept)
    for bucket in range(BUCKETS):
        start, end = n * bucket // BUCKETS, n * (bucket + 1) // BUCKETS
        left = kept[(kept >= start) & (kept < end)]
        for column in columns:
            assert column[left].min() == column[start:end].min()
            assert column[left].max() == column[start:end].max()


def test_a_long_curve_becomes_short_and_keeps_the_points_it_is_told() -> None:
    kept = thin([np.exp(-np.arange(100_000) / 5000)], keep=[12_345])
    assert len(kept) <= 2 * BUCKETS + 3
    assert 12_345 in kept


def test_gaps_stay_gaps() -> None:
    column = np.ones(3000)
    column[1500:1700] = np.nan
    column[2000] = np.inf
    assert {1500, 2000} <= set(thin([column]))


def test_a_column_without_any_value_keeps_nothing_but_the_ends() -> None:
    assert list(thin([np.full(3000, np.nan)])) == [0, 2999]


def test_a_short_curve_is_left_alone() -> None:
    assert list(thin([np.ones(2 * BUCKETS)])) == list(range(2 * BUCKETS))
