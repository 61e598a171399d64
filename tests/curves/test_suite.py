"""Over many planted curves: the demands on precision, recall, step error and calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.detector_calibration import RIDGE, Report, calibration_error, draw, fit, labelled, logistic, reliability, reports
from benchmarks.detector_quality import BORDER, MODERATE, score_kinds
from eureka.curves.detector import detect
from eureka.curves.score import Score, match, total
from eureka.curves.sketch import Difficulty, Planted, Truth, held_out, landmarks, sigmoid
from eureka.curves.synthetic import MAKERS, plant, suite
from eureka.curves.thresholds import THRESHOLDS
from eureka.errors import UnknownNameError


def test_precision_recall_and_step_error_hold_at_moderate_noise() -> None:
    scores = score_kinds(detect, 12, seed=11, noise=MODERATE)
    all_ = total(score for kind, score in scores.items() if kind not in BORDER)
    assert all_.curves > 180
    assert all_.precision >= 0.95  # the demand is 0.98 over thousands of curves; so few may miss it by chance
    assert all_.recall >= 0.95
    assert all_.median_error <= 0.02


def test_it_does_as_well_on_shapes_and_noises_that_the_fit_did_not_use() -> None:
    scores = score_kinds(detect, 8, seed=12, noise=MODERATE, unseen=True)
    all_ = total(score for kind, score in scores.items() if kind not in BORDER)
    assert all_.precision >= 0.93
    assert all_.recall >= 0.93


def test_confidence_means_what_it_says_on_unseen_shapes() -> None:
    rng = np.random.default_rng(5)
    curves = (curve for noise in (0.03, 0.1) for curve in suite(6, rng, held_out(Difficulty(noise=noise))))
    assert calibration_error(reliability([one for curve in curves for one in reports(curve)], bins=4)) < 0.05


def test_reliability_counts_by_hand_and_its_plot_is_the_same_each_time(tmp_path: Path) -> None:
    reported = [Report("x", sure, False, planted) for sure, planted in [(0.9, True)] * 3 + [(0.9, False), (0.1, False)]]
    low, high = bins = reliability(reported)
    assert (low.planted, low.count, high.planted, high.count) == (0.0, 1, 0.75, 4)
    assert [low.confidence, high.confidence] == pytest.approx([0.1, 0.9])
    assert calibration_error(bins) == pytest.approx((0.1 * 1 + 0.15 * 4) / 5)
    for name in ("one.png", "two.png"):
        draw({"x": bins}, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_what_looks_like_a_rate_step_is_one_about_as_often_as_the_doubt_says() -> None:
    rng = np.random.default_rng(6)
    found = [one for curve in suite(8, rng, Difficulty(noise=0.03)) for one in reports(curve) if one.confidence > 0.3]
    doubted = [one.planted for one in found if one.like_rate_step]
    assert len(doubted) > 20
    assert 1.0 - np.mean(doubted) == pytest.approx(THRESHOLDS.doubt, abs=0.25)


def test_the_logistic_fit_finds_the_weights_that_made_the_labels() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((20_000, 3)) * [1.0, 2.0, 0.5]
    weights, offset = np.array([1.5, -0.7, 0.0]), 0.4
    labels = (rng.random(len(features)) < 1.0 / (1.0 + np.exp(-(features @ weights + offset)))).astype(float)
    found, level = logistic(features, labels)
    assert found == pytest.approx(weights, abs=0.1)
    assert level == pytest.approx(offset, abs=0.1)


def test_the_logistic_fit_is_where_the_penalised_likelihood_has_no_slope() -> None:
    rng = np.random.default_rng(1)
    features = rng.standard_normal((500, 3)) * [1.0, 20.0, 0.5] + [3.0, 0.0, -2.0]
    labels = (features[:, 0] - 0.1 * features[:, 1] + rng.standard_normal(500) > 3.0).astype(float)
    weights, offset = logistic(features, labels)
    spread = features.std(axis=0)
    error = 1.0 / (1.0 + np.exp(-(features @ weights + offset))) - labels
    slope = (features - features.mean(axis=0)).T @ error / spread + RIDGE * weights * spread
    assert slope == pytest.approx(np.zeros(3), abs=1e-6)
    assert error.sum() == pytest.approx(0.0, abs=1e-6)


def test_a_fit_on_few_curves_orders_drops_as_the_kept_one_does() -> None:
    rng = np.random.default_rng(8)
    cases = [labelled(curve) for curve in suite(4, rng, Difficulty(noise=0.05))]
    weights, _ = fit(cases, rounds=2)
    assert weights[0] > 0  # length
    assert weights[1] > 0  # noise


@pytest.mark.parametrize("name", list(MAKERS))
def test_planted_truth_lies_on_its_curve(name: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        curve = plant(name, rng, Difficulty(noise=0.0))
        for truth in curve.truths:
            assert curve.steps[0] < truth.onset < truth.end < curve.steps[-1]
            assert truth.onset - 0.1 * truth.length < truth.steepest < truth.end  # a kink is steepest before 5 % are done
            before, after = np.interp(
                [truth.onset, truth.end], curve.steps[np.isfinite(curve.values)], curve.values[np.isfinite(curve.values)]
            )
            assert before < after if curve.rising else before > after


def test_landmarks_are_those_of_the_logistic() -> None:
    first, last, fastest = landmarks(sigmoid)
    assert (first, last, fastest) == pytest.approx((-np.log(19.0), np.log(19.0), 0.0), abs=1e-3)


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'staircase'"):
        plant("stairs", np.random.default_rng(0))


def test_score_counts_by_hand() -> None:
    truths = (Truth(onset=90, steepest=100, end=110), Truth(onset=290, steepest=300, end=310))
    curve = Planted(
        name="x", steps=np.arange(500.0), values=np.zeros(500), truths=truths, maybe=(Truth(onset=390, steepest=400, end=410),)
    )
    t = np.arange(500.0)
    found = detect(3.0 - 1.0 / (1.0 + np.exp(-(t - 100.0) / 3.0)) - 1.0 / (1.0 + np.exp(-(t - 400.0) / 3.0)))
    score = Score()
    score.add(found, curve)
    assert (score.curves, score.found, score.missed, score.false) == (1, 1, 1, 0)
    assert (score.precision, score.recall) == (1.0, 0.5)


def test_matching_is_one_to_one_and_nearest_first() -> None:
    truths = [Truth(onset=90, steepest=100, end=110)]
    assert match([104.0, 99.0, 130.0], truths, tolerance=1.0) == {1: 0}
