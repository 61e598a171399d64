"""Follow a log that grows: what comes up in its curves, as it comes.

The log is read whole whenever it has changed, so that every format can be followed, and only points that are new reach the
online detector of their curve. A curve is known again by its metric and its first point, whatever the reader calls its run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from eureka.curves.detector import upside_down
from eureka.curves.examination import Examination
from eureka.curves.finding import Finding
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.online import Event, OnlineDetector
from eureka.curves.readers.curve import Curve
from eureka.curves.thresholds import THRESHOLDS
from eureka.errors import RequestError
from eureka.formats import measurement, step

BROKEN = 3
"""So many values in a row that are no numbers are told."""
Identity = tuple[str, float, float, int]
"""Metric, first step, first value, and how many curves before it have the same."""
Signature = tuple[tuple[str, int, int], ...]
"""Name, size and time of the files of a log."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A plateau that a curve has come to, a moment that is over, or values that are no numbers any more."""

    curve: Curve
    name: str
    """``plateau_entered``, the kind of the moment, or ``no_number``."""
    seen: float
    """The step of the point that showed it."""
    plateau: Plateau | None = None
    moment: EurekaMoment | None = None

    @property
    def step(self) -> float:
        """Where it happened."""
        if self.moment is not None:
            return self.moment.steepest
        return self.plateau.start if self.plateau is not None else self.seen

    def sentence(self) -> str:
        curve = self.curve
        title = " · ".join(one for one in (curve.file, curve.run, curve.metric) if one)
        when = f"(seen at {step(self.seen)})"
        if self.plateau is None:
            return f"{title}: no number (nan or inf) from {curve.step_name} {step(self.step)} on"
        if self.moment is None:
            level = measurement(self.plateau.level)
            return f"{title}: on a plateau at {level} since {curve.step_name} {step(self.step)} {when}"
        change = f"{measurement(self.moment.before)} → {measurement(self.moment.after)}"
        what = "Eureka-moment" if self.name == "eureka" else self.name
        sure = f"confidence {self.moment.confidence:.2f}"
        return f"{title}: {what} at {curve.step_name} {step(self.step)}, {change}, {sure} {when}"

    def fields(self) -> dict[str, str | float | None]:
        """Everything by name, for programs; what a plateau does not have is None."""
        moment = self.moment
        return {
            "event": self.name,
            "file": self.curve.file,
            "run": self.curve.run,
            "metric": self.curve.metric,
            "unit": self.curve.step_name,
            "step": self.step,
            "seen": self.seen,
            "level": None if self.plateau is None else self.plateau.level,
            "before": None if moment is None else moment.before,
            "after": None if moment is None else moment.after,
            "confidence": None if moment is None else moment.confidence,
            "message": self.sentence(),
        }


@dataclass
class _Followed:
    """One curve of the log: its detector, and up to which step it was fed."""

    detector: OnlineDetector
    last: float = float("-inf")
    told: set[tuple[str, float]] = field(default_factory=set)
    """Events that were given out, by name and step."""


