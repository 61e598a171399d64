"""The exact config, every run, and the versions: folded away, complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eureka.formats import NONE, count, number, percent, setting
from eureka.report.groups import Groups
from eureka.report.markup import Html, join, tag
from eureka.report.reading import ReportRun
from eureka.report.table import Cell, table

Told = list[tuple[str, list[Any]]]
"""Keys with the distinct values that they have."""


def config_details(runs: Sequence[ReportRun]) -> Html:
    """What differs between the runs, then what they have in common."""
    common, differing = split([run.config for run in runs])
    parts = []
    if differing:
        parts += [tag("h3", "What differs between the runs"), _definitions(differing)]
    parts += [tag("h3", "What they have in common"), _definitions(common)]
    return _details("Config", *parts)


def versions_details(runs: Sequence[ReportRun]) -> Html:
    """With what the runs were made; several values if they were made with several."""
    known = [run.environment for run in runs if run.environment]
    common, differing = split(known)
    told = [_definitions(common + differing)] if known else [tag("p", "The runs do not say.", class_="quiet")]
    return _details("Versions and machine", *told)


def split(records: Sequence[Mapping[str, Any]]) -> tuple[Told, Told]:
    """The keys that have one value everywhere, and the others; a key that a record lacks is not the same everywhere."""
    common: Told = []
    differing: Told = []
    for key in dict.fromkeys(key for record in records for key in record):
        values = list({repr(record[key]): record[key] for record in records if key in record}.values())
        everywhere = len(values) == 1 and all(key in record for record in records)
        (common if everywhere else differing).append((key, values))
    return common, differing


def _definitions(told: Told) -> Html:
    pairs = (tag("div", tag("dt", key), tag("dd", ", ".join(map(setting, values)))) for key, values in told)
    return tag("dl", *pairs)


def _details(summary: str, *content: str) -> Html:
    return tag("details", tag("summary", summary), *content)


def runs_details(groups: Groups) -> Html:
    """One line for each run, with its own settings and how it ended."""
    runs = groups.runs
    _, differing = split([run.config for run in runs])
    lines = [_cells(run, [key for key, _ in differing]) for run in runs]
    return _details("Every run", table(lines))


def _cells(run: ReportRun, keys: Iterable[str]) -> list[Cell]:
    result, last = run.result or {}, run.metrics[-1] if run.metrics else {}
    seconds, loss = result.get("seconds"), last.get("validation_loss")
    return [
        ("run", join(run.folder.name)),
        *((key, join(setting(run.config[key]) if key in run.config else NONE)) for key in keys),
        ("state", join(run.state.replace("_", " "))),
        ("steps", join(count(result.get("steps", last.get("step"))))),
        ("onset", join(count(result.get("onset_step")))),
        ("Eureka-step", join(count(result.get("eureka_step")))),
        ("last loss", join(NONE if loss is None else number(loss))),
        ("last accuracy", join(percent(last.get("validation_accuracy")))),
        ("time", join(NONE if seconds is None else f"{seconds:,.0f} s")),
    ]
