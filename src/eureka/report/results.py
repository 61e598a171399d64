"""The results of a study as tables: every cell with its figures, the Eureka-ratio over learning rates, and both as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eureka.formats import NONE, count, fixed, percent, rate, setting
from eureka.report.groups import Fix, Groups
from eureka.spreadsheet import write_csv
from eureka.study.arms import Cell, Condition
from eureka.study.losses import LossComparison
from eureka.study.over_rates import OverRates
from eureka.study.survival import Estimate


@dataclass(frozen=True)
class TableCell:
    """A text, or a fix in its colour, and a remark in small type."""

    text: str = ""
    small: str = ""
    fix: Fix | None = None


@dataclass(frozen=True)
class Table:
    headings: list[str]
    rows: list[list[TableCell]]


@dataclass(frozen=True)
class Download:
    """A CSV file that the page carries within itself."""

    label: str
    name: str
    text: str


@dataclass(frozen=True)
class HeatCell:
    left: int
    """how many runs left the plateau"""
    runs: int

    @property
    def percent(self) -> str:
        return f"{100 * self.left / self.runs:.4g}"


@dataclass(frozen=True)
class HeatLine:
    fix: Fix
    cells: list[HeatCell | None]
    """by learning rate; None where nothing was run"""


@dataclass(frozen=True)
class HeatBlock:
    """One condition."""

    name: str
    lines: list[HeatLine]


@dataclass(frozen=True)
class HeatMap:
    rates: list[str]
    blocks: list[HeatBlock]


def results_table(groups: Groups) -> Table | None:
    """A row for each cell; None if no run has ended."""
    if not groups.cells:
        return None
    condition_keys = sorted(groups.grouping.condition_keys)
    headings = ["fix", "learning rate", *condition_keys, "seeds", "Eureka-ratio, 95 % interval"]
    headings += ["median Eureka-step", "Eureka-step of each seed", "accuracy after"]
    return Table(headings, [_row(groups, cell, condition_keys) for cell in groups.cells])


def _row(groups: Groups, cell: Cell, condition_keys: Sequence[str]) -> list[TableCell]:
    settings = (cell.settings.get(key) for key in condition_keys)
    return [
        TableCell(fix=groups.fix(cell.arm)),
        TableCell(rate(cell.lr)),
        *(TableCell(NONE if value is None else setting(value)) for value in settings),
        TableCell(_ranges(cell.seeds)),
        TableCell(f"{cell.leaps} of {len(cell.ended)}", small=_percents(cell.eureka_ratio_interval, 0)),
        TableCell(count(cell.median_eureka_step)),
        TableCell(" · ".join(map(count, cell.eureka_steps))),
        _accuracy(cell),
    ]


def _accuracy(cell: Cell) -> TableCell:
    known = sorted(accuracy for accuracy in cell.final_accuracy if accuracy is not None)
    spread = _percents((known[0], known[-1]), 1) if len(known) > 1 else ""
    return TableCell(percent(cell.median_final_accuracy), small=spread)


def _percents(ends: tuple[float, float], digits: int) -> str:
    """``29 – 100 %``: the unit once."""
    return f"{percent(ends[0], digits)[:-2]} – {percent(ends[1], digits)}"


def _ranges(seeds: Sequence[int]) -> str:
    """``0 – 5`` for seeds without gaps, otherwise each."""
    together = len(seeds) > 3 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} – {seeds[-1]}" if together else ", ".join(map(str, seeds))


def over_rates_table(groups: Groups, arms: Sequence[OverRates]) -> Table | None:
    """Each arm over all learning rates; None where there was one rate."""
    if not arms:
        return None
    several = len(groups.grouping.conditions) > 1
    headings = ["fix", *(["condition"] if several else []), "Eureka-ratio, 95 % interval", "mean wait", "against the baseline"]
    return Table(headings, [_over_rates_row(groups, one, several) for one in arms])


def _over_rates_row(groups: Groups, one: OverRates, several: bool) -> list[TableCell]:
    return [
        TableCell(fix=groups.fix(one.arm.key)),
        *([TableCell(one.condition.label)] if several else []),
        TableCell(f"{one.leaps} of {one.runs}", small=_percents(one.share_interval, 0)),
        TableCell(fixed(one.mean_wait.value, 0), small=_ends(one.mean_wait, 0)),
        TableCell(NONE) if one.sooner is None else TableCell(f"{fixed(one.sooner.value, 2)}×", small=_ends(one.sooner, 2)),
    ]


def losses_table(groups: Groups, losses: Sequence[LossComparison]) -> Table | None:
    """Each arm's loss after equal steps beside that of its baseline; None where runs were to stop early."""
    if not losses:
        return None
    several = len(groups.grouping.conditions) > 1
    headings = ["fix", *(["condition"] if several else []), "learning rate", "loss", "baseline", "its loss", "difference", "p"]
    return Table(headings, [_losses_row(groups, one, several) for one in losses])


