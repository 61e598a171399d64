"""A patch verifies itself: the first call at a site, through plain softmax and through the model's own code, must agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from eureka.attention.softmax import Softmax
from eureka.errors import WorkError
from eureka.patching.slot import find_slot

TOLERANCE = {torch.float64: 1e-4, torch.float32: 5e-3}
"""Relative to the largest number of the model's own result. Half precision: 0.05."""
PLAIN = Softmax()


@dataclass
class SelfCheck:
    """A check that is still to be done at a site."""

    site: str
    undo: Callable[[], None]
    """Leaves the model as it was."""


def due(module: nn.Module, name: str) -> SelfCheck | None:
    """The check of a site, if it is still to be done and can be done now: not while a call is compiled, traced or transformed."""
    if torch.compiler.is_compiling():
        return None
    slot = find_slot(module, name)
    if slot is None or slot.check is None:
        return None
    if torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack() > 0 or torch._C._is_tracing():
        return None
    check: SelfCheck = slot.check
    return check


@torch.no_grad()
def verify(module: nn.Module, name: str, own: Callable[[], Tensor], ours: Callable[[], Tensor]) -> None:
    """Compare what the model computes with what we compute with plain softmax; if they differ, undo the patch and say where.

    Both are called without dropout, once for each site, and leave the random numbers alone.
    """
    check = due(module, name)
    if check is None:
        return
    with torch.random.fork_rng(devices=_devices(module)):
        wanted = own()
        if wanted.is_meta:
            return
        found = ours()
    slot = find_slot(module, name)
    if slot is not None:
        slot.check = None
    if difference := _difference(wanted, found):
        check.undo()
        raise WorkError(
            f"{check.site} ({type(module).__name__}) attends in a way that a patch does not reproduce: with plain softmax its"
            f" result {difference}. The patch is undone; leave this site out with layers=…, or pass check=False."
        )


def _devices(module: nn.Module) -> list[int]:
    return sorted({parameter.get_device() for parameter in module.parameters() if parameter.is_cuda})


def _difference(wanted: Tensor, found: Tensor) -> str:
    """How the results differ; empty if they do not. Rows for which the model gives NaN count for nothing."""
    if wanted.shape != found.shape:
        return f"has the shape {tuple(found.shape)}, not {tuple(wanted.shape)}"
    tolerance = max(TOLERANCE.get(one.dtype, 0.05) for one in (wanted, found))
    wanted, found = wanted.double(), found.double()
    known = wanted.isfinite()
    if not bool(known.any()):
        return ""
    size = wanted[known].abs().max().item()
    off = (found - wanted)[known].abs().max().item()
    return f"is off by {off:.2g}, of {size:.2g}" if not off <= tolerance * size + 1e-6 else ""
