"""training-doctor: rules on loss, rate and gradient norm; ``doctor.log(step=…, loss=…, lr=…, grad_norm=…)`` after every step."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from benchmarks.faults.judge import Answer
from benchmarks.faults.setup import Plan
from benchmarks.faults.tools.tool import WATCHED, Tool, causes, distinct, watched

MEANS = {
    "lr_too_high": causes("lr_too_large", "inputs_unscaled"),
    "lr_too_low": causes("lr_too_small", "clip_too_tight", "precision"),
    "gradient_instability": causes("lr_too_large", "inputs_unscaled", "no_gradient", "dead_units"),
    "overfitting": causes("data_repeated"),
}


def ask(plan: Plan, seed: int, _folder: Path) -> Answer:
    from training_doctor import Doctor

    setup, doctor = plan.setup(seed), Doctor()
    doctor.set_auto_print(False)

    def after_step(step: int, loss: Tensor) -> None:
        norms = [value.grad.norm() for value in setup.model.parameters() if value.grad is not None]
        norm = torch.stack(norms).norm().item() if norms else 0.0
        doctor.log(step=step, loss=loss.item(), lr=setup.optimizer.param_groups[0]["lr"], grad_norm=norm)

    watched(setup, plan.warm + WATCHED, seed, after_step)
    ranked = sorted(doctor.diagnoses, key=lambda found: -found.confidence)
    return Answer(distinct([MEANS.get(found.detector_name, frozenset()) for found in ranked]))


TRAINING_DOCTOR = Tool("training-doctor", "training_doctor", ask)
