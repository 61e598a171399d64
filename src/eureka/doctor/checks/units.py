"""Are the units alive? ReLUs that give zero for every token of a batch."""

from __future__ import annotations

from collections.abc import Iterator

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.formats import percent, plural

MOST = 0.9


def check(exam: Exam) -> Iterator[Finding]:
    shares = [float(silent.float().mean()) for silent in exam.view.silent]
    dead = [share for share in shares if share > MOST]
    if not dead or exam.learning:
        return
    yield Finding(
        cause="dead_units",
        sure=0.92,
        explains=0.6 + 0.35 * len(dead) / len(shares),
        evidence=(
            f"In {len(dead)} of {plural(len(shares), 'ReLU layer')} {percent(max(dead), 0)} of the units give zero for every token of a"
            " batch: nothing behind them gets a gradient.",
        ),
        advice="begin again with a lower rate or another initialisation (biases at 0), or use GELU or LeakyReLU.",
        numbers={"dead": max(dead)},
    )
