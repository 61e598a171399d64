"""Copies run layers of their own: what trains a copy leaves the original, and what changes the original leaves the copy.

Each model keeps its layers behind a function, as `copy.deepcopy` shares those. A copy is checked from outside only: it is trained
while the original's outputs are compared bit for bit, and the original is perturbed while the copy's are.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer

import eureka
from eureka.errors import RequestError
from eureka.forks.copies import deep_copies

WIDTH = 6


def hidden() -> nn.ModuleDict:
    """The layers of an MLP; its activation is a module too, as in minGPT."""
    torch.manual_seed(0)
    return nn.ModuleDict({"c_fc": nn.Linear(WIDTH, 8), "act": nn.Tanh(), "c_proj": nn.Linear(8, WIDTH)})


class Wrapped(nn.Module):
    """Runs whatever `call` is."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = hidden()
        self.call: Any = None

    def run(self, x: Tensor) -> Tensor:
        m = self.mlp
        return m["c_proj"](m["act"](m["c_fc"](x)))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x)  # type: ignore[no-any-return]


def lambda_member() -> nn.Module:
    model = Wrapped()
    m = model.mlp
    model.call = lambda x: m["c_proj"](m["act"](m["c_fc"](x)))
    return model


def lambdas_in_lists_and_dicts() -> nn.Module:
    model = Wrapped()
    first, last = model.mlp["c_fc"], model.mlp["c_proj"]
    model.steps = [lambda x: first(x), {"last": (lambda x: last(x.tanh()), deque([lambda x: 2 * first(x)]))}]  # type: ignore[assignment]

    class Listed(Wrapped):
        def forward(self, x: Tensor) -> Tensor:
            steps: Any = self.steps
            end, queue = steps[1]["last"]
            return end(steps[0](x) + queue[0](x))  # type: ignore[no-any-return]

    model.__class__ = Listed
    return model


def lambda_in_a_block_of_a_module_list() -> nn.Module:
    blocks = nn.ModuleList([lambda_member(), lambda_member()])

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = blocks

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = x + block(x)
            return x

    return Stack()


def nested_closure() -> nn.Module:
    model = Wrapped()

    def outer() -> Callable[[Tensor], Tensor]:
        def middle(x: Tensor) -> Tensor:
            def inner(x: Tensor) -> Tensor:
                return model.run(x)

            return inner(x)

        return lambda x: middle(x) + middle(-x).square()

    model.call = outer()
    return model


def partial_over_a_module_and_a_function() -> nn.Module:
    model = Wrapped()
    first = model.mlp["c_fc"]
    model.call = functools.partial(lambda entry, last, x: last(entry(x)), lambda x: first(x).tanh(), last=None)
    model.call = functools.partial(model.call.func, *model.call.args, model.mlp["c_proj"])
    return model


def bound_method_as_attribute() -> nn.Module:
    model = Wrapped()
    model.call = model.run
    return model


def method_whose_function_closes_over_the_model() -> nn.Module:
    model = Wrapped()
    last = model.mlp["c_proj"]
    model.call = MethodType(lambda self, x: last(self.mlp["c_fc"](x).tanh()), model)
    return model


def wrapped_forward() -> nn.Module:
    model = Wrapped()
    model.call = model.run
    forward = model.forward

    @functools.wraps(forward)
    def patched(*args: Any, **kwargs: Any) -> Any:
        return patched.__wrapped__(*args, **kwargs)

    model.forward = patched  # type: ignore[method-assign]
    return model


def recursive_closure() -> nn.Module:
    model = Wrapped()

    def again(x: Tensor, times: int = 2) -> Tensor:
        return x if times == 0 else again(model.run(x), times - 1)

    model.call = again
    return model


def functions_that_call_each_other() -> nn.Module:
    model = Wrapped()

    def even(x: Tensor, times: int) -> Tensor:
        return x if times == 0 else odd(model.mlp["c_fc"](x), times - 1)

    def odd(x: Tensor, times: int) -> Tensor:
        return even(model.mlp["c_proj"](x), times)

    model.call = lambda x: even(x, 2)
    return model


