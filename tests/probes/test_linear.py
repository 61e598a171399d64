from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from eureka.config import run_config
from eureka.errors import RequestError
from eureka.experiment import build
from eureka.probes import linear_probes
from eureka.probes.logistic import PORTIONS, read_off


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
    known, unknown = read_off(x, y), read_off(rng.normal(size=(1200, 10)), y)
    assert known["accuracy"] > 0.95
    assert known["bits"] < 0.4
    assert unknown["accuracy"] == pytest.approx(1 / 3, abs=0.1)
    assert unknown["bits"] > unknown["uniform_bits"] - 0.02
    assert known["uniform_bits"] == pytest.approx(math.log2(3))


def test_the_code_length_is_what_an_online_code_would_send() -> None:
    """Written out with scikit-learn alone."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 640)
    x = rng.normal(size=(640, 4)) + y[:, None]
    n = 480  # three quarters are for fitting
    ends = [round(p * n) for p in PORTIONS]
    bits = ends[0] * 1.0
    for a, b in itertools.pairwise(ends):
        scaler = StandardScaler().fit(x[:a])
        model = LogisticRegression(C=0.1).fit(scaler.transform(x[:a]), y[:a])
        p = 0.99 * model.predict_proba(scaler.transform(x[a:b])) + 0.005
        bits += -np.log2(p[np.arange(b - a), y[a:b]]).sum()
    assert read_off(x, y)["bits"] == pytest.approx(bits / n, rel=1e-3)


def test_a_class_that_comes_late_costs_a_finite_number_of_bits() -> None:
    y = np.array([0] * 300 + [1] * 340)
    assert math.isfinite(read_off(np.random.default_rng(0).normal(size=(640, 3)), y)["bits"])


def test_an_answer_that_never_changes_has_no_probe() -> None:
    assert math.isnan(read_off(np.zeros((100, 2)), np.zeros(100, dtype=int))["accuracy"])


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
