"""What goes on inside a model: attention, gradients, and what can be read off its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.probes.attention import AttentionProbe
    from eureka.probes.linear import linear_probes
    from eureka.probes.maps import attention_maps
    from eureka.probes.regions import RegionRecord, attention_to
    from eureka.runs import LinearProbe, ProbeRecord, SiteRecord

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
        "linear_probes": "eureka.probes.linear",
        "attention_maps": "eureka.probes.maps",
        **dict.fromkeys(["LinearProbe", "ProbeRecord", "SiteRecord"], "eureka.runs"),
        **dict.fromkeys(["RegionRecord", "attention_to"], "eureka.probes.regions"),
    },
)