def defaults() -> nn.Module:
    model = Wrapped()

    def call(x: Tensor, first: nn.Module = model.mlp["c_fc"], *, last: nn.Module = model.mlp["c_proj"]) -> Tensor:
        return last(first(x).tanh())  # type: ignore[no-any-return]

    model.call = call
    return model


def forward_hook() -> nn.Module:
    model = Wrapped()
    model.call = model.mlp["c_fc"]
    last = model.mlp["c_proj"]
    model.register_forward_hook(lambda module, inputs, output: last(output.tanh()))
    return model


def object_in_a_closure() -> nn.Module:
    """The model is reached through an object that is no attribute of it, and has slots."""

    @dataclass(frozen=True, slots=True)
    class Frozen:
        call: Callable[[Tensor], Tensor]

    model = Wrapped()
    helper = SimpleNamespace(inner=Frozen(lambda x: model.run(x)))
    model.call = lambda x: helper.inner.call(x)
    return model


def weak_reference() -> nn.Module:
    """The usual way to keep a module that is not to be registered."""
    model = Wrapped()
    reference = weakref.ref(model.mlp)
    object.__setattr__(model, "reference", weakref.ref(model.mlp))
    model.call = lambda x: reference()["c_proj"](model.reference()["c_fc"](x).tanh())  # type: ignore[index, operator]
    return model


def computed_tensor_in_a_closure() -> nn.Module:
    """A tensor with a graph, which torch does not copy, and the model, in one list."""
    model = Wrapped()
    parts: list[Any] = [model, model.run(torch.ones(2, WIDTH))]
    model.call = lambda x: parts[0].run(x)
    return model


def prepared(model: nn.Module) -> nn.Module:
    """By accelerate, whose state is one for the whole process: other tests have it, too."""
    accelerate = pytest.importorskip("accelerate")
    state = accelerate.state.AcceleratorState
    state._reset_state(reset_partial_state=True)
    try:
        return accelerate.Accelerator(mixed_precision="bf16", cpu=True).prepare(model)  # type: ignore[no-any-return]
    finally:
        state._reset_state(reset_partial_state=True)


def accelerated() -> nn.Module:
    return prepared(bound_method_as_attribute())


def accelerated_over_a_closure() -> nn.Module:
    """The forward pass was patched before: accelerate wraps it in an object that refuses to be pickled."""
    model: Any = lambda_member()
    model.forward = lambda x: model.call(x)
    return prepared(model)


MODELS = [
    lambda_member,
    lambdas_in_lists_and_dicts,
    lambda_in_a_block_of_a_module_list,
    nested_closure,
    partial_over_a_module_and_a_function,
    bound_method_as_attribute,
    method_whose_function_closes_over_the_model,
    wrapped_forward,
    recursive_closure,
    functions_that_call_each_other,
    defaults,
    forward_hook,
    object_in_a_closure,
    weak_reference,
    computed_tensor_in_a_closure,
    accelerated,
    accelerated_over_a_closure,
]


def inputs() -> Tensor:
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1))


