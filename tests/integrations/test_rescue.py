"""At a plateau a watcher says why, races remedies and goes on with the winner; it never stops a training run."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.doctor.diagnose import diagnose
from eureka.doctor.finding import CAUSES
from eureka.doctor.proposals import PROPOSED
from eureka.errors import RequestError
from eureka.forks.setup import Setup
from eureka.integrations import rescue as rescue_module
from eureka.integrations.monitor import Monitor
from eureka.integrations.rescue import Rescue, RescueRecord
from eureka.racing.remedies import CATALOGUE


class ByHand(nn.Module):
    """Attention that is written out, with logits that cannot be followed from q·k to the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax((self.q(x) @ self.k(x).transpose(-1, -2)).tanh(), dim=-1) @ self.v(x)  # type: ignore[no-any-return]


class Branching(ByHand):
    """It calls the fused function only if it is told to."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))
        return super().forward(x)


@pytest.mark.parametrize("model", [ByHand(), Branching(fused=False), nn.Linear(8, 8)])
def test_a_model_that_cannot_be_probed_is_trained_on_with_one_warning(model: nn.Module, caplog: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING, "eureka"), Monitor(model, every=1) as monitor:
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(2, 5, 8)).square().mean()
            loss.backward()
            optimizer.step()
            monitor.update(step, loss.item())
    assert len(caplog.records) == 1
    assert "the loss is watched" in caplog.text
    assert monitor.records == []


def slow(lr: float = 1e-6) -> tuple[nn.Module, torch.optim.Optimizer, dict[str, Any]]:
    """A classifier that could learn at once, at a rate far too small for it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    teacher = torch.randn(8, 4)
    inputs = [torch.randn(64, 8) for _ in range(40)]
    batches = [(x, (x @ teacher).argmax(dim=1)) for x in inputs]
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    return model, optimizer, {"model": model, "batches": batches, "loss": loss, "optimizer": optimizer}


def watched(mode: str, folder: Path, monitor_only: bool = False) -> tuple[Monitor, nn.Module, list[dict[str, float]]]:
    """Monitor told of a flat loss, so that a plateau is entered."""
    model, _, given = slow(1e-4)
    logged: list[dict[str, float]] = []
    monitor = Monitor(
        model,
        every=None,
        rescue=mode,
        given=lambda: given,
        folder=folder,
        share=20.0,
        log=lambda scalars, step: logged.append(scalars),
    )
    for step in range(130):
        monitor.update(step, 1.5)
    return monitor, model, logged


def test_advice_names_a_cause_and_leaves_the_model_bit_for_bit(tmp_path: Path) -> None:
    fresh = slow(1e-4)[0].state_dict()
    monitor, model, logged = watched("advise", tmp_path)
    (record,) = monitor.rescue.records
    assert record.causes[0] in CAUSES
    assert record.advice
    assert not record.verdict
    assert all(torch.equal(value, fresh[name]) for name, value in model.state_dict().items())
    assert any("eureka/rescue_applied" in one for one in logged)


def test_a_race_says_what_helps_and_changes_nothing(tmp_path: Path) -> None:
    fresh = slow(1e-4)[0].state_dict()
    monitor, model, _ = watched("race", tmp_path)
    (record,) = monitor.rescue.records
    assert record.race_steps > 0
    assert record.winner
    assert not record.applied
    assert all(torch.equal(value, fresh[name]) for name, value in model.state_dict().items())


def test_apply_goes_on_with_the_winner_and_keeps_a_checkpoint_from_before(tmp_path: Path) -> None:
    fresh = slow(1e-4)[0].state_dict()
    monitor, model, _ = watched("apply", tmp_path)
    (record,) = monitor.rescue.records
    assert record.winner.startswith("rate_x"), record
    assert record.applied
    before = torch.load(record.checkpoint, weights_only=True)
    assert all(torch.equal(value, fresh[name]) for name, value in before["model"].items())
    assert any(not torch.equal(value, fresh[name]) for name, value in model.state_dict().items())
    assert record.winner in record.sentence


