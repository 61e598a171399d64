"""A race tells which remedy works on a user's own run, and changes nothing of it until it is asked to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import eureka
from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.forks.rates import with_rates
from eureka.forks.setup import Setup
from eureka.racing.race import Race
from eureka.racing.remedies import CATALOGUE, choose
from eureka.racing.remedy import Applied, Change, Remedy, applied
from tests.racing.runs import Run, assert_equal, convolutions, everything, gpt2, reader, same


def raced(run: Run, **options: Any) -> Race:
    return eureka.race(run.model, run.batches, loss=run.loss, optimizer=run.optimizer, **{"steps": 12, **options})


def nothing(fork: Fork) -> None:
    """A remedy that changes nothing."""


def head_to(value: float) -> Callable[[Fork], None]:
    """A remedy that makes the loss of `convolutions` small or large at once."""

    @torch.no_grad()
    def apply(fork: Fork) -> None:
        for parameter in fork.model.parameters():
            parameter.mul_(value)

    return apply


@pytest.mark.parametrize("one_copy", [False, True])
def test_nothing_of_the_users_changes(run: Run, one_copy: bool) -> None:
    before = everything(run)
    names = ["rate_x10", "clear_norm_softmax"] if one_copy else [remedy.name for remedy in CATALOGUE]
    race = raced(run, remedies=names, steps=3, one_copy=one_copy)
    assert_equal(before, everything(run))
    assert [verdict.name for verdict in race.verdicts] == names


@pytest.mark.parametrize("one_copy", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_nothing_of_the_users_changes_when_it_is_ended_in_the_middle(error: type[BaseException], one_copy: bool) -> None:
    run = reader()
    before = everything(run)

    def end(name: str, taken: int, most: int) -> None:
        if taken == 9:
            raise error("ended")

    with pytest.raises(error, match="ended"):
        raced(run, remedies=["rate_x10", "heat_treatment"], steps=6, one_copy=one_copy, on_step=end)
    assert_equal(before, everything(run))


def test_a_loss_that_raises_in_the_run_as_it_is_raises() -> None:
    run = reader()
    before = everything(run)

    def broken(model: nn.Module, batch: Any) -> torch.Tensor:
        raise ZeroDivisionError("in the user's loss")

    with pytest.raises(ZeroDivisionError, match="in the user's loss"):
        eureka.race(run.model, run.batches, loss=broken, optimizer=run.optimizer)
    assert_equal(before, everything(run))


def _shuffled(data: torch.Tensor) -> DataLoader[Any]:
    return DataLoader(data, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(1))  # type: ignore[arg-type]


def test_a_function_that_trains_the_users_own_model_is_refused_and_put_back() -> None:
    run = reader()
    before = everything(run)
    told = "the function that was given trains your own model"
    with pytest.raises(RequestError, match=told):
        eureka.race(run.model, run.batches, loss=lambda model, batch: run.loss(run.model, batch), optimizer=run.optimizer)
    with pytest.raises(RequestError, match=told):
        eureka.race(run.model, run.batches, step=lambda model, optimizer, batch: run.train(batch), optimizer=run.optimizer)
    assert_equal(before, everything(run))


def test_the_order_of_a_data_loader_is_left_as_it_was() -> None:
    run = reader()
    data = torch.cat(run.batches)
    loaders = [_shuffled(data), _shuffled(data)]
    eureka.race(run.model, loaders[0], loss=run.loss, optimizer=run.optimizer, remedies=["rate_x3"], steps=4)
    for one, other in zip(*loaders, strict=True):
        assert torch.equal(one, other)


def test_forks_are_paired() -> None:
    """A remedy that only draws random numbers has the losses of waiting, bit for bit, dropout and all."""

    def draws(fork: Fork) -> None:
        torch.rand(1000)

    race = raced(
        reader(dropout=0.5), remedies=[eureka.Remedy("draws", "nothing", draws), eureka.Remedy("same", "nothing", nothing)]
    )
    assert race.losses["draws"] == race.losses["same"] == race.losses["wait"]
    assert [verdict.difference for verdict in race.verdicts] == [0.0, 0.0]
    assert len(set(race.losses["wait"])) == 12
    assert race.winner == "wait"
    assert race.summary.startswith("None of them helped")


def test_waiting_is_the_users_own_run_continued() -> None:
    run = reader(dropout=0.0)
    race = raced(run, remedies=["rate_x3"])
    assert race.losses["wait"] == tuple(run.train(batch) for batch in run.batches)


def test_one_copy_gives_the_same_losses() -> None:
    options: dict[str, Any] = {"remedies": ["rate_x10", "clear_norm_softmax", "larger_batch"], "steps": 8}
    assert raced(reader(), one_copy=True, **options).losses == raced(reader(), **options).losses


def test_another_seed_draws_other_dropout() -> None:
    first, second = (raced(reader(), remedies=["rate_x3"], seed=seed).losses["wait"] for seed in (0, 1))
    assert first != second


def test_a_rate_that_is_far_too_small_is_found() -> None:
    race = raced(
        reader(lr=3e-5, loss=same, dropout=0.0, batches=40), remedies=["rate_x10", "rate_tenth", "no_weight_decay"], steps=160
    )
    assert race.winner == "rate_x10", str(race)
    assert race.verdicts[0].helped
    assert not any(verdict.helped for verdict in race.verdicts[1:])


def test_a_rate_at_which_the_weights_hardly_move_is_raced_at_a_large_multiple_unasked() -> None:
    race = raced(reader(lr=1e-7, loss=same, dropout=0.0, batches=40), steps=80)
    assert race.winner == "rate_x1000", str(race)
    assert [verdict.name for verdict in race.verdicts].count("rate_x3") == 0
    assert len(race.verdicts) == 7
    assert sum("the rate looks far too small, and rate_x1000 is raced in place of rate_x3." in one for one in race.notes) == 1
    usual, asked = raced(reader(lr=1e-3), steps=2), raced(reader(lr=1e-7), remedies=["rate_x3"], steps=2)
    assert [verdict.name for verdict in usual.verdicts] == [remedy.name for remedy in choose(None)]
    assert [verdict.name for verdict in asked.verdicts] == ["rate_x3"]


class Scripted(nn.Module):
    """Its loss falls from 1 by a depth over 80 steps, and then no more."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.step: torch.Tensor
        self.depth: torch.Tensor
        self.register_buffer("step", torch.zeros(()))
        self.register_buffer("depth", torch.zeros(()))

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return 1 - self.depth * (self.step / 80).clamp(max=1) + 0.002 * noise + 0 * self.weight


