"""Is the rate effective? Trials at other rates, from here and from fresh weights."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from eureka.doctor.changes import both, fresh, rate_of, rate_times
from eureka.doctor.exam import GUESSING, LONG, SHORT, TINY, Exam, mean
from eureka.doctor.finding import Finding
from eureka.forks.case import Fork
from eureka.forks.rates import OVER, begins_at_zero, first_rate
from eureka.forks.trial import Change, Gain, Trace, gain
from eureka.formats import few, listing, number, percent, rate

FLAT = 0.002
"""A continued run that gains less than this share of the loss stands still."""
USUAL = 1e-3
"""The rate that is tried in place of one that is zero."""
STANDING = 1e-6
"""Steps that change the weights by less than this share of their size lead nowhere in ten thousand steps."""
WARM_UP = 20_000
"""A schedule that reaches a rate within so many steps is a warm-up."""
BELOW = 0.985
"""Losses on the same batches that differ by less than this are alike."""
LAST = 5
"""The losses of so many last steps of a trial are where it has led."""
LOWER = 0.97
"""A smaller rate ends this much lower, if the rate is too large."""

BESIDE = 1e-3
"""A group whose rate is less than this share of another's is left behind, if it does not move."""
MUCH, MOST = 0.1, 0.5
"""The share of the gradient that such a group has, if it matters; and if it matters without a trial that shows it."""
HELPS = 0.02
"""A trial that ends this much lower helps."""
FAR = 1e3
"""Where a schedule holds the rate low, only rates that are so many times as high as its first speak against that one."""
REACHED = 1.5
"""A warm-up ends at its first rate, which is as good as one that is up to this many times higher."""


def check(exam: Exam) -> Iterator[Finding]:
    if exam.case.assumed or not exam.base.total("computed"):
        return
    found = _zero(exam)
    if found is None and not exam.well:
        found = _left_behind(exam) or _too_small(exam) or _too_large(exam)
    if found is not None:
        yield found


def _rates(exam: Exam) -> list[float]:
    return sorted({float(group["lr"]) for group in exam.case.optimizer.param_groups})


def _first_rate(exam: Exam) -> float:
    """The rate that a schedule began with, or the peak of a cycle; 0 if no scheduler has left it."""
    return max((first_rate(group) for group in exam.case.optimizer.param_groups), default=0.0)


def _ended(exam: Exam) -> bool:
    """Whether a cycle is over: only after its peak is the rate lower than at its beginning."""
    return any("max_lr" in group and group["lr"] < group.get("initial_lr", 0.0) for group in exam.case.optimizer.param_groups)


def _held_low(exam: Exam) -> str:
    """A sentence, where a schedule holds the rate far below its first: at its end, or in a warm-up of no end."""
    now, first, pace = max(_rates(exam)), _first_rate(exam), _pace(exam)
    if _ended(exam):
        return f" The schedule is over: its peak was {rate(first)}."
    if not exam.taken or not 0 < now < OVER * first or _will_reach(exam, first / now):
        return ""
    if pace > 0:
        return f" The schedule is warming up, and at its pace needs {(first - now) / pace:,.0f} more steps to {rate(first)}."
    if pace < 0:
        return f" The schedule is nearly over: it began at {rate(first)}."
    return f" The schedule is nearly over, or its warm-up is very long: its first rate is {rate(first)}."


def _pace(exam: Exam) -> float:
    """What the user's schedule adds to the rate in a step; 0 also if it is not in the step, and cannot be seen."""
    ahead = exam.base.scheduled
    return (ahead[-1] - ahead[0]) / (len(ahead) - 1) if len(ahead) > 1 else 0.0


def _another(exam: Exam, lr: float) -> str:
    """What to do where a schedule holds the rate low."""
    pace, again = _pace(exam), f"if the loss is to fall further, begin another schedule at {rate(lr)}, or train with a longer one"
    if pace > 0 and not _ended(exam):
        return "make the warm-up shorter."
    return f"{again}." if pace < 0 or _ended(exam) else f"{again}; if it is still warming up, make that shorter."


def _zero(exam: Exam) -> Finding | None:
    used = exam.base.rates
    if not used or max(used) > 0:
        return None
    first = _first_rate(exam)
    if begins_at_zero(exam.case.optimizer):
        return Finding(
            cause="lr_too_small",
            sure=0.8,
            explains=1.0,
            evidence=(
                f"The learning rate is 0 in every group, and no step was made yet: the schedule is warming up (its base rate is"
                f" {rate(first)}). At 0 the weights do not move, and nothing is judged.",
            ),
            advice="make some steps of the warm-up, and diagnose then.",
        )
    came = f", down from {rate(first)}: the schedule has ended" if first > 0 else ""
    return Finding(
        cause="lr_too_small",
        sure=0.98,
        explains=1.0,
        evidence=(f"The learning rate is 0 in every group{came}; the weights do not move.",),
        advice="set a rate, or let the schedule end later or above zero.",
        code=f"for group in optimizer.param_groups: group['lr'] = {first or USUAL:g}",
        numbers={"rate": 0.0},
    )


