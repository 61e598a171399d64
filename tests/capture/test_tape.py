"""`eureka.attach` around small loops: what is taped, what is refused in a sentence, and that nothing of ours is left behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.optim import SGD, Adam, Optimizer
from torch.optim import optimizer as torch_optimizer
from torch.overrides import _get_current_function_mode_stack as function_modes

import eureka
from eureka.capture.prove import Proof
from eureka.capture.tape import Tape
from eureka.errors import RequestError, WorkError

AT, TAPED = 2, 4
STEPS = AT + TAPED


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def attached(**changed: Any) -> eureka.attach:
    return eureka.attach(**{"at": AT, "steps": TAPED, **changed})


def modes() -> list[Any]:
    return list(function_modes())  # type: ignore[no-untyped-call]


def proof_of(run: eureka.attach) -> Proof:
    assert run._captured is not None, str(run)
    return run._captured.proof


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_of(model: Callable[[Tensor], Tensor]) -> Tensor:
    return (model(torch.randn(5, 3)) - 1.0).square().mean()


def batches_of(run: eureka.attach) -> list[Any]:
    return cast("list[Any]", run.setup.batches)


def train(
    model: nn.Module, optimizer: Optimizer, *, steps: int = STEPS, after_backward: Callable[[], None] = lambda: None
) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model).backward()  # type: ignore[no-untyped-call]
        after_backward()
        optimizer.step()


@pytest.mark.parametrize("kind", [SGD, torch.optim.LBFGS])
def test_the_closure_of_an_optimiser_is_taped_once_for_each_call(kind: Any) -> None:
    model = small()
    optimizer = kind(model.parameters(), lr=0.1)
    with attached() as run:
        for _ in range(STEPS):
            x = torch.randn(5, 3)

            def closure(x: Tensor = x) -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = (model(x) - 1.0).square().mean()
                loss.backward()  # type: ignore[no-untyped-call]
                return loss

            optimizer.step(closure)
    proof = proof_of(run)
    assert (proof.loss_exact, proof.step_exact, len(batches_of(run))) == (True, True, TAPED)


def test_accumulated_gradients_make_one_step_of_several_batches() -> None:
    model = small()
    optimizer = Adam(model.parameters(), lr=0.01)
    losses = []
    with attached() as run:
        for _ in range(STEPS):
            parts = []
            for _ in range(3):
                loss = loss_of(model) / 3
                loss.backward()  # type: ignore[no-untyped-call]
                parts.append(loss.detach())
            losses.append(float(torch.stack(parts).sum()))
            optimizer.step()
            optimizer.zero_grad()
    proof = proof_of(run)
    assert (proof.loss_exact, proof.step_exact) == (True, True)
    assert [len(batch) for batch in batches_of(run)] == [3] * TAPED
    assert run.curve == list(enumerate(losses, 1))


def test_weights_that_are_clamped_through_data_are_replayed_and_said() -> None:
    model = small()
    optimizer = SGD(model.parameters(), lr=0.5)
    with attached() as run:
        for _ in range(STEPS):
            train(model, optimizer, steps=1)
            for one in model.parameters():
                one.data.clamp_(-0.1, 0.1)
    proof = proof_of(run)
    assert (proof.loss_exact, proof.step_exact) == (True, True)
    assert any("also writes weights besides its optimiser" in note for note in run.setup.notes)


def test_gradients_that_are_clamped_through_data_leave_the_loss_exact_and_are_said() -> None:
    model = small()
    optimizer = SGD(model.parameters(), lr=0.5)

    def clamp() -> None:
        for one in model.parameters():
            assert one.grad is not None
            one.grad.data.clamp_(-0.01, 0.01)

    with attached() as run:
        train(model, optimizer, after_backward=clamp)
    assert proof_of(run).loss_exact
    assert any(note.startswith("Gradients are changed by hand, at test_tape.py:") for note in run.setup.notes)


def test_the_rate_of_updates_by_hand_is_read_off_the_change_and_said() -> None:
    weights = [torch.randn(3, 8, requires_grad=True), torch.randn(8, 1, requires_grad=True)]
    with attached(at=8) as run:
        for _ in range(20):
            loss = loss_of(lambda x: torch.tanh(x @ weights[0]) @ weights[1])
            for one in weights:
                one.grad = None
            loss.backward()  # type: ignore[no-untyped-call]
            for one in weights:
                assert one.grad is not None
                one.data -= 0.03 * one.grad
    assert proof_of(run).loss_exact
    assert run.setup.optimizer is not None
    assert run.setup.optimizer.param_groups[0]["lr"] == pytest.approx(0.03, rel=1e-3)
    assert any("updates its weights itself: as SGD at 0.03 would" in note for note in run.setup.notes)


class Mixture(nn.Module):
    """Leaves a part of its loss in an attribute, as mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([small(), small()])
        self.gate = nn.Linear(3, 2)
        self.balance: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        shares = self.gate(x).softmax(dim=-1)
        self.balance = shares.mean(dim=0).square().sum()
        return torch.stack([expert(x) for expert in self.experts], dim=-1).mul(shares[:, None]).sum(dim=-1)


