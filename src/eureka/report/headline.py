"""What the study says, in one sentence made from its rows."""

from __future__ import annotations

from collections.abc import Sequence

from eureka.formats import count, listing, plural
from eureka.report.groups import Groups
from eureka.report.markup import Html, join, tag
from eureka.study.statistics import Row


def headline(groups: Groups) -> Html:
    """The fixes that left the plateau most often first, each with how often, and when or within what it did not."""
    told = [fix for fix in range(len(groups.fixes)) if groups.of_fix(fix)]
    if not told:
        return Html("No run has ended yet.")
    told.sort(key=lambda fix: (-ratio(groups.of_fix(fix)), _first_median(groups.of_fix(fix))))
    plateau = "the last plateau" if any(len(run.levels) > 2 for run in groups.runs) else "the plateau"
    if not any(_leaps(row) for row in groups.rows):
        return join(f"No run left {plateau}{_budget(groups)}: ", *_clauses(groups, told, "", ""), ".")
    return join(*_clauses(groups, told, f" left {plateau}", _budget(groups)), ".")


def ratio(rows: Sequence[Row]) -> float:
    """The share of all runs of these rows that left the plateau."""
    return sum(map(_leaps, rows)) / sum(len(row.seeds) for row in rows)


def _clauses(groups: Groups, told: Sequence[int], verb: str, budget: str) -> list[str]:
    clauses: list[str] = []
    for position, fix in enumerate(told):
        rows = groups.of_fix(fix)
        leaps, runs = sum(map(_leaps, rows)), sum(len(row.seeds) for row in rows)
        often = f" in {leaps:,} of {count(runs)}" if position else f"{verb} in {leaps:,} of {plural(runs, 'run')}"
        within, budget = (budget, "") if leaps < runs else ("", budget)  # said once, where it first matters
        clauses += ["; " if position else "", fix_name(groups, fix), often, within, _when(groups, rows, brief=position > 0)]
    return clauses


def fix_name(groups: Groups, fix: int) -> Html:
    """The name with its colour, as everywhere on the page."""
    return tag("span", groups.fixes[fix], class_="fix", style=f"--mark:var(--fix-{fix})")


def _when(groups: Groups, rows: Sequence[Row], *, brief: bool) -> str:
    leapt = [row for row in rows if _leaps(row)]
    if not leapt:
        return ""
    if len(groups.panels) == 1:
        return f" ({_step(rows[0])})"
    where = "at" if groups.panel_word == "learning rate" else "in"
    return f" ({where} {len(leapt)})" if brief else f" ({where} {len(leapt)} of {plural(len(rows), groups.panel_word)})"


def _step(row: Row) -> str:
    if row.median_eureka_step is not None:
        return f"{'median ' if len(row.seeds) > 1 else ''}step {count(row.median_eureka_step)}"
    return f"first at step {count(min(step for step in row.eureka_steps if step is not None))}"


def _leaps(row: Row) -> int:
    return sum(step is not None for step in row.eureka_steps)


def _first_median(rows: Sequence[Row]) -> float:
    return min((row.median_eureka_step for row in rows if row.median_eureka_step is not None), default=float("inf"))


def _budget(groups: Groups) -> str:
    """`` within 1,200 steps`` if that is how long every run without a moment went on; a diverged one did not."""
    ended = [run.result for run in groups.runs if run.result is not None]
    steps = {result["steps"] for result in ended if result["eureka_step"] is None and result["status"] != "diverged"}
    return f" within {plural(steps.pop(), 'step')}" if len(steps) == 1 else ""


def notes(groups: Groups) -> list[str]:
    """What the sentence does not count, and why."""
    told = []
    states = [run.state for run in groups.runs]
    if unfinished := [run for run in groups.runs if run.state == "unfinished"]:
        what = "Unfinished and not counted, drawn dashed: "
        reached = [f"{run.folder.name} at step {count(run.metrics[-1].get('step'))}" for run in unfinished[:3]]
        more = [f"{len(unfinished) - 3:,} more"] if len(unfinished) > 3 else []
        told.append(f"{what}{plural(len(unfinished), 'run')} ({listing([*reached, *more])}).")
    if waiting := states.count("not begun"):
        told.append(f"Not begun: {plural(waiting, 'run')}.")
    if diverged := states.count("diverged"):
        told.append(f"Diverged, and counted as not having left the plateau: {plural(diverged, 'run')}.")
    return told
