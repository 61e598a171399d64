"""Verdicts, waiting curves and heat map say what the run folders say, by another way of computing it."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from scipy.stats import binomtest

from eureka.report.comparisons import WaitingCurve, comparisons_csv, verdicts, waiting_figure
from eureka.report.groups import Groups
from eureka.report.results import heat_map
from eureka.report.write import write_report
from eureka.runs import find_runs
from eureka.study.comparison import compare_arms
from eureka.study.summary import summarise

BUDGET = 1200
RATES = (1e-4, 3e-4, 1e-3)
GroupsOf = Callable[[Path], Groups]
LEAPS: dict[str, dict[float, list[int | None]]] = {
    "softmax": {1e-3: [700, 900, None, 800, 1000, 950, 850, 1050]},
    "norm_softmax": {3e-4: [500, 450, 300, 350, 400, 550, 600, 250], 1e-3: [None, 700] * 4},
}


@pytest.fixture
def grid(tmp_path: Path, plant: Any) -> Path:
    """Two fixes, three rates, eight seeds."""
    folder = tmp_path / "grid"
    for fix, lr, seed in itertools.product(LEAPS, RATES, range(8)):
        leap = LEAPS[fix].get(lr, [None] * 8)[seed]
        plant(folder, {"attention.name": fix, "training.lr": lr, "training.seed": seed}, leap=leap)
    return folder


def outcomes(folder: Path, fix: str, lr: float) -> list[int | None]:
    """The Eureka-steps by seed, straight from the files."""
    found = {}
    for run in find_runs(folder):
        config, result = (json.loads((run.path / name).read_text()) for name in ("config.json", "result.json"))
        if (config["attention"]["name"], config["training"]["lr"]) == (fix, lr):
            found[config["training"]["seed"]] = result["eureka_step"]
    return [found[seed] for seed in sorted(found)]


def mean_wait(steps: list[int | None]) -> float:
    """With one budget for all, nothing but the mean in which whoever did not leave waited until the end."""
    return sum(BUDGET if step is None else step for step in steps) / len(steps)


def all_p(a: list[int | None], b: list[int | None]) -> float:
    """The log-rank test by dealing the runs in every way, as it is written in textbooks: observed less expected."""
    times = [(BUDGET + 1 if step is None else step, step is not None) for step in a + b]
    moments = sorted({t for t, seen in times if seen})

    def parted(chosen: tuple[int, ...]) -> float:
        total = 0.0
        for moment in moments:
            risk = [i for i, (t, _) in enumerate(times) if t >= moment]
            events = [i for i, (t, seen) in enumerate(times) if t == moment and seen]
            mine = set(chosen)
            total += len(mine & set(events)) - len(events) * len(mine & set(risk)) / len(risk)
        return abs(total)

    found = parted(tuple(range(len(a))))
    dealings = list(itertools.combinations(range(len(times)), len(a)))
    return sum(parted(dealing) >= found - 1e-9 for dealing in dealings) / len(dealings)


def test_the_verdict_on_the_page_is_that_of_the_files(grid: Path, tmp_path: Path, parse: Any) -> None:
    base, fix = outcomes(grid, "softmax", 1e-3), outcomes(grid, "norm_softmax", 3e-4)
    text = parse(write_report([grid], tmp_path / "report.html").read_text(encoding="utf-8")).text
    told = re.search(
        r"Against softmax lr 1e-3, each at its own best learning rate: norm_softmax lr 3e-4 (\d\.\d)× sooner "
        r"\[\d\.\d, \d\.\d\], p = (\S+), n = 8; works at 2 of 3 learning rates against 1 of 3",
        text,
    )
    assert told is not None
    assert float(told[1]) == round(mean_wait(base) / mean_wait(fix), 1)
    assert told[2] == f"{all_p(base, fix):.2g}"


def test_the_verdict_stands_between_headline_and_pictures(study: Path, tmp_path: Path, parse: Any) -> None:
    text = parse(write_report([study], tmp_path / "report.html").read_text(encoding="utf-8")).text
    told = "Against softmax: norm_softmax not enough runs to tell (3 against 3); 2.1× sooner so far"
    assert text.index("left the plateau in 3 of 3") < text.index(told) < text.index("Each curve is one run")
    assert "“2× sooner” is the ratio" in text


def test_without_a_baseline_there_is_no_verdict_and_nothing_about_one(
    tmp_path: Path, plant: Any, parse: Any, groups_of: GroupsOf
) -> None:
    for seed, fix in itertools.product(range(2), ["temperature", "norm_softmax"]):
        plant(tmp_path / "study", {"attention.name": fix, "training.seed": seed}, leap=400)
    assert compare_arms(groups_of(tmp_path / "study").grouping) == []
    text = parse(write_report([tmp_path / "study"], tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "Against" not in text
    assert "Comparisons as CSV" not in text
    assert "“2× sooner” is" not in text


def test_fixes_are_compared_within_a_setting_and_corrected_over_all(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for dim, fix, seed in itertools.product((64, 128), LEAPS, range(5)):
        leap = (800 if fix == "softmax" else 300) + dim + 10 * seed
        plant(tmp_path, {"model.dim": dim, "attention.name": fix, "training.seed": seed}, leap=leap)
    groups = groups_of(tmp_path)
    comparisons = compare_arms(groups.grouping)
    assert [one.p_value for one in comparisons] == [pytest.approx(2 / 252)] * 2
    assert [one.p_corrected for one in comparisons] == [pytest.approx(4 / 252)] * 2
    found = verdicts(groups, comparisons)
    assert [(group.condition, group.baseline.name, group.lr) for group in found] == [
        ("model.dim 64", "softmax", ""),
        ("model.dim 128", "softmax", ""),
    ]
    for group in found:
        [verdict] = group.verdicts
        assert (verdict.fix.index, verdict.lr) == (1, "")
        assert "p = 0.016, n = 5" in verdict.text


def test_the_csv_of_comparisons_holds_every_figure(grid: Path, tmp_path: Path, parse: Any, groups_of: GroupsOf) -> None:
    groups = groups_of(grid)
    found = compare_arms(groups.grouping)
    page = parse(write_report([grid], tmp_path / "report.html").read_text(encoding="utf-8"))
    [link] = [a for _, a in page.elements if a.get("download") == "eureka-comparisons.csv"]
    assert unquote(link["href"].split(",", 1)[1]) == comparisons_csv(groups, found)
    [line] = csv.DictReader(io.StringIO(comparisons_csv(groups, found)))
    one = found[0]
    assert (line["fix"], line["baseline"], float(line["best_lr"])) == ("norm_softmax", "softmax", 3e-4)
    assert float(line["speed_up"]) == pytest.approx(
        mean_wait(outcomes(grid, "softmax", 1e-3)) / mean_wait(outcomes(grid, "norm_softmax", 3e-4))
    )
    assert (float(line["speed_up_low"]), float(line["speed_up_high"])) == (one.speed_up.low, one.speed_up.high)
    assert (float(line["p_corrected"]), line["verdict"]) == (one.p_corrected, one.verdict)


def kaplan_meier(steps: list[int | None], at: float) -> tuple[float, float, float]:
    """S(t) as a product and its log-log interval after Greenwood, run by run."""
    share, variance = 1.0, 0.0
    for moment in sorted({step for step in steps if step is not None and step <= at}):
        risk = sum(step is None or step >= moment for step in steps)
        events = steps.count(moment)
        share *= 1 - events / risk
        variance += events / (risk * (risk - events)) if risk > events else math.inf
    if share == 1:
        return 1.0, 1.0, 1.0
    if share == 0:  # n of n have left: Clopper and Pearson's end for 0 of n
        return 0.0, 0.0, float(binomtest(0, len(steps)).proportion_ci(method="exact").high)
    half = 1.959964 * math.sqrt(variance) / abs(math.log(share))
    low, high = (math.exp(-math.exp(math.log(-math.log(share)) + sign * half)) for sign in (1, -1))
    return share, low, high


def waiting_curves(groups: Groups) -> list[WaitingCurve]:
    figure = waiting_figure(groups)
    assert figure is not None
    [picture] = figure.pictures
    return picture.curves


def test_waiting_curves_are_kaplan_and_meiers_of_the_seeds_that_did_not_choose(grid: Path, groups_of: GroupsOf) -> None:
    curves = waiting_curves(groups_of(grid))
    assert [(curve.fix, curve.lr, curve.runs) for curve in curves] == [(0, "1e-3", 8), (1, "3e-4", 8)]
    for curve, (fix, lr) in zip(curves, [("softmax", 1e-3), ("norm_softmax", 3e-4)], strict=True):
        steps = outcomes(grid, fix, lr)
        assert curve.left == sum(step is not None for step in steps)
        assert (curve.steps[0], curve.share[0], curve.steps[-1]) == (0, 1, BUDGET)
        for at, *values in zip(curve.steps, curve.share, curve.low, curve.high, strict=True):
            assert values == pytest.approx(kaplan_meier(steps, at), abs=1e-6)


def test_one_run_of_each_fix_makes_no_waiting_curve_and_two_do(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    plant(tmp_path, leap=500)
    plant(tmp_path, {"attention.name": "norm_softmax"}, leap=300)
    assert waiting_figure(groups_of(tmp_path)) is None
    plant(tmp_path, {"training.seed": 1}, leap=500)
    assert len(waiting_curves(groups_of(tmp_path))) == 2


def test_runs_that_have_not_ended_are_in_no_curve(study: Path, plant: Any, groups_of: GroupsOf) -> None:
    plant(study, {"training.seed": 7}, ended=False, reached=300)
    assert [curve.runs for curve in waiting_curves(groups_of(study))] == [3, 3]


def test_every_cell_of_the_heat_map_is_counted_from_the_files(grid: Path, tmp_path: Path, parse: Any) -> None:
    page = parse(write_report([grid], tmp_path / "report.html").read_text(encoding="utf-8"))
    cells = [attributes["style"] for name, attributes in page.elements if name == "td" and "style" in attributes]
    counts = [
        sum(step is not None for step in outcomes(grid, fix, lr))
        for fix, lr in itertools.product(["softmax", "norm_softmax"], RATES)
    ]
    assert cells == [f"--share:{100 * count / 8:.4g}%" for count in counts]
    told = page.text.partition("Eureka-ratio by learning rate")[2].partition("In how many of its runs")[0]
    assert told.startswith(" fix1e-43e-41e-3 softmax ")
    assert re.findall(r"(\d) of 8", told) == list(map(str, counts))


def test_the_table_over_all_rates_is_counted_from_the_files(grid: Path, tmp_path: Path, parse: Any) -> None:
    page = parse(write_report([grid], tmp_path / "report.html").read_text(encoding="utf-8"))
    told = page.text.partition("Over all learning rates")[2].partition("All runs of a fix")[0]
    steps = {fix: [step for lr in RATES for step in outcomes(grid, fix, lr)] for fix in LEAPS}
    for fix, found in steps.items():
        assert f"{sum(step is not None for step in found)} of {len(found)}" in told
        assert f"{mean_wait(found):,.0f}" in told, fix
    best = mean_wait(outcomes(grid, "softmax", 1e-3))  # every half of the seeds chooses this rate
    assert f"{best / mean_wait(steps['norm_softmax']):.2f}×" in told


def test_one_learning_rate_makes_no_table_over_rates(study: Path) -> None:
    summary = summarise(find_runs(study))
    assert summary.over_rates == []


def test_the_losses_after_equal_steps_are_those_of_the_files(grid: Path, tmp_path: Path, parse: Any) -> None:
    page = parse(write_report([grid], tmp_path / "report.html").read_text(encoding="utf-8"))
    told = page.text.partition("Loss after 1,200 steps")[2].partition("Who leaves a plateau first")[0]
    ends = [
        (run.config.fix, run.config.lr, run.outcome.final_loss or 0.0) for run in summarise(find_runs(grid)).runs if run.outcome
    ]
    for fix in LEAPS:
        medians = [statistics.median(loss for name, at, loss in ends if (name, at) == (fix, lr)) for lr in RATES]
        assert any(f"{median:.3f}" in told for median in medians), fix


def test_runs_that_stop_early_make_no_table_of_losses(tmp_path: Path, plant: Any, parse: Any) -> None:
    for fix in ("softmax", "norm_softmax"):
        plant(tmp_path, {"attention.name": fix, "training.early_stop": True}, leap=400)
    page = parse(write_report([tmp_path], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "Loss after" not in page.text


def test_one_learning_rate_makes_no_heat_map(study: Path, groups_of: GroupsOf) -> None:
    assert heat_map(groups_of(study)) is None


def test_a_combination_that_was_not_run_is_an_empty_cell(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for lr, fix in [(1e-3, "softmax"), (1e-4, "softmax"), (1e-3, "norm_softmax")]:
        plant(tmp_path, {"training.lr": lr, "attention.name": fix})
    found = heat_map(groups_of(tmp_path))
    assert found is not None
    [block] = found.blocks
    assert [[cell and cell.percent for cell in line.cells] for line in block.lines] == [["0", "0"], [None, "0"]]


def test_controls_of_queries_and_keys_are_fixes_of_their_own(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    neutral = {"training.qk_lr_scale": 1.0, "model.qk_init_scale": 1.0}
    for seed in range(2):
        plant(tmp_path, {**neutral, "training.seed": seed})
        plant(tmp_path, {**neutral, "training.seed": seed, "training.qk_lr_scale": 0.1})
        plant(tmp_path, {**neutral, "training.seed": seed, "model.qk_init_scale": 8.0})
        plant(tmp_path, {**neutral, "training.seed": seed, "attention.name": "norm_softmax"}, leap=400)
    groups = groups_of(tmp_path)
    names = ["softmax", "softmax (qk_lr_scale=0.1)", "softmax (qk_init_scale=8)", "norm_softmax"]
    assert [fix.name for fix in groups.fixes] == names
    assert groups.fixes[0].mark.symbol == "circle"
    assert (groups.panels, [condition.label for condition in groups.grouping.conditions]) == (["lr 3e-4"], [""])
    [found] = verdicts(groups, compare_arms(groups.grouping))
    assert found.baseline.index == 0
    assert [verdict.fix.index for verdict in found.verdicts] == [1, 2, 3]