def _left_behind(exam: Exam) -> Finding | None:
    """Groups of parameters that have a gradient, and whose own rate is so much lower than others that they do not move."""
    highest = max(_rates(exam))
    groups = [group for group in exam.case.optimizer.param_groups if float(group["lr"]) <= BESIDE * highest]
    inside = {id(one) for group in groups for one in group["params"]}
    names = [
        name for name, one in exam.case.model.named_parameters() if id(one) in inside and exam.base.parameters[name].used > 0
    ]
    left = {name: exam.base.parameters[name] for name in names}
    weight, moved = sum(one.weight for one in left.values()), sum(one.moved for one in left.values())
    if not exam.base.finite or not left or moved > STANDING**2 * weight or not highest:
        return None
    share = math.sqrt(sum(one.used for one in left.values())) / exam.base.total("used")
    if share < MUCH:
        return None
    better = gain(exam.trial(_at_least(highest), LONG), exam.trial(lambda fork: None, LONG))
    helps = better.clear(HELPS)
    if not helps and (share < MOST or exam.learning):
        return None
    slow = listing([rate(lr) if lr else "0" for lr in sorted({float(group["lr"]) for group in groups})])
    tried = f" At {rate(highest)} for all the loss is {percent(better.share, 1)} lower after {LONG} steps." if helps else ""
    return Finding(
        cause="lr_too_small",
        sure=0.93 if helps else 0.7,
        explains=0.9,
        evidence=(
            f"{few(names)} get {percent(share)} of the gradient's norm and hardly move: the rate of their group is {slow}, and"
            f" that of others {rate(highest)}.{tried}",
        ),
        advice="raise the rate of that group too; if it is to stay as it is, freeze it with requires_grad_(False).",
        code=f"for group in optimizer.param_groups: group['lr'] = {highest:g}",
        numbers={"share": share, "gain": better.share},
    )


def _at_least(lr: float) -> Change:
    """No group is slower than that."""

    def change(fork: Fork) -> None:
        for group in fork.optimizer.param_groups:
            group["lr"] = max(group["lr"], lr)

    return change


def _too_small(exam: Exam) -> Finding | None:
    """Larger rates move what this one does not; a run that moves a little is asked only if its steps are tiny."""
    size = exam.step_size
    if not exam.base.finite or (exam.progress.share > FLAT and size > TINY):
        return None
    times, count = (3.0, LONG) if size < TINY else (6.0, SHORT)  # tiny steps gain in proportion to the rate
    for factor, change in _larger(exam, size):
        if _will_reach(exam, factor):
            return None
        found = exam.unlocks(change, times=times, at_once=False, count=count)
        if found is not None:
            return _small_finding(exam, factor, found, count)
    return _standing(exam) if size < STANDING else None


def _will_reach(exam: Exam, factor: float) -> bool:
    """Whether the schedule raises the rate so far soon: by what it does in the next steps, or else by what it has done so far."""
    now, wanted = max(_rates(exam)), max(_rates(exam)) * factor
    pace = _pace(exam)
    if pace:
        return pace > 0 and (wanted - now) / pace < WARM_UP
    if _ended(exam) or not exam.counted:
        return False
    first = _first_rate(exam)  # a linear warm-up that has come so far in the steps taken, and ends there
    return first > now > 0 and wanted <= REACHED * first and max(exam.taken, 1.0) * first / now < WARM_UP


def _standing(exam: Exam) -> Finding | None:
    """No other rate helped within a short trial, but at this one the weights practically stand still."""
    computed, used = exam.base.total("computed"), exam.base.total("used")
    half = any(torch.finfo(one.dtype).bits <= 16 for one in exam.case.model.parameters())  # there it may be rounding
    if not exam.step_size or used < 0.05 * computed or half:
        return None
    steps, over, first = 0.01 / exam.step_size, _held_low(exam), _first_rate(exam)
    return Finding(
        cause="lr_too_small",
        sure=0.9,
        explains=0.9,
        evidence=(
            f"At {rate(max(_rates(exam)))} a step changes the weights by {number(exam.step_size)} of their size, where a"
            f" thousandth is usual: {steps:,.0f} steps in one direction would change them by a hundredth.{over}",
        ),
        advice=_another(exam, first) if over else "raise the learning rate by powers of ten until the loss moves.",
        code=f"for group in optimizer.param_groups: group['lr'] {f'= {first:g}' if over else '*= 1000'}",
        numbers={"step_size": exam.step_size},
    )


def _larger(exam: Exam, size: float) -> Iterator[tuple[float, Change]]:
    """The rate that a schedule began with; and those that change the weights by about a hundredth in a step, and less."""
    now, first = max(_rates(exam)), _first_rate(exam)
    if first > 10 * now > 0:
        yield first / now, rate_of(first)
    least = FAR * first if _held_low(exam) else 0.0
    furthest = min(14, max(1, round(math.log10(0.01 / max(size, 1e-16)))))
    for power in range(furthest, max(furthest - 2, 0), -1):
        if 10.0**power * now > least:
            yield 10.0**power, rate_times(10.0**power)


