"""A function that torch.compile leaves alone; a file of its own because the compiler takes seconds to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def uncompiled(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), neither traced nor compiled, whatever it calls."""
    return function(*args)
