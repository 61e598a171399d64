"""Schedules against their formulas, written out."""

from __future__ import annotations

import math

import pytest

from eureka.schedules import constant, cosine_ramp, warm_up
from eureka.training.config import TrainingConfig
from eureka.training.optimiser import learning_rate


def test_a_cosine_ramp_falls_and_rises_alike() -> None:
    down, up = cosine_ramp(3.0, 1.0, 40), cosine_ramp(1.0, 3.0, 40)
    for step in range(60):
        assert down(step) + up(step) == pytest.approx(4.0)


def test_a_cosine_ramp_is_the_cosine() -> None:
    ramp = cosine_ramp(2.0, 0.5, 7)
    for step in range(7):
        assert ramp(step) == pytest.approx(0.5 + 1.5 * 0.5 * (1 + math.cos(math.pi * step / 7)))
    assert ramp(7) == ramp(10_000) == 0.5


def test_warm_up_never_gives_a_rate_of_zero_and_joins_the_schedule() -> None:
    rate = warm_up(constant(0.1), 5)
    assert [rate(step) for step in range(7)] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1])


def test_no_warm_up_is_the_schedule_itself() -> None:
    assert warm_up(constant(0.3), 0)(0) == 0.3


def test_the_learning_rate_of_a_cosine_run_ends_at_its_final_rate() -> None:
    config = TrainingConfig(steps=100, warmup=10, lr=1e-3, schedule="cosine", final_lr=1e-5)
    rate = learning_rate(config)
    assert rate(9) == pytest.approx(1e-3)
    assert rate(10) == pytest.approx(1e-3)
    assert rate(55) == pytest.approx((1e-3 + 1e-5) / 2)
    assert rate(100) == pytest.approx(1e-5)
