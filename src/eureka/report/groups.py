"""Which runs share a colour and which share a picture: the grouping of `eureka.study.arms`, numbered for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from eureka.report.palette import Mark, marks
from eureka.report.report_run import ReportRun
from eureka.study.arms import ArmKey, Cell, ConditionKey, Grouping


@dataclass(frozen=True)
class Fix:
    """An arm as the page shows it: its place among all, its name, its colour."""

    index: int
    name: str
    mark: Mark


@dataclass(frozen=True)
class Groups:
    """The fixes (colours), the panels (pictures) and the cells (table) of a report."""

    runs: Sequence[ReportRun]
    grouping: Grouping

    @cached_property
    def fixes(self) -> list[Fix]:
        arms = self.grouping.arms
        chosen = marks([key.fix for key in arms])
        return [Fix(i, name, mark) for i, (name, mark) in enumerate(zip(arms.values(), chosen, strict=True))]

    @property
    def panels(self) -> list[str]:
        """What distinguishes the panels, each a learning rate in a condition."""
        return [panel.label for panel in self.grouping.panels]

    @property
    def panel_word(self) -> str:
        """What a panel is, in a word."""
        return "setting" if self.grouping.condition_keys else "learning rate"

    @property
    def cells(self) -> list[Cell]:
        return self.grouping.cells

    def fix(self, key: ArmKey) -> Fix:
        return self.fixes[self._fix_places[key]]

    def fix_of(self, run: ReportRun) -> Fix:
        return self.fix(ArmKey.of(run.config))

    def panel_of(self, run: ReportRun) -> int:
        return self._panel_places[ConditionKey.of(run.config), run.config.lr]

    def cells_of(self, fix: Fix) -> list[Cell]:
        return [cell for cell in self.cells if self.fix(cell.arm) == fix]

    def name_of(self, run: ReportRun) -> str:
        """A run by its fix, what distinguishes its panel, and its seed."""
        return f"{self.fix_of(run).name} · {self.panels[self.panel_of(run)]} · seed {run.config.seed}"

    @cached_property
    def _fix_places(self) -> dict[ArmKey, int]:
        return {key: i for i, key in enumerate(self.grouping.arms)}

    @cached_property
    def _panel_places(self) -> dict[tuple[ConditionKey, float], int]:
        return {(panel.condition, panel.lr): i for i, panel in enumerate(self.grouping.panels)}
