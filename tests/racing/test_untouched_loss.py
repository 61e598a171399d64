"""A loss, a step or a model that holds more than its arguments is raced and diagnosed, or refused; it is left as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.optim import SGD, AdamW, Optimizer

import eureka
from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.forks.joined import Joined
from tests.racing.runs import assert_equal, reader

Loss = Callable[[nn.Module, Any], Tensor]
WIDTH, CLASSES = 10, 4


def network(out: int = CLASSES) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, out))


def batches(count: int = 12) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 32, WIDTH, generator=generator)
    return [(one, one[:, :CLASSES].argmax(-1)) for one in inputs]


def plain(model: nn.Module, batch: Any) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def diagnosed(model: nn.Module, optimizer: Optimizer, **function: Any) -> object:
    return eureka.diagnose(model, batches(), optimizer=optimizer, **function)


def raced(model: nn.Module, optimizer: Optimizer, **options: Any) -> eureka.Race:
    return eureka.race(model, batches(), optimizer=optimizer, **{"remedies": ["rate_x10"], "steps": 12, **options})


def raced_in_one_copy(model: nn.Module, optimizer: Optimizer, **options: Any) -> eureka.Race:
    return raced(model, optimizer, one_copy=True, **options)


ALL = [diagnosed, raced, raced_in_one_copy]


@pytest.mark.parametrize("look", ALL)
def test_what_a_loss_and_a_hook_remember_is_as_it_was(look: Callable[..., object]) -> None:
    model, centre, heard = network(), torch.zeros(CLASSES), list[float]()
    log, count = [0.5], {"calls": 3}

    def loss(model: nn.Module, batch: Any) -> Tensor:
        found = model(batch[0])
        centre.mul_(0.9).add_(0.1 * found.detach().mean(0))
        value = cross_entropy(found - centre, batch[1])
        log.append(value.item())
        count["calls"] += 1
        return value

    model[1].register_forward_hook(lambda *call: heard.append(float(call[2].detach().mean())))
    look(model, AdamW(model.parameters(), 1e-3), loss=loss)
    assert (log, count, heard) == ([0.5], {"calls": 3}, [])
    assert torch.equal(centre, torch.zeros(CLASSES))


def test_a_hook_that_a_remedy_calls_by_trying_the_model_is_as_it_was() -> None:
    """To apply an operator the model is called, outside of any step."""
    run, heard = reader(), list[int]()
    run.model.register_forward_hook(lambda *_: heard.append(1))
    eureka.race(run.model, run.batches, loss=run.loss, optimizer=run.optimizer, remedies=["norm_softmax"], steps=2)
    assert heard == []


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("look", ALL)
def test_the_gradients_of_a_head_beside_the_model_are_as_they_were(look: Callable[..., object], pending: bool) -> None:
    model, head, proxy = network(8), nn.Linear(8, CLASSES), nn.Parameter(torch.randn(CLASSES))
    beside = [proxy, *head.parameters()]
    for one in beside:
        one.grad = torch.ones_like(one) if pending else None
    grads = [one.grad for one in beside]
    look(model, SGD(model.parameters(), 0.1), loss=lambda model, batch: cross_entropy(head(model(batch[0])) * proxy, batch[1]))
    assert all(one.grad is grad for one, grad in zip(beside, grads, strict=True))
    assert all(grad is None or torch.equal(grad, torch.ones_like(grad)) for grad in grads)


def test_the_gradient_of_a_head_that_is_too_large_to_be_kept_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eureka.forks.held.MOST", 8)
    model, head = network(8), nn.Linear(8, CLASSES)
    raced(model, SGD(model.parameters(), 0.1), loss=lambda model, batch: cross_entropy(head(model(batch[0])), batch[1]))
    assert head.weight.grad is None


def test_forks_are_paired_though_the_loss_counts() -> None:
    model, calls = network(), [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        calls[0] += 1
        return plain(model, batch) * (1 + 0.1 * calls[0])

    race = raced(model, SGD(model.parameters(), 0.1), loss=loss, remedies=[eureka.Remedy("same", "nothing", lambda fork: None)])
    assert race.losses["same"] == race.losses["wait"]
    assert calls == [0]


class Proxies(nn.Module):
    """A loss with parameters of its own, as in ArcFace."""

    def __init__(self) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(CLASSES, 8))
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, found: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.scale * normalize(found, dim=-1) @ normalize(self.proxies, dim=-1).T, labels)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("look", ALL)
def test_a_loss_whose_own_parameters_the_optimiser_trains_is_refused_and_left_as_it_was(
    look: Callable[..., object], pending: bool
) -> None:
    model, proxies = network(8), Proxies()
    optimizer = AdamW([*model.parameters(), *proxies.parameters()], 1e-3)
    loss: Loss = lambda model, batch: proxies(model(batch[0]), batch[1])  # noqa: E731
    if pending:
        loss(model, batches()[0]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    parameters = [*model.parameters(), *proxies.parameters()]
    before = copy.deepcopy([(one.detach(), one.grad) for one in parameters])
    with pytest.raises(RequestError, match="the optimiser trains 2 parameters that are not the model's") as told:
        look(model, optimizer, loss=loss)
    assert "trains your own model" not in str(told.value)
    assert_equal(before, [(one.detach(), one.grad) for one in parameters])
    assert (proxies.scale.grad is not None) == pending


def test_such_a_loss_can_be_handed_over_as_the_message_says() -> None:
    model, proxies = network(8), Proxies()
    optimizer = SGD([*model.parameters(), *proxies.parameters()], 0.1)
    both = nn.ModuleDict({"model": model, "loss": proxies})
    loss: Loss = lambda both, batch: both["loss"](both["model"](batch[0]), batch[1])  # type: ignore[index]  # noqa: E731
    diagnosed(both, optimizer, loss=loss)
    wait = raced(both, optimizer, loss=loss).losses["wait"]
    assert all(one.grad is None for one in both.parameters())
    assert wait == tuple(_trained(both, optimizer, loss, batch) for batch in batches())


def _trained(model: nn.Module, optimizer: Optimizer, loss: Loss, batch: Any) -> float:
    optimizer.zero_grad()
    value = loss(model, batch)
    value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return value.item()


def test_a_parameter_beside_the_model_that_a_step_has_changed_is_put_back() -> None:
    model, beside = network(), nn.Parameter(torch.ones(CLASSES))
    optimizer = SGD([*model.parameters(), beside], 0.1)

    def step(_model: nn.Module, _optimizer: Optimizer, batch: Any) -> float:
        return _trained(model, optimizer, lambda model, batch: cross_entropy(model(batch[0]) * beside, batch[1]), batch)

    with pytest.raises(RequestError, match="trains your own model"):
        diagnosed(model, optimizer, step=step)
    assert torch.equal(beside, torch.ones(CLASSES))
    assert beside.grad is None


@dataclass(slots=True)
class Slot:
    mean: Tensor | None = None


class Keeper(nn.Module):
    """Keeps what it computed last, in many places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES)
        self.found: Tensor | None = None
        self.seen: list[Any] = []
        self.by_name: dict[str, Any] = {}
        self.more, self.slot = SimpleNamespace(), Slot()

    def forward(self, x: Tensor) -> Tensor:
        self.found = self.first(x)
        self.seen = [(self.found.mean(),)]
        self.by_name = {"max": self.found.amax()}
        self.more.least, self.slot.mean = self.found.amin(), self.found.mean()
        result: Tensor = self.last(self.found)
        return result


