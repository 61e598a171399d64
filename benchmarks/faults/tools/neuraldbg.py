"""neuraldbg: hooks around the training loop and ``record_loss``, then events.

Its ranked hypotheses need an engine that is not on PyPI; the open part answers with the events that it saw.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from benchmarks.faults.judge import Answer
from benchmarks.faults.setup import Plan
from benchmarks.faults.tools.tool import WATCHED, Tool, causes, distinct, watched

FAILURES = ("gradient_health_transition", "activation_regime_shift", "optimizer_instability", "data_anomaly")
MEANS = {
    "vanishing": causes("no_gradient", "dead_units", "rank_collapse", "attention_flat", "attention_saturated"),
    "exploding": causes("lr_too_large", "inputs_unscaled"),
    "dead": causes("dead_units"),
    "saturated": causes("inputs_unscaled", "attention_saturated"),
    "diverging": causes("lr_too_large"),
    "loss_spike": causes("lr_too_large"),
    "nan_detected": causes("lr_too_large"),
    "inf_detected": causes("lr_too_large"),
}


def ask(plan: Plan, seed: int, _folder: Path) -> Answer:
    from neuraldbg import NeuralDbg

    setup = plan.setup(seed)
    with NeuralDbg(setup.model) as debugger:

        def after_step(step: int, loss: Tensor) -> None:
            debugger.step = step
            debugger.record_loss(loss.item())

        watched(setup, plan.warm + WATCHED, seed, after_step)
    events = [event for failure in FAILURES for told in debugger.explain_failure(failure) for event in told.evidence]
    events.sort(key=lambda event: -event.confidence)
    states = [str(getattr(event.to_state, "value", event.to_state)) for event in events]
    return Answer(distinct([MEANS.get(state, frozenset()) for state in states if state not in ("healthy", "normal", "stable")]))


NEURALDBG = Tool("neuraldbg", "neuraldbg", ask)
