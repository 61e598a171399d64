"""A function that torch.compile does not trace; in a file of its own because importing the compiler takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def uncompiled(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), neither traced nor compiled."""
    return function(*args)
