"""Several optimisers as one: a run that is trained by two, such as Muon and AdamW, is handed over with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Joined(Optimizer):
    """Steps all of its parts; their groups and what they remember are its own.

    ``both = Joined(muon, adamw)``, then ``both.zero_grad()`` and ``both.step()`` in place of those of the parts, in the step that
    is handed over and in the training that goes on: a remedy that is applied hangs on this object.
    """

    def __init__(self, *parts: Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.state = _States(parts)  # type: ignore[assignment]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A closure is called once, before the parts step."""
        found = None
        if closure is not None:
            with torch.enable_grad():
                found = closure()
        for part in self.parts:
            part.step()
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the parts."""
        super().load_state_dict(state_dict)
        loaded, place = self.state, 0
        for part in self.parts:
            part.param_groups = self.param_groups[place : place + len(part.param_groups)]
            place += len(part.param_groups)
            own = [one for group in part.param_groups for one in group["params"]]
            part.state = defaultdict(dict, {one: loaded[one] for one in own if one in loaded})
        self.state = _States(self.parts)  # type: ignore[assignment]


class _States(MutableMapping[Tensor, Any]):
    """What the parts remember of their parameters, looked up and written where it is."""

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        self.parts = parts

    def _of(self, parameter: Tensor) -> MutableMapping[Tensor, Any]:
        for part in self.parts:
            if any(one is parameter for group in part.param_groups for one in group["params"]):
                return part.state
        raise KeyError(parameter)

    def __getitem__(self, parameter: Tensor) -> Any:
        if parameter not in self:  # a part would make an empty one
            raise KeyError(parameter)
        return self._of(parameter)[parameter]

    def __setitem__(self, parameter: Tensor, value: Any) -> None:
        self._of(parameter)[parameter] = value

    def __delitem__(self, parameter: Tensor) -> None:
        del self._of(parameter)[parameter]

    def __contains__(self, parameter: object) -> bool:
        return any(parameter in part.state for part in self.parts)

    def __iter__(self) -> Iterator[Tensor]:
        for part in self.parts:
            yield from part.state

    def __len__(self) -> int:
        return sum(len(part.state) for part in self.parts)
