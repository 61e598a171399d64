"""What the checks measure, beside slow twins and planted truths."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.doctor.checks import decay, movement, rate, sight, targets
from eureka.doctor.checks.attention import _until
from eureka.doctor.checks.labels import _agreement, _determined, _in_values, _related
from eureka.doctor.checks.positions import _contradicted, _Sums
from eureka.doctor.checks.tokens_alike import difference
from eureka.doctor.exam import Exam
from eureka.doctor.frequencies import LabelCounter
from eureka.doctor.sight import crosstalk, dependence, leak, unseen
from eureka.doctor.view import look
from eureka.forks.case import make_case


def test_guessing_is_the_entropy_of_the_labels_that_count() -> None:
    logits, labels = torch.randn(4000, 3), torch.tensor([0] * 2000 + [1] * 1000 + [2] * 500 + [-100] * 500)
    with LabelCounter() as counter:
        F.cross_entropy(logits, labels)
        F.cross_entropy(input=logits, target=labels)
    shares = np.array([4000, 2000, 1000]) / 7000
    assert counter.guessing == pytest.approx(-(shares * np.log(shares)).sum() + 2 / 14000)


def test_guessing_is_at_most_ln_of_the_classes_and_unknown_without_labels() -> None:
    with LabelCounter() as counter:
        F.cross_entropy(torch.randn(4, 4), torch.arange(4))
    assert counter.guessing == math.log(4)
    assert LabelCounter().guessing is None


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
def test_the_loudness_of_positions_is_what_was_planted(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    places, sums = torch.randn(16, 32, generator=generator), _Sums()
    for _ in range(20):
        content = torch.randn(64, 16, 32, generator=generator)
        token = torch.ones(64, 1, 32)  # the same in every sample: left out
        sums.add(nn.Identity(), (torch.cat([token, content + share * places], dim=1),), {})
    assert sums.ratio() == pytest.approx(share, abs=0.01)


def test_few_samples_say_nothing_about_positions() -> None:
    sums = _Sums()
    sums.add(nn.Identity(), (torch.randn(8, 4, 4),), {})
    assert sums.ratio() is None


def test_alike_tokens_differ_by_nothing_and_others_by_their_spread() -> None:
    assert difference(torch.randn(3, 1, 8).expand(3, 5, 8)) == pytest.approx(0.0, abs=1e-6)
    x = torch.randn(3, 5, 8)
    by_hand = (x - x.mean(1, keepdim=True)).square().mean().sqrt() / x.square().mean().sqrt()
    assert difference(x) == pytest.approx(float(by_hand))


def test_the_wait_goes_on_at_the_pace_that_was_measured() -> None:
    assert _until(0.01, 0.02) == pytest.approx(40 * math.log(5) / math.log(2))
    assert _until(0.05, 0.2) == 0.0
    assert _until(0.02, 0.02) == math.inf


def test_a_label_is_related_to_the_token_at_its_lag_only() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 8, (200, 20))
    labels = np.full_like(tokens, -1)
    labels[:, 3:] = tokens[:, :-3]
    found = _related(tokens, labels, after=8)
    assert int(found[:17].argmax()) == 8 + 3  # lags run from -8 to 8
    assert found[11] == pytest.approx(3.0, abs=0.02)
    assert found[9] < 0.1


@pytest.mark.parametrize("whole", [False, True])
def test_a_sum_that_no_single_token_tells_is_found_by_equal_rows(whole: bool) -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 11, (400, 24))
    sums = tokens.cumsum(axis=1) if whole else np.stack([np.roll(tokens, back, axis=1) for back in range(4)]).sum(axis=0)
    assert _determined(tokens, sums % 11)
    assert not _determined(tokens, rng.integers(0, 11, tokens.shape))


def test_agreement_counts_pairs_as_two_loops_do() -> None:
    rng = np.random.default_rng(0)
    known, labels = rng.integers(0, 4, (3, 9)), rng.integers(-1, 3, (3, 9))
    places = [(k, y) for k, y in zip(known.ravel(), labels.ravel(), strict=True) if y >= 0]
    pairs = [(a, b) for i, a in enumerate(places) for b in places[:i] if a[0] == b[0]]
    share, count = _agreement(known, labels)
    assert share == pytest.approx(np.mean([a[1] == b[1] for a, b in pairs]))
    assert count == len(pairs)


class Causal(nn.Module):
    """One layer of attention over tokens; `ahead` places can be seen too early."""

    def __init__(self, ahead: int = 0) -> None:
        super().__init__()
        self.embed, self.ahead = nn.Embedding(9, 8), ahead
        self.places, self.head = nn.Parameter(torch.randn(12, 8)), nn.Linear(8, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.places
        seen = torch.ones(12, 12, dtype=torch.bool).tril(self.ahead)
        return self.head(x + F.scaled_dot_product_attention(x, x, x, attn_mask=seen))  # type: ignore[no-any-return]


def exam_of(model: nn.Module, batch: Any, loss: Any) -> Exam:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Exam(make_case(model, [batch] * 2, loss=loss, optimizer=optimizer, step=None, most=2))


def next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.parametrize("ahead", [0, 1, 11])
def test_a_leak_is_seen_where_there_is_one(ahead: int) -> None:
    torch.manual_seed(0)
    exam = exam_of(Causal(ahead), torch.randint(0, 9, (16, 12)), next_token)
    found = exam.once(dependence)
    assert found is not None
    places, changes = found
    for j, row in zip(places, changes, strict=True):  # slow twin: the mask itself
        assert [bool(value > 1e-6) for value in row] == [j <= t + ahead for t in range(12)]
    assert (leak(found) is None) == (ahead == 0)


class Pictures(nn.Module):
    def __init__(self, kept: int = 16, batch_first: bool = True) -> None:
        super().__init__()
        self.kept = kept
        self.attention, self.head = nn.MultiheadAttention(4, 1, batch_first=batch_first), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)[:, : self.kept]
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.head(mixed.mean(dim=1))  # type: ignore[no-any-return]


def classify(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def test_what_is_cut_off_the_input_is_unseen() -> None:
    torch.manual_seed(0)
    batch = (torch.randn(8, 4, 4, 4), torch.arange(8) % 3)
    assert unseen(exam_of(Pictures(), batch, classify)) == 0.0
    assert unseen(exam_of(Pictures(kept=4), batch, classify)) == 0.75


def test_samples_hear_each_other_only_if_attention_runs_over_the_batch() -> None:
    torch.manual_seed(0)
    batch = (torch.randn(8, 4, 4, 4), torch.arange(8) % 3)
    assert crosstalk(exam_of(Pictures(), batch, classify)) == 0.0
    assert crosstalk(exam_of(Pictures(batch_first=False), batch, classify)) > 0.01


def test_a_look_sees_the_loss_its_inputs_and_the_weights_of_nobody() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.head = [nn.Linear(4, 4)], nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.hidden[0](x).relu())  # type: ignore[no-any-return]

    model, x, y = Forgetful(), torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    view, products = look(model, lambda: F.cross_entropy(model(x), y))
    assert products == 2
    assert [call.name for call in view.losses] == ["cross_entropy"]
    assert view.head is not None
    assert view.head.shape == (5, 3)
    known = {id(one) for one in model.parameters()}
    assert [tuple(one.shape) for one in view.leaves if id(one) not in known] == [(4, 4), (4,)]
    assert len(view.silent) == 1


def test_a_column_minus_a_row_is_seen_and_equal_shapes_are_not() -> None:
    model, x, y = nn.Linear(4, 1), torch.randn(5, 4), torch.randn(5)
    crossed, _ = look(model, lambda: (model(x) - y).square().mean())
    straight, _ = look(model, lambda: (model(x)[:, 0] - y).square().mean())
    assert crossed.stretched == (torch.Size([5, 1]), torch.Size([5]))
    assert straight.stretched is None


def test_a_prefix_may_be_seen_as_a_whole_if_nothing_is_asked_there() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, 9, (16, 12))

    class Prefix(Causal):
        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embed(tokens) + self.places
            seen = torch.ones(12, 12, dtype=torch.bool).tril()
            seen[:, :6] = True
            result: Tensor = self.head(F.scaled_dot_product_attention(x, x, x, attn_mask=seen))
            return result

    def after(first: int, model: nn.Module, batch: Tensor) -> Tensor:
        return F.cross_entropy(model(batch)[:, first:-1].flatten(0, 1), batch[:, first + 1 :].flatten())

    found = {first: list(sight.check(exam_of(Prefix(), tokens, partial(after, first)))) for first in (0, 6)}
    assert [one.cause for one in found[0]] == ["future_leak"]
    assert found[6] == []


def test_a_loss_that_compares_all_pairs_of_samples_is_no_attention_over_the_batch() -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 8), nn.Linear(4, 8)

        def forward(self, x: Tensor) -> Tensor:
            table: Tensor = self.one(x) @ self.other(x).T
            return table

    exam = exam_of(Towers(), torch.randn(6, 4), lambda model, x: F.cross_entropy(model(x), torch.arange(6)))
    assert crosstalk(exam) == 0.0


def test_a_model_that_draws_numbers_of_its_own_is_not_compared() -> None:
    model, seeds = Causal(11), iter(range(1_000))  # which cannot be put back
    model.embed.register_forward_hook(
        lambda _, __, output: output + torch.randn(output.shape, generator=torch.Generator().manual_seed(next(seeds)))
    )
    exam = exam_of(model, torch.randint(0, 9, (16, 12)), next_token)
    assert exam.once(dependence) is None
    assert crosstalk(exam) == 0.0


def test_an_average_that_a_step_keeps_is_no_weight_of_the_forward_pass() -> None:
    model = nn.Linear(3, 2)
    average = nn.Linear(3, 2)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            average.weight.lerp_(dict(model.named_parameters())["weight"], 0.1)
        return loss

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exam = Exam(make_case(model, [torch.randn(4, 3)], loss=None, step=step, optimizer=optimizer, most=1))
    assert list(movement._nobodys(exam)) == []
    assert len(exam.view.leaves) == 2


@pytest.mark.filterwarnings("ignore:Detected call of")  # it is a copy of the optimiser that steps
@pytest.mark.parametrize(("length", "reached"), [(500, True), (10_000_000, False)])
def test_a_warm_up_is_told_from_one_that_never_ends(length: int, reached: bool) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / length))

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
        loss: Tensor = model(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()
        return loss

    exam = Exam(make_case(model, [torch.randn(4, 3)] * 4, loss=None, step=step, optimizer=optimizer, most=4))
    assert rate._will_reach(exam, 0.5 * length) == reached
    assert scheduler.last_epoch == 0


@pytest.mark.parametrize(("now", "factor", "reached"), [(0.99e-7, 1000.0, False), (1e-9, 50.0, True), (1e-9, 1000.0, False)])
def test_a_warm_up_reaches_no_more_than_its_first_rate(now: float, factor: float, reached: bool) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=now)
    optimizer.param_groups[0]["initial_lr"] = 1e-7

    def squares(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().mean()  # type: ignore[no-any-return]

    case = make_case(model, [torch.randn(4, 3)] * 4, loss=squares, step=None, optimizer=optimizer, most=4)
    assert rate._will_reach(Exam(case), factor) == reached


@pytest.mark.parametrize(("lr", "wd", "blamed"), [(10.0, 0.01, False), (1.0, 3.0, True)])
def test_a_usual_weight_decay_is_not_blamed_for_a_high_rate(lr: float, wd: float, blamed: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6)), torch.randn(60, 4)
    labels = torch.arange(60) % 6
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=wd)
    exam = Exam(make_case(model, [(x, labels)] * 4, loss=classify, step=None, optimizer=optimizer, most=4))
    assert [one.cause for one in decay.check(exam)] == ["weight_decay_too_large"] * blamed


def test_classes_that_a_mask_of_the_users_drops_are_found() -> None:
    torch.manual_seed(0)
    model, x, labels = nn.Linear(4, 6), torch.randn(60, 4), torch.arange(60) % 6

    def masked(model: nn.Module, batch: tuple[Tensor, Tensor], least: int) -> Tensor:
        losses = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return losses[batch[1] >= least].sum()

    found = [list(targets.check(exam_of(model, (x, labels), partial(masked, least=least)))) for least in (0, 2)]
    assert found[0] == []
    assert "2 classes (0, 1) get no gradient: 33.3\N{NO-BREAK SPACE}% of the labels" in found[1][0].evidence[0]


def test_labels_that_are_all_ignored_are_found_though_the_loss_is_no_number() -> None:
    exam = exam_of(nn.Linear(4, 6), (torch.randn(8, 4), torch.full((8,), -100)), classify)
    assert [one.cause for one in targets.check(exam)] == ["labels_ignored"]
    assert list(movement.check(exam)) == []


@pytest.mark.parametrize("related", [False, True])
def test_a_target_of_numbers_is_related_to_the_inputs_or_not(related: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    y = x[:, 0] if related else torch.randn(400)
    exam = exam_of(nn.Linear(6, 1), (x, y), lambda model, batch: F.mse_loss(model(batch[0])[:, 0], batch[1]))
    assert (_in_values([exam.view], 0) is None) == related


def test_equal_tokens_with_different_labels_need_their_places() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, 4, (16, 12))
    for labels, share in ((tokens, 0.0), (torch.arange(12).expand(16, 12) % 9, 0.8)):
        loss = lambda model, batch: F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())  # noqa: E731
        assert _contradicted(exam_of(Causal(), (tokens, labels), loss)) == pytest.approx(share, abs=0.25)
