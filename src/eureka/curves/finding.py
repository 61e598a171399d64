"""Everything `eureka detect` says about one curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eureka.curves.detector import SURE, detect
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.plateaus import find_plateaus
from eureka.curves.readers import Curve


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A curve with its plateaus and moments."""

    curve: Curve
    plateaus: list[Plateau]
    moments: list[EurekaMoment]

    def verdict(self) -> str:
        """One sentence."""
        eurekas = [moment for moment in self.moments if moment.kind == "eureka"]
        others = len(self.moments) - len(eurekas)
        aside = f" ({others} other drop{'s' if others > 1 else ''} explained)" if others else ""
        if eurekas:
            steps = ", ".join(
                f"{moment.steepest:,.4g}" if moment.steepest < 1 else f"{moment.steepest:,.0f}" for moment in eurekas
            )
            return f"{len(eurekas)} Eureka-moment{'s' if len(eurekas) > 1 else ''}, at {self.curve.step_name} {steps}{aside}"
        if self.plateaus and self.plateaus[-1].end >= self.curve.steps.max() - 0.05 * float(
            self.curve.steps.max() - self.curve.steps.min()
        ):
            return f"no Eureka-moment; it is on a plateau at {self.plateaus[-1].level:.4g}{aside}"
        return f"no Eureka-moment{aside}"

    def document(self) -> dict[str, Any]:
        """The part of the JSON document about this file."""
        keys = ("onset", "steepest", "end", "before", "after", "kind", "confidence")
        return {
            "file": self.curve.file,
            "metric": self.curve.metric,
            "step": self.curve.step_name,
            "metrics": list(self.curve.metrics),
            "points": self.curve.points,
            "plateaus": [{"start": one.start, "end": one.end, "level": one.level} for one in self.plateaus],
            "moments": [{key: getattr(moment, key) for key in keys} for moment in self.moments],
        }


def examine(curve: Curve, *, min_confidence: float = SURE) -> Finding:
    """Look for plateaus and moments in a curve that was read."""
    moments = detect(curve.values, curve.steps, lr=curve.lr, min_confidence=min_confidence)
    return Finding(curve=curve, plateaus=find_plateaus(curve.values, curve.steps, moments=moments), moments=moments)