def test_what_lasts_of_a_remedy_is_in_force_again_after_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    model, optimizer, given = slow(1e-4)
    rescue = Rescue("apply", lambda: Setup(**given), folder=tmp_path)
    kept = RescueRecord(step=9, causes=("healthy",), winner="rate_x10", applied=True)
    rescue.load_state_dict({"records": [{**vars(kept), "causes": ["healthy"]}]})
    before = [one.detach().clone() for one in model.parameters()]
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    optimizer.step()
    moved = [(a - b).abs().max().item() for a, b in zip(before, model.parameters(), strict=True)]
    assert moved == pytest.approx([1e-3] * len(moved), rel=1e-3)
    assert rescue.records == [kept]


def test_a_rescue_that_fails_ends_itself_and_not_the_run(tmp_path: Path, caplog: Any) -> None:
    def broken() -> Any:
        raise ValueError("no data here")

    rescue = Rescue("race", broken)
    with caplog.at_level(logging.WARNING, "eureka"):
        first, second = rescue.at_plateau(100), rescue.at_plateau(900)
    assert first is not None
    assert "no data here" in first.failed
    assert second is None
    assert len(caplog.records) == 1


def test_the_rate_that_the_diagnosis_has_measured_is_raced_and_applied_again_after_a_checkpoint(tmp_path: Path) -> None:
    monitor, _, _ = watched("apply", tmp_path)
    (record,) = monitor.rescue.records
    assert record.causes[0] == "lr_too_small"
    factor = int(record.winner.removeprefix("rate_x"))
    assert factor >= 100
    _, optimizer, given = slow(1e-4)
    again = Rescue("apply", lambda: Setup(**given), folder=tmp_path)
    again.load_state_dict(monitor.rescue.state_dict())
    rates: list[float] = []
    optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    optimizer.step()
    assert rates == pytest.approx([1e-4 * factor])


def test_a_remedy_that_cannot_be_applied_again_is_one_warning(caplog: Any) -> None:
    rescue = Rescue("race", lambda: Setup(model=nn.Linear(1, 1), batches=[1]))
    kept = RescueRecord(step=9, causes=("healthy",), winner="a_remedy_of_my_own", applied=True)
    with caplog.at_level(logging.WARNING, "eureka"):
        rescue.load_state_dict({"records": [{**vars(kept), "causes": ["healthy"]}]})
    assert len(caplog.records) == 1
    assert "the run goes on without it" in caplog.text


def test_a_healthy_run_is_not_raced() -> None:
    _, _, given = slow(0.3)
    record = Rescue("race", lambda: Setup(**given)).at_plateau(1000)
    assert record is not None
    assert record.verdict == "No remedy is raced: the run is healthy."


def test_a_logger_that_fails_stops_no_training(caplog: Any) -> None:
    def broken(scalars: dict[str, float], step: int) -> None:
        raise OSError("the disk is full")

    monitor = Monitor(nn.Linear(2, 2), every=None, log=broken)
    with caplog.at_level(logging.WARNING, "eureka"):
        for step in range(1000):
            monitor.update(step, 2.0 if step < 500 else 0.1)
    assert len(monitor.events) > 1
    assert len(caplog.records) == 1
    assert "the disk is full" in caplog.text


def test_a_race_keeps_within_its_share_of_the_steps(tmp_path: Path) -> None:
    _, _, given = slow(1e-4)
    rescue = Rescue("race", lambda: Setup(**given), share=0.5)
    record = rescue.at_plateau(50)
    assert record is not None
    assert "too little" in record.verdict
    more = rescue.at_plateau(1000)
    assert more is not None
    assert 0 < more.race_steps <= 500


