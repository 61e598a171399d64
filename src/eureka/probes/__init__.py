"""What goes on inside a model: attention, gradients, and what can be read off its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.probes.attention import AttentionProbe
    from eureka.probes.record import ProbeRecord, SiteRecord

__all__ = ["AttentionProbe", "ProbeRecord", "SiteRecord"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "AttentionProbe": "eureka.probes.attention",
        **dict.fromkeys(["ProbeRecord", "SiteRecord"], "eureka.probes.record"),
    },
)
