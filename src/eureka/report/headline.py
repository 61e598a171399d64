"""What the study found, in two sentences computed from its comparisons and its cells, and what has to be said beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from eureka.formats import count, listing, plural, span
from eureka.report.groups import Fix, Groups
from eureka.runs import Rescaled
from eureka.study.arms import BASELINE, Cell
from eureka.study.comparison import Comparison, ratio

Sentence = list[str | Fix]
"""Text, in which the fixes have their colours."""


def conclusion(groups: Groups, comparisons: Sequence[Comparison]) -> Sentence:
    """Which fix helps, in a sentence for somebody who reads no further."""
    if not groups.cells:
        return ["It is too early to say which fix helps."]
    if not comparisons:
        return _nothing_compared(groups)
    main = [one for one in comparisons if one.against_main]
    sooner = [one for one in main if one.standing == "sooner"]
    if len({one.condition.key for one in main}) > 1 and any(one.standing in ("sooner", "later") for one in main):
        return _in_settings(groups, main)
    if sooner:
        return _helps(groups, sooner)
    open_ = any(one.standing in ("too few", "open") for one in main)
    if later := [one for one in main if one.standing == "later"]:
        worst = min(later, key=_speed_up)
        none = "No fix is decided to help yet, and " if open_ else "No fix is seen to help here, and "
        return [none, groups.fix(worst.arm.key), " hurts: its runs leave the plateau ", ratio(worst, decided=True), "."]
    if open_:
        return ["There are too few runs yet to tell which fix helps."]
    if any(one.standing == "unclear" for one in main):
        return ["Which fix helps is not clear: most runs say one thing, and the few that never leave the plateau the other."]
    return ["No fix is seen to make a difference here."]


def best_comparison(comparisons: Sequence[Comparison]) -> Comparison | None:
    """Of the fixes that are decided to help, the one that helps most."""
    return max((one for one in comparisons if one.against_main and one.standing == "sooner"), key=_speed_up, default=None)


def _speed_up(one: Comparison) -> float:
    return one.speed_up.value or 1.0


def _helps(groups: Groups, sooner: Sequence[Comparison]) -> Sentence:
    best = max(sooner, key=_speed_up)
    most = "most " if len({one.arm.key for one in sooner}) > 1 else ""
    fix, base = groups.fix(best.arm.key), groups.fix(best.baseline.key)
    return [fix, f" helps {most}here: its runs leave the plateau {ratio(best, decided=True)} than those of ", base, "."]


def _in_settings(groups: Groups, comparisons: Sequence[Comparison]) -> Sentence:
    """In how many settings the fix that helps most often does, and in how many it hurts; or the one that hurts most often."""
    settings = plural(len({one.condition.key for one in comparisons}), "setting")
    counts = {
        key: Counter(one.standing for one in comparisons if one.arm.key == key)
        for key in dict.fromkeys(c.arm.key for c in comparisons)
    }
    best = max(counts, key=lambda key: (counts[key]["sooner"], -counts[key]["later"]))
    if not counts[best]["sooner"]:
        worst = max(counts, key=lambda key: counts[key]["later"])
        return ["No fix is decided to help, and ", groups.fix(worst), f" hurts in {counts[worst]['later']} of {settings}."]
    hurts = f" and hurts in {counts[best]['later']}" if counts[best]["later"] else ""
    return [groups.fix(best), f" helps in {counts[best]['sooner']} of {settings}{hurts}, as far as it is decided."]


def _nothing_compared(groups: Groups) -> Sentence:
    if len(groups.fixes) == 1:
        return ["All runs have the same fix, ", groups.fixes[0], ", so there is nothing to compare."]
    return [f"No run of {BASELINE} has ended, so no fix can be compared with it."]


def headline(groups: Groups) -> Sentence:
    """The fixes that left the plateau most often first, each with how often, and when or within what it did not."""
    told = [fix for fix in groups.fixes if groups.cells_of(fix)]
    if not told:
        return ["No run has ended yet."]
    told.sort(key=lambda fix: (-_ratio(groups.cells_of(fix)), _first_median(groups.cells_of(fix))))
    plateau = "the last plateau" if any(len(run.task.levels) > 2 for run in groups.runs) else "the plateau"
    if not any(cell.leaps for cell in groups.cells):
        return [f"No run left {plateau}{_budget(groups)}: ", *_clauses(groups, told, "", ""), "."]
    return [*_clauses(groups, told, f" left {plateau}", _budget(groups)), "."]


def _clauses(groups: Groups, told: Sequence[Fix], verb: str, budget: str) -> Sentence:
    clauses: Sentence = []
    for position, fix in enumerate(told):
        cells = groups.cells_of(fix)
        leaps, runs = _leaps(cells), _runs(cells)
        often = f" in {leaps:,} of {count(runs)}" if position else f"{verb} in {leaps:,} of {plural(runs, 'run')}"
        within, budget = (budget, "") if leaps < runs else ("", budget)  # said once, where it first matters
        clauses += ["; " if position else "", fix, often, within, _when(groups, cells, brief=position > 0)]
    return clauses


def _when(groups: Groups, cells: Sequence[Cell], *, brief: bool) -> str:
    leapt = [cell for cell in cells if cell.leaps]
    if not leapt:
        return ""
    if len(groups.panels) == 1:
        return f" ({_step(cells[0])})"
    where = "at" if groups.panel_word == "learning rate" else "in"
    return f" ({where} {len(leapt)})" if brief else f" ({where} {len(leapt)} of {plural(len(cells), groups.panel_word)})"


def _step(cell: Cell) -> str:
    if cell.median_eureka_step is not None:
        return f"{'median ' if len(cell.ended) > 1 else ''}step {count(cell.median_eureka_step)}"
    return f"first at step {count(min(step for step in cell.eureka_steps if step is not None))}"


def _ratio(cells: Sequence[Cell]) -> float:
    """The share of all runs of these cells that left the plateau."""
    return _leaps(cells) / _runs(cells)


def _leaps(cells: Sequence[Cell]) -> int:
    return sum(cell.leaps for cell in cells)


def _runs(cells: Sequence[Cell]) -> int:
    return sum(len(cell.ended) for cell in cells)


def _first_median(cells: Sequence[Cell]) -> float:
    return min((cell.median_eureka_step for cell in cells if cell.median_eureka_step is not None), default=float("inf"))


def _budget(groups: Groups) -> str:
    """`` within 1,200 steps`` if every run without a moment went on for that long; diverged runs are left out."""
    ended = [run.outcome for run in groups.runs if run.outcome is not None]
    steps = {outcome.steps for outcome in ended if outcome.eureka_step is None and outcome.status != "diverged"}
    return f" within {plural(steps.pop(), 'step')}" if len(steps) == 1 else ""


def notes(groups: Groups) -> list[str]:
    """What a start changed; what the sentence does not count, and why."""
    told = [*_starts(groups)]
    drawn = sum(run.drawn for run in groups.runs)
    if drawn < len(groups.runs):
        told.append(
            f"Curves are drawn of {count(drawn)} of {plural(len(groups.runs), 'run')}, the first seeds of each; all are counted."
        )
    if repeated := groups.grouping.repeated:
        told.append(f"Left out: {plural(repeated, 'run')} with the settings and the seed of another one.")
    states = [run.state for run in groups.runs]
    if unfinished := [run for run in groups.runs if run.state == "unfinished"]:
        what = "Unfinished and not counted, drawn dashed: "
        reached = [f"{run.folder.name} at step {count(run.metrics[-1].step)}" for run in unfinished[:3]]
        more = [f"{len(unfinished) - 3:,} more"] if len(unfinished) > 3 else []
        told.append(f"{what}{plural(len(unfinished), 'run')} ({listing([*reached, *more])}).")
    if waiting := states.count("not begun"):
        told.append(f"Not begun: {plural(waiting, 'run')}.")
    if diverged := states.count("diverged"):
        told.append(f"Diverged, and counted as not having left the plateau: {plural(diverged, 'run')}.")
    return told


def _starts(groups: Groups) -> Iterator[str]:
    """What each start rescaled, over all runs that have it."""
    records = [run.start for run in groups.runs if run.start is not None]
    for name in sorted({record.start for record in records}):
        mine = [record for record in records if record.start == name]
        positions = _change([one for record in mine for one in record.positions])
        logits = _change([one for record in mine for one in record.logits])
        parts = [
            f"learned positions, which were {positions} times the content that they are added to" if positions else "",
            f"W_Q and W_K, whose logits had a row spread of {logits}" if logits else "",
        ]
        if any(parts):
            yield f"Before the first step, start={name} rescaled {', and '.join(filter(None, parts))}."
        yield from dict.fromkeys(f"start={name}: {note}" for record in mine for note in record.notes)


def _change(those: Sequence[Rescaled]) -> str:
    """Empty where nothing was rescaled."""
    before, after = [v for one in those for v in one.before], [v for one in those for v in one.after]
    return f"{span(before)} ({span(after)} afterwards)" if before and after else ""
