"""Curves of any size are judged alike, and a single absurd value blinds nobody."""

from __future__ import annotations

import math

import numpy as np
import pytest

import eureka
from eureka.curves.online import OnlineDetector

RNG = np.random.default_rng(0)
CURVE = np.concatenate([2 + 0.02 * RNG.standard_normal(800), 0.3 + 0.02 * RNG.standard_normal(600)])


def events(values: np.ndarray) -> list[tuple[str, float]]:
    detector = OnlineDetector()
    found = (detector.update(step, float(value)) for step, value in enumerate(values))
    return [(event.name, event.step) for event in found if event is not None]


@pytest.mark.parametrize("power", [-1020, -1000, -400, 0, 400, 1000, 1022])
def test_a_curve_times_a_power_of_two_is_judged_as_the_curve_itself(power: int) -> None:
    scaled = np.ldexp(CURVE, power)
    [moment], [own] = eureka.detect(scaled), eureka.detect(CURVE)
    assert (moment.onset, moment.steepest, moment.end, moment.confidence) == (own.onset, own.steepest, own.end, own.confidence)
    assert moment.before == pytest.approx(math.ldexp(own.before, power), rel=1e-9)
    assert moment.plateau.level == pytest.approx(math.ldexp(own.plateau.level, power), rel=1e-9)
    plateaus, others = eureka.find_plateaus(scaled), eureka.find_plateaus(CURVE)
    assert [one.start for one in plateaus] == [one.start for one in others]
    assert [one.level for one in plateaus] == pytest.approx([math.ldexp(one.level, power) for one in others], rel=1e-9)
    assert events(scaled) == events(CURVE)


@pytest.mark.parametrize("value", [1e20, -1e30, 1e300, 1.7e308, math.inf, math.nan])
@pytest.mark.parametrize("place", [0, 5, 300, 1000])
def test_one_absurd_value_hides_no_moment(place: int, value: float) -> None:
    values = CURVE.copy()
    values[place] = value
    [moment] = eureka.detect(values)
    assert moment.steepest == pytest.approx(799.5, abs=2)
    assert [name for name, step in events(values) if 800 < step < 900] == ["eureka"]


def test_a_run_that_diverges_for_good_is_not_left_out() -> None:
    detector = OnlineDetector()
    for step, value in enumerate([*CURVE[:700], *[1e30] * 200]):
        detector.update(step, float(value))
    assert detector._values[detector._used - 1] > 1e9


def test_numbers_that_are_tiny_are_numbers() -> None:
    assert eureka.detect(np.full(500, 5e-324)) == []
    assert eureka.detect(np.zeros(500)) == []
