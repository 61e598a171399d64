"""Watch that a user's function works on the copies it is given, and not on the model that it was written beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.forks.parking import parameters_beside, tensors_of
from eureka.forks.state import KeptState
from eureka.formats import plural

PUT_BACK = "Your model and optimiser were put back as they were."


class Untouched:
    """Keeps the user's model and optimiser while one step is tried; if the step has changed them, they are put back."""

    def __init__(self, user: Fork) -> None:
        self._user, self._kept, self._marks = user, KeptState(user), _marks(user)
        given = {id(one) for group in user.optimizer.param_groups for one in group["params"]}
        self._not_given = {id(one) for one in user.model.parameters()} - given
        self._second: Optimizer | None = None
        self._handle = register_optimizer_step_pre_hook(self._before_step)

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        """A second optimiser of the user's does not step: it would change their own parameters, and what it remembers."""
        if any(id(one) in self._not_given for group in optimizer.param_groups for one in group["params"]):
            self._second = optimizer
            raise RequestError(_two_optimisers(optimizer))

    def check(self) -> None:
        """Put everything back, and say so, if anything of the user's has changed."""
        self._handle.remove()
        now = _marks(self._user)
        changed = {one for one in {**self._marks, **now} if self._marks.get(one) != now.get(one)}
        if not changed and self._second is None:
            return
        self._kept.put(self._user)
        beside = [one for one in parameters_beside(self._user.model, self._user.optimizer) if id(one) in changed]
        if self._second is not None:
            raise RequestError(_two_optimisers(self._second))
        if len(beside) == len(changed):
            raise RequestError(_trained_beside(beside))
        raise RequestError(
            "the function that was given trains your own model, not the copy that it is called with; use its arguments"
            f" `model` and `optimizer` only. {PUT_BACK}"
        )


def _two_optimisers(second: Optimizer) -> str:
    return (
        f"the step also steps {type(second).__name__}, an optimiser that was not given: that trains your own model, not the copy;"
        " make one of the two (from eureka.forks.joined import Joined: Joined(first, second)), give that one, and step it only."
        f" {PUT_BACK}"
    )


def _trained_beside(changed: Sequence[Tensor]) -> str:
    few = f"{plural(len(changed), 'parameter')} that {'is' if len(changed) == 1 else 'are'} not the model's"
    return (
        f"the optimiser trains {few}, such as those of a loss, and copies of the model come without them; give one module that"
        ' holds both: both = nn.ModuleDict({"model": model, "loss": loss}), with'
        ' loss=lambda both, batch: both["loss"](both["model"](…), …), and the same optimiser.'
        f" {PUT_BACK}"
    )


def _marks(fork: Fork) -> dict[int, Any]:
    """Which tensors there are, and how often each was written to."""
    return {id(one): (one._version, None if one.grad is None else (id(one.grad), one.grad._version)) for one in tensors_of(fork)}