@pytest.mark.parametrize("look", ALL)
def test_a_model_that_keeps_tensors_of_its_last_forward_can_be_copied_and_keeps_them(look: Callable[..., object]) -> None:
    torch.manual_seed(0)
    model = Keeper()
    optimizer = SGD(model.parameters(), 0.1)
    _trained(model, optimizer, plain, batches()[0])
    kept = [model.found, model.seen[0][0], model.by_name["max"], model.more.least]
    before = copy.deepcopy([one.detach() for one in kept if one is not None])
    look(model, optimizer, loss=plain)
    after = [model.found, model.seen[0][0], model.by_name["max"], model.more.least]
    assert all(a is b for a, b in zip(kept, after, strict=True))
    assert all(one is not None and one.grad_fn is not None for one in after)
    assert_equal(before, [one.detach() for one in after if one is not None])


def test_a_weight_that_a_hook_computes_can_be_copied() -> None:
    model = network()
    with pytest.warns(FutureWarning, match="weight_norm"):
        torch.nn.utils.weight_norm(model[0])
    optimizer = SGD(model.parameters(), 0.1)
    _trained(model, optimizer, plain, batches()[0])
    wait = raced(model, optimizer, loss=plain).losses["wait"]
    assert wait == tuple(_trained(model, optimizer, plain, batch) for batch in batches())


class Hiding:
    """Shows its tensor to nobody but a copy."""

    def __init__(self, hidden: Tensor) -> None:
        self.show: Callable[[], Tensor] = lambda: hidden

    def __deepcopy__(self, memo: dict[int, Any]) -> Hiding:
        return Hiding(copy.deepcopy(self.show(), memo))