def test_a_loss_that_a_module_leaves_in_an_attribute_is_taped() -> None:
    model = Mixture()
    optimizer = Adam(model.parameters())
    with attached() as run:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(model)
            assert model.balance is not None
            (loss + 0.1 * model.balance).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    proof = proof_of(run)
    assert (proof.loss_exact, proof.step_exact) == (True, True)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Doubled.apply(x)  # type: ignore[no-untyped-call, no-any-return]


@pytest.mark.parametrize("inside", [True, False])
def test_a_function_with_a_backward_of_its_own_is_taped_inside_and_outside_of_modules(inside: bool) -> None:
    model = nn.Sequential(small(), Doubling()) if inside else small()
    optimizer = SGD(model.parameters(), lr=0.1)
    with attached() as run:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(model)
            (loss if inside else Doubled.apply(loss)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    proof = proof_of(run)
    assert (proof.loss_exact, proof.step_exact) == (True, True)


def test_a_graph_from_before_the_tape_is_refused_by_its_operation_and_line(caplog: pytest.LogCaptureFixture) -> None:
    model, factor = small(), torch.ones((), requires_grad=True)
    doubled = 2 * factor  # once
    optimizer = SGD([*model.parameters(), factor], lr=0.1)
    with attached() as run:
        for _ in range(STEPS):
            optimizer.zero_grad()
            (loss_of(model) * doubled).backward(retain_graph=True)  # type: ignore[no-untyped-call]
            optimizer.step()
    with pytest.raises(WorkError, match=r"\(MulBackward0\) comes from outside of modules .*, at test_tape\.py:\d+"):
        _ = run.setup
    assert len(caplog.records) == 1  # the same sentence
    assert len(run.curve) == STEPS


def test_a_backward_of_several_tensors_at_once_is_refused() -> None:
    model = small()
    optimizer = SGD(model.parameters(), lr=0.1)
    with attached() as run:
        for _ in range(STEPS):
            optimizer.zero_grad()
            torch.autograd.backward([loss_of(model), loss_of(model)])
            optimizer.step()
    with pytest.raises(WorkError, match=r"backward is called on 2 tensors at once, at test_tape\.py:\d+"):
        _ = run.setup


def test_a_fault_of_the_recording_ends_the_recording_and_not_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def undisturbed() -> list[Tensor]:
        torch.manual_seed(1)
        model = small()
        train(model, Adam(model.parameters()))
        return [one.detach() for one in model.parameters()]

    def fault(*_: object) -> None:
        raise ZeroDivisionError("planted")

    wanted = undisturbed()
    monkeypatch.setattr(Tape, "_encode_call", fault)
    with attached() as run:
        weights = undisturbed()
    assert all(torch.equal(one, other) for one, other in zip(weights, wanted, strict=True))
    assert len(run.curve) == STEPS
    with pytest.raises(WorkError, match=r"cannot be recorded, as the recording failed with ZeroDivisionError: planted"):
        _ = run.setup


@pytest.mark.parametrize("steps", [AT - 1, AT + 1, STEPS + 3])
def test_nothing_of_ours_is_left_after_the_block(steps: int) -> None:
    def ours() -> list[Any]:
        return [
            nn.Module.__call__,
            torch.autograd.backward,
            torch.autograd.grad,
            Tensor.backward,
            Optimizer.zero_grad,
            Optimizer.__init__,
            torch.compile,
            torch.amp.GradScaler.scale,
            torch.amp.GradScaler.unscale_,
            torch.autocast.__enter__,
            torch.autocast.__exit__,
            "apply" in vars(_SingleLevelFunction),
            nn.utils.clip_grad_norm_,
            nn.utils.clip_grad_value_,
            list(torch_optimizer._global_optimizer_pre_hooks.values()),
            list(torch_optimizer._global_optimizer_post_hooks.values()),
            modes(),
        ]

    before = ours()
    model = small()
    optimizer = SGD(model.parameters(), lr=0.1)
    with attached():
        assert ours() != before
        train(model, optimizer, steps=steps)
    assert ours() == before
    assert not optimizer._optimizer_step_pre_hooks
    assert not model._forward_pre_hooks


def test_nothing_of_ours_is_left_after_an_exception_of_the_loop() -> None:
    before = nn.Module.__call__, torch.autograd.backward
    model = small()
    run = attached()
    with pytest.raises(KeyError, match="'weights'"), run:  # noqa: PT012 - the block is what is tested
        train(model, SGD(model.parameters(), lr=0.1), steps=AT + 1)
        vars(model)["weights"]
    assert (nn.Module.__call__, torch.autograd.backward, modes()) == (*before, [])
    assert proof_of(run).steps == 1


def test_the_curve_has_the_loss_of_every_step_from_the_first() -> None:
    model = small()
    optimizer = SGD(model.parameters(), lr=0.1)
    losses = []
    with attached() as run:
        for _ in range(STEPS + 5):
            loss = loss_of(model)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
    assert run.curve == list(enumerate(losses, 1))


def test_what_another_optimiser_trains_is_held_as_it_is() -> None:
    main, other = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)), nn.Linear(3, 3)
    mine, theirs = Adam(main.parameters(), lr=0.01), SGD(other.parameters(), lr=0.5)
    with attached() as run:
        for _ in range(STEPS):
            mine.zero_grad()
            theirs.zero_grad()
            loss_of(lambda x: main(other(x))).backward()  # type: ignore[no-untyped-call]
            mine.step()
            theirs.step()
    weights = copy.deepcopy([*main.state_dict().values(), *other.state_dict().values()])
    run.diagnose(budget=3.0)
    now = [*main.state_dict().values(), *other.state_dict().values()]
    assert all(torch.equal(one, before) for one, before in zip(now, weights, strict=True))

    # In an experiment nothing but the chosen model moves: at a rate of zero the loss of a batch stays.
    assert run.setup.step is not None
    model = copy.deepcopy(main)
    optimizer = SGD(model.parameters(), lr=0.0)
    assert [name for name, _ in run.setup.model.named_parameters()] == [name for name, _ in model.named_parameters()]
    losses = [float(run.setup.step(model, optimizer, batches_of(run)[0])) for _ in range(3)]
    assert len(set(losses)) == 1


