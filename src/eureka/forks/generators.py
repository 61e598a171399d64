"""The random number generators that a data loader, its data set, sampler or collator hold, and how to put them back."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

DEEP, MANY = 5, 2_000
"""How deep, and at how many objects, a search for generators looks: a data set may hold a great many."""


def generators_of(holder: Any) -> list[Any]:
    """The generators of torch, NumPy and Python that an object holds, itself or in what it holds."""
    found: list[Any] = []
    seen: set[int] = set()
    level = [holder]
    for _ in range(DEEP):
        fresh = [one for one in level if id(one) not in seen][:MANY]
        seen |= {id(one) for one in fresh}
        found += [one for one in fresh if is_generator(one)]
        level = [held for one in fresh if not is_generator(one) for held in _held_by(one)]
    return list({id(one): one for one in found}.values())


def _held_by(one: Any) -> list[Any]:
    if isinstance(one, list | tuple | dict):
        held = list(one.values() if isinstance(one, dict) else one) if len(one) <= 64 else []
    else:
        held = list(getattr(one, "__dict__", {}).values())
    return [value for value in held if not isinstance(value, str | bytes | int | float | torch.Tensor | type | None)]


def is_generator(one: Any) -> bool:
    import numpy as np

    return isinstance(one, torch.Generator | np.random.Generator | np.random.RandomState | random.Random)


def restorer(generator: Any) -> Callable[[], object]:
    """What puts the state of now back."""
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    if hasattr(generator, "bit_generator"):
        return partial(setattr, generator.bit_generator, "state", copy.deepcopy(generator.bit_generator.state))
    return partial(generator.set_state, generator.get_state())
