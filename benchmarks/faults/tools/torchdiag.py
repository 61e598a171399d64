"""torchdiag: ``verify_step``, ``check_gradients`` and ``check_dead_neurons`` on the run as it is handed over."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from benchmarks.faults.judge import Answer
from benchmarks.faults.setup import Loss, Plan
from benchmarks.faults.tools.tool import Tool, causes, distinct
from benchmarks.faults.training import train

NOTHING_MOVES = causes("lr_too_small", "not_in_optimizer", "no_gradient", "precision")
DISCONNECTED = causes("no_gradient")
VANISHES = causes("no_gradient", "dead_units", "attention_flat", "attention_saturated")
EXPLODES = causes("lr_too_large", "inputs_unscaled")
DEAD = causes("dead_units")


class Whole(nn.Module):
    """A model that answers with its loss: torchdiag hands one argument to a model and asks for the shape of what comes back."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Any) -> Tensor:
        return self.loss(self.model, batch)


def ask(plan: Plan, seed: int, _folder: Path) -> Answer:
    import torchdiag

    setup = plan.setup(seed)
    train(setup, plan.warm, seed)
    whole, batch = Whole(setup.model, setup.loss), next(iter(setup.batches))
    with contextlib.redirect_stdout(io.StringIO()):
        step = torchdiag.verify_step(whole, setup.optimizer, lambda loss, _target: loss, batch, None)
        gradients = torchdiag.check_gradients(whole)
        dead = torchdiag.check_dead_neurons(whole, batch)
    findings = [NOTHING_MOVES] if step.get("params_updated") == 0 else []
    findings += [DEAD for layer in dead.values() if layer["dead_pct"] > 20]
    means = {"no_grad": DISCONNECTED, "VANISH": VANISHES, "EXPLODE": EXPLODES}
    findings += [means[found["status"]] for found in gradients.values() if found["status"] in means]
    return Answer(distinct(findings))


TORCHDIAG = Tool("torchdiag", "torchdiag", ask)