def _losses_row(groups: Groups, one: LossComparison, several: bool) -> list[TableCell]:
    return [
        TableCell(fix=groups.fix(one.arm.key)),
        *([TableCell(one.condition.label)] if several else []),
        TableCell(rate(one.best_lr)),
        TableCell(fixed(one.loss)),
        TableCell(fix=groups.fix(one.baseline.key)),
        TableCell(fixed(one.baseline_loss), small=f"lr {rate(one.baseline_best_lr)}"),
        TableCell(one.difference, small=_ends(one.size, 3)),
        TableCell(f"{one.p_corrected:.2g}", small=f"n = {one.runs} and {one.baseline_runs}"),
    ]


def _ends(one: Estimate, digits: int) -> str:
    return "" if one.low is None or one.high is None else f"{fixed(one.low, digits)} – {fixed(one.high, digits)}"


def heat_map(groups: Groups) -> HeatMap | None:
    """A line for each fix, a column for each learning rate, a block for each condition; None for one rate alone."""
    rates = sorted({cell.lr for cell in groups.cells})
    if len(rates) < 2:
        return None
    blocks = (_heat_block(groups, condition, rates) for condition in groups.grouping.conditions)
    return HeatMap(list(map(rate, rates)), [block for block in blocks if block.lines])


def _heat_block(groups: Groups, condition: Condition, rates: Sequence[float]) -> HeatBlock:
    lines = [
        HeatLine(groups.fix(arm.key), [_heat_cell(arm.cells.get(lr)) for lr in rates]) for arm in condition.arms if arm.ended
    ]
    return HeatBlock(condition.label, lines)


def _heat_cell(cell: Cell | None) -> HeatCell | None:
    return None if cell is None or not cell.ended else HeatCell(cell.leaps, len(cell.ended))


def results_csv(cells: Sequence[Cell]) -> str:
    """The table with all digits. Lists are separated by semicolons; a run without a Eureka-moment leaves its place empty."""
    keys = sorted({key for cell in cells for key in cell.settings})
    rows = [_csv_row(cell, keys) for cell in cells]
    return write_csv(list(rows[0]) if rows else [], rows)


def _csv_row(cell: Cell, keys: Sequence[str]) -> dict[str, Any]:
    low, high = cell.eureka_ratio_interval
    return {
        "fix": cell.fix,
        "lr": cell.lr,
        **{key: "" if cell.settings.get(key) is None else setting(cell.settings[key]) for key in keys},
        "seeds": _list(cell.seeds),
        "eureka_ratio": cell.eureka_ratio,
        "eureka_ratio_low": low,
        "eureka_ratio_high": high,
        "median_eureka_step": cell.median_eureka_step,
        "eureka_steps": _list(cell.eureka_steps),
        "median_final_accuracy": cell.median_final_accuracy,
        "final_accuracy": _list(cell.final_accuracy),
    }


def _list(values: Sequence[float | None]) -> str:
    return ";".join("" if value is None else repr(value) for value in values)