def falling(name: str, depth: float) -> Remedy:
    def apply(fork: Fork) -> None:
        assert isinstance(fork.model, Scripted)
        fork.model.depth.fill_(depth)

    return Remedy(name, "a fall", apply)


def test_who_was_given_up_while_it_helped_does_not_win() -> None:
    model = Scripted()
    run = Run(model, list(torch.randn(160)), lambda model, batch: model(batch), torch.optim.SGD(model.parameters(), lr=0.1))
    race = raced(run, remedies=[falling(f"fall_{one}", 0.08 if one < 4 else 0.07) for one in range(7)], steps=160)
    assert race.winner == "wait", str(race)
    assert [verdict.steps for verdict in race.verdicts] == [160] * 4 + [80] * 3
    assert all(verdict.why.startswith("it was lower and gained when") for verdict in race.verdicts[4:])


def test_a_run_that_learns_is_told_to_wait() -> None:
    race = raced(reader(lr=1e-2, loss=same), steps=80)
    assert race.winner == "wait"
    assert race.summary.startswith("Wait: the run learns by itself")
    assert race.steps == 80


def test_targets_that_are_noise_are_helped_by_nothing() -> None:
    run = reader(dropout=0.0, batches=100)
    noise = torch.Generator().manual_seed(1)
    pairs = [(batch, torch.randint(0, 16, batch.shape, generator=noise)) for batch in run.batches]
    race = eureka.race(
        run.model,
        pairs,
        loss=lambda model, pair: nn.functional.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten()),
        optimizer=run.optimizer,
        steps=100,
    )
    assert race.winner == "wait", str(race)
    assert race.summary.startswith("None of them helped")
    assert sorted(map(len, race.losses.values())) == [80] * 3 + [100] * 5  # halving: four remedies and waiting go on


def test_a_leap_ends_the_race_at_once_and_its_fork_is_the_winner() -> None:
    race = raced(
        convolutions(1e-6), remedies=[eureka.Remedy("smaller", "weights are small", head_to(0.5)), "rate_tenth"], steps=40
    )
    assert race.winner == "smaller"
    assert race.verdicts[0].leapt == race.winner_steps <= 20
    assert race.steps == 40 + race.winner_steps
    assert "rate_tenth" not in race.losses
    assert race.verdicts[1].standing == "not run"
    json.dumps(race.to_json(), allow_nan=False)


