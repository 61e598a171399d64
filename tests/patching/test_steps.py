from __future__ import annotations

import pytest
import torch
from torch import nn

import eureka
from eureka.attention.heat_treatment import HeatTreatment
from eureka.patching.patch import Patched


def make() -> nn.TransformerEncoder:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True), 2)


def heated(model: nn.Module) -> Patched:
    return eureka.patch(model, "heat_treatment", total_steps=20)


def temperatures(patched: Patched) -> list[float]:
    return [site.operator.temperature(4) for site in patched.sites if isinstance(site.operator, HeatTreatment)]


def train(model: nn.Module, *optimisers: torch.optim.Optimizer) -> None:
    model(torch.randn(2, 3, 8)).square().sum().backward()
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad()


def test_a_schedule_follows_the_optimiser_by_itself() -> None:
    model = make()
    with heated(model) as patched:
        assert temperatures(patched) == [pytest.approx(1 / 3)] * 2
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1, 13):
            train(model, optimiser)
            assert patched.steps.step == step
            expected = eureka.make_operator("heat_treatment", total_steps=20)
            expected.advance(step)
            assert temperatures(patched) == [expected.temperature(4)] * 2  # type: ignore[operator]
        assert temperatures(patched) == [pytest.approx(2.0)] * 2
    train(model, optimiser)
    assert patched.steps.step == 12


def test_two_optimisers_for_one_model_do_not_count_double() -> None:
    model = make()
    with heated(model) as patched:
        halves = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model.layers]
        for _ in range(3):
            train(model, *halves)
        assert patched.steps.step == 3


def test_the_optimiser_of_another_model_does_not_count() -> None:
    model, other = make(), make()
    with heated(model) as patched:
        train(other, torch.optim.SGD(other.parameters(), lr=0.1))
        assert patched.steps.step == 0


def test_a_new_optimiser_takes_over_from_one_that_is_gone() -> None:
    model = make()
    with heated(model) as patched:
        for _ in range(2):
            train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert patched.steps.step == 2


def test_counting_by_hand_takes_over_and_counts_no_step_twice() -> None:
    model = make()
    with heated(model) as patched:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1, 4):
            train(model, optimiser)
            patched.step()
            assert patched.steps.step == step


def test_the_step_is_saved_and_restored() -> None:
    model = make()
    with heated(model) as patched:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            train(model, optimiser)
        state, hot = patched.state_dict(), temperatures(patched)
    with heated(model) as again:
        again.load_state_dict(state)
        assert temperatures(again) == hot
        train(model, optimiser)
        assert again.steps.step == 5


def test_a_patch_that_lasts_for_ever_keeps_no_model_alive_through_the_hook() -> None:
    import gc
    import weakref

    model = make()
    patched = heated(model)
    gone = weakref.ref(model)
    del model, patched
    gc.collect()
    assert gone() is None


def test_a_model_that_is_gone_does_not_disturb_the_optimisers_of_others() -> None:
    import gc

    heated(make())  # never undone
    gc.collect()
    model = make()
    with heated(model) as patched:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert patched.steps.step == 1