def outputs(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(inputs()).clone()  # type: ignore[no-any-return]


def train(model: nn.Module, optimizer: Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        (model(inputs()) - 1).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_training_a_copy_trains_its_own_layers_and_none_of_the_originals(make: Callable[[], nn.Module]) -> None:
    model = make()
    optimizer = SGD(model.parameters(), lr=0.1)
    before = outputs(model)
    twin, other = deep_copies(model, optimizer)
    assert torch.equal(outputs(twin), before)
    train(twin, other)
    assert not torch.equal(outputs(twin), before), "the copy's own layers are not in its forward pass"
    assert torch.equal(outputs(model), before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_copy_reads_nothing_of_an_original_that_changes(make: Callable[[], nn.Module]) -> None:
    model = make()
    twin, _ = deep_copies(model, SGD(model.parameters(), lr=0.1))
    before = outputs(twin)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert torch.equal(outputs(twin), before)
    assert not torch.equal(outputs(model), before)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_copy_of_a_copy_trains_as_the_original_does(make: Callable[[], nn.Module]) -> None:
    model = make()
    optimizer = AdamW(model.parameters(), lr=0.01)
    twin, other = deep_copies(*deep_copies(model, optimizer))
    train(twin, other)
    train(model, optimizer)
    assert torch.equal(outputs(twin), outputs(model))


def test_functions_that_have_nothing_to_do_with_the_model_stay_the_same_objects() -> None:
    model, teacher, calls = lambda_member(), nn.Linear(WIDTH, WIDTH), list[int]()

    def shared(x: Tensor, sentinel: object = object()) -> Tensor:
        calls.append(1)
        return teacher(x)  # type: ignore[no-any-return]

    model.shared, model.table, model.teach = shared, {"a": [shared]}, functools.partial(shared)  # type: ignore[assignment]
    twin: Any = deep_copies(model, SGD(model.parameters(), lr=0.1))[0]
    assert twin.shared is shared
    assert twin.table["a"][0] is shared
    assert twin.teach.func is shared
    assert twin.call is not model.call
    assert twin.call.__code__ is model.call.__code__  # type: ignore[union-attr]


def test_a_copied_function_keeps_what_has_nothing_to_do_with_the_model() -> None:
    model, sentinel, teacher, calls = Wrapped(), object(), nn.Linear(WIDTH, WIDTH), 0

    def call(x: Tensor, mark: object = sentinel, *, more: str = "x") -> Tensor:
        """Counts its calls."""
        nonlocal calls
        calls += 1
        assert mark is sentinel
        return model.run(x) + teacher(x)  # type: ignore[no-any-return]

    call.note = sentinel  # type: ignore[attr-defined]
    model.call = call
    twin: Any = deep_copies(model, SGD(model.parameters(), lr=0.1))[0]
    outputs(twin)
    assert twin.call is not call
    assert calls == 1, "a counter that is not the model's is shared"
    assert twin.call.note is sentinel
    assert twin.call.__kwdefaults__ == {"more": "x"}
    same = ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__")
    assert [getattr(twin.call, name) for name in same] == [getattr(call, name) for name in same]


def test_two_places_of_one_function_hold_one_copy_and_two_functions_share_their_cell() -> None:
    model = Wrapped()
    scale = model.mlp["c_fc"]

    def widen() -> None:
        nonlocal scale
        scale = nn.Linear(WIDTH, WIDTH)

    model.call = lambda x: scale(x)
    model.widen, model.again = widen, [model.call]  # type: ignore[assignment]
    twin: Any = deep_copies(model, SGD(model.parameters(), lr=0.1))[0]
    assert twin.again[0] is twin.call
    twin.widen()
    assert outputs(twin).shape == (5, WIDTH)
    assert outputs(model).shape == (5, 8)


def test_what_a_users_own_copy_shares_on_purpose_is_left_as_it_is() -> None:
    """A `__deepcopy__` may share a frozen teacher: then the functions in it stay as they are."""
    model = lambda_member()

    class Teacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.function = lambda: model

        def __deepcopy__(self, memo: dict[int, Any]) -> Teacher:
            memo[id(self)] = self
            return self

    model.teacher = Teacher()
    function = model.teacher.function
    twin: Any = deep_copies(model, SGD(model.parameters(), lr=0.1))[0]
    assert twin.teacher is model.teacher
    assert model.teacher.function is function


class Scaled(SGD):
    """Keeps functions as attributes: one that shows the parameters, and one in a dict."""

    def __init__(self, parameters: Iterator[nn.Parameter]) -> None:
        super().__init__(parameters, lr=0.1)
        self.shown: Callable[[], list[nn.Parameter]] = lambda: self.param_groups[0]["params"]
        self.table: dict[str, Callable[[], float]] = {"rate": lambda: self.param_groups[0]["lr"]}

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for parameter in self.shown():
                assert parameter.grad is not None
                parameter.sub_(self.table["rate"]() * parameter.grad)


def test_functions_of_an_optimiser_refer_to_its_copy() -> None:
    model = lambda_member()
    optimizer = Scaled(model.parameters())
    before = copy.deepcopy(model.state_dict())
    twin, other = deep_copies(model, optimizer)
    assert isinstance(other, Scaled)
    train(twin, other)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not torch.equal(outputs(twin), outputs(model))
    optimizer.param_groups[0]["lr"] = 5.0
    assert other.table["rate"]() == 0.1


def test_a_closure_that_cannot_be_copied_is_told_with_its_variable() -> None:
    model = Wrapped()
    stream = SimpleNamespace(model=model, numbers=(number for number in range(3)))
    model.call = lambda x: stream.model.run(x)
    told = r"^Wrapped cannot be copied because of the variable stream in its function <lambda> \(TypeError: cannot"
    with pytest.raises(RequestError, match=told):
        deep_copies(model, SGD(model.parameters(), lr=0.1))


class TinyGPT(nn.Module):
    """minGPT's block: its MLP is a lambda over a local variable."""

    def __init__(self, tokens: int = 7, width: int = 16) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(tokens, width), nn.LayerNorm(width), nn.Linear(width, tokens)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, 4 * width), "act": nn.GELU(), "c_proj": nn.Linear(4 * width, width)},
        )
        m: Any = self.mlp
        self.mlpf: Callable[[Tensor], Tensor] = lambda x: m.c_proj(m.act(m.c_fc(x)))
        self.count: Callable[[], object] = lambda: None

    def forward(self, tokens: Tensor) -> Tensor:
        self.count()
        x = self.embed(tokens)
        logits: Tensor = self.head(x + self.mlpf(self.norm(x)))
        return logits


