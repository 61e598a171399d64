"""The page of claims: printed from the committed runs, and counted again from their tables."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.claims import ENDS, NO_RUNS, NOTHING, TASKS, Evidence, likelier, more_accurate, page, saturates, sooner
from benchmarks.committed import RESULTS, STUDIES

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"


@pytest.fixture(scope="module")
def text() -> str:
    return page()


def test_the_page_is_what_the_command_prints(text: str) -> None:
    assert PAGE.read_text(encoding="utf-8") == text, "python -m benchmarks.claims --page docs/evidence.md writes it"


def test_every_committed_study_is_in_it() -> None:
    assert {name for names in [*TASKS.values(), *ENDS.values()] for name in names} == set(STUDIES)


def test_what_was_not_run_is_left_out_and_every_study_has_its_link(text: str) -> None:
    _, _, cnn = text.partition("## A convolutional network")
    assert (
        cnn.count("the paper's pictures](../results/every_rate/resnet/README.md), [and](../results/every_rate/main/README.md)")
        == 1
    )
    assert "| [tiles]" not in cnn.partition("##")[0]
    assert not any(f"| {nothing} |" in text for nothing in NOTHING)


def test_p_values_are_those_of_the_study_that_a_comparison_belongs_to() -> None:
    """Two models are two studies; neither is corrected for the comparisons of the other."""
    [mine, theirs] = TASKS["masked text"]
    alone = {one.arm.label: one.p_corrected for one in Evidence.of([mine]).comparisons}
    together = [one for one in Evidence.of([mine, theirs]).comparisons if one in Evidence.of([mine]).comparisons]
    assert {one.arm.label: one.p_corrected for one in together} == alone


def test_losses_are_compared_where_no_run_stopped_early(text: str) -> None:
    _, _, ends = text.partition("## The loss after equal steps")
    assert [line.split("]")[0] for line in ends.splitlines() if line.startswith("| [")] == [f"| [{task}" for task in ENDS]
    assert NO_RUNS not in ends


def rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / name / "runs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_counts_are_those_of_the_tables() -> None:
    arms: dict[tuple[str, str], list[bool]] = {}
    for row in rows("every_rate/digits"):
        arms.setdefault((row["attention.name"], row["model.start"]), []).append(bool(row["eureka_step"]))
    plain, best = arms["softmax", "paper"], arms["norm_softmax", "clear_positions"]
    evidence = Evidence.of(["every_rate/digits"])
    assert saturates(evidence).startswith(f"{len(plain) - sum(plain)} of {len(plain)} runs")
    assert likelier(evidence).startswith(f"{sum(best)} of {len(best)} against {sum(plain)} of {len(plain)}")


def test_of_several_models_a_fix_stands_beside_the_softmax_of_its_own() -> None:
    names = TASKS["in-context copying"]
    evidence = Evidence.of(names)
    counts, label = likelier(evidence).split(": ")
    fix, _, start = label.removesuffix(")").partition(" (start=")
    mine = [row for name in names for row in rows(name) if (row["attention.name"], row["model.start"]) == (fix, start or "paper")]
    assert counts.startswith(f"{sum(bool(row['eureka_step']) for row in mine)} of {len(mine)} against ")
    assert sooner(evidence).endswith((", decoder", ", hf_gpt2"))
    assert more_accurate(evidence).endswith((", decoder", ", hf_gpt2"))
