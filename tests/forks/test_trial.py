"""Trials: steps on copies, watched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from eureka.errors import RequestError
from eureka.forks.case import Case, Fork, make_case
from eureka.forks.trial import Trace, gain, try_steps

Batch = tuple[Tensor, Tensor]


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def a_case(step: Any = None) -> Case:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1))
    batches = [(torch.randn(16, 4), torch.randn(16, 1)) for _ in range(6)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return make_case(model, batches, loss=None if step else loss, optimizer=optimizer, step=step, most=6)


def test_a_trial_gives_the_losses_of_the_same_steps_by_hand() -> None:
    case = a_case()
    trace = try_steps(case, case.batches)
    fork = case.fork()
    torch.manual_seed(0)
    by_hand = []
    for batch in case.batches:
        fork.optimizer.zero_grad()
        value = loss(fork.model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        fork.optimizer.step()
        by_hand.append(value.item())
    assert trace.losses == by_hand
    assert trace.steps_taken == 6
    assert trace.rates == [0.1] * 6


def test_what_moved_is_rate_times_gradient_for_plain_descent() -> None:
    trace = try_steps(case := a_case(), case.batches)
    assert trace.total("computed") == pytest.approx(trace.total("used"))
    assert trace.total("moved") == pytest.approx(0.1 * trace.total("used"), rel=1e-4)


def test_a_still_trial_leaves_the_weights_and_two_trials_draw_the_same_dropout() -> None:
    case = a_case()
    before = [one.clone() for one in case.model.parameters()]
    first, second = (try_steps(case, [case.batches[0]] * 3, still=True) for _ in range(2))
    assert first.losses == second.losses
    assert len(set(first.losses)) == 3  # dropout differs from step to step
    assert all(torch.equal(a, b) for a, b in zip(before, case.model.parameters(), strict=True))


def test_clipping_and_zeroed_gradients_are_seen_between_backward_and_step() -> None:
    def step(model: nn.Module, optimizer: Optimizer, batch: Batch) -> float:
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        return value.item()

    original = torch.nn.utils.clip_grad_norm_
    trace = try_steps(case := a_case(step), case.batches)
    assert torch.nn.utils.clip_grad_norm_ is original
    assert [limit for _, limit in trace.clips] == [1e-3] * 6
    assert trace.total("used") == pytest.approx(1e-3 * math.sqrt(6), rel=1e-3)
    assert trace.total("computed") > 100 * trace.total("used")


def test_updates_that_rounding_loses_are_counted() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1).bfloat16()
    nn.init.ones_(model.weight)
    batches = [(torch.randn(8, 4).bfloat16(), torch.randn(8, 1).bfloat16())] * 3
    case = make_case(model, batches, loss=loss, optimizer=torch.optim.SGD(model.parameters(), lr=1e-6), step=None, most=3)
    weight = try_steps(case, batches).parameters["weight"]
    assert weight.pushed == 12
    assert weight.rounded == 12


def test_a_trial_ends_at_a_loss_that_is_no_number() -> None:
    case = a_case()

    def broken(fork: Fork) -> None:
        with torch.no_grad():
            next(fork.model.parameters()).fill_(math.nan)

    trace = try_steps(case, case.batches, broken)
    assert len(trace.losses) == 1
    assert not trace.finite


def test_a_gain_is_the_mean_of_paired_differences_over_the_last_batches() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal(20), rng.standard_normal(20)
    found = gain(Trace(list(one), 20, {}), Trace(list(other), 20, {}))
    differences = (other - one)[-8:]
    assert found.mean == pytest.approx(differences.mean())
    assert found.error == pytest.approx(differences.std(ddof=1) / math.sqrt(8))
    assert gain(Trace([1.0, math.nan], 2, {}), Trace([1.0, 1.0], 2, {})).mean == -math.inf


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": 3}, "model is a int"),
        ({"loss": None}, "neither was given"),
        ({"batches": iter([1])}, "batches is an iterator"),
        ({"batches": []}, "batches is empty"),
        ({"batches": 7}, "batches is a int"),
    ],
)
def test_what_is_missing_is_told_in_a_sentence(given: dict[str, Any], told: str) -> None:
    arguments: dict[str, Any] = {
        "model": nn.Linear(1, 1),
        "batches": [1],
        "loss": loss,
        "optimizer": None,
        "step": None,
        "most": 3,
    }
    with pytest.raises(RequestError, match=told):
        make_case(**{**arguments, **given})
