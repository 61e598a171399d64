"""A remedy: one change of a model, its optimiser or its training, that may end a wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from eureka.errors import RequestError
from eureka.forks.case import Fork


@runtime_checkable
class Counting(Protocol):
    """Something that a remedy counts, such as the step of a schedule; it goes on when the remedy moves to the user's model."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


class Change(NamedTuple):
    """One of the changes that a remedy consists of."""

    changes: str
    """in words"""
    code: str
    """by hand"""


@dataclass(frozen=True)
class Applied:
    """A remedy in force: how to end it, what it counts, and what it was applied without."""

    undo: Callable[[], None]
    counting: Sequence[Counting] = ()
    without: tuple[str, ...] = ()
    """why parts of the remedy were left out, a sentence each"""
    done: tuple[Change, ...] = ()
    """the parts that were applied, of a remedy whose parts have words of their own"""


@dataclass(frozen=True)
class Remedy:
    """A change with a name. A user's own is made like ours: ``Remedy("no_dropout", "dropout is 0", apply)``.

    Args:
        apply: changes ``fork.model`` and ``fork.optimizer`` in place, and returns a function that ends what lasts beyond
            that: hooks, operators, settings of modules. Weights, buffers and all that the optimiser holds are put back without
            it, so None is enough for those. ``fork.inputs`` is what the model is called with on the first batch. If it cannot be
            applied it raises a `RequestError` that says why
    """

    name: str
    changes: str
    """what it changes, in a sentence"""
    apply: Callable[[Fork], Callable[[], None] | Applied | None]
    lasting: Callable[[Fork], Callable[[], None] | Applied | None] | None = None
    """what has to be done again where a checkpoint of the run is loaded into a new model: hooks and operators; None if the
    weights and what the optimiser saves hold it all"""
    code: str = ""
    """how to do it by hand, in a line of code or a few"""
    calms: bool = False
    """whether it takes noise out of the steps: that lowers any noisy loss at once, so it is no leap, and only its end counts"""
    restarts: bool = False
    """whether it is a new start: its loss begins high, so it is not given up for that"""
    factor: float | None = None
    """what its steps multiply the learning rate by, if they do; the optimiser's groups do not show it"""


def applied(remedy: Remedy, fork: Fork) -> Applied:
    """Apply a remedy; whatever its function returns."""
    made = remedy.apply(fork)
    if isinstance(made, Applied):
        return made
    if made is not None and not callable(made):
        raise RequestError(f"apply of {remedy.name} returns a {type(made).__name__}; it must return a function, or None.")
    return Applied(made if made is not None else nothing)


def nothing() -> None:
    """Weights and what the optimiser holds are put back by the race itself."""
