"""Samples compared by their ranks, beside every dealing written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from eureka.study import ranks
from eureka.study.ranks import rank_test, shift


def brute_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Of all dealings, the share whose count of ordered pairs is as far from the middle as that of the samples."""

    def pairs(mine: Sequence[float], theirs: Sequence[float]) -> float:
        return sum((x < y) + 0.5 * (x == y) for x in mine for y in theirs)

    values, middle = [*a, *b], len(a) * len(b) / 2
    far = abs(pairs(a, b) - middle)
    dealings = [set(chosen) for chosen in itertools.combinations(range(len(values)), len(a))]
    split = [([values[i] for i in chosen], [values[i] for i in range(len(values)) if i not in chosen]) for chosen in dealings]
    return sum(abs(pairs(*one) - middle) >= far - 1e-9 for one in split) / len(split)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]),
        ([1.0, 5.0, 3.0, 9.0], [4.0, 2.0, 6.0]),
        ([1.0, math.inf, 3.0], [4.0, 2.5, math.inf, math.inf]),
        ([1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 3.0, 1.0]),
        ([1.0], [2.0]),
        ([math.inf, math.inf], [math.inf, math.inf]),
    ],
)
def test_the_p_value_is_the_share_of_all_dealings_that_are_as_far(a: list[float], b: list[float]) -> None:
    assert rank_test(a, b) == pytest.approx(brute_p(a, b), abs=1e-9)


@pytest.mark.parametrize(("a", "b"), [(4, 4), (5, 5), (3, 7), (6, 2), (5, 3)])
def test_the_interval_holds_just_the_shifts_that_the_test_does_not_refuse(a: int, b: int) -> None:
    random = np.random.default_rng(a * 10 + b)
    mine, theirs = random.normal(size=a).tolist(), (random.normal(size=b) + 1).tolist()
    found = shift(mine, theirs)
    assert found.value == pytest.approx(np.median([y - x for x in mine for y in theirs]))
    for by in np.linspace(-6, 6, 241):
        refused = brute_p(mine, [y - float(by) for y in theirs]) <= 0.05
        inside = (found.low is None or found.low <= by) and (found.high is None or by <= found.high)
        assert refused != inside, by


def test_samples_that_can_refuse_nothing_have_no_interval() -> None:
    found = shift([1.0, 2.0, 3.0], [11.0, 12.0, 13.0])
    assert (found.value, found.low, found.high) == (10.0, None, None)


def test_values_that_are_infinite_are_the_highest_and_give_no_infinite_figure() -> None:
    found = shift([1.0, 2.0, 3.0, 4.0, math.inf], [2.0, 3.0, 4.0, 5.0, math.inf])
    assert found.value == 1.0
    assert found.high is None
    assert shift([math.inf] * 4, [1.0] * 4).value is None
    assert shift([math.inf] * 4, [math.inf] * 4).value == 0.0


def test_samples_from_the_same_source_are_told_apart_in_at_most_one_case_of_twenty() -> None:
    random = np.random.default_rng(3)
    false = [rank_test(*random.normal(size=(2, 5)).tolist()) <= 0.05 for _ in range(2000)]
    assert 0.02 < np.mean(false) <= 0.055


def test_of_many_runs_the_normal_law_gives_the_interval_that_counting_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    mine, theirs = random.normal(size=60).tolist(), (random.normal(size=60) + 0.5).tolist()
    normal = shift(mine, theirs)
    monkeypatch.setattr(ranks, "NORMAL_ABOVE", 10_000)
    counted = shift(mine, theirs)
    assert normal.low == pytest.approx(counted.low, abs=0.01)
    assert normal.high == pytest.approx(counted.high, abs=0.01)
    assert shift(mine * 10, theirs * 10).low is not None  # so many ways of dealing that no float holds their number
