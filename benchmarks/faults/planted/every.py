"""All plans of the suite: the faults in the order of the checks that should find them, then the healthy runs."""

from __future__ import annotations

from benchmarks.faults.planted import healthy, inputs, labels, movement, sight, signal
from benchmarks.faults.setup import Plan

PLANS: list[Plan] = [
    *movement.PLANS,
    *labels.PLANS,
    *inputs.PLANS,
    *sight.PLANS,
    *signal.PLANS,
    *healthy.PLANS,
]
