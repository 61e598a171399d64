"""Train and validation of one run, told together: who fell first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eureka.curves.finding import Finding
from eureka.curves.moment import EurekaMoment
from eureka.curves.readers.columns import base_of, run_and_metric
from eureka.formats import step

FEW = 30
"""A curve of fewer points may hide a fall."""


@dataclass(frozen=True)
class Pair:
    """The same metric of the same run on training and on validation data."""

    train: Finding
    validation: Finding

    def sentence(self) -> str | None:
        """Which of the two left its plateau first; None if neither did."""
        train, validation = _main(self.train), _main(self.validation)
        verb = "rose" if self.train.curve.rising else "fell"
        unit = (self.validation if train is None else self.train).curve.step_name
        if train is None and validation is None:
            return None
        if train is None or validation is None:
            [(name, found)] = [(n, one) for n, one in (("train", train), ("validation", validation)) if one is not None]
            other, silent = ("validation", self.validation) if name == "train" else ("train", self.train)
            if len(silent.curve.values) < FEW:
                few = f"{other} has too few points to tell ({len(silent.curve.values)})"
                return f"{name} {verb} at {unit} {step(found.steepest)}; {few}"
            return f"{name} {verb} at {unit} {step(found.steepest)}; {other} has no such {'rise' if verb == 'rose' else 'fall'}"
        if self.validation.curve.step_name != unit:
            other = self.validation.curve.step_name
            where = f"train {verb} at {unit} {step(train.steepest)}, validation at {other} {step(validation.steepest)}"
            return f"{where}: counted differently, so their order is not known"
        if validation.onset > train.end:
            return f"train {verb} at {step(train.steepest)}, validation at {step(validation.steepest)}: memorised first"
        if train.onset > validation.end:
            return f"validation {verb} at {step(validation.steepest)}, train at {step(train.steepest)}: validation first"
        return f"train and validation {verb} together, at {unit} {step(train.steepest)}"

    def document(self) -> dict[str, Any]:
        """This pair's part of the JSON document that ``eureka detect --json`` prints."""
        curve = self.train.curve
        return {
            "file": curve.file,
            "run": curve.run,
            "train": curve.metric,
            "validation": self.validation.curve.metric,
            "sentence": self.sentence(),
        }


def _main(finding: Finding) -> EurekaMoment | None:
    """The greatest Eureka-moment of a curve."""
    return max(finding.eurekas, key=lambda moment: moment.drop, default=None)


def pairs(findings: Sequence[Finding]) -> Iterator[Pair]:
    """Every validation curve with the train curve of the same metric of the same run, where one of them has a moment."""
    judged = [finding for finding in findings if finding.judged]
    for validation in judged:
        if validation.curve.role == "validation":
            same = [train for train in judged if train.curve.role == "train" and _same(train, validation)]
            alike = [train for train in same if train.curve.step_name == validation.curve.step_name]
            pair = Pair((alike or same)[0], validation) if same else None
            if pair is not None and pair.sentence() is not None:
                yield pair


def _same(train: Finding, validation: Finding) -> bool:
    a, b = train.curve, validation.curve
    names = base_of(run_and_metric(a.metric)[1]) == base_of(run_and_metric(b.metric)[1])
    return (a.file, a.run, a.rising) == (b.file, b.run, b.rising) and names
