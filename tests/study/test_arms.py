"""Which runs belong together, what they are called, and the figures of a cell against counting by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from eureka.runs import Leap, Run
from eureka.study.arms import ArmKey, Cell, ConditionKey, censored_median, group_runs, split_settings, varied_keys

MakeRun = Callable[..., Run]


def test_a_cell_gathers_the_seeds_in_order(make_run: MakeRun) -> None:
    runs = [
        make_run({"training.seed": seed, "attention.name": fix}, step, accuracy)
        for seed, fix, step, accuracy in [
            (2, "norm_softmax", 70, 0.9),
            (0, "norm_softmax", 50, 0.95),
            (1, "norm_softmax", None, 0.55),
            (0, "softmax", None, 0.54),
        ]
    ]
    baseline, fixed = group_runs(runs).cells
    assert (baseline.fix, baseline.eureka_ratio, baseline.eureka_steps) == ("softmax", 0.0, [None])
    assert baseline.median_eureka_step is None
    assert (fixed.seeds, fixed.eureka_steps, fixed.final_accuracy) == ([0, 1, 2], [50, None, 70], [0.95, 0.55, 0.9])
    assert fixed.eureka_ratio == pytest.approx(2 / 3)
    assert (fixed.median_eureka_step, fixed.median_final_accuracy) == (70, 0.9)
    json.dumps(fixed.to_json(), allow_nan=False)


def test_settings_that_differ_make_cells_of_their_own_and_are_named(make_run: MakeRun) -> None:
    runs = [make_run({"model.dim": dim}, dim) for dim in (32, 16)]
    assert [cell.settings for cell in group_runs(runs).cells] == [{"model.dim": 16}, {"model.dim": 32}]


def test_settings_that_belong_to_one_fix_alone_are_not_named(make_run: MakeRun) -> None:
    runs = [make_run({"attention.name": "softmax"}), make_run({"attention.name": "temperature", "attention.temperature": 2.0})]
    grouping = group_runs(runs)
    assert [cell.settings for cell in grouping.cells] == [{}, {}]
    assert list(grouping.arms.values()) == ["softmax", "temperature"]


def test_runs_that_have_not_ended_are_grouped_but_not_counted(make_run: MakeRun) -> None:
    grouping = group_runs([make_run({"training.seed": 0}, 5), make_run({"training.seed": 1}, ended=False)])
    [cell] = grouping.cells
    assert (cell.seeds, len(cell.runs)) == ([0], 2)
    assert group_runs([make_run({}, ended=False)]).cells == []


def test_a_control_makes_an_arm_of_its_own_and_changes_nothing_at_one(make_run: MakeRun) -> None:
    softmax = {"attention.name": "softmax"}
    plain = [
        make_run(softmax),
        make_run(softmax | {"training.seed": 1, "training.qk_lr_scale": 1}),
        make_run(softmax | {"training.seed": 2, "model.qk_init_scale": 1.0}),
    ]
    assert len({ArmKey.of(run.config) for run in plain}) == 1
    fast = [make_run(softmax | {"training.qk_lr_scale": scale}) for scale in (10, 10.0)]
    assert ArmKey.of(fast[0].config) == ArmKey.of(fast[1].config) != ArmKey.of(plain[0].config)
    assert ConditionKey.of(fast[0].config) == ConditionKey.of(plain[0].config)
    [condition] = group_runs([fast[1], *plain]).conditions
    assert [arm.label for arm in condition.arms] == ["softmax", "softmax (qk_lr_scale=10)"]
    assert [arm.full_label for arm in condition.arms] == ["softmax", "softmax, training.qk_lr_scale=10.0"]


def test_how_often_a_run_was_probed_makes_no_difference(make_run: MakeRun) -> None:
    runs = [make_run({"training.probe_every": every, "training.seed": seed}) for seed, every in enumerate((10, 20))]
    assert len(group_runs(runs).cells) == 1
    assert varied_keys(runs) == ["training.seed"]


def test_arms_are_in_the_order_of_baseline_names_and_sizes(make_run: MakeRun) -> None:
    runs = [
        make_run({"attention.name": fix} | ({"attention.temperature": value} if value else {}))
        for fix, value in [("temperature", 10.0), ("norm_softmax", None), ("temperature", 2.0), ("softmax", None)]
    ]
    labels = list(group_runs(runs).arms.values())
    assert labels == ["softmax", "norm_softmax", "temperature (temperature=2)", "temperature (temperature=10)"]


def test_the_same_arm_in_two_conditions_is_one_arm(make_run: MakeRun) -> None:
    runs = [make_run({"attention.name": fix, "model.dim": dim}) for dim in (128, 64) for fix in ("norm_softmax", "softmax")]
    grouping = group_runs(runs)
    assert list(grouping.arms.values()) == ["softmax", "norm_softmax"]
    assert [condition.label for condition in grouping.conditions] == ["model.dim 64", "model.dim 128"]
    assert [condition.settings for condition in grouping.conditions] == [{"model.dim": 64}, {"model.dim": 128}]
    assert [len(condition.arms) for condition in grouping.conditions] == [2, 2]


def test_panels_are_the_rates_of_each_condition(make_run: MakeRun) -> None:
    runs = [make_run({"training.lr": lr, "model.dim": dim}) for lr in (1e-3, 1e-4) for dim in (16, 32)]
    labels = [panel.label for panel in group_runs(runs).panels]
    assert labels == ["lr 1e-4 · model.dim 16", "lr 1e-4 · model.dim 32", "lr 1e-3 · model.dim 16", "lr 1e-3 · model.dim 32"]
    assert [panel.label for panel in group_runs(runs[:2]).panels] == ["model.dim 16", "model.dim 32"]
    assert [panel.label for panel in group_runs(runs[::2]).panels] == ["lr 1e-4", "lr 1e-3"]


def test_a_list_among_the_settings_is_compared_by_its_values(make_run: MakeRun) -> None:
    runs = [make_run({"model.patch": patch}) for patch in ([4, 4], [4, 4], [8, 4])]
    grouping = group_runs(runs)
    assert [condition.label for condition in grouping.conditions] == ["model.patch [4, 4]", "model.patch [8, 4]"]


def test_a_run_is_called_by_what_tells_it_apart(make_run: MakeRun) -> None:
    runs = [make_run({"attention.name": fix, "task.decisions": n}) for fix in ("softmax", "norm_softmax") for n in (2, 3)]
    labels = [group_runs(runs).label(run) for run in runs]
    assert labels[:2] == ["softmax, decisions 2, lr 0.001, seed 0", "softmax, decisions 3, lr 0.001, seed 0"]
    assert len(set(labels)) == 4


def test_what_all_runs_share_or_only_another_fix_has_is_not_in_the_name(make_run: MakeRun) -> None:
    runs = [make_run({"attention.name": "softmax"}), make_run({"attention.name": "norm_softmax", "training.seed": 1})]
    assert [group_runs(runs).label(run) for run in runs] == ["softmax, lr 0.001, seed 0", "norm_softmax, lr 0.001, seed 1"]


def test_a_key_that_some_records_lack_is_a_difference() -> None:
    common, varied = split_settings([{"a": 1, "b": [2]}, {"a": 1, "b": [2], "c": 3}, {"a": 1, "b": [2], "c": 3}])
    assert (common, varied) == ({"a": 1, "b": [2]}, {"c": [3]})


@pytest.mark.parametrize(
    ("steps", "median"), [([None, None, 5], None), ([5, None, 7], 7), ([3, 5], 4), ([5, None], None), ([], None)]
)
def test_the_median_counts_runs_without_a_moment_as_later_than_all(steps: list[int | None], median: float | None) -> None:
    assert censored_median(steps) == median


@pytest.mark.parametrize(("k", "n"), [(0, 3), (3, 3), (2, 7), (9, 10)])
def test_the_interval_of_the_ratio_is_made_of_quantiles_of_the_beta_distribution(make_run: MakeRun, k: int, n: int) -> None:
    from scipy.special import betaincinv

    [cell] = group_runs([make_run({"training.seed": seed}, 5 if seed < k else None) for seed in range(n)]).cells
    low = betaincinv(k, n - k + 1, 0.025) if k else 0.0
    high = betaincinv(k + 1, n - k, 0.975) if k < n else 1.0
    assert cell.eureka_ratio_interval == pytest.approx((low, high))


def test_the_median_step_of_leaving_a_level_counts_a_run_that_stayed_as_later_than_all(make_run: MakeRun) -> None:
    def cell(*runs: tuple[Leap, ...] | None) -> Cell:
        made = [make_run({"training.seed": seed}) for seed in range(len(runs))]
        ended = [
            replace(run, outcome=replace(run.outcome, moments=left)) for run, left in zip(made, runs, strict=True) if run.outcome
        ]
        [found] = group_runs(ended).cells
        return found

    first, both, later = (Leap(0, 90, 100),), (Leap(0, 190, 200), Leap(1, 250, 300)), (Leap(0, 290, 300), Leap(1, 350, 400))
    assert [cell(first, both, later).median_left_step(level) for level in (0, 1)] == [200, 400]
    assert cell(first, first, both).median_left_step(1) is None
    assert cell(both, None).median_left_step(0) is None  # of one run it is not known


def test_a_seed_counts_once_and_the_run_that_ended_is_kept(make_run: MakeRun) -> None:
    probed = [make_run({"training.seed": seed, "training.probe_every": 0}, 500 + seed) for seed in (0, 1)]
    again = [make_run({"training.seed": seed, "training.probe_every": 50}, 500 + seed, ended=seed == 0) for seed in (0, 1)]
    grouping = group_runs([*again, *probed])
    [cell] = grouping.cells
    assert (cell.seeds, cell.eureka_steps) == ([0, 1], [500, 501])
    assert grouping.repeated == 2
