from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
import torch
from torch import Generator, nn

import eureka
from eureka.curves.online import Event
from eureka.integrations.monitor import Monitor


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True), 2)


def losses(n: int = 1200) -> list[float]:
    """A plateau at 2, a leap at 700, and noise."""
    noise = 0.02 * torch.randn(n, generator=Generator().manual_seed(0))
    return [2 - 1.9 / (1 + math.exp(-(step - 700) / 10)) + noise[step].item() for step in range(n)]


def test_a_leap_in_the_loss_is_told_while_training_goes_on() -> None:
    told: list[Event] = []
    logged: list[tuple[dict[str, float], int]] = []
    with Monitor(make(), every=None, on_event=told.append, log=lambda scalars, step: logged.append((scalars, step))) as monitor:
        returned = [event for step, loss in enumerate(losses()) if (event := monitor.update(step, loss))]
    assert returned == told == monitor.events
    moments = [event for event in told if event.name == "eureka"]
    assert len(moments) == 1
    assert 600 < moments[0].moment.onset < 720  # type: ignore[union-attr]
    scalars, step = next((s, t) for s, t in logged if "eureka/onset" in s)
    assert scalars["eureka/before"] == pytest.approx(2.0, abs=0.3)
    assert step == moments[0].step


def test_a_monitor_that_is_saved_and_restored_tells_what_an_uninterrupted_one_tells() -> None:
    whole = Monitor(make(), every=None)
    first, second = Monitor(make(), every=None), Monitor(make(), every=None)
    for step, loss in enumerate(losses()):
        whole.update(step, loss)
        if step < 703:
            first.update(step, loss)
        else:
            if step == 703:
                second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
            second.update(step, loss)
    assert first.events + second.events == whole.events
    assert len(second.events) >= 1


def test_probe_and_schedule_go_along() -> None:
    model = make()
    logged: list[int] = []
    with eureka.patch(model, "heat_treatment", total_steps=20) as patched:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        with Monitor(model, every=2, patched=patched, log=lambda scalars, step: logged.append(step)) as monitor:
            for step in range(5):
                loss = model(torch.randn(2, 3, 8)).square().mean()
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()
                monitor.update(step, loss.item())
        state: dict[str, Any] = monitor.state_dict()
    assert logged == [record.step for record in monitor.records] == [0, 2, 4]
    assert (state["probe"], state["patched"]) == ({"steps": 5}, {"step": 5})
    with eureka.patch(model, "heat_treatment", total_steps=20) as patched, Monitor(model, every=2, patched=patched) as monitor:
        monitor.load_state_dict(state)
        assert patched.steps.step == 5
        assert monitor.probe is not None
        assert monitor.probe.steps == 5


def test_a_loss_that_is_not_finite_is_passed_over() -> None:
    with Monitor(make(), every=None) as monitor:
        assert monitor.update(0, math.nan) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_becomes_no_number_is_told_once_and_watched_on(value: float, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Event] = []
    logged: list[tuple[dict[str, float], int]] = []
    with Monitor(make(), every=None, on_event=told.append, log=lambda scalars, step: logged.append((scalars, step))) as monitor:
        for step in range(300):
            monitor.update(step, 2.3 if step < 150 else value)
    (event,) = [one for one in monitor.events if one.name == "no_number"]
    assert event is told[-1]
    assert (event.step, event.plateau.start) == (152, 150)
    assert logged[-1] == ({"eureka/no_number": 150.0}, 152)
    assert [record.message for record in caplog.records] == ["loss: no number (nan or inf) from step 150 on"]


def test_single_losses_that_are_no_numbers_are_passed_over() -> None:
    with Monitor(make(), every=None) as monitor:
        for step in range(60):
            monitor.update(step, math.nan if step % 3 else 1.0 / (1 + step))
    assert "no_number" not in [event.name for event in monitor.events]


def test_losses_that_are_no_numbers_are_counted_on_after_a_restart() -> None:
    first, second = Monitor(make(), every=None), Monitor(make(), every=None)
    first.update(7, math.nan)
    first.update(8, math.nan)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    event = second.update(9, math.nan)
    assert event is not None
    assert (event.name, event.plateau.start) == ("no_number", 7)


def test_an_on_event_that_fails_does_not_stop_training(caplog: pytest.LogCaptureFixture) -> None:
    def on_event(event: Event) -> None:
        raise RuntimeError("no mail")

    with Monitor(make(), every=None, on_event=on_event) as monitor:
        for step in range(3):
            monitor.update(step, math.nan)
    assert [event.name for event in monitor.events] == ["no_number"]
    assert caplog.records[-1].message == "on_event failed at no_number (RuntimeError: no mail)."


class Positioned(nn.Module):
    """Tokens and learned positions, before two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Parameter(0.5 * torch.randn(12, 16))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places
        for block in self.blocks:
            h = block(h)
        return h  # type: ignore[no-any-return]


def _compiled(model: Positioned, how: str) -> nn.Module:
    if how == "whole":
        return torch.compile(model, backend="eager")  # type: ignore[return-value]
    if how == "in place":
        model.compile(backend="eager")
    else:
        for block in model.blocks:
            block.compile(backend="eager")
    return model


@pytest.mark.parametrize("how", ["whole", "in place", "by blocks"])
def test_a_compiled_model_is_measured_and_trained_on_and_torch_stays_whole(how: str) -> None:
    torch.manual_seed(0)
    plain, x = Positioned(), torch.randint(20, (6, 12))
    model = _compiled(copy.deepcopy(plain), how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Monitor(model, every=2) as monitor:
        for step in range(4):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.update(step, loss.item())
    assert torch.arange(3).tolist() == [0, 1, 2]  # a dispatch key that stays behind breaks this
    if how == "in place":
        assert model._compiled_call_impl is not None  # between the measured steps it runs compiled
    first, second = monitor.records
    assert first.position_share is not None
    assert first.position_share.ratio == pytest.approx(eureka.position_share(plain, x).ratio)
    assert second.position_share is not None
