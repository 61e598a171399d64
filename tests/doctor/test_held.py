"""What a user's loss, step, hooks or data hold is put back after it was changed."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import eureka
from eureka.errors import RequestError
from eureka.forks.case import make_case, take
from eureka.forks.held import MOST, Held
from eureka.forks.kept import kept_loop
from eureka.forks.trial import try_steps

TOTAL = 0


def square(model: nn.Module, batch: Any) -> Tensor:
    result: Tensor = model(batch).square().mean()
    return result


def run() -> tuple[nn.Module, torch.optim.Optimizer, list[Tensor]]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1), [torch.randn(4, 3) for _ in range(3)]


def test_counters_logs_and_averages_of_a_step_are_put_back() -> None:
    model, optimizer, batches = run()
    average, metrics, seen, steps = copy.deepcopy(model), {"best": 9.0}, np.zeros(2), 0
    log: list[float] = []
    names = {"a"}

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor) -> Tensor:
        global TOTAL
        nonlocal steps
        loss = square(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        for mean, new in zip(average.parameters(), model.parameters(), strict=True):
            mean.data.lerp_(new.data, 0.5)  # as many loops write it; it leaves no version behind
        log.append(loss.item())
        metrics["best"], steps, TOTAL = loss.item(), steps + 1, TOTAL + 1
        names.add("b")
        seen[0] += 1
        average.train(False)
        return loss

    before = [one.detach().clone() for one in average.parameters()]
    case = make_case(model, batches, loss=None, optimizer=optimizer, step=step, most=3)
    trace = try_steps(case, case.batches)
    assert trace.losses[2] < trace.losses[0]
    assert (log, metrics, steps, TOTAL, names, seen.tolist()) == ([], {"best": 9.0}, 0, 0, {"a"}, [0.0, 0.0])
    assert all(torch.equal(a, b) for a, b in zip(before, average.parameters(), strict=True))
    assert average.training


def test_an_object_with_the_loop_in_it_and_a_hook_of_the_users_are_put_back() -> None:
    model, optimizer, batches = run()
    heard: list[int] = []
    model.register_forward_hook(lambda *_: heard.append(1))

    class Loop:
        def __init__(self) -> None:
            self.steps, self.losses = 0, list[float]()

        def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
            self.steps += 1
            self.losses.append(0.0)
            return square(model, batch)

    loop = Loop()
    with kept_loop(loop.loss, optimizer, model):
        loop.loss(copy.deepcopy(model), batches[0])
        assert (loop.steps, len(heard)) == (1, 1)
    assert (loop.steps, loop.losses, heard) == (0, [], [])


def test_the_place_of_a_data_set_is_put_back() -> None:
    class Stream(IterableDataset[Tensor]):
        place = 0

        def __iter__(self) -> Iterator[Tensor]:
            for _ in itertools.repeat(None):
                self.place += 1
                yield torch.tensor([float(self.place)])

    rows = Stream()
    rows.place = 5
    assert [float(batch[0]) for batch in take(DataLoader(rows, batch_size=1), 2)] == [6.0, 7.0]
    assert rows.place == 5


def test_a_change_of_what_is_too_large_to_keep_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST > 2**20
    monkeypatch.setattr("eureka.forks.held.MOST", 8)
    table = [torch.zeros(100)]
    held = Held([table])
    held.put_back()
    table[0][0] = 1.0
    with pytest.raises(RequestError, match="writes to a tensor of shape"):
        held.put_back()


def test_a_step_that_uses_its_batch_up_can_be_made_again() -> None:
    model, optimizer, batches = run()

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return square(model, batch.pop("x").mul_(2.0))

    rows = [{"x": one} for one in batches]
    case = make_case(model, rows, loss=loss, optimizer=optimizer, step=None, most=3)
    assert try_steps(case, case.batches, still=True).losses == try_steps(case, case.batches, still=True).losses
    assert all(one.keys() == {"x"} for one in [*rows, *case.batches])


def test_an_optimiser_that_computes_the_loss_itself_can_be_tried() -> None:
    model, _, batches = run()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor) -> Any:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = square(model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        return optimizer.step(closure)  # type: ignore[arg-type]

    case = make_case(model, [batches[0]] * 3, loss=None, optimizer=optimizer, step=step, most=3)
    moving, still = (try_steps(case, case.batches, still=still).losses for still in (False, True))
    assert moving[2] < moving[0] == still[0] == still[2]


def test_a_loop_that_trains_the_users_own_model_is_refused_and_undone() -> None:
    model, optimizer, batches = run()
    before = [one.detach().clone() for one in model.parameters()]

    def step(_model: nn.Module, _optimizer: torch.optim.Optimizer, batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = square(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    with pytest.raises(RequestError, match="trains your own model"):
        eureka.diagnose(model, batches, optimizer=optimizer, step=step)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not optimizer.state


def test_lazy_layers_without_weights_are_refused() -> None:
    model = nn.Sequential(nn.LazyLinear(2))
    with pytest.raises(RequestError, match=r"0\.weight has no weights yet"):
        eureka.diagnose(model, [torch.randn(2, 3)], loss=square, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
