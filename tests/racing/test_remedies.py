"""Each remedy changes what it says, and can be taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.forks.state import KeptState
from eureka.racing.accumulation import accumulate
from eureka.racing.remedies import CATALOGUE, DEFAULT, choose, drawn_anew, rate_times
from eureka.racing.remedy import Remedy, applied
from tests.racing.runs import Run, assert_equal, convolutions, everything, reader

NAMED = {remedy.name: remedy for remedy in CATALOGUE}


def fork_of(run: Run) -> Fork:
    return Fork(run.model, run.optimizer, run.batches[0])


def losses(run: Run, count: int) -> list[float]:
    return [run.train(batch) for batch in run.batches[:count]]


@pytest.mark.parametrize("name", NAMED)
def test_a_remedy_changes_training_and_can_be_taken_back(name: str) -> None:
    run, plain = reader(dropout=0.0), losses(reader(dropout=0.0), 4)
    before, kept = everything(run), KeptState(fork_of(run))
    made = applied(NAMED[name], fork_of(run))
    assert losses(run, 4) != plain
    made.undo()
    kept.put(fork_of(run))
    assert_equal(before, everything(run))
    assert losses(run, 4) == plain


def test_a_rate_times_ten_is_that_rate() -> None:
    run, other = reader(lr=1e-3, dropout=0.0), reader(lr=1e-3, dropout=0.0)
    rate_times(10)(fork_of(run))
    for group in other.optimizer.param_groups:
        group["lr"] = 1e-3 * 10
    assert losses(run, 6) == losses(other, 6)
    assert [group["lr"] for group in run.optimizer.param_groups] == [1e-3]


def test_rates_multiply_and_the_loop_sees_its_own() -> None:
    run, other = reader(lr=1e-3, dropout=0.0), reader(lr=1e-3, dropout=0.0)
    rate_times(5)(fork_of(run))
    rate_times(2)(fork_of(run))
    rate_times(10)(fork_of(other))
    assert losses(run, 6) == losses(other, 6)
    assert run.optimizer.state_dict()["param_groups"] == other.optimizer.state_dict()["param_groups"]
    assert [group["lr"] for group in run.optimizer.param_groups] == [1e-3]


def test_accumulation_is_a_larger_batch() -> None:
    run, other = reader(dropout=0.0), reader(dropout=0.0)
    for each in (run, other):  # Adam would enlarge the rounding of gradients that are nearly 0
        each.optimizer = torch.optim.SGD(each.model.parameters(), lr=0.1)
    accumulate(fork_of(run), 4)
    losses(run, 4)
    other.train(torch.cat(other.batches[:4]))
    for one, twin in zip(run.model.parameters(), other.model.parameters(), strict=True):
        assert torch.allclose(one, twin, atol=1e-6)
    again = [parameter.clone() for parameter in run.model.parameters()]
    losses(run, 3)
    assert all(torch.equal(one, two) for one, two in zip(again, run.model.parameters(), strict=True))


def test_gradient_noise_is_as_large_as_the_gradient() -> None:
    run, other = reader(dropout=0.0), reader(dropout=0.0)
    applied(NAMED["gradient_noise"], fork_of(run))
    run.train(run.batches[0])
    other.train(other.batches[0])
    noisy, plain = run.model.get_parameter("head.weight").grad, other.model.get_parameter("head.weight").grad
    assert noisy is not None
    assert plain is not None
    assert float((noisy - plain).square().mean().sqrt() / plain.square().mean().sqrt()) == pytest.approx(1.0, abs=0.15)


def test_clear_positions_are_as_loud_as_the_content() -> None:
    from eureka.starts.clear_start import clear_start

    run = reader()
    applied(NAMED["clear_positions"], fork_of(run))
    again = clear_start(run.model, run.batches[0], logits=None, trained=True)
    assert again.positions[0].before == pytest.approx(1.0, abs=0.01)
    with torch.no_grad():
        run.model.get_parameter("positions").mul_(1.05)
    with pytest.raises(RequestError, match=r"positions are 1\.05 times the content already"):
        applied(NAMED["clear_positions"], fork_of(run))


def test_a_new_start_draws_every_matrix_anew_at_its_size_and_keeps_what_is_zero_or_frozen() -> None:
    run = reader()
    weights = dict(run.model.named_parameters())
    with torch.no_grad():
        weights["embed.weight"][3] = 0.0
        weights["head.bias"].fill_(0.7)
    weights["head.weight"].requires_grad_(False)
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    drawn_anew(fork_of(run))
    for name, weight in weights.items():
        if weight.ndim == 1 or not weight.requires_grad:
            assert torch.equal(weight, before[name]), name
        else:
            drawn = weight.detach()
            overlap = nn.functional.cosine_similarity(drawn.flatten(), before[name].flatten(), dim=0)
            assert abs(float(overlap)) < 0.35, name
            assert float(drawn.square().mean().sqrt()) == pytest.approx(float(before[name].square().mean().sqrt()), rel=0.25)
    assert not weights["embed.weight"][3].any()
    assert not run.optimizer.state


def test_a_new_start_of_bfloat16_weights_stays_bfloat16() -> None:
    run = reader()
    run.model.to(torch.bfloat16)
    drawn_anew(fork_of(run))
    assert {parameter.dtype for parameter in run.model.parameters()} == {torch.bfloat16}
    assert all(bool(parameter.isfinite().all()) for parameter in run.model.parameters())


def test_a_model_without_attention_starts_over_without_norm_softmax() -> None:
    run = convolutions()
    made = applied(NAMED["start_over"], Fork(run.model, run.optimizer, run.batches[0]))
    assert made.without


def test_seven_are_raced_unless_others_are_asked_for() -> None:
    assert [remedy.name for remedy in choose(None)] == [remedy.name for remedy in CATALOGUE][:DEFAULT]
    assert len(choose("all")) == len(CATALOGUE) == len(NAMED)
    assert choose("rate_x3") == [NAMED["rate_x3"]]
    own = Remedy("own", "nothing", lambda fork: None)
    assert choose([own, "rate_x3"]) == [own, NAMED["rate_x3"]]


def test_an_object_with_the_same_names_is_a_remedy() -> None:
    class Own:
        name, changes = "own", "nothing"

        def apply(self, fork: Fork) -> None:
            """Changes nothing."""

    wanted: Sequence[Any] = [Own()]
    assert [remedy.name for remedy in choose(wanted)] == ["own"]


def test_what_apply_returns_must_be_a_function() -> None:
    with pytest.raises(RequestError, match="apply of own returns a int; it must return a function, or None"):
        applied(Remedy("own", "nothing", lambda fork: 3), fork_of(reader()))  # type: ignore[arg-type, return-value]
