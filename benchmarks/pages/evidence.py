"""What the committed studies say about a fix: `results/**/summary.json`, as `eureka study` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.pages.made import ROOT, table
from eureka.formats import listing
from eureka.recipes import recipe

BASELINE = "softmax"


@dataclass(frozen=True)
class Cell:
    """Runs of a study that differ in nothing but the seed."""

    study: str
    fix: str
    lr: float
    settings: tuple[tuple[str, Any], ...]
    """What the study varied beside fix and rate: without the fix's own settings, and without what is as in every recipe."""
    leapt: int
    runs: int
    median_step: float | None

    @property
    def share(self) -> float:
        return self.leapt / self.runs

    def __str__(self) -> str:
        step = "" if self.median_step is None else f", step {self.median_step:,.0f}"
        return f"{self.leapt} of {self.runs}{step}"


@cache
def cells() -> tuple[Cell, ...]:
    """All cells of all committed studies."""
    return tuple(cell for path in sorted((ROOT / "results").rglob("summary.json")) for cell in _cells(path))


def _cells(path: Path) -> Iterator[Cell]:
    study = path.parent.relative_to(ROOT / "results").as_posix()
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        steps: list[float | None] = row["eureka_steps"]
        yield Cell(
            study=study,
            fix=row["fix"],
            lr=row["lr"],
            settings=_others(row["settings"]),
            leapt=sum(step is not None for step in steps),
            runs=len(steps),
            median_step=row["median_eureka_step"],
        )


def _others(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    usual = {key: value for key, value in recipe("tiles").flat().items() if key.startswith(("model.", "training."))}
    own = {key: value for key, value in settings.items() if not key.startswith("attention.")}
    return tuple(sorted((key, value) for key, value in own.items() if key not in usual or usual[key] != value))


def evidence(fix: str) -> str:
    """What the studies that have a fix say, as Markdown; a sentence if none has it."""
    own = [cell for cell in cells() if cell.fix == fix]
    if not own:
        return f"No committed study has it yet. `eureka compare tiles --fix softmax,{fix}` measures it.\n"
    parts = [_beside_baseline(own), _window(own), "\n".join(_grids(own)), _read()]
    return "\n".join(part for part in parts if part)


def _baseline(cell: Cell) -> Cell | None:
    same = (cell.study, cell.lr, cell.settings)
    return next((one for one in cells() if one.fix == BASELINE and (one.study, one.lr, one.settings) == same), None)


def _beside_baseline(own: list[Cell]) -> str:
    """Where more runs leapt than with plain softmax, and where fewer did: counts, not verdicts."""
    if own[0].fix == BASELINE:
        return ""
    pairs = [(cell, other) for cell in own if (other := _baseline(cell)) is not None]
    more = [cell for cell, other in pairs if cell.share > other.share]
    fewer = [cell for cell, other in pairs if cell.share < other.share]
    return (
        f"**It helped** (a larger share of runs leapt than with `softmax`, all else equal){_places(more)}\n"
        f"**It hurt** (a smaller share){_places(fewer)}"
    )


def _window(own: list[Cell]) -> str:
    works = [cell for cell in own if cell.share >= 0.5]
    return f"**Its window** (rates at which at least half of the runs leapt){_places(works)}"


def _places(found: list[Cell]) -> str:
    """The rates, by study; the end of a sentence, or a list."""
    by_study: dict[str, list[str]] = {}
    for cell in found:
        by_study.setdefault(f"{cell.study}{_settings(cell)}", []).append(f"{cell.lr:g}")
    lines = [f"- {study}: {listing(rates)}" for study, rates in by_study.items()]
    return "\n".join([":\n", *lines, ""]) if lines else ": nowhere.\n"


def _settings(cell: Cell) -> str:
    return f" ({', '.join(f'{key}={value}' for key, value in cell.settings)})" if cell.settings else ""


def _grids(own: list[Cell]) -> Iterator[str]:
    """One table a study: runs that leapt of all runs, and the median step of the leap, by rate."""
    for study in dict.fromkeys(cell.study for cell in own):
        here = [cell for cell in own if cell.study == study]
        rates = sorted({cell.lr for cell in here})
        rows = []
        for settings in dict.fromkeys(cell.settings for cell in here):
            for fix in dict.fromkeys([here[0].fix, BASELINE]):
                by_rate = {cell.lr: cell for cell in cells() if (cell.study, cell.fix, cell.settings) == (study, fix, settings)}
                found = [str(by_rate[rate]) if rate in by_rate else "–" for rate in rates]
                rows.append((f"`{fix}`", ", ".join(f"{key}={value}" for key, value in settings) or "–", *found))
        yield f"Study [results/{study}](../results/{study.split('/')[0]}/README.md):\n\n" + table(
            ["fix", "settings", *(f"rate {rate:g}" for rate in rates)], rows
        )


def _read() -> str:
    return (
        "A cell has the runs that leapt, of all runs, and the median step of the leap (none if half of the runs did not leap)."
        " With so few runs a cell decides nothing by itself: the verdicts, with intervals, are in the README of each study.\n"
    )
