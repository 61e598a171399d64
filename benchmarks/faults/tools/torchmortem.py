"""torchmortem: collectors and detectors around the training loop; ``autopsy.step(loss=…)`` after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.faults.judge import Answer
from benchmarks.faults.setup import Plan
from benchmarks.faults.tools.tool import WATCHED, Tool, causes, distinct, watched

STANDS_STILL = causes("lr_too_small", "not_in_optimizer", "no_gradient", "clip_too_tight", "precision")
MEANS = {
    "Vanishing gradients": causes("no_gradient", "dead_units", "rank_collapse"),
    "Exploding gradients": causes("lr_too_large", "inputs_unscaled"),
    "Gradient stalling": causes("no_gradient", "not_in_optimizer", "dead_units", "attention_saturated", "attention_flat"),
    "Dead units": causes("dead_units"),
    "High gradient noise": causes("labels_unrelated"),
    "Training divergence": causes("lr_too_large"),
    "Rank collapse": causes("rank_collapse"),
    "Update ratio too low": STANDS_STILL,
    "Update ratio too high": causes("lr_too_large", "weight_decay_too_large"),
    "Weight norm explosion": causes("lr_too_large"),
    "Stagnant weight norms": STANDS_STILL,
}


def read(finding: Any) -> frozenset[str]:
    return next((means for title, means in MEANS.items() if finding.title.startswith(title)), frozenset())


def ask(plan: Plan, seed: int, folder: Path) -> Answer:
    from torchmortem import Autopsy

    setup = plan.setup(seed)
    with Autopsy(setup.model, optimizer=setup.optimizer) as autopsy:

        def after_step(_step: int, loss: Tensor) -> None:
            autopsy.step(loss=loss.item())

        watched(setup, plan.warm + WATCHED, seed, after_step)
    report = autopsy.report(folder / "report.json")
    return Answer(distinct([read(finding) for finding in report.findings if finding.severity.name != "INFO"]))


TORCHMORTEM = Tool("torchmortem", "torchmortem", ask)