class GrowingLog:
    """A log that is written while we look: `look` gives what is new, `findings` the whole verdict."""

    def __init__(self, path: Path, examination: Examination) -> None:
        self.path, self.examination = path, examination
        self.complaint: str | None = None
        """Why the log could not be read the last time."""
        self._signature: Signature | None = None
        self._followed: dict[Identity, _Followed] = {}
        self._size = 0

    def look(self) -> tuple[list[Notice], str | None]:
        """What has come up since the last look, in order, and one sentence if the log is not the one it was."""
        signature = _signature(self.path)
        if signature == self._signature:
            return [], None
        self._signature = signature
        try:
            curves = self._curves()
        except RequestError as error:
            self.complaint = str(error)
            return [], None
        self.complaint = None
        remark = self._forget(signature, curves)
        notices = [notice for identity, curve in _identified(curves) for notice in self._feed(identity, curve)]
        return sorted(notices, key=lambda notice: notice.seen), remark

    def findings(self) -> list[Finding]:
        """The verdict on what is there now."""
        return [self.examination.judge(curve) for curve in self._curves()]

    def _curves(self) -> list[Curve]:
        """The curves, without a line that is not whole yet."""
        if not self.path.is_file():
            return self.examination.curves(self.path)
        with tempfile.TemporaryDirectory() as folder:
            copy = whole_lines(self.path, Path(folder))
            try:
                curves = self.examination.curves(copy)
            except RequestError as error:
                raise RequestError(str(error).replace(str(copy), str(self.path))) from None
            return [replace(curve, file=str(self.path)) for curve in curves]

    def _forget(self, signature: Signature, curves: Sequence[Curve]) -> str | None:
        """Drop what was known of curves that are gone: all, if the log is shorter than it was."""
        size = signature[0][1] if self.path.is_file() and signature else 0  # of a folder, old files may be cleared away
        shorter, self._size = size < self._size, size
        there = {identity for identity, _ in _identified(curves)}
        gone = list(self._followed) if shorter else [identity for identity in self._followed if identity not in there]
        for identity in gone:
            del self._followed[identity]
        if not gone:
            return None
        return f"{self.path}: {'is shorter than it was' if shorter else 'holds other curves than before'}, and is read anew"

    def _feed(self, identity: Identity, curve: Curve) -> Iterator[Notice]:
        """Give the new points of a curve to its detector; if steps were taken back, all points, but nothing is told twice."""
        sure = max(THRESHOLDS.online_sure, self.examination.min_confidence)
        followed = self._followed.setdefault(identity, _Followed(OnlineDetector(min_confidence=sure)))
        if len(curve.steps) and float(curve.steps[-1]) < followed.last:
            followed = self._followed[identity] = _Followed(OnlineDetector(min_confidence=sure), told=followed.told)
        new = curve.steps > followed.last
        sign = -1.0 if curve.rising else 1.0
        for at, value in zip(curve.steps[new].tolist(), (sign * curve.values[new]).tolist(), strict=True):
            followed.last = at
            event = followed.detector.update(at, value)
            if event is not None and (event.name, event.step) not in followed.told:
                followed.told.add((event.name, event.step))
                yield self._notice(curve, event)
        if len(curve.broken) >= BROKEN and ("no_number", first := float(curve.broken[0])) not in followed.told:
            followed.told.add(("no_number", first))
            yield Notice(curve=curve, name="no_number", seen=first)

    def _notice(self, curve: Curve, event: Event) -> Notice:
        """An event in the values of the curve; a moment has the kind that all that is known of the curve gives it."""
        plateau, moment = event.plateau, event.moment
        if curve.rising:
            plateau = replace(plateau, level=-plateau.level)
            moment = None if moment is None else upside_down(moment)
        if moment is None:
            return Notice(curve=curve, name=event.name, seen=event.step, plateau=plateau)
        judged = self.examination.judge(curve).moments
        same = next((one for one in judged if one.onset <= moment.end and one.end >= moment.onset), moment)
        return Notice(curve=curve, name=same.kind, seen=event.step, plateau=same.plateau, moment=same)


def _identified(curves: Sequence[Curve]) -> list[tuple[Identity, Curve]]:
    count: Counter[tuple[str, float, float]] = Counter()
    found = []
    for curve in curves:
        first = (curve.metric, float(curve.steps[0]), float(curve.values[0]))
        found.append(((*first, count[first]), curve))
        count[first] += 1
    return found


def _signature(path: Path) -> Signature:
    """What changes when a log does; empty if it is not there."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = []
    for file in files:
        try:
            state = file.stat()
        except OSError:
            continue
        found.append((str(file), state.st_size if file.is_file() else 0, state.st_mtime_ns))
    return tuple(found)


def whole_lines(path: Path, folder: Path) -> Path:
    """A copy of a text file up to the end of its last whole line; of any other file, and of one JSON document, all of it."""
    copy = folder / path.name
    try:
        shutil.copyfile(path, copy)
    except OSError as error:
        raise RequestError(f"{path}: cannot be read ({error.strerror}).") from None
    if path.suffix == ".json":
        return copy
    with copy.open("r+b") as file:
        start = file.read(4096)
        if b"\0" in start or start[:2] == b"\x1f\x8b" or start.lstrip()[:1] == b"[" or start.lstrip()[:2] in (b"{\n", b"{\r"):
            return copy
        end = file.seek(0, 2)
        while end > 0:
            begun = max(0, end - 65_536)
            file.seek(begun)
            block = file.read(end - begun)
            last = max(block.rfind(b"\n"), block.rfind(b"\r"))
            if last >= 0:
                file.truncate(begun + last + 1)
                break
            end = begun
    return copy
