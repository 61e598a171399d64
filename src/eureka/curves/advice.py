"""What to do next, from what was seen in a curve: the end of the verdict of `eureka detect`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from eureka.curves.finding import Finding
from eureka.curves.grid import clean, even_grid, smooth, white_noise
from eureka.curves.levels import at_floor, described, level_of, nearly_perfect
from eureka.curves.moment import Kind
from eureka.curves.plateaus import trend
from eureka.curves.readers.curve import Curve
from eureka.curves.together import Pair
from eureka.curves.waits import known_waits
from eureka.formats import measurement, percent, plural, step

Reason = Literal[
    "leak",
    "diverged",
    "ended",
    "past_best",
    "rate_ended",
    "floor",
    "chance",
    "level",
    "unknown_rate",
    "epochs",
    "rate_steps",
    "rest",
    "wait",
    "left",
    "falling",
    "unclear",
    "memorised",
]
MOST = 2
"""Pieces of advice for one curve."""
ROSE = 0.3
"""A curve has diverged if it took back this share of its fall."""
ROSE_LEAST = 0.05
"""And it rose by this share of its lowest value."""
RATE_ENDED = 1e-3
"""A learning rate of at most this share of the highest one moves nothing."""
RATE_LATE, RATE_ALL = 0.1, 0.75
"""A rate that ended before the last so much of a plateau is told; if it ended before so much of it, it explains the plateau."""
GO_BACK = "it diverged; go back to before that, with a lower learning rate, a longer warm-up or clipped gradients"
DIAGNOSE = "`eureka diagnose MODULE:FUNCTION` looks at the model itself"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What was seen, and what to do."""

    reason: Reason
    seen: str
    next: str
    guess: bool = False
    """Whether what was seen rests on something that nobody said."""

    def sentence(self) -> str:
        return f"{self.seen}: {self.next}"

    def document(self) -> dict[str, Any]:
        """Its part of the JSON document that ``eureka detect --json`` prints."""
        return asdict(self)


def advise(finding: Finding) -> list[Advice]:
    """At most two pieces of advice for a curve, the more urgent first; a short one may still have broken off."""
    if not finding.judged:
        return [advice] if (advice := _broken(finding) or _ended(finding)) is not None else []
    with np.errstate(all="ignore"):  # damaged logs have values near the greatest float
        found = [advice for look in LOOKS if (advice := look(finding)) is not None]
        return found[:MOST] or [_otherwise(finding)]


def advise_pair(pair: Pair) -> list[Advice]:
    """What to do about train and validation of one run."""
    text = "it memorised first, and what generalises came later; more data or more weight decay shortens that wait"
    seen = "train got better long before validation"
    return [Advice(reason="memorised", seen=seen, next=text)] if pair.memorised_first else []


def _broken(finding: Finding) -> Advice | None:
    curve = finding.curve
    if not len(curve.broken):
        return None
    first, points = step(float(curve.broken[0])), plural(len(curve.broken), "point")
    seen = f"it is no number (nan or inf) from {curve.step_name} {first} to the end of the log, {points}"
    return Advice(reason="diverged", seen=seen, next=GO_BACK)


def _ended(finding: Finding) -> Advice | None:
    curve = finding.curve
    if not curve.nan_after:
        return None
    seen = f"after {curve.step_name} {step(float(curve.steps.max()))} the log has nan or inf for it, while another run goes on"
    return Advice(reason="ended", seen=seen, next=f"if this run had not ended, {GO_BACK}", guess=True)


def _leak(finding: Finding) -> Advice | None:
    leaks = [moment for moment in finding.moments if moment.kind == "leak"]
    if not leaks:
        return None
    where = f"at {finding.curve.step_name} {step(leaks[0].steepest)} it went to {measurement(leaks[0].after)}"
    return Advice(
        reason="leak",
        seen=f"{where}, better than the task allows ({measurement(finding.given.floor or 0.0)})",
        next="look for the answer in the inputs, such as a mask that lets it through or labels among the features",
    )


