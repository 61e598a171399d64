"""The fault suite: what it hands over is a run, its verdicts are right, and faults are faults."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from benchmarks.faults.judge import Answer, Judged, tally, verdict
from benchmarks.faults.planted.every import PLANS
from benchmarks.faults.run import chosen, named
from benchmarks.faults.setup import Plan
from benchmarks.faults.training import batches_of, hand_over, train
from benchmarks.faults.verify import Verified, Verifier
from eureka.curves.readers.curve import read_curve
from eureka.errors import RequestError

CAUSES = [
    "lr_too_small",
    "lr_too_large",
    "not_in_optimizer",
    "no_gradient",
    "labels_unrelated",
    "labels_misaligned",
    "labels_ignored",
    "loss_misuse",
    "attention_axis",
    "future_leak",
    "mask_blocks_context",
    "padding_used",
    "data_repeated",
    "inputs_constant",
    "inputs_unscaled",
    "dead_units",
    "precision",
    "clip_too_tight",
    "weight_decay_too_large",
    "dropout_too_large",
    "positions_missing",
    "rank_collapse",
    "attention_saturated",
    "attention_flat",
    "norm_mode",
]


def plan(name: str) -> Plan:
    return next(one for one in PLANS if one.name == name)


def test_every_cause_is_planted_in_at_least_two_kinds_of_model() -> None:
    kinds = defaultdict(set)
    for one in PLANS:
        kinds[one.cause].add(one.kind)
    assert set(kinds) == {*CAUSES, "healthy"}
    assert {cause: found for cause, found in kinds.items() if len(found) < 2} == {}


def test_names_are_distinct_and_healthy_runs_are_many() -> None:
    assert len({one.name for one in PLANS}) == len(PLANS)
    assert sum(one.cause == "healthy" for one in PLANS) >= 20


@pytest.mark.parametrize(
    "name",
    [
        "no_gradient: zeroed before the step (hand cloze)",
        "labels_misaligned: shifted twice (hf gpt2)",
        "norm_mode: batches of one (vit shade)",
        "not_in_optimizer: only the head (gpt adamw)",
        "healthy: every second batch (hand causal)",
    ],
)
def test_a_case_is_a_run_with_a_finite_loss_that_can_be_trained_on(name: str, tmp_path: Path) -> None:
    one = plan(name)
    setup = one.setup(0)
    assert all(map(math.isfinite, train(setup, 3)))
    assert sum(value.numel() for value in setup.model.parameters()) <= 100_000
    case = hand_over(Plan(one.cause, one.how, one.base, one.plant, one.build, warm=2, log="csv"), 0, tmp_path)
    assert (case.loss is None) != (case.step is None)
    assert isinstance(case.log, str)
    assert len(read_curve(case.log).values) == 2


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    one = plan("healthy: learning (gpt adamw)")
    first, again, other = (train(one.setup(seed), 3) for seed in (0, 0, 1))
    assert first == again != other


def test_building_a_case_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(plan("healthy: dropout 0.1 (gpt adamw)").setup(0), 2)
    assert torch.equal(before, torch.get_rng_state())


def test_a_fault_and_its_control_begin_with_the_same_weights_and_batches() -> None:
    one = plan("lr_too_small: ÷ 1000 (hand causal)")
    faulty, control = one.setup(0), one.setup(0, healthy=True)
    for mine, theirs in zip(faulty.model.parameters(), control.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    mine, theirs = (next(batches_of(setup)) for setup in (faulty, control))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "lr_too_small: ÷ 1000 (vit mark sgd)",
        "labels_ignored: class 0 of 2 (hand padded sgd)",
        "mask_blocks_context: window of one (gpt sgd)",
        "healthy: no positions, none needed (gpt last token)",
    ],
)
def test_faults_stop_learning_and_without_them_the_run_learns(name: str) -> None:
    assert Verifier(0).verify(plan(name)).holds


def test_a_fault_that_does_no_harm_is_not_verified() -> None:
    assert not Verified("", "lr_too_small", "gpt", 10, learned=0.8, control=0.9).holds
    assert not Verified("", "lr_too_small", "gpt", 10, learned=0.0, control=0.1).holds
    assert not Verified("", "healthy", "gpt", 10, learned=0.3, control=None).holds


def answer(*found: str) -> Answer:
    return Answer(tuple(frozenset(causes.split()) for causes in found), seconds=3.0, step=0.1)


@pytest.mark.parametrize(
    ("cause", "found", "expected"),
    [
        ("precision", ["precision"], "first"),
        ("precision", ["lr_too_small precision"], "first"),
        ("precision", ["future_leak", "dead_units", "precision"], "first three"),
        ("precision", ["future_leak", "dead_units", "norm_mode", "precision"], "wrong"),
        ("precision", [""], "wrong"),
        ("precision", [], "silent"),
        ("healthy", [], "quiet"),
        ("healthy", ["precision"], "false alarm"),
        ("healthy", [""], "false alarm"),
    ],
)
def test_an_answer_is_judged_by_the_place_of_the_right_cause(cause: str, found: list[str], expected: str) -> None:
    assert verdict(cause, (), answer(*found)) == expected


def test_another_cause_that_is_equally_right_counts() -> None:
    assert verdict("precision", ("lr_too_small",), answer("lr_too_small")) == "first"
    assert verdict("healthy", ("attention_flat",), answer("attention_flat")) == "quiet"


def test_a_tool_that_fails_is_counted_as_one_that_does_not_find() -> None:
    assert verdict("precision", (), Answer((), error="ValueError: no")) == "failed"
    rows = [
        Judged("tool", "a", "precision", "gpt", "first", ("precision",), 30.0),
        Judged("tool", "b", "precision", "gpt", "failed", (), None, "ValueError: no"),
        Judged("tool", "c", "healthy", "gpt", "false alarm", ("precision",), 50.0),
    ]
    row = tally("tool", rows)
    assert (row.first, row.faults, row.false_alarms, row.healthy, row.failed, row.largest_cost) == (0.5, 2, 1, 1, 1, 50.0)


def test_the_cost_is_counted_in_training_steps() -> None:
    assert answer("precision").cost == pytest.approx(30.0)


def test_unknown_causes_and_tools_are_told_in_a_sentence() -> None:
    with pytest.raises(RequestError, match="no case has that cause or name"):
        chosen("lr_to_small")
    with pytest.raises(RequestError, match="there is no such tool"):
        named(["eureka", "torchdoctor"])
    assert {one.cause for one in chosen("precision")} == {"precision"}
