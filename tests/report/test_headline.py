"""The sentence on top is computed, not written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eureka.report.groups import Fix, Groups
from eureka.report.headline import conclusion, headline, notes
from eureka.runs import Rescaled, StartRecord
from eureka.study.comparison import compare_arms

GroupsOf = Callable[[Path], Groups]
Said = Callable[[Path], str]


@pytest.fixture
def said(groups_of: GroupsOf) -> Said:
    return lambda folder: "".join(part.name if isinstance(part, Fix) else part for part in headline(groups_of(folder)))


@pytest.fixture
def concluded(groups_of: GroupsOf) -> Said:
    def told(folder: Path) -> str:
        groups = groups_of(folder)
        parts = conclusion(groups, compare_arms(groups.grouping))
        return "".join(part.name if isinstance(part, Fix) else part for part in parts)

    return told


def plant_leaps(folder: Path, plant: Any, leaps: dict[str, float | None], seeds: int = 6, **changes: Any) -> None:
    for fix, leap in leaps.items():
        for seed in range(seeds):
            plant(folder, {"attention.name": fix, "training.seed": seed, **changes}, leap=leap and leap + 10 * seed)


def test_the_first_sentence_says_which_fix_helps_most(tmp_path: Path, plant: Any, concluded: Said) -> None:
    plant_leaps(tmp_path, plant, {"softmax": None, "norm_softmax": 300, "temperature": 700})
    assert concluded(tmp_path) == "norm_softmax helps most here: its runs leave the plateau 3.5× sooner than those of softmax."


def test_too_few_runs_are_no_conclusion(study: Path, concluded: Said) -> None:
    assert concluded(study) == "There are too few runs yet to tell which fix helps."


def test_fixes_that_are_alike_are_said_to_be(tmp_path: Path, plant: Any, concluded: Said) -> None:
    plant_leaps(tmp_path, plant, {"softmax": 400, "norm_softmax": 400})
    assert concluded(tmp_path) == "No fix is seen to make a difference here."


def test_a_fix_that_hurts_is_said_to(tmp_path: Path, plant: Any, concluded: Said) -> None:
    plant_leaps(tmp_path, plant, {"softmax": 300, "norm_softmax": None})
    assert concluded(tmp_path) == "No fix is seen to help here, and norm_softmax hurts: its runs leave the plateau 3.5× later."


def test_a_fix_that_helps_only_beside_a_worse_start_is_not_said_to_help(tmp_path: Path, plant: Any, concluded: Said) -> None:
    plant_leaps(tmp_path, plant, {"softmax": 200})
    clear: dict[str, Any] = {"model.start": "clear"}
    plant_leaps(tmp_path, plant, {"softmax": 900, "norm_softmax": 500}, **clear)
    assert "helps here" not in concluded(tmp_path)
    assert "hurts" in concluded(tmp_path)


def test_a_fix_that_helps_in_one_setting_and_hurts_in_another_is_told_both(tmp_path: Path, plant: Any, concluded: Said) -> None:
    plant_leaps(tmp_path, plant, {"softmax": 800, "norm_softmax": 200}, **{"training.batch_size": 64})
    plant_leaps(tmp_path, plant, {"softmax": 200, "norm_softmax": 800}, **{"training.batch_size": 128})
    assert concluded(tmp_path) == "norm_softmax helps in 1 of 2 settings and hurts in 1, as far as it is decided."


def test_over_several_settings_it_says_in_how_many(tmp_path: Path, plant: Any, concluded: Said) -> None:
    for dim, leap in ((64, 300.0), (128, None)):
        plant_leaps(tmp_path, plant, {"softmax": None, "norm_softmax": leap}, **{"model.dim": dim})
    assert concluded(tmp_path) == "norm_softmax helps in 1 of 2 settings, as far as it is decided."


@pytest.mark.parametrize(
    ("fixes", "told"),
    [
        (["temperature"], "All runs have the same fix, temperature, so there is nothing to compare."),
        (["temperature", "qk_norm"], "No run of softmax has ended, so no fix can be compared with it."),
    ],
)
def test_what_cannot_be_compared_is_not(tmp_path: Path, plant: Any, concluded: Said, fixes: list[str], told: str) -> None:
    plant_leaps(tmp_path, plant, dict.fromkeys(fixes, 400), seeds=2)
    assert concluded(tmp_path) == told


def test_before_a_run_has_ended_nothing_is_concluded(tmp_path: Path, plant: Any, concluded: Said) -> None:
    plant(tmp_path, ended=False, reached=100)
    assert concluded(tmp_path) == "It is too early to say which fix helps."


def test_the_fix_that_left_the_plateau_comes_first_with_its_median_step(study: Path, said: Said) -> None:
    assert said(study) == "norm_softmax left the plateau in 3 of 3 runs (median step 575); softmax in 0 of 3 within 1,200 steps."


def test_a_median_that_is_not_known_is_not_told(tmp_path: Path, plant: Any, said: Said) -> None:
    for seed, leap in enumerate([500, None, None]):
        plant(tmp_path, {"training.seed": seed}, leap=leap)
    assert said(tmp_path) == "softmax left the plateau in 1 of 3 runs within 1,200 steps (first at step 525)."


def test_budgets_that_differ_are_not_told_as_one(tmp_path: Path, plant: Any, said: Said) -> None:
    plant(tmp_path, {"training.steps": 1200})
    plant(tmp_path, {"training.steps": 600, "training.seed": 1})
    assert said(tmp_path) == "No run left the plateau: softmax in 0 of 2 runs."


def test_over_several_rates_it_says_at_how_many(tmp_path: Path, plant: Any, said: Said) -> None:
    for lr in (1e-4, 3e-4, 1e-3):
        plant(tmp_path, {"training.lr": lr}, leap=700 if lr == 1e-3 else None)
        plant(tmp_path, {"training.lr": lr, "attention.name": "norm_softmax"}, leap=300)
    told = "norm_softmax left the plateau in 3 of 3 runs (at 3 of 3 learning rates); softmax in 1 of 3 within 1,200 steps (at 1)."
    assert said(tmp_path) == told


def test_diverged_runs_count_and_are_named(tmp_path: Path, plant: Any, said: Said, groups_of: GroupsOf) -> None:
    plant(tmp_path, status="diverged", reached=100)
    plant(tmp_path, {"training.seed": 1})
    assert said(tmp_path) == "No run left the plateau within 1,200 steps: softmax in 0 of 2 runs."
    assert notes(groups_of(tmp_path)) == ["Diverged, and counted as not having left the plateau: 1 run."]


def test_of_many_unfinished_runs_three_are_named(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for seed in range(5):
        plant(tmp_path, {"training.seed": seed}, ended=False, reached=100, name=f"run{seed}")
    told = "5 runs (run0 at step 100, run1 at step 100, run2 at step 100 and 2 more)."
    assert notes(groups_of(tmp_path)) == [f"Unfinished and not counted, drawn dashed: {told}"]


def test_what_a_start_rescaled_is_told_over_all_runs_that_have_it(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    plant(tmp_path, {"model.start": "paper"})
    for seed, before in enumerate([0.125, 0.25]):
        run = plant(tmp_path, {"model.start": "clear", "training.seed": seed}, leap=300)
        spreads = [Rescaled(f"blocks.{i}", [0.0625, before], [1.0, 1.0]) for i in range(2)]
        run.write_start(StartRecord("clear", [Rescaled("positions", [before], [1.0])], spreads))
    assert notes(groups_of(tmp_path)) == [
        "Before the first step, start=clear rescaled learned positions, which were 0.125 to 0.250 (1.000 afterwards) times the"
        " content that they are added to, and W_Q and W_K, whose logits had a row spread of 0.062 to 0.250 (1.000 afterwards)."
    ]


def test_what_a_start_could_not_do_is_told_once(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for seed in range(2):
        run = plant(tmp_path, {"model.start": "clear", "training.seed": seed})
        run.write_start(StartRecord("clear", [], [], ["no learned positions were found on this batch."]))
    assert notes(groups_of(tmp_path)) == ["start=clear: no learned positions were found on this batch."]