@pytest.mark.parametrize(
    ("wanted", "says"),
    [({"at": 0}, "at=0: expected a step"), ({"at": "soon"}, "at='soon': expected"), ({"steps": 0}, "steps=0: at least one")],
)
def test_a_step_that_never_comes_is_refused(wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        attached(**wanted)


def test_a_loop_that_ended_before_it_was_taped_says_so() -> None:
    model = small()
    with attached(at=100) as run:
        train(model, SGD(model.parameters(), lr=0.1), steps=5)  # no optimiser is left afterwards
        with pytest.raises(RequestError, match=r"^nothing has been taped yet, after 5 steps; call ask\(\)"):
            _ = run.setup
    with pytest.raises(WorkError, match=r"^the loop ended after 5 steps, before it was taped, .*; give attach\(at=STEP\)\.$"):
        _ = run.setup
    with attached() as run:
        pass
    with pytest.raises(WorkError, match=r"^no optimiser of torch has made a step inside the block"):
        _ = run.setup


def test_a_loop_that_asks_is_taped_from_the_next_step_on() -> None:
    model = small()
    optimizer = SGD(model.parameters(), lr=0.1)
    with attached(at="plateau") as run:
        train(model, optimizer, steps=3)
        run.ask()
        train(model, optimizer, steps=1 + TAPED)
    assert proof_of(run).steps == TAPED
    assert f"step {4 + TAPED}: you asked." in str(run)


def test_cells_of_a_notebook_are_taped_and_their_lines_are_named() -> None:
    """A notebook runs each cell as code of a file that does not exist, in the same names."""
    cells = (
        "import torch, eureka\nmodel = torch.nn.Linear(3, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        f"with eureka.attach(at={AT}, steps={TAPED}) as run:\n    for step in range({STEPS}):\n        optimizer.zero_grad()\n"
        "        loss = model(torch.randn(5, 3)).square().mean()\n        loss.backward()\n        optimizer.step()",
        "found = run.diagnose(budget=1e-9)",
    )
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"<ipython-input-{number}>", "exec"), names)
    run = names["run"]
    assert proof_of(run).loss_exact
    assert "the model is called at <ipython-input-1>:4, backward at <ipython-input-1>:5" in str(run)
    assert names["found"].findings


