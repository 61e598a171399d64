"""A parked fork comes back bit for bit, and takes no memory meanwhile."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from eureka.forks.case import Fork
from eureka.forks.inputs import seen_inputs
from eureka.forks.parking import Parking, size_of, tensors_of
from eureka.forks.state import KeptState


class Tied(nn.Module):
    """One weight under two names, a view of a buffer beside it, and a buffer that no `state_dict` holds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.ones(4), persistent=False)
        self.shift = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * self.scale + self.shift.sum()  # type: ignore[no-any-return]


def trained() -> Fork:
    torch.manual_seed(0)
    model = Tied()
    fork = Fork(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    _step(fork)
    return fork


def _step(fork: Fork) -> None:
    fork.optimizer.zero_grad()
    fork.model(torch.ones(2, 4)).square().mean().backward()
    fork.optimizer.step()


def values(fork: Fork) -> list[Any]:
    return [(one.clone(), None if one.grad is None else one.grad.clone()) for one in tensors_of(fork)]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(
        torch.equal(a, c) and ((b is None) == (d is None)) and (b is None or torch.equal(b, d))
        for (a, b), (c, d) in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("files", [False, True])
def test_parking_and_waking_keeps_every_bit_and_every_parameter(files: bool) -> None:
    fork = trained()
    before, parameters = values(fork), list(fork.model.parameters())
    parking = Parking(files=files)
    parked = parking.park(fork)
    assert size_of(fork) == 0
    parked.wake()
    assert same(before, values(fork))
    assert all(a is b for a, b in zip(parameters, fork.model.parameters(), strict=True))
    twin = trained()
    _step(twin)
    _step(fork)
    assert same(values(twin), values(fork))


@pytest.mark.parametrize("files", [False, True])
def test_a_copy_can_be_woken_and_what_was_kept_stays(files: bool) -> None:
    fork = trained()
    before = values(fork)
    parking = Parking(files=files)
    parked = parking.park(fork)
    other = parked.wake(Fork(*copy.deepcopy((fork.model, fork.optimizer))))
    assert same(before, values(other))
    _step(other)
    assert not same(before, values(other))
    parked.wake()
    assert same(before, values(fork))


def test_the_files_go_when_the_parking_does() -> None:
    parking = Parking(files=True)
    folder = parking.folder
    assert folder is not None
    parked = parking.park(trained())
    assert len(list(folder.iterdir())) == 1
    del parking, parked
    assert not folder.exists()


@pytest.mark.parametrize("files", [False, True])
def test_a_kept_state_goes_into_the_same_objects(files: bool) -> None:
    fork, parking = trained(), Parking(files=files)
    before, settings = values(fork), copy.deepcopy([{**group, "params": 0} for group in fork.optimizer.param_groups])
    kept = KeptState(fork, parking.folder)
    for group in fork.optimizer.param_groups:
        group["lr"], group["more"] = 1.0, "added"
    _step(fork)
    fork.optimizer.zero_grad(set_to_none=True)
    kept.put(fork)
    assert same(before, values(fork))
    assert settings == [{**group, "params": 0} for group in fork.optimizer.param_groups]
    kept.put(fork)
    fork.optimizer.state.clear()
    kept.put(fork)
    assert same(before, values(fork))


class Two(nn.Module):
    def forward(self, words: Any, mask: Any = None, **more: Any) -> Any:
        return words


def test_what_a_model_is_called_with_is_seen() -> None:
    def seen(*calls: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        model = Two()
        with seen_inputs(model) as found:
            for args, kwargs in calls:
                model(*args, **kwargs)
        model(0)
        return found.as_one()

    assert seen(((7,), {})) == 7
    assert seen(((7, 8), {})) == {"words": 7, "mask": 8}
    assert seen(((), {"words": 7, "labels": 9}), ((1,), {})) == {"words": 7, "labels": 9}
    assert seen() is None


LIMITED = """
import resource
import torch
from torch import nn
import eureka

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1600, 1600), nn.Tanh(), nn.Linear(1600, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
batches = [torch.randn(4, 1600) for _ in range(2)]
loss = lambda model, batch: (model(batch) - 1).square().mean()
for batch in batches:
    optimizer.zero_grad(); loss(model, batch).backward(); optimizer.step()
eureka.Remedy("x", "", lambda fork: None)
import eureka.racing.run, scipy.stats
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
used = int(status["VmData"].split()[0]) * 1024
one = 4 * 3 * sum(p.numel() for p in model.parameters())  # weights and two moments
resource.setrlimit(resource.RLIMIT_DATA, (used + int(0.9 * one), -1))
options = {"loss": loss, "optimizer": optimizer, "remedies": ["rate_x3"], "steps": 2}
race = eureka.race(model, batches, one_copy=True, **options)
race.apply()
race.undo()
print([verdict.steps for verdict in race.verdicts])
del race
try:
    eureka.race(model, batches, **options)
except eureka.RequestError as error:
    print("can't allocate memory" in str(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_with_one_copy_a_race_fits_where_two_copies_do_not() -> None:
    mapped = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}  # every tensor on its own, so that what is freed is free
    command = [sys.executable, "-c", LIMITED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=mapped)
    assert done.stdout == "[2]\nTrue\n", done.stderr