def test_a_remedy_that_only_calms_is_not_credited_with_a_leap() -> None:
    calmer = eureka.Remedy("smaller", "weights are small", head_to(0.5), calms=True)
    race = raced(convolutions(1e-6), remedies=[calmer], steps=40)
    assert race.verdicts[0].leapt is None
    assert race.verdicts[0].why == "it is lower, but no longer gains on waiting."
    assert race.winner == "wait"


def test_apply_makes_the_winner_the_users_run_in_place_and_undo_puts_every_bit_back() -> None:
    run = convolutions(1e-6)
    before, parameters = everything(run), list(run.model.parameters())
    race = raced(run, remedies=[eureka.Remedy("smaller", "weights are small", head_to(0.5))], steps=40)
    race.apply()
    assert list(map(id, run.model.parameters())) == list(map(id, parameters))
    twin = convolutions(1e-6)
    head_to(0.5)(Fork(twin.model, twin.optimizer))
    for step in range(race.winner_steps):
        twin.train(twin.batches[step % 12])
    assert_equal(everything(twin)["tensors"], everything(run)["tensors"])
    assert_equal(twin.optimizer.state_dict(), run.optimizer.state_dict())
    with pytest.raises(RequestError, match="applied already"):
        race.apply()
    run.train(run.batches[0])
    race.undo()
    race.undo()
    assert_equal(before | {"torch": 0, "numpy": 0, "python": 0}, everything(run) | {"torch": 0, "numpy": 0, "python": 0})


def test_a_race_after_a_race_waits_with_the_remedy_that_was_applied() -> None:
    run = reader(lr=1e-5, loss=same, dropout=0.0, batches=40)
    first = raced(run, remedies=["rate_x1000"], steps=40)
    assert first.winner == "rate_x1000", str(first)
    first.apply()
    second = raced(run, remedies=["rate_x3"], steps=4)
    assert second.losses["wait"] == tuple(run.train(batch) for batch in run.batches[:4])
    assert not any("Hooks" in note for note in second.notes)


def test_the_winner_is_applied_to_the_optimiser_that_goes_on_training_at_its_own_rate() -> None:
    run = reader(lr=0.0, loss=same, dropout=0.0, batches=40)
    given = Setup(
        model=run.model,
        batches=run.batches,
        loss=run.loss,
        optimizer=with_rates(run.optimizer, [1e-5]),
        own_optimizer=run.optimizer,
    )
    race = eureka.race(given, remedies=["rate_x1000"], steps=40)
    assert race.winner == "rate_x1000", str(race)
    race.apply()
    assert len(run.optimizer._optimizer_step_pre_hooks) == 1
    assert [group["lr"] for group in run.optimizer.param_groups] == [0.0]
    race.undo()
    assert len(run.optimizer._optimizer_step_pre_hooks) == 0


def test_it_tells_what_to_do_next_and_each_reason_once() -> None:
    race = raced(reader(lr=1e-5, loss=same, dropout=0.0, batches=40), remedies=["rate_x1000"], steps=40)
    told = str(race)
    assert "1,000 times the learning rate" in told
    assert "    for group in optimizer.param_groups: group['lr'] *= 1000" in told
    skipped = str(raced(convolutions(), remedies=["norm_softmax", "norm_softmax_var"], steps=4))
    assert skipped.count("no attention found") == 1
    assert "norm_softmax and norm_softmax_var were skipped: " in skipped
    told = str(raced(convolutions(), remedies=["clear_norm_softmax", "start_over", "start_over_x10"], steps=4))
    assert told.count("no attention found") == 2  # of what was skipped, and of what is raced in part
    assert "start_over and start_over_x10 are raced in part: no attention found" in told


def test_with_a_scheduler_the_line_by_hand_changes_what_the_scheduler_goes_by() -> None:
    run = reader(lr=1e-5, loss=same, dropout=0.0, batches=40)
    torch.optim.lr_scheduler.LambdaLR(run.optimizer, lambda step: 1.0)
    told = str(raced(run, remedies=["rate_x1000"], steps=40))
    assert "    for i, group in enumerate(optimizer.param_groups): group['lr'] *= 1000; scheduler.base_lrs[i] *= 1000" in told


