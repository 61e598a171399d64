from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Generator, Tensor, nn

from eureka.config import run_config
from eureka.errors import RequestError
from eureka.experiment import build
from eureka.probes import linear
from eureka.probes.linear import PORTIONS, fit_probe, linear_probes

Array = np.ndarray[Any, Any]


def encoder() -> tuple[Any, nn.Module]:
    task, model = build(
        run_config(
            task={"name": "tiles", "tokens": 1, "features": 8, "noise": 0.2},
            model={"name": "encoder", "dim": 16, "depth": 2},
            attention={"name": "softmax"},
            training={},
        )
    )
    return task, model


def test_an_answer_that_is_written_in_the_features_is_read_off_and_one_that_is_not_is_not() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1200)
    x = np.eye(3)[y] @ rng.normal(size=(3, 10)) * 3 + rng.normal(size=(1200, 10))
    known, unknown = fit_probe(x, y), fit_probe(rng.normal(size=(1200, 10)), y)
    assert known.accuracy > 0.95
    assert known.bits < 0.4
    assert unknown.accuracy == pytest.approx(1 / 3, abs=0.1)
    assert unknown.bits > unknown.uniform_bits - 0.02
    assert known.uniform_bits == pytest.approx(math.log2(3))


def solved_by_hand(x: Array, y: Array, new: Array, classes: int) -> Array:
    """Probabilities of the rows of `new`: features standardised and the penalised likelihood minimised without scikit-learn."""
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 1e-12, scale, 1.0)
    z = (x - mean) / scale
    shape = (classes, x.shape[1] + 1)
    penalty = 10.0 if classes > 2 else 20.0  # 1 / C; of two classes scikit-learn fits the difference only

    def loss_and_gradient(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(shape)
        logs = log_softmax(z @ w[:, :-1].T + w[:, -1], axis=1)
        error = np.exp(logs) - np.eye(classes)[y]
        gradient = np.c_[error.T @ z + w[:, :-1] * penalty, error.sum(axis=0)]  # the intercept is not penalised
        return float(-logs[np.arange(len(y)), y].sum() + (w[:, :-1] ** 2).sum() * penalty / 2), gradient.ravel()

    w = minimize(loss_and_gradient, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", tol=1e-12).x.reshape(shape)
    probabilities: Array = np.exp(log_softmax((new - mean) / scale @ w[:, :-1].T + w[:, -1], axis=1))
    return probabilities


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_accuracy_and_code_length_are_those_of_a_probe_solved_by_hand(classes: int) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, classes, 640)
    x = rng.normal(size=(640, 4)) * [1.0, 50.0, 1e-3, 1.0] + y[:, None] * [1.0, 20.0, 0.0, 0.0]
    x = np.c_[x, np.full(640, 7.0)]  # a feature that never changes
    n = 480  # three quarters are for fitting
    found = fit_probe(x, y)
    assert found.accuracy == (solved_by_hand(x[:n], y[:n], x[n:], classes).argmax(axis=1) == y[n:]).mean()
    ends = [round(p * n) for p in PORTIONS]
    bits = ends[0] * math.log2(classes)
    for a, b in itertools.pairwise(ends):
        p = 0.99 * solved_by_hand(x[:a], y[:a], x[a:b], classes) + 0.01 / classes
        bits += -np.log2(p[np.arange(b - a), y[a:b]]).sum()
    assert found.bits == pytest.approx(bits / n, rel=1e-3)


def test_a_class_that_comes_late_costs_a_finite_number_of_bits() -> None:
    y = np.array([0] * 300 + [1] * 340)
    assert math.isfinite(fit_probe(np.random.default_rng(0).normal(size=(640, 3)), y).bits)


def test_an_answer_that_never_changes_has_no_probe() -> None:
    assert math.isnan(fit_probe(np.zeros((100, 2)), np.zeros(100, dtype=int)).accuracy)


def test_indicators_can_be_read_off_an_untrained_encoder_but_not_whether_they_agree() -> None:
    task, model = encoder()
    found = linear_probes(model, task, samples=600, representations=("block",), layers=0)
    accuracy = {probe.answer: probe.accuracy for probe in found}
    assert min(accuracy["indicator_1"], accuracy["indicator_2"], accuracy["target_1"], accuracy["target_2"]) > 0.95
    assert accuracy["decision_1"] < 0.7


def test_every_layer_head_representation_and_answer_has_its_probe() -> None:
    task, model = encoder()
    model.train()
    found = linear_probes(model, task, samples=100, answers=("indicator_1", "label"))
    assert len(found) == 2 * 2 * (2 * 4 + 1)
    assert {(p.layer, p.head) for p in found} == {(0, 0), (0, 1), (0, None), (1, 0), (1, 1), (1, None)}
    assert {p.representation for p in found} == {"q", "k", "v", "z", "block"}
    assert model.training


def test_the_same_generator_gives_the_same_numbers() -> None:
    task, model = encoder()
    one, other = (
        linear_probes(model, task, samples=100, representations=("v",), generator=Generator().manual_seed(3)) for _ in range(2)
    )
    assert one == other


def test_answers_of_tokens_are_read_off_tokens() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True), 1)
    x: Tensor = torch.randn(60, 10, 8, generator=Generator().manual_seed(0))
    answers = (x[..., 0] > 0).long()
    answers[:, 0] = -100  # not asked for
    found = linear_probes(model, (x, {"sign": answers}), representations=("block", "v"))
    accuracy = {(probe.representation, probe.head): probe.accuracy for probe in found}
    assert accuracy["block", None] > 0.8
    assert max(accuracy["v", 0], accuracy["v", 1]) > 0.65  # four of eight dimensions each
    assert all(probe.chance < 0.6 for probe in found)


@pytest.mark.parametrize("tokens", ["mean", 0])
def test_one_token_or_the_mean_may_be_asked(tokens: Any) -> None:
    task, model = encoder()
    found = linear_probes(model, task, samples=400, representations=("block",), layers=0, tokens=tokens, answers=("indicator_1",))
    assert len(found) == 1


def test_wrong_requests_are_refused() -> None:
    task, model = encoder()
    with pytest.raises(RequestError, match="not 'values'"):
        linear_probes(model, task, representations=("values",))
    with pytest.raises(RequestError, match="nothing to read off: the data knows decision_1"):
        linear_probes(model, task, answers=("color",))
    with pytest.raises(RequestError, match=r"shape \(100, 7\) fit neither"):
        linear_probes(model, (task.sample(100, Generator()).inputs, {"odd": torch.zeros(100, 7).long()}))


def test_a_probe_takes_one_thread_and_gives_the_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from threadpoolctl import threadpool_info

    seen: list[int] = []
    monkeypatch.setattr(linear, "fitted", lambda x, y: seen.extend(each["num_threads"] for each in threadpool_info()))
    with linear.threads(2):
        fit_probe(np.zeros((1, 1)), np.zeros(1))
        assert set(seen) == {1}
        assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {2}


def test_progress_counts_every_probe() -> None:
    task, model = encoder()
    told: list[tuple[int, int]] = []
    found = linear_probes(
        model, task, samples=40, representations=("z", "block"), answers=("label",), on_fit=lambda *of: told.append(of)
    )
    assert told == [(n + 1, 6) for n in range(6)]
    assert len(found) == 6
