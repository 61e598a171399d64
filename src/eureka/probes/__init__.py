"""What goes on inside a model: attention, gradients, and what can be read off its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.probes.attention import AttentionProbe
    from eureka.probes.linear import LinearProbe, linear_probes
    from eureka.probes.maps import attention_maps
    from eureka.probes.record import ProbeRecord, SiteRecord
    from eureka.probes.regions import RegionRecord, attention_to

__all__ = [
    "AttentionProbe",
    "LinearProbe",
    "ProbeRecord",
    "RegionRecord",
    "SiteRecord",
    "attention_maps",
    "attention_to",
    "linear_probes",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "AttentionProbe": "eureka.probes.attention",
        **dict.fromkeys(["LinearProbe", "linear_probes"], "eureka.probes.linear"),
        "attention_maps": "eureka.probes.maps",
        **dict.fromkeys(["ProbeRecord", "SiteRecord"], "eureka.probes.record"),
        **dict.fromkeys(["RegionRecord", "attention_to"], "eureka.probes.regions"),
    },
)