def _diverged(finding: Finding) -> Advice | None:
    rest, curve = finding.resting, finding.curve
    x, y = clean(curve.values, curve.steps)
    sign = -1.0 if curve.rising else 1.0
    grid = even_grid(x, sign * y, 256)
    line = smooth(grid.values, 5)
    best = int(line.argmin())
    low, fall = float(line[best]), float(line[: best + 1].max() - line[best])
    now = sign * rest.level if rest is not None else float(np.median(grid.values[-max(len(line) // 16, 3) :]))
    least = max(ROSE * fall, ROSE_LEAST * abs(low), 5.0 * float(np.median(white_noise(grid.values))))
    if now - low <= least or (rest is not None and rest.start < grid.step(best)):
        return None
    where = f"its best was {measurement(sign * low)} at {curve.step_name} {step(grid.step(best))}"
    ends = f"{'stayed' if rest is not None else 'is'} at {measurement(sign * now)}"
    if curve.role == "validation":
        text = "keep the checkpoint from there; more steps do not help, more data or regularisation may"
        return Advice(reason="past_best", seen=f"{where}, and now it {ends.replace('stayed', 'stays')}", next=text)
    return Advice(reason="diverged", seen=f"{where}, then it got worse and {ends}", next=GO_BACK)


def _rate_ended(finding: Finding) -> Advice | None:
    """Whether the learning rate moves nothing any more, and how much of the plateau that explains."""
    rate, rest, curve = finding.curve.lr, finding.resting, finding.curve
    if rate is None or rest is None or not len(rate):
        return None
    used = np.flatnonzero(rate > RATE_ENDED * float(rate.max()))
    if len(used) and used[-1] == len(rate) - 1:
        return None
    first = int(used[-1]) + 1 if len(used) else 0
    share = (rest.end - max(float(curve.steps[first]), rest.start)) / max(rest.end - rest.start, 1e-300)
    if share < RATE_LATE:  # as of a schedule that ends with the run
        return None
    since = f"since {curve.step_name} {step(float(curve.steps[first]))}" if len(used) else "throughout"
    left = float(rate[first:].max())
    text = "train on with a schedule that ends later"
    whole = share > RATE_ALL
    return Advice(
        reason="rate_ended",
        seen=f"the learning rate is zero {since}" if left == 0 else f"the learning rate is at most {left:.1e} {since}",
        next=f"this plateau says nothing about the model; {text}" if whole else f"nothing can move from there on; {text}",
    )


def _floor(finding: Finding) -> Advice | None:
    rest, curve, given = finding.resting, finding.curve, finding.given
    if rest is None or _leak(finding):
        return None
    if given.floor is not None and at_floor(curve, rest, given.floor):
        seen = f"it rests at {measurement(rest.level)}, the best that the task allows ({measurement(given.floor)})"
        return Advice(reason="floor", seen=seen, next="nothing is left to learn here")
    if given.floor is not None or not nearly_perfect(curve, rest):
        return None
    if not curve.rising and not curve.values.any():
        text = "nothing is learned from it: a part that is switched off, or labels that are all ignored"
        return Advice(reason="floor", seen="it is 0 from the first point on", next=text, guess=True)
    most = "near the best that it can be" if curve.rising else "little of what it was at first"
    text = f"probably nothing is left to learn here; {_say_floor(finding)} says what the task allows"
    return Advice(reason="floor", seen=f"it rests at {measurement(rest.level)}, {most}", next=text, guess=True)


def _say_floor(finding: Finding) -> str:
    """The option that says what the task allows: of a metric that rises only where it is chosen."""
    return f"--column {shlex.quote(finding.curve.metric)} --floor VALUE" if finding.curve.rising else "--floor VALUE"


def _level(finding: Finding) -> Advice | None:
    rest = finding.resting
    level = level_of(finding.curve, rest, finding.given) if rest is not None else None
    if rest is None or level is None:
        return None
    seen = f"it sits at {measurement(rest.level)}, which is {described(level)}"
    if level.classes is not None:
        told = "" if level.stated else "; a guess, say --classes N"
        text = "nothing that depends on the input is learned yet; check that labels fit inputs, and other learning rates"
        return Advice(reason="chance", seen=seen + told, next=text, guess=not level.stated)
    return Advice(reason="level", seen=seen, next="it knows that much and no more yet")


def _unknown_rate(finding: Finding) -> Advice | None:
    looks = [moment.steepest for moment in finding.moments if moment.like_rate_step]
    if not looks:
        return None
    what = "rise" if finding.curve.rising else "fall"
    seen = f"the {what} at {finding.curve.step_name} {step(looks[0])} looks like a step of the learning rate, which is not known"
    return Advice(reason="unknown_rate", seen=seen, next="give the rate with --lr-column or --lr-file and ask again", guess=True)


def _epochs(finding: Finding) -> Advice | None:
    return _explained(
        finding,
        "epoch_boundary",
        "epochs",
        f"it {'rises' if finding.curve.rising else 'falls'} as epochs begin",
        "it remembers samples that it has seen; judge it by validation data, or train on more data",
    )


def _rate_steps(finding: Finding) -> Advice | None:
    return _explained(
        finding,
        "lr_step",
        "rate_steps",
        f"it {'rose' if finding.curve.rising else 'fell'} where the learning rate was cut",
        "the rate held it up before; cut it earlier, or let it decay smoothly",
    )


def _explained(finding: Finding, kind: Kind, reason: Reason, seen: str, text: str) -> Advice | None:
    """Advice on drops of a kind, with the step of the first."""
    steps = [moment.steepest for moment in finding.moments if moment.kind == kind]
    where = f" ({finding.curve.step_name} {step(steps[0])}{', …' if len(steps) > 1 else ''})" if steps else ""
    return Advice(reason=reason, seen=seen + where, next=text) if steps else None


def _rest(finding: Finding) -> Advice | None:
    """A plateau without a known reason: the curve alone does not say whether it is the floor or a wait."""
    rest, curve = finding.resting, finding.curve
    if rest is None or finding.given.floor is not None or not _may_wait(finding) or _level(finding):
        return None
    share = (rest.end - rest.start) / max(float(np.ptp(curve.steps)), 1e-300)
    seen = f"it has been at {measurement(rest.level)} since {curve.step_name} {step(rest.start)}, {percent(share, 0)} of the log"
    text = f"done, if the task allows no better ({_say_floor(finding)} says it), or else a wait"
    return Advice(reason="rest", seen=seen, next=text)


def _wait(finding: Finding) -> Advice | None:
    if finding.resting is None or not _may_wait(finding):
        return None
    waits = known_waits()
    basis = "there is no basis for how long it lasts" if waits is None else waits.sentence()
    return Advice(reason="wait", seen="if it is a wait", next=f"{basis}; {DIAGNOSE}")


def _may_wait(finding: Finding) -> bool:
    """Whether no other reason for a plateau is known."""
    return not any(look(finding) for look in (_broken, _leak, _diverged, _rate_ended, _floor))


LOOKS: tuple[Callable[[Finding], Advice | None], ...] = (
    *(_broken, _ended, _leak, _diverged, _rate_ended, _floor, _level, _unknown_rate, _epochs, _rate_steps, _rest, _wait),
)
"""In order of urgency."""


def _otherwise(finding: Finding) -> Advice:
    """What can be said of a curve that rests nowhere."""
    curve, text = finding.curve, "train on before anything is changed"
    if finding.eurekas:
        last = finding.eurekas[-1]
        better = _gets_better(finding, since=last.end)
        ends = f" and is still {_going(curve)}" if better else "; it is too soon to tell whether it rests"
        where = f"it left a plateau at {curve.step_name} {step(last.steepest)}{ends}"
        return Advice(reason="left", seen=where, next=f"train on; to wait less next time, {DIAGNOSE}")
    if _gets_better(finding):
        return Advice(reason="falling", seen=f"it is still {_going(curve)}", next=text)
    return Advice(reason="unclear", seen="it neither rests nor clearly gets better", next="train on, and look again")


def _going(curve: Curve) -> str:
    return "rising" if curve.rising else "falling"


def _gets_better(finding: Finding, since: float | None = None) -> bool:
    """Whether a curve clearly went the right way over its last quarter, or since a step."""
    x, y = clean(finding.curve.values, finding.curve.steps)
    y = y[-max(len(y) // 4, 4) :] if since is None else y[x >= since]
    if len(y) < 4:
        return False
    change, error = trend(y)
    return (-change if finding.curve.rising else change) > 2.0 * error
