"""The share of runs still on the plateau, as the page's script gets it."""

from __future__ import annotations

from collections.abc import Sequence

from eureka.formats import rate
from eureka.report.comparing import FixArm
from eureka.report.groups import Groups
from eureka.report.markup import Html, tag
from eureka.runs import Record
from eureka.study.comparison import run_times
from eureka.study.survival import survival_curve

CURVES = "The share of runs that have not had their Eureka-moment yet (Kaplan–Meier)"
FAIR = (
    ", each fix at its own best learning rate: the one with the shortest wait on every other seed, drawn from the seeds between, "
    "which had no part in choosing it (where a rate has but one run, all runs choose and all are drawn)"
)
BAND = ". Light: the 95 % interval at each step; there is none while no run, or after every run, has left the plateau."


def waiting_figure(groups: Groups, data: Sequence[Record]) -> Html:
    """Where the script draws, under the names of the fixes; nothing if there is nothing to draw."""
    if not data:
        return Html("")
    told = "The share of runs of each fix that are still on the plateau, over steps."
    place = tag("div", id="waiting", role="img", aria_label=told)
    keys = tag("div", *(_key(groups, fix, data) for fix in range(len(groups.fixes))), class_="keys")
    return tag(
        "figure",
        tag("h2", "Still on the plateau"),
        keys,
        place,
        tag("figcaption", CURVES, FAIR if _several_rates(groups) else "", BAND),
    )


def _several_rates(groups: Groups) -> bool:
    return len({row.lr for row in groups.rows}) > 1


def _key(groups: Groups, fix: int, data: Sequence[Record]) -> Html:
    """A name to click: its mark, and of which runs the curve is if there is only one."""
    curves = [curve for picture in data for curve in picture["curves"] if curve["fix"] == fix]
    if not curves:
        return Html("")
    glyph = tag("span", class_=f"glyph {groups.marks[fix].symbol}", style=f"--mark:var(--fix-{fix})")
    of = [tag("small", f"lr {curves[0]['lr']}, n = {curves[0]['runs']}")] if len(data) == 1 else []
    return tag("button", glyph, tag("span", groups.fixes[fix], " ", *of), type="button", data_fix=str(fix), aria_pressed="true")


def waiting_data(groups: Groups, found: Sequence[FixArm]) -> list[Record]:
    """A picture for each setting, in it a curve for each fix at its own best learning rate.

    None at all unless some curve is of two runs or more: what happened to one run is not a share.
    """
    curves = [(one.setting, _curve(one)) for one in found]
    if not any(curve["runs"] > 1 for _, curve in curves):
        return []
    pictures = [
        {"name": name, "curves": [curve for its, curve in curves if its == setting]}
        for setting, name in enumerate(groups.settings)
    ]
    return [picture for picture in pictures if picture["curves"]]


def _curve(one: FixArm) -> Record:
    """Kaplan and Meier's estimate from (0, 1) on to the end of the longest budget."""
    lr, runs = one.arm.judged()
    times = run_times(runs)
    curve = survival_curve(times)
    end = float(max(run.config["training"]["steps"] for run in runs))
    steps, shares = [0.0, *curve.steps.tolist()], [1.0, *curve.waiting.tolist()]
    low, high = [1.0, *curve.low.tolist()], [1.0, *curve.high.tolist()]
    if steps[-1] < end:  # all have left before: none of them waits until the end either
        steps, shares, low, high = [*steps, end], [*shares, shares[-1]], [*low, low[-1]], [*high, high[-1]]
    return {
        "fix": one.fix,
        "lr": rate(lr),
        "runs": len(times),
        "left": int(times.observed.sum()),
        "steps": steps,
        "share": shares,
        "low": low,
        "high": high,
    }