def test_a_tensor_that_cannot_be_copied_is_named() -> None:
    model = network()
    model[1].kept = Hiding(model(batches()[0][0]))  # type: ignore[assignment]
    with pytest.raises(RequestError, match=r"Sequential cannot be copied because of its attribute 1\.kept \(RuntimeError: Only"):
        diagnosed(model, SGD(model.parameters(), 0.1), loss=plain)


@pytest.mark.parametrize(
    ("returned", "told"),
    [(None, "nothing"), ({"loss": 0.5}, "a dict"), (torch.zeros(2), r"a tensor of shape \(2,\)"), ("0.5", "a str")],
)
@pytest.mark.parametrize("look", [diagnosed, raced])
def test_a_step_that_returns_no_loss_gets_one_sentence(look: Callable[..., object], returned: Any, told: str) -> None:
    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Any:
        _trained(model, optimizer, plain, batch)
        return returned

    model = network()
    with pytest.raises(RequestError, match=f"step returns {told}; it must return the loss: one number, or a tensor of one"):
        look(model, SGD(model.parameters(), 0.1), step=step)


def two(model: nn.Sequential) -> tuple[Optimizer, Optimizer]:
    return AdamW(model[0].parameters(), 1e-3), SGD(model[2].parameters(), 0.1, momentum=0.9)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("look", [diagnosed, raced])
def test_a_second_optimiser_is_named_and_not_stepped(look: Callable[..., object], pending: bool) -> None:
    model = network()
    first, second = two(model)

    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> float:
        second.zero_grad()
        value = _trained(model, optimizer, plain, batch)
        second.step()
        return value

    if pending:
        step(model, first, batches()[0])
        plain(model, batches()[1]).backward()  # type: ignore[no-untyped-call]
    parts: Callable[[], Any] = lambda: [  # noqa: E731
        [(one.detach(), one.grad) for one in model.parameters()],
        first.state_dict(),
        second.state_dict(),
    ]
    before = copy.deepcopy(parts())
    with pytest.raises(RequestError, match="the step also steps SGD, an optimiser that was not given"):
        look(model, first, step=step)
    assert_equal(before, parts())


def joined_step(model: nn.Module, optimizer: Optimizer, batch: Any) -> float:
    return _trained(model, optimizer, plain, batch)


def test_two_optimisers_that_are_joined_train_as_they_do_apart() -> None:
    model, twin = network(), network()
    both, apart = Joined(*two(model)), two(twin)
    for batch in batches():
        value = joined_step(model, both, batch)
        for one in apart:
            one.zero_grad()
        found = plain(twin, batch)
        found.backward()  # type: ignore[no-untyped-call]
        for one in apart:
            one.step()
        assert value == found.item()
    assert_equal([one.state_dict() for one in both.parts], [one.state_dict() for one in apart])


def test_two_optimisers_that_are_joined_can_be_diagnosed_and_raced_and_the_winner_applied() -> None:
    model = network()
    both = Joined(*two(model))
    joined_step(model, both, batches()[0])
    state: Callable[[], Any] = lambda: [[one.detach() for one in model.parameters()], *(p.state_dict() for p in both.parts)]  # noqa: E731
    before = copy.deepcopy(state())
    diagnosed(model, both, step=joined_step)

    @torch.no_grad()
    def smaller(fork: Fork) -> None:
        for one in fork.model.parameters():
            one.mul_(0.5)

    race = raced(model, both, step=joined_step, remedies=["rate_x10", eureka.Remedy("half", "weights halved", smaller)])
    assert_equal(before, state())
    assert race.losses["rate_x10"][0] == race.losses["wait"][0]
    assert race.losses["rate_x10"][2] != race.losses["wait"][2]
    race = raced(model, both, step=joined_step, remedies=[eureka.Remedy("same", "nothing", lambda fork: None)])
    race.apply()
    applied = copy.deepcopy(state())
    race.undo()
    assert_equal(before, state())
    assert race.losses["wait"] == tuple(joined_step(model, both, batch) for batch in batches())
    assert_equal(applied, state())


def test_a_checkpoint_of_joined_optimisers_loads_into_their_parts() -> None:
    model, other = network(), network()
    both, loaded = Joined(*two(model)), Joined(*two(other))
    for batch in batches(3):
        joined_step(model, both, batch)
    other.load_state_dict(model.state_dict())
    loaded.load_state_dict(copy.deepcopy(both.state_dict()))
    assert_equal([one.state_dict() for one in both.parts], [one.state_dict() for one in loaded.parts])
    loaded.param_groups[1]["lr"] = 0.2
    assert loaded.parts[1].param_groups[0]["lr"] == 0.2
    loaded.param_groups[1]["lr"] = 0.1
    assert joined_step(model, both, batches()[3]) == joined_step(other, loaded, batches()[3])
    assert_equal(model.state_dict(), other.state_dict())