def test_a_rate_that_is_applied_is_said_to_be_in_no_checkpoint() -> None:
    run = reader(lr=1e-5, loss=same, dropout=0.0, batches=40)
    race = raced(run, remedies=["rate_x1000"], steps=40)
    assert "is made at 1000 times the rate that param_groups show, so that schedulers go on. No checkpoint holds that:" in str(
        race
    )
    told = race.apply()
    assert told.startswith("Each step of this optimiser object is made at 1000 times the rate that param_groups show (1e-5)")
    assert "No checkpoint holds that: where one is loaded, do it by hand; not both." in told
    assert run.optimizer.state_dict()["param_groups"][0]["lr"] == 1e-5  # as it says
    race.undo()


def test_of_what_is_applied_only_what_no_checkpoint_holds_is_told() -> None:
    race = raced(reader(dropout=0.0), remedies=[eureka.Remedy("same", "nothing", nothing)])
    assert "checkpoint" not in race.apply()
    told: dict[str, str] = {}
    for remedy in choose(["norm_softmax", "clear_norm_softmax_x10", "fresh_optimizer"]):
        race._winner.remedy = remedy
        told[remedy.name] = "\n".join(race._next())
    again = "No checkpoint holds this change: where one is loaded into a new model, make it again."
    assert told["norm_softmax"].endswith(again)
    assert "10 times the rate that param_groups show" in told["clear_norm_softmax_x10"]
    assert "No checkpoint holds that, nor the operator: " in told["clear_norm_softmax_x10"]
    assert "checkpoint" not in told["fresh_optimizer"]


def test_of_a_remedy_that_was_raced_in_part_only_what_was_done_is_told() -> None:
    run = convolutions()
    made = applied(choose(["start_over_x10"])[0], Fork(run.model, run.optimizer, inputs=((run.batches[0],), {})))
    assert [one.changes for one in made.done] == ["a new start: every weight matrix drawn anew", "10 times the learning rate"]
    assert len(made.without) == 1  # neither attention nor positions, for one reason
    made.undo()

    def apply(fork: Fork) -> Applied:
        head_to(0.01)(fork)
        return Applied(lambda: None, without=("No attention.",), done=(Change("a small head", "shrink(head)"),))

    told = str(raced(convolutions(lr=1e-6), remedies=[Remedy("small", "a small head, and attention", apply, code="both()")]))
    assert "It changes this: a small head. In Python race.apply()" in told
    assert "    shrink(head)\n" in told
    assert "both()" not in told


def test_without_a_remedy_that_helps_apply_goes_on_from_where_waiting_came_to() -> None:
    run = reader(dropout=0.0)
    race = raced(run, remedies=[eureka.Remedy("same", "nothing", nothing)])
    assert race.apply() == "No remedy is applied: your run is 12 steps further on, by waiting."
    twin = reader(dropout=0.0)
    for batch in twin.batches:
        twin.train(batch)
    assert_equal(everything(twin)["tensors"], everything(run)["tensors"])


def test_what_a_schedule_counts_goes_on_when_the_winner_is_applied() -> None:
    from eureka.racing.remedies import operator, several
    from eureka.racing.remedy import Remedy

    run = reader(lr=1e-5, loss=same, dropout=0.0)
    heat = operator("heat_treatment", total_steps=100)
    race = raced(run, remedies=[Remedy("both", "heat and rate", several(heat, _rate(1000)))], steps=40)
    assert race.winner == "both", str(race)
    race.apply()
    steps = [module.step for module in run.model.modules() if type(module).__name__ == "HeatTreatment"]
    assert steps == [race.winner_steps]
    run.train(run.batches[0])
    assert (
        next(module.step for module in run.model.modules() if type(module).__name__ == "HeatTreatment") == race.winner_steps + 1
    )
    race.undo()
    assert not [module for module in run.model.modules() if type(module).__name__ == "HeatTreatment"]


def _rate(factor: float) -> Any:
    from eureka.racing.remedies import rate_times

    return rate_times(factor)


def test_a_step_of_the_users_own_is_raced_and_its_scheduler_is_left_alone() -> None:
    run = reader(dropout=0.0)
    scheduler = torch.optim.lr_scheduler.StepLR(run.optimizer, 2, 0.5)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = run.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()
        return loss

    before, counted = everything(run), dict(scheduler.state_dict())
    race = eureka.race(run.model, run.batches, step=step, optimizer=run.optimizer, remedies=["clear_start", "rate_x3"], steps=6)
    assert_equal(before, everything(run))
    assert counted == scheduler.state_dict()
    assert len(race.losses["clear_start"]) == 6


