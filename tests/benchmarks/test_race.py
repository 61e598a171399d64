"""Outcomes of the benchmark of races: kept one by one, and what is committed says what its table says."""

from __future__ import annotations

from pathlib import Path

from benchmarks.race import KINDS, Outcome, Table, read, row, sentences

RESULTS = Path(__file__).parents[2] / "results" / "race"


def outcome(seed: int, raced: int | None, waited: int | None, winner: str = "rate_x10") -> Outcome:
    return Outcome(
        kind="tiles",
        seed=seed,
        loss=0.8,
        winner=winner,
        summary="It helped, by far.",
        race_steps=400,
        most=4000,
        raced=raced,
        watched=0 if raced is None else 2 * raced,
        waited=waited,
        seconds=1.5,
    )


def test_a_file_of_outcomes_goes_on_where_it_ends(tmp_path: Path) -> None:
    first = Table(tmp_path / "race")
    first.add(outcome(0, 500, None))
    first.add(outcome(1, None, None, "wait"))
    again = Table(tmp_path / "race")
    assert again.outcomes == first.outcomes
    assert again.has("tiles", 1)
    assert not again.has("tiles", 2)


def test_a_run_that_has_not_leapt_by_twice_the_steps_counts_as_twice_as_soon() -> None:
    found = [outcome(0, 500, None), outcome(1, 500, 900), outcome(2, None, None, "wait")]
    assert [one.times_sooner for one in found] == [2.0, 1.8, None]
    assert [row(one)[-1] for one in found] == ["≥ 2.00", "1.80", "–"]
    assert sentences(found) == ["tiles: at least twice as soon in 1 of 3, 1.8 times in the median"]


def test_the_committed_table_follows_from_the_committed_outcomes() -> None:
    readme = (RESULTS / "README.md").read_text(encoding="utf-8")
    lines = [" ".join(line.split()) for line in readme.splitlines()]
    found = sorted(read(RESULTS / "outcomes.csv"), key=lambda one: (list(KINDS).index(one.kind), one.seed))
    for one in found:
        assert " ".join(row(one)) in lines
    for sentence in sentences(found):
        assert sentence in lines
