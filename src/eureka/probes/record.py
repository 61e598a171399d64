"""What a probe saw in one step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

MEASURES = ("entropy", "participation", "spread", "near_uniform", "near_one_hot", "grad_q", "grad_k", "grad_v", "grad_ratio")


@dataclass
class SiteRecord:
    """One site: by measure, a number for each head."""

    index: int
    name: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def mean(self, measure: str) -> float | None:
        """Over the heads; None when it was not measured."""
        known = [value for value in self.values.get(measure, []) if math.isfinite(value)]
        return sum(known) / len(known) if known else None


@dataclass
class ProbeRecord:
    """All sites at one training step."""

    step: int
    sites: list[SiteRecord]

    def site(self, name: str) -> SiteRecord:
        return next(site for site in self.sites if site.name == name)

    def scalars(self, prefix: str = "attention") -> dict[str, float]:
        """For loggers: the mean over heads of every measure of every site."""
        return {f"{prefix}/{site.name}/{name}": value for site in self.sites for name, value in _means(site)}

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers; what is not a number becomes None."""
        plain = asdict(self)
        for site in plain["sites"]:
            site["values"] = {k: [x if math.isfinite(x) else None for x in v] for k, v in site["values"].items()}
        return plain


def _means(site: SiteRecord) -> Iterator[tuple[str, float]]:
    for name in MEASURES:
        value = site.mean(name)
        if value is not None:
            yield name, value


def gradient_ratio(q: list[float], k: list[float], v: list[float]) -> list[float]:
    """(|∂W_Q| + |∂W_K|) / (2 |∂W_V|) head by head; small when the softmax passes no gradient on.

    >>> gradient_ratio([1.0, 1.0], [3.0], [4.0])
    [0.5, 0.5]
    """
    heads = max(len(q), len(k), len(v))
    q, k, v = ([x for x in part for _ in range(heads // len(part))] for part in (q, k, v))  # grouped heads share their keys
    return [(a + b) / (2 * c) if c > 0 else math.nan for a, b, c in zip(q, k, v, strict=True)]