@pytest.mark.parametrize(("arguments", "told"), [({"rescue": "aply"}, "apply"), ({"rescue": "race"}, "needs given")])
def test_mistakes_are_told_before_training(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        Monitor(nn.Linear(2, 2), every=None, **arguments)
    with pytest.raises(RequestError, match="folder"):
        Rescue("apply", lambda: Setup(model=nn.Linear(1, 1), batches=[1]))


def test_a_watcher_that_applies_the_winner_tries_no_new_start(tmp_path: Path) -> None:
    names = ("rate_x10", "start_over_x10", "start_over", "clear_norm_softmax")
    given = Setup(model=nn.Linear(1, 1), batches=[1])
    assert Rescue("apply", lambda: given, folder=tmp_path)._kept(names) == ("rate_x10", "clear_norm_softmax")
    assert Rescue("race", lambda: given)._kept(names) == names


def test_every_proposal_is_a_remedy_for_a_cause_that_exists() -> None:
    assert set(PROPOSED) <= set(CAUSES)
    assert {name for names in PROPOSED.values() for name in names} <= {remedy.name for remedy in CATALOGUE}


def flat_from_the_start(mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Monitor, nn.Module, list[Any]]:
    """A watcher with the usual share, and the diagnoses that it makes."""
    made: list[Any] = []

    def counted(given: Setup) -> Any:
        made.append(diagnose(given))
        return made[-1]

    monkeypatch.setattr(rescue_module, "diagnose", counted)
    model, _, given = slow(1e-4)
    return Monitor(model, every=None, rescue=mode, given=lambda: given, folder=folder), model, made


def test_a_run_that_is_flat_from_the_start_is_raced_once_its_steps_suffice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, model, made = flat_from_the_start("apply", tmp_path, monkeypatch)
    fresh = {name: value.clone() for name, value in model.state_dict().items()}
    seen: list[list[RescueRecord]] = []
    for step in range(900):
        monitor.update(step, 1.5)
        if not seen or seen[-1] != monitor.rescue.records:
            seen.append([*monitor.rescue.records])
    (first,), (second,) = seen[1:]  # a record at the plateau, and one in its place when the race was run
    assert "No race yet" in first.verdict
    assert f"at step {second.step:,}." in first.verdict
    assert first.step < second.step < 500
    assert 0 < second.race_steps <= 0.5 * second.step
    assert second.applied
    assert torch.load(second.checkpoint, weights_only=True)["step"] == second.step
    assert any(not torch.equal(value, fresh[name]) for name, value in model.state_dict().items())
    assert len(made) == 1, "the plateau is diagnosed once"


def test_a_race_that_waits_is_given_up_when_the_plateau_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor, _, made = flat_from_the_start("race", tmp_path, monkeypatch)
    for step in range(150):
        monitor.update(step, 1.5)
    assert monitor.rescue.pending
    for step in range(150, 600):
        monitor.update(step, 1.5 - 0.001 * (step - 150))  # it falls, and never rests
        if step > 200:
            assert not monitor.rescue.pending
    (record,) = monitor.rescue.records
    assert not record.race_steps
    assert len(made) == 1


def test_a_race_that_waits_is_run_after_a_checkpoint_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, _ = flat_from_the_start("race", tmp_path, monkeypatch)
    for step in range(150):
        first.update(step, 1.5)
    second, _, made = flat_from_the_start("race", tmp_path, monkeypatch)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for step in range(150, 500):
        second.update(step, 1.5)
    (record,) = second.rescue.records
    assert record.race_steps > 0
    assert not made, "its cause is known"
    advised, _, _ = flat_from_the_start("advise", tmp_path, monkeypatch)
    advised.load_state_dict(first.state_dict())
    for step in range(150, 500):
        advised.update(step, 1.5)
    assert not advised.rescue.records[0].race_steps, "who only wants advice gets no race"


def test_a_checkpoint_of_before_races_could_wait_is_read(tmp_path: Path) -> None:
    kept = RescueRecord(step=9, causes=("healthy",))
    rescue = Rescue("race", lambda: Setup(model=nn.Linear(1, 1), batches=[1]))
    rescue.load_state_dict({"records": [{**vars(kept), "causes": ["healthy"]}]})
    assert rescue.records == [kept]
    assert not rescue.is_due(10_000)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(RequestError, match="share=0"):
        Rescue("race", lambda: Setup(model=nn.Linear(1, 1), batches=[1]), share=0)
