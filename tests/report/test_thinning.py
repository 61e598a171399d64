"""Thinning keeps whatever could be seen."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from eureka.report.thinning import BUCKETS, thin


@settings(max_examples=20, deadline=None)
@given(st.integers(2 * BUCKETS + 1, 6000), st.integers(0, 10**6))
def test_every_bucket_keeps_its_lowest_and_highest_value_of_every_column(n: int, seed: int) -> None:
    draw = random.Random(seed)
    records = [{"step": i, "a": draw.gauss(0, 1), "b": draw.random()} for i in range(n)]
    kept = thin(records, ["a", "b"])
    steps = {record["step"] for record in kept}
    assert [record["step"] for record in kept] == sorted(steps)
    assert {0, n - 1} <= steps
    for bucket in range(BUCKETS):
        here = records[n * bucket // BUCKETS : n * (bucket + 1) // BUCKETS]
        left = [record for record in here if record["step"] in steps]
        for column in ("a", "b"):
            for extreme in (min, max):
                assert extreme(r[column] for r in here) == extreme(r[column] for r in left)


def test_a_long_log_becomes_short_and_keeps_the_steps_it_is_told() -> None:
    records = [{"step": i, "loss": math.exp(-i / 5000)} for i in range(100_000)]
    kept = thin(records, ["loss"], keep={12_345})
    assert len(kept) <= 2 * BUCKETS + 3
    assert any(record["step"] == 12_345 for record in kept)


def test_gaps_stay_gaps() -> None:
    records = [{"step": i, "loss": math.nan if i == 1500 else 1.0} for i in range(3000)]
    assert any(math.isnan(record["loss"]) for record in thin(records, ["loss"]))


def test_a_short_log_is_left_alone() -> None:
    records = [{"step": i, "loss": 1.0} for i in range(2 * BUCKETS)]
    assert thin(records, ["loss"]) == records
