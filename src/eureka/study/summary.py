"""What a study has found: its runs read once, grouped, compared, and written as tables for programs. No torch."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from eureka.errors import RequestError
from eureka.files import write_whole
from eureka.runs import Leap, Outcome, Run, RunFolder, read_run
from eureka.spreadsheet import plain, write_csv
from eureka.study.arms import FIX, LR, SEED, Cell, Grouping, group_runs, varied_keys
from eureka.study.comparison import Comparison, compare_arms
from eureka.study.decided import Decided, read_decided
from eureka.study.losses import LossComparison, compare_losses
from eureka.study.over_rates import OverRates, over_rates

OUTCOMES = ("status", "steps", "samples", "seconds", "onset_step", "eureka_step", "final_loss", "final_accuracy")
LEAPS = "leaps"
"""The column of every leap: its level, onset and step, as in ``0 450 475; 1 925 950``. Tables of before do not have it."""
_OUTCOME = TypeAdapter(Outcome)
"""Made once: making it takes far longer than using it."""


@dataclass(frozen=True)
class Summary:
    """The state of a study at one moment."""

    grouping: Grouping
    comparisons: list[Comparison]
    over_rates: list[OverRates]
    losses: list[LossComparison]
    """in equal steps; empty where runs were to stop early"""

    @property
    def runs(self) -> Sequence[Run]:
        return self.grouping.runs

    @property
    def cells(self) -> list[Cell]:
        """The rows of the study's table."""
        return self.grouping.cells

    @property
    def unfinished(self) -> int:
        return sum(run.outcome is None for run in self.runs)


def summarise(folders: Iterable[RunFolder]) -> Summary:
    """Read every run once, group the runs, and compare the arms; where seeds were added in rounds, by what was decided then."""
    grouping = grouped(folders)
    places = {run.folder.path.parent for run in grouping.runs}
    decided = [one for one in map(read_decided, sorted(places)) if one is not None]
    if not decided:
        return _compared(grouping)
    if len(places) > 1:  # what was decided holds for the runs of one folder alone
        decided = [Decided(min(one.seeds for one in decided), {})]
    even = group_runs([run for run in grouping.runs if run.config.seed < decided[0].seeds])
    return Summary(grouping, [decided[0].told(one) for one in compare_arms(grouping)], over_rates(even), [])


def summarise_runs(runs: Sequence[Run]) -> Summary:
    """The same of runs that have been read."""
    return _compared(group_runs(runs))


def _compared(grouping: Grouping) -> Summary:
    return Summary(grouping, compare_arms(grouping), over_rates(grouping), compare_losses(grouping))


def grouped(folders: Iterable[RunFolder]) -> Grouping:
    """Read every run once and group the runs."""
    return group_runs([run for run in map(read_run, folders) if run is not None])


def write_runs(runs: Sequence[Run], path: Path) -> None:
    """Write a CSV file with a line for each run."""
    rows = run_rows(runs)
    write_whole(path, write_csv(list(dict.fromkeys(key for row in rows for key in row)), rows).encode())


def run_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A row for each run: its name, fix, learning rate, seed and other settings in which runs differ, and its outcome.

    A run that has not ended has no outcome. The column of leaps is left out where they are known of no run.
    """
    columns = dict.fromkeys([FIX, LR, SEED, *varied_keys(runs)])
    known = any(run.outcome is not None and run.outcome.moments is not None for run in runs)
    return [
        {"run": run.folder.name}
        | {key: run.config.flat.get(key) for key in columns}
        | {key: getattr(run.outcome, key, None) for key in OUTCOMES}
        | ({LEAPS: _written(run.outcome)} if known else {})
        for run in runs
    ]


def _written(outcome: Outcome | None) -> str | None:
    if outcome is None or outcome.moments is None:
        return None
    return "; ".join(f"{leap.level} {leap.onset} {leap.step}" for leap in outcome.moments) or "none"


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """The outcomes in a file that `write_runs` wrote, by the name of the run; a run that had not ended is left out.

    A file without the column of leaps has the leap to the floor alone; the others are not known then.
    """
    try:
        table = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
        rows = list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    if missing := [key for key in ("run", *OUTCOMES) if key not in (table.fieldnames or ())]:
        raise RequestError(f"{path} is not the runs.csv of a study: it has no column {missing[0]!r}.")
    found = {plain(row["run"]): _outcome(row, path) for row in rows if row["status"]}
    for run, outcome in found.items():
        if problem := next(_impossible(outcome), None):
            raise RequestError(f"{path} is not the runs.csv of a study: {run} has {problem}, which no run has.")
    return found


def _outcome(row: Mapping[str, str], path: Path) -> Outcome:
    try:
        values = {key: json.loads(row[key] or "null") for key in OUTCOMES if key != "status"}
        return _OUTCOME.validate_python({"status": row["status"], "moments": _read_leaps(row.get(LEAPS)), **values})
    except (TypeError, ValueError):
        told = f"a value of {plain(row['run'])} is not what a study writes"
        raise RequestError(f"{path} is not the runs.csv of a study: {told}.") from None


def _impossible(one: Outcome) -> Iterator[str]:
    """What cannot be of a run that has ended."""
    for key in ("steps", "samples", "seconds"):
        if not 0 <= getattr(one, key) < math.inf:
            yield f"{key} = {getattr(one, key)}"
    named = [("eureka_step", one.eureka_step, "onset_step", one.onset_step)]
    named += [("the step of a leap", leap.step, "its onset", leap.onset) for leap in one.moments or ()]
    for key, step, onset_key, onset in named:
        if step is not None and not 0 < step <= one.steps:
            yield f"{key} = {step} and steps = {one.steps}"
        if onset is not None and not 0 < onset <= (step or 0):
            yield f"{onset_key} = {onset} and {key} = {step}"
    if one.status != "diverged" and not (one.final_loss is not None and math.isfinite(one.final_loss)):
        yield f"final_loss = {one.final_loss} and status = {one.status}"
    if one.final_accuracy is not None and not math.isfinite(one.final_accuracy):
        yield f"final_accuracy = {one.final_accuracy}"


def _read_leaps(text: str | None) -> tuple[Leap, ...] | None:
    if not text:
        return None
    return () if text == "none" else tuple(Leap(*map(int, leap.split())) for leap in text.split(";"))
