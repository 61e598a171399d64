"""A study that adds seeds in rounds until every arm is decided: where it stands, and which runs the next look needs.

Where it stands follows from the runs alone, so the same command again takes the same looks and comes to the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eureka.errors import RequestError
from eureka.formats import listing
from eureka.runs import Run
from eureka.study.arms import Arm, Condition, Grouping, group_runs
from eureka.study.comparison import (
    BEGINS,
    LEVEL,
    Comparison,
    compare,
    direction,
    holm,
    in_figures,
    pairs,
    run_times,
    so_far,
)
from eureka.study.dealings import Bools
from eureka.study.over_rates import OverRates, over_rates
from eureka.study.sequential import SEEDS, UNLIKELY, UNLIKELY_FROM, Contest, Look, compare_pairs, looks, take_look
from eureka.study.survival import Times


@dataclass(frozen=True)
class Rivals:
    """An arm, the baseline of its condition, and the contest between them."""

    condition: Condition
    base: Arm
    arm: Arm
    contest: Contest

    def cells(self, chosen: Bools) -> tuple[Arm, Arm]:
        """Baseline and arm with the chosen rates only."""
        mine, theirs = (
            [lr for lr, is_chosen in zip(arm.cells, chosen[side], strict=True) if is_chosen]
            for arm, side in ((self.arm, self.contest.of_arm), (self.base, ~self.contest.of_arm))
        )
        return self.base.only(theirs, SEEDS[-1]), self.arm.only(mine, SEEDS[-1])


@dataclass(frozen=True)
class Standing:
    """How far a study has come."""

    plan: tuple[Look, ...]
    rivals: tuple[Rivals, ...]
    next_look: Look | None
    """the first one that was not taken; None when all is decided"""
    needed: tuple[Run, ...]
    """all runs up to the next look, in the order of the seeds"""

    @property
    def missing(self) -> list[Run]:
        return [run for run in self.needed if run.outcome is None]

    @property
    def undecided(self) -> list[Rivals]:
        return [rivals for rivals in self.rivals if rivals.contest.decision is None]

    def names_of_undecided(self) -> list[str]:
        """As short as they can be told apart."""
        several = len({one.base.label for one in self.rivals}) > 1
        return [
            one.arm.label
            + (f" against {one.base.label}" if several else "")
            + (f" ({one.condition.label})" if one.condition.label else "")
            for one in self.undecided
        ]

    @property
    def round(self) -> int:
        """The number of the round that leads to the next look."""
        return len(self.plan) if self.next_look is None else self.plan.index(self.next_look) + 1

    def until_last_look(self) -> list[Run]:
        """Those that are missing if nothing is decided before: the most that it can take."""
        return [run for run in _runs(self.undecided, len(self.rivals), self.plan[-1].seeds) if run.outcome is None]

    def to_json(self) -> dict[str, Any]:
        return {
            "level": LEVEL,
            "looks": [vars(look) for look in self.plan],
            "given_up_above": {"p": UNLIKELY, "from_seeds": UNLIKELY_FROM},
            "next_look": None if self.next_look is None else self.next_look.seeds,
            "decisions": [_decision(rivals, len(self.rivals)) for rivals in self.rivals],
        }


def stand(runs: Sequence[Run], most: int = SEEDS[-1]) -> Standing:
    """Take every look that the runs allow. `runs` are all that the study may ever need, most of which may not have begun.

    most   the number of seeds at which to end
    """
    grouping = group_runs(runs)
    rivals = _rivals(grouping)
    plan = _plan(rivals, most)
    needed: dict[int, Run] = {}
    for look in plan:
        here = _runs([one for one in rivals if one.contest.decision is None], len(rivals), look.seeds)
        needed |= {id(run): run for run in here}
        if not here or any(run.outcome is None for run in here):
            return Standing(plan, tuple(rivals), look if here else None, _ordered(needed.values()))
        rivals = _look(rivals, look, last=look is plan[-1])
    return Standing(plan, tuple(rivals), None, _ordered(needed.values()))


def _rivals(grouping: Grouping) -> list[Rivals]:
    found = [
        Rivals(condition, base, arm, Contest.between(len(arm.cells), len(base.cells)))
        for condition in grouping.conditions
        for base, arm in pairs(condition.arms)
    ]
    if not found:
        raise RequestError("--until-sure: there is nothing to decide; name softmax and what to compare with it.")
    return found


def _plan(rivals: Sequence[Rivals], most: int) -> tuple[Look, ...]:
    """The looks up to `most` seeds; the share of those beyond is not spent, so that a later command may go on to them."""
    whole = looks(len(rivals) * max(one.contest.tests for one in rivals))
    seeds = [str(look.seeds) for look in whole]
    if not whole:
        raise RequestError(f"--until-sure: {len(rivals)} comparisons over so many learning rates are too many to decide at once.")
    if not whole[0].seeds <= most <= SEEDS[-1]:
        raise RequestError(f"--seeds {most}: --until-sure looks after {listing(seeds)} seeds; the last of them may be given.")
    return tuple(look for look in whole if look.seeds <= most)


def _runs(undecided: Sequence[Rivals], contests: int, seeds: int) -> list[Run]:
    """What a look at these needs: the same seeds at every rate that is not beaten."""
    arms = [arm for one in undecided for arm in one.cells(one.contest.unbeaten(contests))]
    found = {id(run): run for arm in arms for cell in arm.cells.values() for run in cell.runs if run.config.seed < seeds}
    return list(found.values())


def _ordered(runs: Iterable[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: run.config.seed))


def _look(rivals: Sequence[Rivals], look: Look, *, last: bool) -> list[Rivals]:
    found = [compare_pairs(_times(one, len(rivals), look)) if one.contest.decision is None else None for one in rivals]
    contests = take_look([one.contest for one in rivals], found, look, last=last)
    return [replace(one, contest=contest) for one, contest in zip(rivals, contests, strict=True)]


def _times(one: Rivals, contests: int, look: Look) -> list[Times | None]:
    cells = [*one.arm.cells.values(), *one.base.cells.values()]
    contesting = one.contest.unbeaten(contests)
    return [
        run_times([run for run in cell.runs if run.config.seed < look.seeds]) if goes_on else None
        for cell, goes_on in zip(cells, contesting, strict=True)
    ]


def compare_at_looks(standing: Standing) -> list[Comparison]:
    """The comparisons as the last look at each saw them. The intervals hold at all looks at once.

    An arm without a look is compared by what has ended; it is left out if nothing has.
    """
    corrected = holm([one.contest.p_value for one in standing.rivals])
    return [
        _comparison(one, p, len(standing.rivals), standing.next_look)
        for one, p in zip(standing.rivals, corrected, strict=True)
        if one.arm.ended and one.base.ended
    ]


def over_rates_at_looks(standing: Standing) -> list[OverRates]:
    """The arms over all learning rates, by those seeds that every rate has: the beaten rates have no more than the first look."""
    return over_rates(group_runs([run for run in standing.needed if run.config.seed < standing.plan[0].seeds]))


def _comparison(one: Rivals, p_corrected: float, contests: int, next_look: Look | None) -> Comparison:
    contest = one.contest
    look, contested, decision = contest.look, contest.contested, contest.decision
    if look is None or contested is None:  # no p-value holds before a look
        return _told(contest, replace(compare(one.condition, one.base, one.arm), p_value=1.0, p_corrected=1.0), next_look)
    base, arm = (arm.only(arm.cells, look.seeds) for arm in one.cells(contested))
    found = compare(one.condition, one.base, one.arm, judged=(base, arm), confidence=1 - LEVEL * look.share)
    corrected = p_corrected if decision is None else decision.p_corrected
    told = _told(contest, replace(found, p_value=contest.p_value, p_corrected=corrected), next_look)
    by_order = min(1.0, contest.tests * found.p_value / look.share)
    if told.standing == "alike" and contests * by_order <= LEVEL and replace(found, arm=arm, baseline=base).contradicted:
        return _unclear(replace(told, p_value=by_order, p_corrected=contests * by_order), look.seeds)
    return told


def _told(contest: Contest, found: Comparison, next_look: Look | None) -> Comparison:
    """The comparison with what it has come to, and in words."""
    decision = contest.decision
    if decision is None:
        after = "" if next_look is None else f"; the next look is after {next_look.seeds} seeds"
        return replace(found, standing="open", verdict=f"{BEGINS['open']}: {so_far(found)}{after}")
    seeds = f"after {decision.seeds} seeds"
    if decision.rule == "p" and direction(found) != decision.outcome:
        return _unclear(found, decision.seeds)
    if decision.rule == "p":
        return replace(found, standing=direction(found), verdict=f"{in_figures(found, decided=True)}; decided {seeds}")
    why = "given up, as a verdict had become unlikely," if decision.rule == "unlikely" else "the last look was"
    return replace(found, standing="alike", verdict=f"{BEGINS['alike']}: {in_figures(found)}; {why} {seeds}")


def _unclear(found: Comparison, seeds: int) -> Comparison:
    """Where the order of the waits says one thing and their mean another."""
    told = f"{BEGINS['unclear']}: {in_figures(found, decided=True)}; the last look was after {seeds} seeds"
    return replace(found, standing="unclear", verdict=told)


def _decision(one: Rivals, contests: int) -> dict[str, Any]:
    decision, look = one.contest.decision, one.contest.look
    beaten = ~one.contest.unbeaten(contests)
    return {
        "fix": one.arm.full_label,
        "baseline": one.base.full_label,
        "setting": one.condition.settings,
        "outcome": None if decision is None else decision.outcome,
        "rule": None if decision is None else decision.rule,
        "seeds": None if look is None else look.seeds,
        "beaten_rates": _chosen(one.arm, beaten[one.contest.of_arm]),
        "baseline_beaten_rates": _chosen(one.base, beaten[~one.contest.of_arm]),
    }


def _chosen(arm: Arm, mask: Bools) -> list[float]:
    return [lr for lr, chosen in zip(arm.cells, np.asarray(mask), strict=True) if chosen]
