"""The table against counting by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats

from eureka.config import RunConfig
from eureka.runs import RunFolder
from eureka.study import summarise
from eureka.study.statistics import censored_median, clopper_pearson


def plant(root: Path, config: RunConfig, step: int | None, accuracy: float) -> RunFolder:
    folder = RunFolder(root / config.digest())
    folder.create()
    folder.write("config.json", config.to_json())
    folder.write("result.json", {"status": "finished", "steps": 100, "eureka_step": step, "final_accuracy": accuracy})
    return folder


def test_rows_gather_the_seeds_of_a_setting_in_order(tiny: RunConfig, tmp_path: Path) -> None:
    folders = [
        plant(tmp_path, tiny.but({"training.seed": seed, "attention.name": fix}), step, accuracy)
        for seed, fix, step, accuracy in [
            (2, "norm_softmax", 70, 0.9),
            (0, "norm_softmax", 50, 0.95),
            (1, "norm_softmax", None, 0.55),
            (0, "softmax", None, 0.54),
        ]
    ]
    baseline, fixed = summarise(folders)
    assert (baseline.fix, baseline.eureka_ratio, baseline.eureka_steps, baseline.median_eureka_step) == (
        "softmax",
        0.0,
        [None],
        None,
    )
    assert (fixed.seeds, fixed.eureka_steps, fixed.final_accuracy) == ([0, 1, 2], [50, None, 70], [0.95, 0.55, 0.9])
    assert fixed.eureka_ratio == pytest.approx(2 / 3)
    assert fixed.median_eureka_step == 70
    json.dumps(fixed.as_json(), allow_nan=False)


def test_settings_that_differ_make_rows_of_their_own_and_are_named(tiny: RunConfig, tmp_path: Path) -> None:
    folders = [plant(tmp_path, tiny.but({"model.dim": dim}), dim, 0.9) for dim in (16, 32)]
    assert [row.settings for row in summarise(folders)] == [{"model.dim": 16}, {"model.dim": 32}]


def test_settings_that_belong_to_one_fix_alone_are_not_named(tiny: RunConfig, tmp_path: Path) -> None:
    folders = [plant(tmp_path, tiny.but({"attention.name": fix}), 5, 0.9) for fix in ("softmax", "temperature")]
    assert [row.settings for row in summarise(folders)] == [{}, {}]


def test_runs_without_a_result_are_left_out(tiny: RunConfig, tmp_path: Path) -> None:
    folder = plant(tmp_path, tiny, 5, 0.9)
    (folder.path / "result.json").unlink()
    assert summarise([folder]) == []


@pytest.mark.parametrize(
    ("steps", "median"), [([None, None, 5], None), ([5, None, 7], 7), ([3, 5], 4), ([5, None], None), ([], None)]
)
def test_the_median_counts_runs_without_a_moment_as_later_than_all(steps: list[int | None], median: float | None) -> None:
    assert censored_median(steps) == median


@pytest.mark.parametrize(("k", "n"), [(0, 3), (3, 3), (2, 7), (9, 10)])
def test_the_interval_is_that_of_scipy(k: int, n: int) -> None:
    expected = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
    assert clopper_pearson(k, n) == pytest.approx((expected.low, expected.high))
