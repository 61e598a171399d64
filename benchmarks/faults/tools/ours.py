"""eureka.diagnose."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from benchmarks.faults.judge import Answer
from benchmarks.faults.setup import Plan
from benchmarks.faults.tools.tool import Tool, causes
from benchmarks.faults.training import Case, batches_of, hand_over

TIMED = 12


def seconds_of_a_step(plan: Plan, seed: int) -> float:
    """The median of a few steps of the same run."""
    setup, spent = plan.setup(seed), []
    for batch, _ in zip(batches_of(setup), range(TIMED), strict=False):
        begun = time.perf_counter()
        setup.train_step(batch)
        spent.append(time.perf_counter() - begun)
    return median(spent)


def diagnose(case: Case) -> list[str]:
    """The causes that eureka names, the surest first; nothing for a healthy run."""
    import eureka

    found = eureka.diagnose(case.model, case.batches, loss=case.loss, optimizer=case.optimizer, step=case.step, log=case.log)
    return [finding.cause for finding in found.findings if finding.cause != "healthy"]


def ask(plan: Plan, seed: int, folder: Path) -> Answer:
    case = hand_over(plan, seed, folder)
    step = seconds_of_a_step(plan, seed)
    begun = time.perf_counter()
    found = diagnose(case)
    return Answer(tuple(causes(cause) for cause in found), time.perf_counter() - begun, step)


EUREKA = Tool("eureka", "eureka", ask)
