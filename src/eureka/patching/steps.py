"""Schedules advance with the optimiser that trains the model, or by hand."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from eureka.attention.operator import Operator


class Steps:
    """Counts the training steps of a model and tells its operators.

    The optimiser that first steps a parameter of the model is the one that counts: two of them, for two halves of a model, do not
    count double. Counting by hand takes over from it.
    """

    def __init__(self, model: nn.Module, operators: Sequence[Operator], *, follow: bool = True) -> None:
        self.step = self._start = self._by_hand = 0
        self._operators = list(operators)
        self._model = weakref.ref(model)
        self._leader: weakref.ref[Optimizer] | None = None
        scheduled = any(type(operator).advance is not Operator.advance for operator in self._operators)
        self._hook = register_optimizer_step_post_hook(self._optimiser_stepped) if scheduled and follow else None
        self.set(0)

    def set(self, step: int) -> None:
        """Go on from this step."""
        self.step = self._start = step
        self._by_hand = 0
        self._tell()

    def count(self) -> None:
        """One step more, by hand; steps that an optimiser counted before the first such call are those same steps."""
        self._release()
        self._by_hand += 1
        self.step = self._start + self._by_hand
        self._tell()

    def close(self) -> None:
        self._release()

    def _release(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _optimiser_stepped(self, optimiser: Optimizer, *_: Any) -> None:
        if followed(self._leader, optimiser, self._model()):
            self._leader = weakref.ref(optimiser)
            self.step += 1
            self._tell()

    def _tell(self) -> None:
        for operator in self._operators:
            operator.advance(self.step)


def followed(leader: weakref.ref[Optimizer] | None, optimiser: Optimizer, model: nn.Module | None) -> bool:
    """Whether this optimiser is the one whose steps count: the leader, or the first to train the model while there is none."""
    known = leader() if leader is not None else None
    if known is not None or model is None:
        return known is optimiser
    own = {id(parameter) for parameter in model.parameters()}
    return any(id(parameter) in own for group in optimiser.param_groups for parameter in group["params"])
