"""Train and validation of one run, told together: who fell first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eureka.curves.finding import Finding
from eureka.curves.grid import clean, extent, smooth
from eureka.curves.moment import EurekaMoment
from eureka.curves.readers.columns import base_of, run_and_metric
from eureka.formats import step

FEW = 30
"""A curve of fewer points may hide a fall."""
LONG = 0.1
"""Validation comes long after train if it waited this share of its time by itself."""
MOST = 0.7
"""A curve is through when this share of its way is behind it."""


KINDS = {
    "eureka": "a Eureka-moment",
    "lr_step": "a step of the learning rate",
    "recovery": "the end of a rise",
    "epoch_boundary": "the beginning of an epoch",
    "leak": "a leak",
}


@dataclass(frozen=True)
class Pair:
    """The same metric of the same run on training and on validation data."""

    train: Finding
    validation: Finding

    @property
    def counted_alike(self) -> bool:
        return self.train.curve.step_name == self.validation.curve.step_name

    @property
    def memorised_first(self) -> bool:
        """Whether train was through before validation began, abruptly or not."""
        train, validation = _main(self.train), _main(self.validation)
        if validation is None or not self.counted_alike:
            return False
        if train is not None:
            waited = validation.onset - float(self.validation.curve.steps.min())
            return validation.onset - train.end > LONG * waited
        return _done_by(self.train, validation.onset)

    def sentence(self) -> str | None:
        """Which of the two left its plateau first; None if neither did."""
        train, validation = _main(self.train), _main(self.validation)
        verb = "rose" if self.train.curve.rising else "fell"
        unit = self.train.curve.step_name
        if train is None or validation is None:
            return self._one_fell(verb) if train is not None or validation is not None else None
        if not self.counted_alike:
            other = self.validation.curve.step_name
            where = f"train {verb} at {unit} {step(train.steepest)}, validation at {other} {step(validation.steepest)}"
            return f"{where}: counted differently, so their order is not known"
        if self.memorised_first:
            return f"train {verb} at {step(train.steepest)}, validation at {step(validation.steepest)}: memorised first"
        if validation.onset > train.end:
            return f"train {verb} at {step(train.steepest)}, validation at {step(validation.steepest)}: train a little before"
        if train.onset > validation.end:
            return f"validation {verb} at {step(validation.steepest)}, train at {step(train.steepest)}: validation first"
        return f"train and validation {verb} together, at {unit} {step(train.steepest)}"

    def _one_fell(self, verb: str) -> str:
        """What is said if only one of the two has a moment."""
        two = [("train", self.train), ("validation", self.validation)]
        (name, found), (other, silent) = two if self.train.eurekas else reversed(two)
        moment = _main(found)
        assert moment is not None
        where = f"{name} {verb} at {found.curve.step_name} {step(moment.steepest)}"
        if len(silent.curve.values) < FEW:
            return f"{where}; {other} has too few points to tell ({len(silent.curve.values)})"
        if self.counted_alike and _done_by(silent, moment.onset):
            return f"{where}; {other} {verb} before, but not abruptly" + (": memorised first" if self.memorised_first else "")
        if self.counted_alike and (same := _overlapping(silent, moment)) is not None:
            return f"{where}; {other} {verb} there too, which counts as {KINDS[same.kind]}"
        return f"{where}; {other} has no such {'rise' if verb == 'rose' else 'fall'}"

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


def _overlapping(finding: Finding, moment: EurekaMoment) -> EurekaMoment | None:
    """What a curve did during a moment of another, if it was explained."""
    return next((one for one in finding.moments if one.onset <= moment.end and one.end >= moment.onset), None)


def _main(finding: Finding) -> EurekaMoment | None:
    """The greatest Eureka-moment of a curve."""
    return max(finding.eurekas, key=lambda moment: moment.drop, default=None)


def _done_by(finding: Finding, at: float) -> bool:
    """Whether a curve had come most of its way by a step."""
    x, y = clean(finding.curve.values, finding.curve.steps)
    y = smooth(-y if finding.curve.rising else y, max(len(y) // 50, 1))
    way = float(y[0] - y[-1])
    return way > MOST * extent(y) and float(y[0] - np.interp(at, x, y)) > MOST * way


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
