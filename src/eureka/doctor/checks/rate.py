"""Is the rate effective? Trials at other rates, from here and from fresh weights."""

from __future__ import annotations

import math
from collections.abc import Iterator

from eureka.doctor.changes import both, fresh, rate_times
from eureka.doctor.exam import SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.forks.trial import Gain, gain
from eureka.formats import number, percent, rate

FLAT = 0.002
"""A continued run that gains less than this share of the loss stands still."""
USUAL = 1e-3
"""The rate that is tried in place of one that is zero."""


def check(exam: Exam) -> Iterator[Finding]:
    if exam.case.assumed or not exam.base.total("computed"):
        return
    if exam.learning:
        if (thrown := _thrown(exam)) is not None:
            yield thrown
        return
    small = _zero(exam) or _too_small(exam)
    if small is not None:
        yield small
        return
    large = _too_large(exam)
    if large is not None:
        yield large


def _rates(exam: Exam) -> list[float]:
    return sorted({float(group["lr"]) for group in exam.case.optimizer.param_groups})


def _zero(exam: Exam) -> Finding | None:
    used = exam.base.rates
    if not used or max(used) > 0:
        return None
    first = max((float(group.get("initial_lr", 0.0)) for group in exam.case.optimizer.param_groups), default=0.0)
    came = f", down from {rate(first)}: the schedule has ended" if first > 0 else ""
    return Finding(
        cause="lr_too_small",
        sure=0.98,
        explains=1.0,
        evidence=(f"The learning rate is 0 in every group{came}; the weights do not move.",),
        advice="set a rate, or let the schedule end later or above zero.",
        code=f"for group in optimizer.param_groups: group['lr'] = {first or USUAL:g}",
    )


def _too_small(exam: Exam) -> Finding | None:
    """Larger rates move what this one does not: such that a step changes the weights by about a hundredth, and a tenth of that."""
    if exam.progress.share > FLAT or not exam.base.finite:
        return None
    furthest = 10.0 ** min(8, max(1, round(math.log10(0.01 / max(_relative_update(exam), 1e-12)))))
    for factor in sorted({furthest, max(furthest / 10, 10.0)}, reverse=True):
        found = exam.unlocks(rate_times(factor), times=10.0, at_once=False)
        if found is not None:
            return _small_finding(exam, factor, found)
    return None


def _small_finding(exam: Exam, factor: float, found: Gain) -> Finding:
    now = max(_rates(exam))
    relative = _relative_update(exam)
    return Finding(
        cause="lr_too_small",
        sure=0.9,
        explains=0.95,
        evidence=(
            f"At {rate(now)} the loss falls by {percent(max(exam.progress.share, 0.0), 2)} in {len(exam.base.losses)} steps;"
            f" at {number(factor)} times that rate by {percent(found.share, 1)} in {SHORT}.",
            f"A step changes the weights by {number(relative)} of their size.",
        ),
        advice=f"raise the learning rate about {number(factor)} times.",
        code=f"for group in optimizer.param_groups: group['lr'] *= {factor:g}",
        numbers={"factor": factor, "gain": found.share, "relative_update": relative},
    )


def _relative_update(exam: Exam) -> float:
    weight = exam.base.total("weight")
    return exam.base.total("moved") / weight if weight else 0.0


def _too_large(exam: Exam) -> Finding | None:
    """The loss rises, is not a number, or is no better than chance, and a smaller rate learns, from here or from fresh weights."""
    level, chance = exam.level, exam.chance
    rising = not exam.base.finite or exam.progress.mean < -2 * exam.progress.error
    high = not math.isfinite(level) or (chance is not None and level > 0.97 * chance) or _rose(exam)
    if math.isfinite(level) and rising:
        for factor in (0.1, 0.01):
            found = exam.unlocks(rate_times(factor), at_once=False)
            if found is not None:
                return _large_finding(exam, factor, found, "from here")
    return _from_fresh(exam) if high or rising else None


def _from_fresh(exam: Exam) -> Finding | None:
    if exam.fresh_progress.clear(0.03):
        return None
    for factor in (0.1, 0.01):
        found = exam.unlocks(rate_times(factor), least=0.03, times=3.0, anew=True)
        if found is not None:
            return _large_finding(exam, factor, found, "from fresh weights")
    return None


def _thrown(exam: Exam) -> Finding | None:
    """The loss falls, but from far above chance; a smaller rate from fresh weights is below it at once."""
    if exam.chance is None or not exam.base.finite or min(exam.base.losses) < 1.1 * exam.chance:
        return None
    for factor in (0.1, 0.01):
        tried = exam.trial(both(fresh, rate_times(factor)))
        if tried.finite and mean_of(tried.losses[-5:]) < 0.9 * mean_of(exam.base.losses[-5:]):
            return _large_finding(exam, factor, gain(tried, exam.still), "from fresh weights")
    return None


def _large_finding(exam: Exam, factor: float, found: Gain, whence: str) -> Finding:
    now = max(_rates(exam))
    level = f"{exam.level:.4g}" if math.isfinite(exam.level) else "not a number"
    beside = f" (chance is {exam.chance:.4g})" if exam.chance else ""
    return Finding(
        cause="lr_too_large",
        sure=0.9,
        explains=0.95,
        evidence=(
            f"The loss is {level}{beside} at a rate of {rate(now)}; {whence}, {number(factor)} times that rate lowers it by"
            f" {percent(found.share, 1)} in {SHORT} steps, this rate by {percent(max(exam.progress.share, -1.0), 1)}.",
        ),
        advice="lower the learning rate, and go back to weights from before the loss rose (or begin again).",
        code=f"for group in optimizer.param_groups: group['lr'] *= {factor:g}",
        numbers={"factor": factor, "gain": found.share},
    )


def _rose(exam: Exam) -> bool:
    """Whether the log says that the loss is well above where it has been."""
    if exam.curve is None:
        return False
    values = exam.curve[1]
    tail = values[-max(3, len(values) // 10) :]
    return bool(len(values) >= 10 and tail.mean() > 1.3 * values.min() + 1e-9)


def mean_of(values: list[float]) -> float:
    return sum(values) / len(values)
