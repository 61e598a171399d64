"""What a diagnosis promises whatever it finds: nothing of the user's changes, a check that fails stops no other, time is kept."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import eureka
from eureka.doctor import diagnose as module
from eureka.doctor import exam
from eureka.doctor.diagnose import CHECKS, Check
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Diagnosis, Finding
from eureka.errors import RequestError
from tests.doctor.digests import digest
from tests.doctor.runs import Run, interrupting, loss, make_run

FEW = CHECKS[:2]
"""Enough checks for the machinery around them."""


@pytest.fixture(autouse=True)
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKS", FEW)
    monkeypatch.setattr(exam, "STEPS", 6)


def of(run: Run, **more: Any) -> Diagnosis:
    given: dict[str, Any] = {"loss": loss, "optimizer": run.optimizer}
    return eureka.diagnose(run.model, run.loader, **(given | more))


def test_everything_is_bit_equal_after_all_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKS", CHECKS)
    monkeypatch.setattr(exam, "STEPS", 24)
    run = make_run()
    before = digest(*run.all)
    of(run)
    assert digest(*run.all) == before
    assert next(iter(run.loader))[0].shape == (8, 6)
    assert digest(*run.all) != before, "the digest sees what a pass over the data draws"


def test_training_goes_on_as_if_nobody_had_looked() -> None:
    ways: list[list[float]] = []
    for looked in (False, True):
        run = make_run()
        if looked:
            of(run)
        ways.append([])
        for batch in run.loader:
            run.optimizer.zero_grad()
            value = loss(run.model, batch)
            value.backward()  # type: ignore[no-untyped-call]
            run.optimizer.step()
            ways[-1].append(value.item())
    assert ways[0] == ways[1]


def test_a_step_of_the_users_own_with_a_scheduler_is_left_as_it_was() -> None:
    run = make_run()
    scheduler = torch.optim.lr_scheduler.StepLR(run.optimizer, 2)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()
        return value

    before = digest(*run.all, scheduler.state_dict())
    of(run, loss=None, step=step)
    assert digest(*run.all, scheduler.state_dict()) == before


@pytest.mark.parametrize("after", [2, 9])
def test_everything_is_bit_equal_when_the_user_interrupts(after: int) -> None:
    run = make_run()
    before = digest(*run.all)
    clip = torch.nn.utils.clip_grad_norm_
    with pytest.raises(KeyboardInterrupt):
        of(run, loss=interrupting(after, KeyboardInterrupt()))
    assert digest(*run.all) == before
    assert torch.nn.utils.clip_grad_norm_ is clip


def test_a_check_that_fails_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(given: Exam) -> Iterator[Finding]:
        given.case.fork().model.zero_grad()
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(module, "CHECKS", (FEW[0], Check("planted", fails, 0), *FEW[1:]))
    run = make_run()
    before = digest(*run.all)
    told: list[str] = []
    found = of(run, on_check=told.append)
    assert {check.name: check.skipped for check in found.checks if check.skipped} == {"planted": "ZeroDivisionError: planted"}
    assert told == [check.name for check in found.checks] == [FEW[0].name, "planted", *(check.name for check in FEW[1:])]
    assert "planted was not checked: ZeroDivisionError: planted" in str(found)
    assert digest(*run.all) == before


KILLED = """
import sys
from pathlib import Path
import torch
import eureka
from tests.doctor.runs import loss, make_run

run, folder = make_run(), Path(sys.argv[1])
torch.save({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}, folder / "checkpoint.pt")
eureka.diagnose(run.model, run.loader, loss=loss, optimizer=run.optimizer, on_check=lambda name: print(name, flush=True))
"""


def test_a_process_that_is_killed_in_the_middle_leaves_every_file_as_it_was(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().decode().strip() for _ in range(3)] == [check.name for check in CHECKS[:3]]
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}
        process.kill()
    assert [path.name for path in before] == ["checkpoint.pt"]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*")} == before
    assert set(torch.load(tmp_path / "checkpoint.pt")) == {"model", "optimizer"}


def test_no_check_begins_after_the_budget() -> None:
    found = of(make_run(), budget=0.0)
    assert [bool(check.skipped) for check in found.checks] == [True] * len(FEW)
    assert found.checks[-1].skipped == "the budget of 0 s was spent"
    assert "0 checks in 0.0 s" in str(found)


def test_batches_that_are_read_only_once_are_refused() -> None:
    class Stream(IterableDataset[Any]):
        def __init__(self) -> None:
            self.left = iter(make_run().loader)

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            return next(self.left)

    run = make_run()
    for once in (iter(run.loader), DataLoader(Stream(), batch_size=None)):
        with pytest.raises(RequestError, match="batches is an iterator"):
            eureka.diagnose(run.model, once, loss=loss, optimizer=run.optimizer)


def test_batches_in_a_list_are_the_users_and_stay_as_they_are() -> None:
    run = make_run()
    batches = [{"x": x, "y": y} for x, y in run.loader][:3]
    kept = copy.deepcopy(batches)

    def greedy(model: nn.Module, batch: Any) -> Any:
        batch["x"].remainder_(11)
        return loss(model, (batch["x"], batch["y"]))

    eureka.diagnose(run.model, batches, loss=greedy, optimizer=run.optimizer)
    assert all(torch.equal(a[key], b[key]) for a, b in zip(batches, kept, strict=True) for key in "xy")


def test_a_model_that_cannot_be_copied_is_refused_in_one_sentence() -> None:
    run = make_run()
    run.model.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(RequestError, match=r"^Model cannot be copied \(TypeError: cannot pickle '_thread.lock' object\)\.$"):
        of(run)


def test_a_loss_that_fails_is_told_with_its_line() -> None:
    run = make_run()
    with pytest.raises(
        RequestError, match=r"a training step fails in line \d+ of runs.py with ValueError: no such label"
    ) as told:
        of(run, loss=interrupting(0, ValueError("no such label")))
    assert isinstance(told.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"loss": None}, "neither was given"),
        ({"step": lambda model, optimizer, batch: 0.0}, "both were given"),
        ({"loss": lambda model, batch: model(batch[0])}, "loss returns a tensor of shape"),
        ({"loss": lambda model, batch: 0.5}, "loss returns float"),
    ],
)
def test_what_cannot_be_a_loop_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        of(make_run(), **changes)


def test_a_diagnosis_without_an_optimiser_says_what_it_assumes() -> None:
    found = of(make_run(), optimizer=None)
    assert found.notes == ("No optimizer was given: AdamW at 1e-3 is assumed, and nothing is said about yours.",)


def test_json_gives_the_diagnosis_back() -> None:
    found = of(make_run())
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert Diagnosis.from_json(document) == found
    wild = Finding(cause="lr_too_large", sure=1.0, explains=1.0, evidence=(), advice="", numbers={"gain": -math.inf})
    assert wild.to_json()["numbers"] == {"gain": None}
    json.dumps(wild.to_json(), allow_nan=False)
