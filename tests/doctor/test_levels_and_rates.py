"""Losses that are no numbers or have another scale, the steps a run has made, and rates of groups and schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from eureka.doctor.checks import attention, clipping, movement, rate
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Diagnosis
from eureka.doctor.plain_loss import PlainLosses
from eureka.errors import RequestError
from eureka.forks.case import Loss, Step, make_case
from eureka.formats import rate as written

Batch = tuple[Tensor, Tensor]
NAN = math.nan


def batches(count: int = 26, *, random: bool = False) -> list[Batch]:
    """Which of four numbers is the largest; or labels that follow from nothing."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 32, 10, generator=draw)
    labels = torch.randint(4, (count, 32), generator=draw) if random else inputs[..., :4].argmax(-1)
    return list(zip(inputs, labels, strict=True))


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))


def plain(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def adamw(model: nn.Module, lr: float = 1e-3, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr, **more)


def told(data: list[Any], loss: Loss = plain, lr: float = 1e-3, model: nn.Module | None = None) -> Diagnosis:
    model = small() if model is None else model
    return eureka.diagnose(model, data, loss=loss, optimizer=adamw(model, lr))


def exam_of(
    loss: Loss | None = plain,
    *,
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    step: Step | None = None,
    data: list[Any] | None = None,
) -> Exam:
    model = small() if model is None else model
    return Exam(
        make_case(model, data or batches(), loss=loss, step=step, optimizer=optimizer or adamw(model), most=24)
    )  # fmt: skip


# Losses that are no numbers


@pytest.mark.parametrize(("place", "value"), [(0, NAN), (7, NAN), (7, math.inf)])
def test_a_value_that_is_no_number_is_found_in_its_batch_and_row(place: int, value: float) -> None:
    data = batches()
    data[place][0][3, 2] = value
    found = told(data)
    assert found.cause == "not_a_number"
    assert f"1 value of 320 in batch[0] is {value}, in row 3 of 32" in found.findings[0].evidence[0]
    assert ("from the first batch on" if place == 0 else "at batch 8, and a number before") in found.findings[0].evidence[0]


def test_a_target_that_is_no_number_is_found() -> None:
    data = [{"x": x, "y": y.float()[:, None]} for x, y in batches()]
    data[2]["y"][5] = NAN
    model = nn.Linear(10, 1)
    found = told(data, lambda model, batch: F.mse_loss(model(batch["x"]), batch["y"]), model=model)
    assert found.cause == "not_a_number"
    assert "batch['y'] is nan, in row 5 of 32" in found.findings[0].evidence[0]


def test_a_mask_of_minus_infinity_is_not_blamed() -> None:
    mask = torch.zeros(32, 4).masked_fill(torch.arange(4) == 3, -math.inf)
    data = [(x, y.clamp(max=2), mask) for x, y in batches()]
    assert told(data, lambda model, batch: F.cross_entropy(model(batch[0]) + batch[2], batch[1])).healthy


def test_a_weight_that_is_no_number_is_named() -> None:
    model = small()
    with torch.no_grad():
        model.get_parameter("2.weight")[1, 1] = NAN
    found = told(batches(), model=model)
    assert found.cause == "not_a_number"
    assert "1 weight of 484 is no number (2.weight)" in found.findings[0].evidence[0]


@pytest.mark.parametrize("place", [0, 5])
def test_a_batch_without_a_label_that_counts_is_told_once(place: int) -> None:
    data = batches()
    data[place][1].fill_(-100)
    found = told(data)
    assert [one.cause for one in found.findings] == ["labels_ignored"]
    assert place == 0 or "at batch 6" in found.findings[0].evidence[0]


class Attending(nn.Module):
    """Attention by hand; tokens that are 0 are padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        weights = (x @ x.mT).masked_fill((tokens == 0)[:, None], -math.inf).softmax(-1)
        return self.head((weights @ x).mean(1))  # type: ignore[no-any-return]


def test_a_row_that_is_all_padding_is_named_with_the_module_behind_the_code() -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 9, (26, 16, 6), generator=draw)
    data = [(one, one[:, 0] % 3) for one in tokens]
    data[6][0][4] = 0
    found = told(data, model=Attending())
    assert found.cause == "not_a_number"
    assert "the code before head (Linear) makes it, in row 4 of 16" in found.findings[0].evidence[0]
    assert "an input is 0 everywhere: nothing but padding" in found.findings[0].evidence[0]


def test_a_gradient_that_is_no_number_is_found_though_the_loss_is_one() -> None:
    found = told(batches(), lambda model, batch: plain(model, batch) + (0.0 * model(batch[0]).sum()).sqrt())
    assert found.cause == "not_a_number"
    assert "its gradient is no number at 4 parameters" in found.findings[0].evidence[0]


def test_a_run_that_diverges_has_too_large_a_rate_and_no_clipping() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e4)
    assert list(clipping.check(exam_of(model=model, optimizer=optimizer))) == []
    found = eureka.diagnose(model, batches(), loss=plain, optimizer=optimizer)
    assert found.cause == "lr_too_large"
    assert found.findings[0].numbers["factor"] < 0.01


def test_a_run_that_ends_without_a_number_is_never_healthy() -> None:
    calls = iter(range(100_000))

    def breaking(model: nn.Module, batch: Any) -> Tensor:
        """Infinite in every third pass, for no reason that can be seen."""
        return plain(model, batch) + (math.inf if next(calls) % 3 == 2 else 0.0)

    assert told(batches(), breaking).cause == "not_a_number"


# The level of a loss


def weights() -> Tensor:
    return torch.tensor([1.0, 5.0, 0.5, 2.0])


def of(given: Tensor, target: Tensor, **more: Any) -> Tensor:
    return F.cross_entropy(given, target, **more)


LOSSES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float | None]] = {
    "plain": (of, 1.0),
    "a mean by hand": (lambda a, b: of(a, b, reduction="none").mean(), 1.0),
    "a sum": (lambda a, b: of(a, b, reduction="sum"), 32.0),
    "a sixteenth": (lambda a, b: of(a, b) / 16, 1 / 16),
    "negated": (lambda a, b: -of(a, b), -1.0),
    "class weights": (lambda a, b: of(a, b, weight=weights()), 1.0),
    "smoothed": (lambda a, b: of(a, b, label_smoothing=0.2), 1.0),
    "focal": (lambda a, b: ((1 - (-of(a, b, reduction="none")).exp()) ** 5 * of(a, b, reduction="none")).mean(), None),
    "another term": (lambda a, b: of(a, b) + 10 * a.square().mean(), None),
    "a constant": (lambda a, b: of(a, b) + 2.0, None),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_returned_loss_is_told_to_be_a_multiple_of_the_plain_one_or_something_else(name: str) -> None:
    function, multiple = LOSSES[name]
    exam = exam_of(lambda model, batch: function(model(batch[0]), batch[1]))
    assert exam.multiple == (None if multiple is None else pytest.approx(multiple, rel=1e-4))
    assert (exam.chance is None) == (multiple is None or multiple < 0)


@pytest.mark.parametrize("name", ["plain", "a sum", "a sixteenth", "class weights", "smoothed"])
def test_chance_is_the_least_loss_of_an_answer_that_is_the_same_for_all(name: str) -> None:
    function, data = LOSSES[name][0], batches(24)
    exam = exam_of(lambda model, batch: function(model(batch[0]), batch[1]), data=data)
    answer = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.LBFGS([answer], max_iter=100)
    labels, count = torch.cat([y for _, y in data]), len(data) if name == "a sum" else 1

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = function(answer.expand(len(labels), 4), labels) / count
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert exam.chance == pytest.approx(float(closure().detach()), rel=0.005)


def test_one_batch_cannot_tell_a_multiple_from_a_sum() -> None:
    seen = PlainLosses()
    with seen:
        for _, (x, y) in zip(range(3), seen.announced(batches(1) * 3), strict=True):
            F.cross_entropy(x[:, :4], y)
    (value,) = {one.value for step in seen.calls for one in step}
    assert seen.multiple([3 * value] * 3) is None
    assert seen.multiple([value] * 3) == 1.0


def accumulating(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Tensor:
    """Sixteen small batches a step; the loss that is returned is a sixteenth of the last one."""
    optimizer.zero_grad()
    for x, y in zip(batch[0].chunk(16), batch[1].chunk(16), strict=True):
        loss = plain(model, (x, y)) / 16
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def test_a_stuck_run_with_a_scaled_loss_is_not_at_its_floor() -> None:
    model = small()
    found = eureka.diagnose(model, batches(), step=accumulating, optimizer=adamw(model, 1e-7))
    assert found.cause == "lr_too_small"
    assert told(batches(), lambda model, batch: 0.05 * plain(model, batch), 1e-7).cause == "lr_too_small"
    noise = told(batches(random=True), lambda model, batch: 0.05 * plain(model, batch))
    assert noise.findings[0].kind != "at its floor"


def test_a_loss_near_zero_is_still_at_its_floor_and_one_with_other_terms_is_not_judged() -> None:
    model, data = small(), batches(2)
    optimizer = adamw(model, 1e-2)
    for _ in range(400):
        for batch in data:
            optimizer.zero_grad()
            plain(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    exam = exam_of(model=model, optimizer=optimizer, data=data)
    assert exam.chance is not None
    assert exam.level < 0.1 * exam.chance
    found = told(batches(), lambda model, batch: 0.05 * plain(model, batch) + 0.05 * model(batch[0]).square().mean())
    assert found.healthy
    assert "Its level is not judged" in str(found)


def test_a_loss_that_training_raises_is_found() -> None:
    assert told(batches(), lambda model, batch: -plain(model, batch)).cause == "loss_misuse"
    model = small()
    found = eureka.diagnose(model, batches(), loss=plain, optimizer=adamw(model, maximize=True))
    assert found.cause == "loss_misuse"
    assert "maximize=True" in found.findings[0].evidence[0]
    assert eureka.diagnose(
        model, batches(), loss=lambda model, batch: -plain(model, batch), optimizer=adamw(model, maximize=True)
    ).healthy  # fmt: skip


def test_a_lower_rate_is_advised_only_if_it_lowers_the_loss() -> None:
    model = small()
    assert rate._too_large(exam_of(model=model, optimizer=adamw(model, 1e-3, maximize=True))) is None
    assert rate._too_large(exam_of(model=model, optimizer=adamw(model, 10.0))) is not None


# Gradients


def step_with(between: Callable[[nn.Module, torch.optim.Optimizer], None]) -> Step:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Tensor:
        loss = plain(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        between(model, optimizer)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def clamped(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for one in model.parameters():
        assert one.grad is not None
        one.grad.clamp_(-1e-7, 1e-7)


def true_norm() -> float:
    model, data = small(), batches()[:5]
    norms = []
    for batch in data:
        model.zero_grad()
        plain(model, batch).backward()  # type: ignore[no-untyped-call]
        norms.append(math.sqrt(sum(float(one.grad.square().sum()) for one in model.parameters() if one.grad is not None)))
    return sorted(norms)[2]


@pytest.mark.parametrize("between", [clamped, lambda model, optimizer: optimizer.zero_grad(set_to_none=False)])
def test_the_norm_of_a_gradient_is_that_of_one_step(between: Any) -> None:
    model = small()
    exam = exam_of(None, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), step=step_with(between))
    check = clipping.check if between is clamped else movement.check
    (found,) = check(exam)
    assert f"{true_norm():.3g}" in str(found)


@pytest.mark.parametrize("cleared", [True, False])
def test_gradients_that_pile_up_are_found(cleared: bool) -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Tensor:
        loss = plain(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if cleared:
            optimizer.zero_grad()
        return loss

    causes = [one.cause for one in movement.check(exam_of(None, step=step))]
    assert causes == ([] if cleared else ["gradients_kept"])


def test_gradients_that_are_added_up_on_purpose_are_no_fault() -> None:
    calls = [0]

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Tensor:
        calls[0] += 1
        loss = plain(model, batch)
        (loss / 4).backward()  # type: ignore[no-untyped-call]
        if calls[0] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    assert list(movement.check(exam_of(None, step=step))) == []


# Steps and rates


def trained(optimizer: torch.optim.Optimizer, model: nn.Module, steps: int) -> None:
    for x, y in batches(steps):
        optimizer.zero_grad()
        plain(model, (x, y)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize(
    ("make", "steps", "counted"),
    [
        (lambda p: torch.optim.SGD(p, 0.1), 0, None),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 0, 0.0),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 20, None),
        (lambda p: torch.optim.ASGD(p), 0, 0.0),
        (lambda p: torch.optim.ASGD(p), 20, 20.0),
        (lambda p: torch.optim.LBFGS(p), 0, 0.0),
        (lambda p: torch.optim.AdamW(p), 20, 20.0),
    ],
)
def test_steps_that_nobody_counts_are_not_taken_for_many(make: Any, steps: int, counted: float | None) -> None:
    model = small()
    optimizer = make(model.parameters())
    trained(optimizer, model, steps)
    exam = exam_of(model=model, optimizer=optimizer)
    assert exam.counted == (counted is not None)
    assert exam.taken == (counted or 0.0) < attention.EARLY


def one_cycle(model: nn.Module, steps: int) -> torch.optim.Optimizer:
    optimizer = adamw(model)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=100)
    for x, y in batches(steps):
        optimizer.zero_grad()
        plain(model, (x, y)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return optimizer


@pytest.mark.parametrize(("steps", "coming"), [(3, True), (99, False)])
def test_the_end_of_a_cycle_is_no_warm_up(steps: int, coming: bool) -> None:
    model = small()
    exam = exam_of(model=model, optimizer=one_cycle(model, steps))
    now = exam.case.optimizer.param_groups[0]["lr"]
    assert rate._will_reach(exam, 1e-3 / now) == coming
    assert rate._ended(exam) != coming


def test_a_cycle_that_is_over_is_a_rate_that_is_too_small() -> None:
    model = small()
    found = eureka.diagnose(model, batches(), loss=plain, optimizer=one_cycle(model, 100))
    assert found.cause == "lr_too_small"
    assert "The schedule is over: its peak was 1e-3." in found.findings[0].evidence[0]


def cosine(model: nn.Module, steps: int, warm_up: int = 0, lr: float = 1e-3) -> torch.optim.Optimizer:
    """After so many steps of a thousand."""
    optimizer = adamw(model, lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min(i / warm_up if warm_up else 1.0, 0.5 + 0.5 * math.cos(math.pi * i / 1000))
    )
    for x, y in batches(steps):
        optimizer.zero_grad()
        plain(model, (x, y)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return optimizer


def test_a_warm_up_from_zero_is_no_schedule_that_has_ended_and_is_judged_at_its_base_rate() -> None:
    model = small()
    optimizer = cosine(model, 0, warm_up=100)
    found = eureka.diagnose(model, batches(), loss=plain, optimizer=optimizer)
    assert found.healthy
    assert found.findings[0].kind == "learning"
    assert found.notes == ("The schedule is warming up, at 0 now; the experiments go on at its base rate, 1e-3.",)
    assert optimizer.param_groups[0]["lr"] == 0.0


def test_a_base_rate_that_is_too_small_is_found_before_the_warm_up_and_raised_with_its_scheduler() -> None:
    model = small()
    found = eureka.diagnose(model, batches(), loss=plain, optimizer=cosine(model, 0, warm_up=100, lr=1e-8))
    assert found.cause == "lr_too_small"
    assert f"scheduler.base_lrs[i] *= {found.findings[0].numbers['factor']:g}" in found.findings[0].code


@pytest.mark.parametrize("of_the_schedule", [True, False], ids=["a factor", "a step"])
def test_a_warm_up_from_zero_that_cannot_be_judged_is_told_without_code(of_the_schedule: bool) -> None:
    model = small()
    optimizer = cosine(model, 0, warm_up=100, lr=1.0 if of_the_schedule else 1e-3)
    how: dict[str, Any] = {"loss": plain} if of_the_schedule else {"step": step_with(lambda model, optimizer: None)}
    found = eureka.diagnose(model, batches(), optimizer=optimizer, **how).findings[0]
    assert "no step was made yet: the schedule is warming up" in found.evidence[0]
    assert not found.code


def test_a_rate_of_zero_after_steps_is_that_of_an_ended_schedule() -> None:
    model = small()
    optimizer = cosine(model, 1000, warm_up=100)
    found = eureka.diagnose(model, batches(), loss=plain, optimizer=optimizer)
    assert "down from 1e-3: the schedule has ended" in found.findings[0].evidence[0]
    assert not Diagnosis.from_json(found.to_json()).remedies  # ten times 0 is 0


@pytest.mark.parametrize(("random", "first"), [(False, 1e-4), (True, 1e-3)], ids=["more to learn", "nothing to learn"])
def test_the_end_of_a_cosine_is_told_and_no_rate_above_its_first_is_advised(random: bool, first: float) -> None:
    model, data = small(), batches(random=random)
    found = eureka.diagnose(model, data, loss=plain, optimizer=cosine(model, 996, lr=first)).findings[0]
    assert found.cause == "lr_too_small"
    assert "At 3.94" in found.evidence[0]
    assert f"The schedule is nearly over, or its warm-up is very long: its first rate is {written(first)}." in found.evidence[0]
    assert found.advice.startswith(f"if the loss is to fall further, begin another schedule at {written(first)}, or ")
    assert found.code == f"for group in optimizer.param_groups: group['lr'] = {first:g}  # and no more scheduler.step()"


def test_the_first_steps_of_a_warm_up_are_no_end_of_a_schedule() -> None:
    model = small()
    exam = exam_of(model=model, optimizer=cosine(model, 3, warm_up=500))
    assert not rate._held_low(exam)


@pytest.mark.filterwarnings("ignore:Detected call of")  # it is a copy of the optimiser that steps
@pytest.mark.parametrize("rises", [True, False])
def test_a_warm_up_of_no_end_is_not_told_to_be_over(rises: bool) -> None:
    model = small()
    optimizer = adamw(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: (i + 1) / 10**6 if rises else 0.01 * 0.99**i)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Tensor:
        optimizer.zero_grad()
        loss = plain(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        return loss

    for batch in batches(30):
        step(model, optimizer, batch)
    found = eureka.diagnose(model, batches(), step=step, optimizer=optimizer).findings[0]
    assert found.cause == "lr_too_small"
    now = optimizer.param_groups[0]["lr"]
    assert found.evidence[0].startswith(f"At {written(now)} ")  # no experiment has moved the schedule
    if rises:
        assert "The schedule is warming up, and at its pace needs 999,969 more steps to 1e-3." in found.evidence[0]
        assert found.advice == "make the warm-up shorter."
    else:
        assert "The schedule is nearly over: it began at 1e-3." in found.evidence[0]
        assert "warm" not in found.advice


@pytest.mark.filterwarnings("ignore:Detected call of")  # it is a copy of the optimiser that steps
def test_a_schedule_that_ends_during_the_trials_is_told_in_one_sentence() -> None:
    model = small()
    optimizer = adamw(model)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=10)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> Tensor:
        optimizer.zero_grad()
        loss = plain(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        return loss

    with pytest.raises(RequestError, match="the schedule in your step ends too soon") as caught:
        eureka.diagnose(model, batches(), step=step, optimizer=optimizer)
    assert "a training step fails" not in str(caught.value)


@pytest.mark.parametrize("slow", [0.0, 1e-9])
def test_a_group_that_its_rate_leaves_behind_is_named(slow: float) -> None:
    model = small()
    with torch.no_grad():
        model.get_parameter("0.weight").mul_(1e-3)  # what the last layer sees says nothing yet
    groups = [{"params": model[0].parameters(), "lr": slow}, {"params": model[2].parameters(), "lr": 1e-2}]
    found = eureka.diagnose(model, batches(), loss=plain, optimizer=torch.optim.AdamW(groups))
    assert found.cause == "lr_too_small"
    assert "0.weight and 0.bias get" in found.findings[0].evidence[0]
    assert f"the rate of their group is {slow:g}".replace("e-09", "e-9") in found.findings[0].evidence[0]


def test_groups_that_learn_well_at_different_rates_are_no_fault() -> None:
    model = small()
    groups = [{"params": model[0].parameters(), "lr": 1e-3}, {"params": model[2].parameters(), "lr": 1e-2}]
    assert eureka.diagnose(model, batches(), loss=plain, optimizer=torch.optim.AdamW(groups)).healthy


# What is said where not everything was looked at


def test_checks_that_could_not_be_made_are_told_beside_a_healthy_run() -> None:
    model = small()
    whole = eureka.diagnose(model, batches(), loss=plain, optimizer=adamw(model))
    assert whole.healthy
    assert "could not be made" not in str(whole)
    model = small()
    cut = eureka.diagnose(model, batches(), loss=plain, optimizer=adamw(model), budget=0.0)
    assert cut.healthy
    assert f"{len(cut.checks)} checks of {len(cut.checks)} could not be made" in str(cut)
    waiting = eureka.diagnose(model, batches(), loss=plain, optimizer=adamw(model, 1e-9), budget=0.0)
    assert "no fault was found by the checks that could be made" in waiting.findings[0].advice
