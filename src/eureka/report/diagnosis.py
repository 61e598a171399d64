"""The page of a diagnosis: findings with their evidence, the loss curve, and what was checked; one file that requests nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eureka.curves.finding import examine
from eureka.curves.readers.curve import Curve
from eureka.doctor.finding import Diagnosis, Finding
from eureka.files import check_folder, write_whole
from eureka.formats import NONE, percent, plural
from eureka.report.document import document
from eureka.report.log_page import SCRIPTS, Pictures, picture
from eureka.report.results import Table, TableCell


@dataclass(frozen=True)
class DiagnosisPage:
    """What the template shows, in its order."""

    title: str
    subtitle: str
    headline: str
    about: Sequence[str]
    """what was captured of a script"""
    notes: Sequence[str]
    findings: Sequence[Finding]
    verdict: str
    """of the curve"""
    checks: Table
    data: Pictures


def write_diagnosis(
    diagnosis: Diagnosis, path: Path, *, title: str, curve: Curve | None = None, about: Sequence[str] = ()
) -> None:
    """Write a diagnosis, with the loss so far, as a page that needs no network and no other file."""
    check_folder(path)
    page = diagnosis_page(diagnosis, title, curve, about)
    write_whole(path, document("diagnosis.html.j2", SCRIPTS if page.data.curves else (), page=page).encode())


def diagnosis_page(diagnosis: Diagnosis, title: str, curve: Curve | None, about: Sequence[str] = ()) -> DiagnosisPage:
    """What the page shows."""
    drawn = None if curve is None else examine(curve)
    return DiagnosisPage(
        title=f"eureka diagnose: {title}",
        subtitle=diagnosis.cost,
        headline=_headline(diagnosis),
        about=about,
        notes=diagnosis.notes,
        findings=diagnosis.findings,
        verdict="" if drawn is None else drawn.verdict(),
        checks=_checks(diagnosis),
        data=Pictures([] if drawn is None else [picture(drawn)]),
    )


def _headline(diagnosis: Diagnosis) -> str:
    first = diagnosis.findings[0]
    if diagnosis.healthy:
        return f"No fault was found. The run is {first.evidence[0].partition(':')[0]}."
    others = len(diagnosis.findings) - 1
    more = f", and {plural(others, 'other cause')} with less weight" if others else ""
    return f"The likeliest cause is {first.cause}, {percent(first.sure, 0)} sure{more}."


def _checks(diagnosis: Diagnosis) -> Table:
    rows = []
    for check in diagnosis.checks:
        steps = f"{check.seconds / diagnosis.step_seconds:.0f}" if diagnosis.step_seconds else NONE
        rows.append(
            [TableCell(check.name), TableCell(f"{check.seconds:.2f} s"), TableCell(steps), TableCell(check.skipped or "made")]
        )
    return Table(["check", "time", "in training steps", "made, or why not"], rows)