def test_optimisers_that_step_after_one_backward_are_examined_together_whichever_has_more() -> None:
    for first, second in ((0, 2), (2, 0)):
        model = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
        optimizers = [SGD(model[place].parameters(), lr=0.01) for place in (first, second)]
        with attached() as run:
            for _ in range(STEPS + 1):
                model.zero_grad()
                loss_of(model).backward()  # type: ignore[no-untyped-call]
                for optimizer in optimizers:
                    optimizer.step()
        assert proof_of(run).step_exact
        assert "Examined together" in str(run)
        assert "not_in_optimizer" not in {one.cause for one in run.diagnose().findings}


def test_what_another_optimiser_trains_inside_of_the_model_is_held_and_is_not_said_to_be_in_no_optimiser() -> None:
    model = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
    body, head = SGD(model[0].parameters(), lr=0.01), SGD(model[2].parameters(), lr=0.01)
    with attached() as run:
        for _ in range(STEPS + 1):
            for optimizer in (body, head):
                model.zero_grad()
                loss_of(model).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    assert proof_of(run).loss_exact
    assert run.setup.held == {"2.weight", "2.bias"}
    assert "not_in_optimizer" not in {one.cause for one in run.diagnose().findings}


GENERATOR = torch.Generator()
CALLS = [0]


class Noisy(nn.Module):
    """Its forward pass draws from a generator of the module's file, and counts its calls in a list there."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        CALLS[0] += 1
        found: Tensor = self.linear(x + torch.randn(x.shape, generator=GENERATOR))
        return found


def test_generators_and_counters_that_a_forward_pass_uses_are_as_they_were_and_its_steps_are_replayed() -> None:
    ends = []
    for watched in (False, True):
        torch.manual_seed(1)
        GENERATOR.manual_seed(2)
        CALLS[0] = 0
        model = Noisy()
        if watched:
            with attached() as run:
                train(model, SGD(model.parameters(), lr=0.1), steps=STEPS + 3)
            assert proof_of(run).step_exact
        else:
            train(model, SGD(model.parameters(), lr=0.1), steps=STEPS + 3)
        ends.append((CALLS[0], GENERATOR.get_state(), model.linear.weight.detach().clone()))
    (count, state, weight), (count_watched, state_watched, weight_watched) = ends
    assert count == count_watched
    assert torch.equal(state, state_watched)
    assert torch.equal(weight, weight_watched)


def test_hooks_on_parameters_travel_with_the_copies() -> None:
    model = small()
    for one in model.parameters():
        one.register_hook(lambda gradient: 0.1 * gradient)  # type: ignore[no-untyped-call]
    with attached() as run:
        train(model, SGD(model.parameters(), lr=0.5))
    assert proof_of(run).step_exact
