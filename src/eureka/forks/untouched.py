"""Watch that a user's function works on the copies it is given, and not on the model that it was written beside."""

from __future__ import annotations

from typing import Any

from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.forks.parking import tensors_of
from eureka.forks.state import KeptState


class Untouched:
    """Keeps the user's model and optimiser while one step is tried; if the step has changed them, they are put back."""

    def __init__(self, user: Fork) -> None:
        self._user, self._kept, self._marks = user, KeptState(user), _marks(user)

    def check(self) -> None:
        """Put everything back, and say so, if anything of the user's has changed."""
        if _marks(self._user) != self._marks:
            self._kept.put(self._user)
            raise RequestError(
                "the function that was given trains your own model, not the copy that it is called with; use its arguments"
                " `model` and `optimizer` only. Your model and optimiser were put back as they were."
            )


def _marks(fork: Fork) -> list[Any]:
    """Which tensors there are, and how often each was written to."""
    return [(id(one), one._version, None if one.grad is None else (id(one.grad), one.grad._version)) for one in tensors_of(fork)]
