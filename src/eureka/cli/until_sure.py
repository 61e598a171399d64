"""A comparison to which seeds are added in rounds until its verdicts are decided: what `eureka compare --until-sure` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eureka.cli.budget import seconds
from eureka.cli.options import print_json
from eureka.cli.run_study import Advice, bring_to_end, make_pool, print_summary, read_runs, write_summary
from eureka.errors import RequestError
from eureka.formats import duration, listing, plural

if TYPE_CHECKING:
    from eureka.runs import Run
    from eureka.study.plan import Study
    from eureka.study.pool import Failure, Pool
    from eureka.study.rounds import Standing
    from eureka.study.summary import Summary

WAIT_SECONDS = 1.0
"""How often runs are looked at that other processes hold."""


def run_until_sure(title: str, study: Study, *, most: int, on: str, workers: int | None, budget: str | None, json: bool) -> None:
    """Add seeds to a study until all is decided, `most` of them are used, or the budget ends; say what was decided and how."""
    from eureka.study.pool import check_failures
    from eureka.study.rounds import compare_at_looks, over_rates_at_looks, stand
    from eureka.study.summary import Summary, grouped

    end = time.monotonic() + seconds(budget)
    standing = stand(study.runs(), most)
    pool = make_pool(on, workers)
    failures: list[Failure] = []
    while standing.next_look is not None and time.monotonic() < end and not failures:
        failures = _round(standing, study, pool, end)
        standing = stand(study.runs(), most)
    folders = study.only(standing.needed).prepare()
    _keep(standing, study)
    summary = Summary(grouped(folders), compare_at_looks(standing), over_rates_at_looks(standing), [])
    document = write_summary(title, study.folder, summary, failures, until_sure=standing.to_json())
    if json:
        print_json(document)
    else:
        print_summary(summary, document)
    check_failures(failures, len(folders))
    if standing.next_look is not None:
        sys.stderr.write(f"The budget has ended; {_outlook(standing, study.runs(), pool)} The same command goes on.\n")


def _round(standing: Standing, study: Study, pool: Pool, end: float) -> list[Failure]:
    """Carry out the runs that the next look needs."""
    assert standing.next_look is not None
    runs = study.runs()
    folders = study.only(standing.missing).prepare()
    _keep(standing, study)
    sys.stderr.write(f"Round {standing.round} of at most {len(standing.plan)}: {_outlook(standing, runs, pool)}\n")
    sys.stderr.flush()
    failures = bring_to_end(pool, read_runs(folders), end - time.monotonic(), _headline(standing, runs, pool))
    return _wait_for_others(failures, end)


def _wait_for_others(failures: list[Failure], end: float) -> list[Failure]:
    """Wait while other processes are at work on all runs that are left; those that then have no result."""
    from eureka.study.pool import without_result

    told = False
    while failures:
        held = {failure.folder.path for failure in failures if failure.folder.at_work()}  # a result is there before it is let go
        failures = without_result(failures)
        if time.monotonic() >= end or any(failure.folder.path not in held for failure in failures):
            break
        if failures and not told:
            told = True
            sys.stderr.write(f"Another process is at work on {plural(len(failures), 'run')} of this round; waiting for it.\n")
            sys.stderr.flush()
        time.sleep(WAIT_SECONDS if failures else 0.0)
    return failures


def _keep(standing: Standing, study: Study) -> None:
    """Write what has been decided beside the runs, for pages that are made from them."""
    from eureka.study.decided import keep_decided
    from eureka.study.rounds import compare_at_looks

    keep_decided(study.folder, compare_at_looks(standing), standing.plan[0].seeds)


def _outlook(standing: Standing, runs: Sequence[Run], pool: Pool) -> str:
    """Who is undecided, and how much it takes to the next look and at most."""
    assert standing.next_look is not None
    verb = "is" if len(standing.undecided) == 1 else "are"
    first, last = standing.next_look.seeds, standing.plan[-1].seeds
    text = (
        f"{listing(standing.names_of_undecided())} {verb} undecided."
        f" The look after {first} seeds needs {_effort(standing.missing, runs, pool)}"
    )
    if first == last:
        return f"{text}."
    return f"{text}; if none decides before, the last one after {last} needs {_effort(standing.until_last_look(), runs, pool)}."


def _effort(missing: Sequence[Run], runs: Sequence[Run], pool: Pool) -> str:
    from eureka.study.durations import expected_seconds

    expected = expected_seconds(missing, runs, pool.workers)
    time_ = "" if expected is None else f", about {duration(expected)} on {plural(pool.workers, 'core')}"
    return f"{plural(len(missing), 'more run')}{time_}"


def _headline(standing: Standing, runs: Sequence[Run], pool: Pool) -> Callable[[], str]:
    """The round, who is undecided, and how much time is left until the look."""
    from eureka.study.durations import expected_seconds

    begun, expected = time.monotonic(), expected_seconds(standing.missing, runs, pool.workers)
    names = listing(standing.names_of_undecided())

    def text() -> str:
        left = None if expected is None else expected - (time.monotonic() - begun)
        when = "" if left is None else f", about {duration(left)} left" if left > 0 else ", longer than expected"
        return f" · round {standing.round} of at most {len(standing.plan)}{when} · undecided: {names}"

    return text


def how_to_decide(summary: Summary, whole: Study, pool: Pool, command: str) -> Advice | None:
    """What to do about comparisons that have not enough runs; None where all have.

    whole   the study with as many seeds as `command` may add
    """
    from eureka.study.durations import expected_seconds
    from eureka.study.rounds import stand

    if summary.unfinished or not any(one.standing == "too few" for one in summary.comparisons):
        return None
    runs = whole.runs()
    try:
        standing = stand(runs)
    except RequestError:  # too many comparisons at once
        return None
    if standing.next_look is None:
        return None
    expected = expected_seconds(standing.missing, runs, pool.workers)
    return Advice(command, standing.next_look.seeds, len(standing.missing), pool.workers, expected)
