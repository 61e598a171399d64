"""Are the units alive? ReLUs that give zero for every token of a batch."""

from __future__ import annotations

from collections.abc import Iterator

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.formats import percent, plural

MOST = 0.9


def dead_layers(exam: Exam) -> list[float]:
    """For each ReLU layer of which nearly all units are dead, their share."""
    shares = [float(silent.float().mean()) for silent in exam.view.silent]
    return [share for share in shares if share > MOST]


def check(exam: Exam) -> Iterator[Finding]:
    shares, dead = exam.view.silent, exam.once(dead_layers)
    if not dead or (exam.well and max(dead) < 1.0):
        return
    explains = 0.95 if max(dead) > 0.99 else 0.6 + 0.35 * len(dead) / len(shares)
    yield Finding(
        cause="dead_units",
        sure=0.92,
        explains=0.6 if exam.well else explains,
        evidence=(
            f"In {len(dead)} of {plural(len(shares), 'ReLU layer')} {percent(max(dead), 0)} of the units give zero for every"
            " token of a batch: nothing behind them gets a gradient.",
        ),
        advice="begin again with a lower rate or another initialisation (biases at 0), or use GELU or LeakyReLU.",
        numbers={"dead": max(dead)},
    )
