"""The page about a log of anyone: each curve with its plateaus and moments, what was seen, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eureka.curves.advice import advise, advise_pair
from eureka.curves.finding import Finding
from eureka.curves.grid import clean
from eureka.curves.levels import level_of
from eureka.curves.moment import EurekaMoment, Kind
from eureka.curves.together import pairs
from eureka.files import check_folder, write_whole
from eureka.formats import listing, measurement, plural, step
from eureka.report.document import document
from eureka.thinning import thin

SCRIPTS = ("common.js", "layout.js", "log.js")


@dataclass(frozen=True)
class Mark:
    """A stretch of a curve: a plateau, or a moment with its steepest step."""

    start: float
    end: float
    kind: Kind | None = None
    steepest: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Line:
    """A level with its name."""

    name: str
    value: float


@dataclass(frozen=True)
class Picture:
    """What the script draws of one curve."""

    metric: str
    unit: str
    x: list[float]
    y: list[float]
    marks: list[Mark]
    lines: list[Line]


@dataclass(frozen=True)
class Pictures:
    """What the script draws; it calls this `study`."""

    curves: list[Picture]
    fixes: list[str] = field(default_factory=list)
    """Pages about logs know no fixes."""


@dataclass(frozen=True)
class MomentRow:
    """A moment in the table of its curve."""

    kind: Kind
    where: str
    values: str
    confidence: str


@dataclass(frozen=True)
class Section:
    """The words about one curve."""

    title: str
    verdict: str
    taken: str
    notes: list[str]
    moments: list[MomentRow]
    next: list[str]


@dataclass(frozen=True)
class Told:
    """Train and validation of one run together."""

    title: str
    sentence: str
    next: list[str]


@dataclass(frozen=True)
class LogPage:
    """What the template shows, in its order."""

    title: str
    headline: str
    sections: list[Section]
    together: list[Told]
    data: Pictures


def write_log_page(logs: Sequence[Sequence[Finding]], path: Path) -> None:
    """Write the page about the curves of some logs: one file that needs no network."""
    check_folder(path)
    write_whole(path, document("log.html.j2", SCRIPTS, page=log_page(logs)).encode())


def log_page(logs: Sequence[Sequence[Finding]]) -> LogPage:
    """What the page shows."""
    findings = [finding for log in logs for finding in log]
    files = list(dict.fromkeys(Path(finding.curve.file).name for finding in findings))
    return LogPage(
        title=f"eureka detect: {listing(files if len(files) < 5 else [*files[:4], f'{len(files) - 4} more'])}",
        headline=_headline(findings),
        sections=[_section(finding) for finding in findings],
        together=[told for log in logs for told in _together(log)],
        data=Pictures([picture(finding) for finding in findings]),
    )


def _headline(findings: Sequence[Finding]) -> str:
    if len(findings) == 1:
        return findings[0].verdict()
    having = [finding for finding in findings if finding.eurekas]
    return f"{plural(len(findings), 'curve')}, {len(having) or 'none'} of them with a Eureka-moment."


def _section(finding: Finding) -> Section:
    curve = finding.curve
    more = ", more is better" if curve.rising else ""
    return Section(
        title=f"{finding.title} · {curve.metric}",
        verdict=finding.verdict(),
        taken=f"{curve.metric} by {curve.step_name}, {curve.points:,} points ({curve.role}{more})",
        notes=finding.notes,
        moments=[_row(moment) for moment in finding.moments],
        next=[advice.sentence() for advice in advise(finding)],
    )


def _row(moment: EurekaMoment) -> MomentRow:
    return MomentRow(
        kind=moment.kind,
        where=" → ".join(step(at) for at in (moment.onset, moment.steepest, moment.end)),
        values=f"{measurement(moment.before)} → {measurement(moment.after)}",
        confidence=f"{moment.confidence:.2f}",
    )


def _together(findings: Sequence[Finding]) -> Iterator[Told]:
    for pair in pairs(findings):
        yield Told(pair.train.title, pair.sentence() or "", [advice.sentence() for advice in advise_pair(pair)])


def picture(finding: Finding) -> Picture:
    """One curve with its plateaus, its moments and its levels."""
    x, y = clean(finding.curve.values, finding.curve.steps)
    chosen = thin([y])
    marks = [Mark(plateau.start, plateau.end) for plateau in finding.plateaus]
    marks += [Mark(one.onset, one.end, one.kind, one.steepest, f"{one.kind} {one.confidence:.2f}") for one in finding.moments]
    return Picture(
        metric=finding.curve.metric,
        unit=finding.curve.step_name,
        x=[float(f"{value:.9g}") for value in x[chosen].tolist()],
        y=[float(f"{value:.6g}") for value in y[chosen].tolist()],
        marks=marks,
        lines=list(_lines(finding)),
    )


def _lines(finding: Finding) -> Iterator[Line]:
    """The levels that were given, and the one that the curve was seen to sit on."""
    given, rest = finding.given, finding.resting
    named = {level.name: level.value for level in given.levels}
    if given.floor is not None:
        named["floor"] = given.floor
    level = level_of(finding.curve, rest, given) if rest is not None else None
    if level is not None:
        named[level.name] = level.value
    yield from (Line(name, value) for name, value in named.items())
