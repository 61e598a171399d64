"""Swap the attention of somebody's model, reversibly, counted and exact: the function is `eureka.patch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.patching.patch import Patched, unpatch
    from eureka.patching.sites import Site, find_sites

__all__ = ["Patched", "Site", "find_sites", "unpatch"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(["Patched", "unpatch"], "eureka.patching.patch"),
        **dict.fromkeys(["Site", "find_sites"], "eureka.patching.sites"),
    },
)