def _small_finding(exam: Exam, factor: float, found: Gain, count: int) -> Finding:
    over, now = _held_low(exam), max(_rates(exam))
    return Finding(
        cause="lr_too_small",
        sure=0.9,
        explains=0.95,
        evidence=(
            f"At {rate(now)} the loss falls by {percent(max(exam.progress.share, 0.0), 2)} in"
            f" {len(exam.base.losses)} steps; at {factor:,.0f} times that rate by {percent(found.share, 1)} in {count}.{over}",
            f"A step changes the weights by {number(exam.step_size)} of their size; a thousandth is usual.",
        ),
        advice=_another(exam, factor * now) if over else f"raise the learning rate about {factor:,.0f} times.",
        code=f"for group in optimizer.param_groups: group['lr'] {f'= {factor * now:g}' if over else f'*= {factor:g}'}",
        numbers={"factor": factor, "gain": found.share, "step_size": exam.step_size},
    )


def _too_large(exam: Exam) -> Finding | None:
    """The loss rises, is not a number, or is no better than chance, and a smaller rate does better, from here or from scratch."""
    rising = not exam.base.finite or exam.progress.mean < -2 * exam.progress.error
    if exam.finite and rising:
        for factor in _smaller(exam):
            found = exam.unlocks(rate_times(factor), at_once=False)
            if found is not None and (_thrown(exam, exam.level) or _learns(exam, found.level - found.mean)):
                told = f"from here {number(factor)} times that rate lowers it by {percent(found.share, 1)} in {SHORT} steps"
                return _large_finding(exam, factor, told)
    return _from_fresh(exam) if rising or exam.guessing or _rose(exam) else None


def _smaller(exam: Exam) -> list[float]:
    """Shares of the rate that are tried; far smaller ones where the run ends without a number."""
    return [10.0**-power for power in range(1, 3 if exam.base.finite else 7)]


def _from_fresh(exam: Exam) -> Finding | None:
    """From fresh weights this rate leads above chance, and a smaller one lower than that, and than the fresh weights are."""
    own = exam.trial(fresh)
    reached = _end(own)
    bound = GUESSING * exam.chance if exam.chance is not None else exam.level
    if reached < bound:
        return None
    bound, ends = min(LOWER * reached, _end(exam.fresh_still(SHORT))), {}
    for factor in _smaller(exam):
        ends[factor] = _end(exam.trial(both(fresh, rate_times(factor))))
        if factor <= 0.01 and min(ends.values()) < bound:
            break
    better = [factor for factor, end in ends.items() if end < bound]
    if not better:
        return None
    best = min(better, key=ends.__getitem__)
    end, count = ends[best], SHORT
    if not (_thrown(exam, reached) or _better(exam, end, exam.still)):
        best = min(better)  # both are near chance so soon
        end, count = _end(exam.trial(both(fresh, rate_times(best)), LONG)), LONG
        if not _better(exam, end, exam.still_longer):
            return None
    now = f"this rate to {_told(reached)} in {SHORT}"
    told = f"from fresh weights {number(best)} times that rate leads to {_told(end)} in {count} steps, {now}"
    return _large_finding(exam, best, told)


def _better(exam: Exam, end: float, still: Trace) -> bool:
    """Whether a loss is lower than that of the weights of now on the same batches, and than guessing."""
    count = SHORT if still is exam.still else LONG
    now = mean(still.losses[count - LAST : count])
    return end < BELOW * now and _learns(exam, end * exam.level / now, BELOW)


def _learns(exam: Exam, loss: float, share: float = GUESSING) -> bool:
    """Whether a loss is better than guessing: a smaller rate also calms what cannot be learned."""
    return exam.chance is None or loss < share * exam.chance


def _thrown(exam: Exam, loss: float) -> bool:
    """Whether a loss is far above chance, or the run of now is not a number."""
    return not exam.base.finite or (exam.chance is not None and loss > 1.1 * exam.chance)


def _end(trace: Trace) -> float:
    """The mean of the last losses; infinite where one is not a number."""
    return mean(trace.losses[-LAST:]) if trace.finite else math.inf


def _told(loss: float) -> str:
    return f"{loss:.4g}" if math.isfinite(loss) else "no number"


def _large_finding(exam: Exam, factor: float, tried: str) -> Finding:
    beside = f" (chance is {exam.chance:.4g})" if exam.chance else ""
    return Finding(
        cause="lr_too_large",
        sure=0.93,
        explains=0.97,
        evidence=(f"The loss is {_told(exam.level)}{beside} at a rate of {rate(max(_rates(exam)))}; {tried}.",),
        advice="lower the learning rate, and go back to weights from before the loss rose (or begin again).",
        code=f"for group in optimizer.param_groups: group['lr'] *= {factor:g}",
        numbers={"factor": factor},
    )


def _rose(exam: Exam) -> bool:
    """Whether the log says that the loss is well above where it has been."""
    if exam.curve is None:
        return False
    values = exam.curve[1]
    tail = values[-max(3, len(values) // 10) :]
    return bool(len(values) >= 10 and tail.mean() > 1.3 * values.min() + 1e-9)