def gpt_run() -> tuple[TinyGPT, list[Tensor], Optimizer]:
    torch.manual_seed(0)
    model = TinyGPT()
    return model, [torch.randint(0, 7, (16, 8)) for _ in range(12)], AdamW(model.parameters(), lr=3e-3)


def gpt_loss(model: nn.Module, batch: Tensor) -> Tensor:
    """The next token is the last one plus one: an MLP is enough for it."""
    return cross_entropy(model(batch).flatten(0, 1), ((batch + 1) % 7).flatten())


def test_a_model_with_a_lambda_mlp_is_diagnosed_and_its_user_is_not_blamed() -> None:
    model, batches, optimizer = gpt_run()
    before = copy.deepcopy(model.state_dict())
    diagnosis = eureka.diagnose(model, batches, loss=gpt_loss, optimizer=optimizer)
    assert diagnosis.findings[0].kind == "learning", str(diagnosis)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_race_of_a_model_with_a_lambda_mlp_waits_as_training_by_hand_does() -> None:
    model, batches, optimizer = gpt_run()
    race = eureka.race(model, batches, loss=gpt_loss, optimizer=optimizer, remedies=["rate_x3"], steps=8)
    by_hand = []
    for batch in batches[:8]:
        optimizer.zero_grad()
        loss = gpt_loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        by_hand.append(loss.item())
    assert race.losses["wait"] == tuple(by_hand[: len(race.losses["wait"])])


def test_what_a_function_of_the_model_counts_is_as_it_was_after_a_diagnosis() -> None:
    model, batches, optimizer = gpt_run()
    counted = list[int]()
    model.count = lambda: counted.append(1)
    eureka.diagnose(model, batches, loss=gpt_loss, optimizer=optimizer)
    assert not counted
    gpt_loss(model, batches[0])
    assert counted == [1]
