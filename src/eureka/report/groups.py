"""Which curves share a colour, and which share a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eureka.formats import rate, setting
from eureka.report.palette import Mark, marks
from eureka.report.reading import ReportRun
from eureka.study.settings import CONTROLS, is_neutral, is_of_fix, setting_keys
from eureka.study.statistics import Row, differing_keys, summarise

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Groups:
    """The fixes (colours), the panels (pictures) and the rows (table) of a report.

    Two runs have the same fix if its name and all its settings are the same; they are in the same panel if all else but the
    seed is the same: most often the panels are the learning rates. They are in the same setting if all else but learning rate
    and seed is the same: only within a setting are fixes compared.
    """

    runs: Sequence[ReportRun]
    fixes: list[str]
    panels: list[str]
    panel_word: str
    """what distinguishes the panels: "learning rate", or "setting" if there is more"""
    settings: list[str]
    """what distinguishes the settings; most often there is one, with nothing to tell"""
    rows: list[Row]
    fix_of: list[int]
    """for each run"""
    panel_of: list[int]
    """for each run"""
    setting_of: list[int]
    """for each run"""
    fix_of_row: list[int]
    panel_of_row: list[int]
    setting_of_row: list[int]
    marks: list[Mark]

    def name_of(self, run: int) -> str:
        """A run by its fix, what distinguishes its panel, and its seed."""
        return f"{self.fixes[self.fix_of[run]]} · {self.panels[self.panel_of[run]]} · seed {self.runs[run].seed}"

    def of_fix(self, fix: int) -> list[Row]:
        return [row for row, its in zip(self.rows, self.fix_of_row, strict=True) if its == fix]


def group(runs: Sequence[ReportRun]) -> Groups:
    """Sort the runs of a report."""
    fix_keys = [key for key in differing_keys([run.parts for run in runs]) if is_of_fix(key)]
    fix_keys += [key for key in CONTROLS if len({repr(_value(run, key)) for run in runs}) > 1 and key not in fix_keys]
    elsewhere = setting_keys([run.config for run in runs])
    panel_keys = ["training.lr", *elsewhere]
    fixes, fix_of = _distinct([_values(run, ["attention.name", *fix_keys]) for run in runs])
    panels, panel_of = _distinct([_values(run, panel_keys) for run in runs])
    settings, setting_of = _distinct([_values(run, elsewhere) for run in runs])
    rows = summarise(run.folder for run in runs if run.result is not None)
    examples = [_example(row, runs) for row in rows]
    return Groups(
        runs=runs,
        fixes=[_fix_label(fix, fix_keys) for fix in fixes],
        panels=_panel_labels(panels, panel_keys),
        panel_word="learning rate" if not elsewhere else "setting",
        settings=[" · ".join(_told(elsewhere, values)) for values in settings],
        rows=rows,
        fix_of=fix_of,
        panel_of=panel_of,
        setting_of=setting_of,
        fix_of_row=[fix_of[i] for i in examples],
        panel_of_row=[panel_of[i] for i in examples],
        setting_of_row=[setting_of[i] for i in examples],
        marks=marks([fix[0] for fix in fixes]),
    )


def _values(run: ReportRun, keys: Sequence[str]) -> Values:
    return tuple(_value(run, key) for key in keys)


def _value(run: ReportRun, key: str) -> Any:
    """The setting; None where there is none, or where it is a control that changes nothing."""
    value = run.config.get(key)
    return None if is_neutral(key, value) else value


def _distinct(groups: Sequence[Values]) -> tuple[list[Values], list[int]]:
    """Each group once (what is not set first, then the baseline, numbers by size, the rest by name), and which each one is."""
    unique = {repr(group): group for group in groups}
    names = sorted(unique, key=lambda name: [_order(value) for value in unique[name]])
    return [unique[name] for name in names], [names.index(repr(group)) for group in groups]


def _order(value: Any) -> tuple[int, float, str]:
    if value is None:
        return (-1, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (0 if value == "softmax" else 2, 0.0, str(value))


def _fix_label(fix: Values, keys: Sequence[str]) -> str:
    name, *values = fix
    own = [f"{key.partition('.')[2]}={_brief(value)}" for key, value in zip(keys, values, strict=True) if value is not None]
    return f"{name} ({', '.join(own)})" if own else str(name)


def _panel_labels(panels: Sequence[Values], keys: Sequence[str]) -> list[str]:
    """What distinguishes each panel; a learning rate that all share is told only if there is nothing else to tell."""
    told = len(keys) == 1 or len({panel[0] for panel in panels}) > 1
    return [" · ".join([f"lr {rate(lr)}"] * told + _told(keys[1:], rest)) for lr, *rest in panels]


def _told(keys: Sequence[str], values: Sequence[Any]) -> list[str]:
    return [f"{key} {_brief(value)}" for key, value in zip(keys, values, strict=True)]


def _brief(value: Any) -> str:
    return setting(int(value)) if isinstance(value, float) and value.is_integer() else setting(value)


def _example(row: Row, runs: Sequence[ReportRun]) -> int:
    """A run of the row: within one fix, rows differ in learning rate and `settings` only."""
    wanted = {"attention.name": row.fix, "training.lr": row.lr, **row.settings}
    return next(
        i
        for i, run in enumerate(runs)
        if run.result is not None and all(run.config.get(key) == value for key, value in wanted.items())
    )
