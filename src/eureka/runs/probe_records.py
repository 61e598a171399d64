"""What was measured inside a model, as typed records."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from eureka.formats import number, percent
from eureka.runs.parsing import Number, plain

MEASURES = ("entropy", "participation", "spread", "near_uniform", "near_one_hot", "grad_q", "grad_k", "grad_v", "grad_ratio")
"""The measures of a `SiteRecord`, in the order in which people should see them."""
INDUCTION = ("prefix_matching", "prefix_chance", "previous_token", "copying")
"""More measures, of runs on tasks that repeat tokens: the induction-head scores of `eureka.probes.induction`."""


@dataclass(frozen=True)
class SiteRecord:
    """One attention layer: by measure, a number for each head."""

    index: int
    name: str
    values: dict[str, list[Number]] = field(default_factory=dict)

    def mean(self, measure: str) -> float | None:
        """The mean over heads; None when it was not measured."""
        known = [value for value in self.values.get(measure, []) if math.isfinite(value)]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, kw_only=True)
class PositionShare:
    """How much of what the first attention works with is position, and not content (`eureka.probes.position_share`)."""

    site: str
    """the attention that is called first"""
    parameters: list[str] = field(default_factory=list)
    """what the positions are made of; empty if they are computed anew in each pass, or if there are none"""
    position: Number = math.nan
    """root mean square of the positions that are added to the content before it; NaN where none are"""
    content: Number = math.nan
    """that of the content"""
    logits: list[Number] = field(default_factory=list)
    """of the variance of a row of logits the share that comes from the positions of the keys, head by head"""
    note: str | None = None
    """why something was not measured"""

    @property
    def ratio(self) -> float:
        """rms(positions) / rms(content), which `eureka.clear_start` sets to 1."""
        return self.position / self.content if self.content > 0 else math.nan

    @property
    def of_input(self) -> float:
        """rms(positions)² / (rms(positions)² + rms(content)²)."""
        return self.ratio**2 / (1 + self.ratio**2)

    @property
    def of_logits(self) -> float:
        """The mean over heads."""
        known = [value for value in self.logits if math.isfinite(value)]
        return sum(known) / len(known) if known else math.nan

    def __str__(self) -> str:
        parts = []
        if math.isfinite(self.ratio):
            rms = f"{number(self.position)} beside {number(self.content)}"
            parts.append(f"{percent(self.of_input)} of the input (root mean square {rms}, ratio {number(self.ratio)})")
        if math.isfinite(self.of_logits):
            heads = f" ({', '.join(percent(value) for value in self.logits)} by head)" if len(self.logits) > 1 else ""
            parts.append(f"{percent(self.of_logits)} of the variance in a row of logits{heads}")
        return f"{self.site}: positions are {' and '.join(parts) or 'not measured'}{f'; {self.note}' if self.note else ''}"


@dataclass(frozen=True)
class ProbeRecord:
    """All attention layers at one training step."""

    step: int
    sites: list[SiteRecord]
    position_share: PositionShare | None = None
    """None if it was not measured, as in older runs"""

    def site(self, name: str) -> SiteRecord:
        return next(site for site in self.sites if site.name == name)

    def scalars(self, prefix: str = "attention", *, per_layer: bool = True) -> dict[str, float]:
        """For loggers: the mean over heads of every measure, of every site or over all of them, and the position shares."""
        names = (*MEASURES, *INDUCTION)
        if per_layer:
            means = {f"{prefix}/{site.name}/{measure}": site.mean(measure) for site in self.sites for measure in names}
        else:
            means = {f"{prefix}/{measure}": self._mean(measure) for measure in names}
        if (share := self.position_share) is not None:
            means |= {f"{prefix}/position_share_of_input": share.of_input, f"{prefix}/position_share_of_logits": share.of_logits}
        return {name: value for name, value in means.items() if value is not None and math.isfinite(value)}

    def _mean(self, measure: str) -> float | None:
        """Over all sites that have it."""
        found = [value for site in self.sites if (value := site.mean(measure)) is not None and math.isfinite(value)]
        return sum(found) / len(found) if found else None

    @property
    def sentence(self) -> str:
        """The state of attention in words."""
        entropy, ratio = self._mean("entropy"), self._mean("grad_ratio")
        told = "" if entropy is None else f"Rows of attention have {entropy:.3f} of the entropy that they could have"
        flow = "" if ratio is None else f", and W_Q and W_K get {ratio:.3f} of the gradient of W_V"
        return f"{told}{flow}." if told else ""

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers; a value that is not finite becomes None."""
        return plain(asdict(self))  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """How well one answer can be read off one representation."""

    site: str
    layer: int
    head: int | None
    """None for what all heads made together."""
    representation: str
    """q, k, v; z, the mixed values of a head; block, the output of the whole block"""
    answer: str
    accuracy: Number
    """on samples that the probe was not fitted to"""
    chance: Number
    """the share of the commonest answer"""
    bits: Number
    """online code length in bits an answer: how hard the answers are to transmit to somebody who sees the representation"""
    uniform_bits: Number
    """the same for somebody who sees nothing and knows nothing: log₂ of the number of classes"""

    def to_json(self) -> dict[str, Any]:
        """Plain texts and numbers; a value that is not finite becomes None."""
        return plain(asdict(self))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Readings:
    """What linear probes read off a model after a number of steps."""

    step: int
    found: list[LinearProbe]

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "found": [one.to_json() for one in self.found]}


@dataclass(frozen=True)
class Probes:
    """What `eureka probe` measured last."""

    record: ProbeRecord | None = None
    linear: dict[str, Readings] = field(default_factory=dict)
    """by when: "before" the Eureka-moment, "after" it"""

    def to_json(self) -> dict[str, Any]:
        record = {} if self.record is None else {"record": self.record.to_json()}
        return record | ({"linear": {when: found.to_json() for when, found in self.linear.items()}} if self.linear else {})
