"""Everything `eureka detect` says about one curve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eureka.curves.detector import detect
from eureka.curves.grid import clean
from eureka.curves.levels import NOTHING, Given
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.notes import judging_notes, rate_caveat
from eureka.curves.plateaus import find_plateaus
from eureka.curves.readers.curve import Curve
from eureka.curves.thresholds import THRESHOLDS
from eureka.formats import plural, step


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A curve with its plateaus and moments."""

    curve: Curve
    plateaus: list[Plateau]
    moments: list[EurekaMoment]
    given: Given = NOTHING

    @property
    def title(self) -> str:
        """Which curve it is: its file and, where that holds several, its run."""
        return " · ".join(one for one in (self.curve.file, self.curve.run) if one)

    @cached_property
    def length(self) -> int:
        """Finite points at different steps."""
        return len(clean(self.curve.values, self.curve.steps)[0])

    @property
    def judged(self) -> bool:
        """Whether there are points enough to say anything."""
        return self.length >= THRESHOLDS.min_points

    @property
    def eurekas(self) -> list[EurekaMoment]:
        return [moment for moment in self.moments if moment.kind == "eureka"]

    @property
    def resting(self) -> Plateau | None:
        """The plateau that the curve is on at its end; none if it ends with what is no number."""
        if len(self.curve.broken):
            return None
        steps = self.curve.steps
        late = float(steps.max() - 0.05 * (steps.max() - steps.min()))
        return self.plateaus[-1] if self.plateaus and self.plateaus[-1].end >= late else None

    @property
    def notes(self) -> list[str]:
        """What was read and how, and what the detector had to do without."""
        curve = self.curve
        judging = judging_notes(curve.values, curve.steps, self.moments, epochs_known=curve.epochs is not None)
        return [*curve.notes, *judging]

    def verdict(self) -> str:
        """What was found, in one sentence."""
        broken = self.curve.broken
        return self._found() + (f"; no number from {self.curve.step_name} {step(float(broken[0]))} on" if len(broken) else "")

    def _found(self) -> str:
        if not self.judged:
            return f"too short to judge ({plural(self.length, 'point')})"
        others = len(self.moments) - len(self.eurekas)
        aside = f" ({plural(others, 'other drop')} explained)" if others else ""
        if self.eurekas:
            where = ", ".join(step(moment.steepest) for moment in self.eurekas)
            caveat = rate_caveat(self.eurekas, rate_known=self.curve.lr is not None)
            return f"{plural(len(self.eurekas), 'Eureka-moment')}, at {self.curve.step_name} {where}{aside}{caveat}"
        if self.resting is not None:
            return f"no Eureka-moment; it is on a plateau at {self.resting.level:.4g}{aside}"
        return f"no Eureka-moment{aside}"

    def document(self) -> dict[str, Any]:
        """This curve's part of the JSON document that ``eureka detect --json`` prints."""
        keys = ("onset", "steepest", "end", "before", "after", "kind", "confidence")
        return {
            "file": self.curve.file,
            "run": self.curve.run,
            "metric": self.curve.metric,
            "role": self.curve.role,
            "rising": self.curve.rising,
            "step": self.curve.step_name,
            "metrics": list(self.curve.metrics),
            "points": self.curve.points,
            "notes": self.notes,
            "plateaus": [{"start": one.start, "end": one.end, "level": one.level} for one in self.plateaus],
            "moments": [{key: getattr(moment, key) for key in keys} for moment in self.moments],
        }


def examine(curve: Curve, *, given: Given = NOTHING, min_confidence: float = THRESHOLDS.sure) -> Finding:
    """Find the plateaus and moments of a curve, with what is given about its task."""
    moments = detect(
        curve.values,
        curve.steps,
        lr=curve.lr,
        epochs=curve.epochs if curve.role != "validation" else None,  # only what is trained on is memorised
        rising=curve.rising,
        floor=given.floor,
        min_confidence=min_confidence,
    )
    plateaus = find_plateaus(curve.values, curve.steps, rising=curve.rising, moments=moments)
    return Finding(curve=curve, plateaus=plateaus, moments=moments, given=given)