def test_a_rate_that_the_loop_sets_itself_is_still_multiplied() -> None:
    run = reader(dropout=0.0)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> torch.Tensor:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        optimizer.zero_grad()
        loss = run.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    race = eureka.race(run.model, run.batches, step=step, optimizer=run.optimizer, remedies=["rate_x10"], steps=4)
    assert race.losses["rate_x10"][0] == race.losses["wait"][0]
    assert race.losses["rate_x10"][1] != race.losses["wait"][1]


def test_what_cannot_be_applied_is_skipped_with_a_sentence() -> None:
    race = raced(convolutions(), remedies=["norm_softmax", "clear_positions", "no_weight_decay", "rate_x3"], steps=4)
    skipped = {verdict.name: verdict.why for verdict in race.verdicts if verdict.standing == "skipped"}
    assert skipped.keys() == {"norm_softmax", "clear_positions", "no_weight_decay"}
    assert "no attention found in Sequential" in skipped["norm_softmax"]
    assert "no attention found" in skipped["clear_positions"]
    assert skipped["no_weight_decay"] == "the optimiser has no weight decay."
    assert "norm_softmax was skipped: no attention found" in str(race)


def test_if_every_remedy_is_skipped_it_says_so() -> None:
    race = raced(convolutions(), remedies=["norm_softmax"], steps=4)
    assert race.summary == "None of the remedies could be applied."
    assert race.winner == "wait"


def test_a_remedy_whose_training_fails_or_diverges_does_not_stop_the_others() -> None:
    def breaks(fork: Fork) -> None:
        fork.model.register_forward_hook(lambda *_: 1 / 0)

    run = reader()
    remedies = [eureka.Remedy("breaks", "a hook that fails", breaks), "rate_x3", eureka.Remedy("far", "all", _rate(1e30))]
    race = raced(run, remedies=remedies, steps=8)
    found = {verdict.name: verdict for verdict in race.verdicts}
    assert found["breaks"].why == "training with it failed: ZeroDivisionError: division by zero."
    assert found["far"].standing == "diverged"
    assert found["rate_x3"].steps == 8


def test_short_batches_are_used_again_and_it_says_so() -> None:
    run = reader(batches=3, dropout=0.0)
    race = raced(run, remedies=["rate_x3"], steps=6)
    assert "There are 3 batches for up to 6 steps; they are used again." in race.notes
    assert race.losses["wait"] == tuple(run.train(run.batches[step % 3]) for step in range(6))


def test_every_step_is_counted() -> None:
    run, calls = reader(), list[tuple[str, int, int]]()
    race = raced(run, steps=60, on_step=lambda *call: calls.append(call))
    assert race.steps == len(calls) == sum(map(len, race.losses.values()))
    assert [taken for _, taken, _ in calls] == list(range(1, len(calls) + 1))
    assert all(taken <= most for _, taken, most in calls)
    assert f"The race took {race.steps:,} training steps over all forks" in str(race)


def test_json_is_plain_and_print_is_a_table() -> None:
    pytest.importorskip("transformers")
    race = raced(gpt2(), remedies=["norm_softmax", "rate_x3"], steps=4)
    document = json.loads(json.dumps(race.to_json(), allow_nan=False))
    assert document["winner"] == race.winner
    assert len(document["verdicts"]) == 2
    assert len(document["losses"]["wait"]) == 4
    assert str(race).splitlines()[0].split() == ["remedy", "steps", "better", "by", "95", "%", "interval"]


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown name": ({"remedies": ["norm_sofmax"]}, r"unknown remedy 'norm_sofmax'; did you mean 'norm_softmax'\?"),
    "no remedy": ({"remedies": []}, "remedies is empty"),
    "one twice": ({"remedies": ["rate_x3", "rate_x3"]}, "two forks would be called 'rate_x3'"),
    "not a remedy": ({"remedies": [3]}, "3 is no remedy: it has no name"),
    "no steps": ({"steps": 0}, "steps=0: a race takes at least 2 steps"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_sentence(mistake: str) -> None:
    options, sentence = MISTAKES[mistake]
    with pytest.raises(RequestError, match=sentence):
        raced(reader(), **options)


def test_an_iterator_is_refused() -> None:
    run = reader()
    with pytest.raises(RequestError, match="batches is an iterator"):
        eureka.race(run.model, iter(run.batches), loss=run.loss, optimizer=run.optimizer)
