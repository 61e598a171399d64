"""The page about runs: what it shows, as typed data."""

from __future__ import annotations

from dataclasses import dataclass

from eureka.report.attention_figures import AttentionFigure, AttentionMaps, ReadingPicture
from eureka.report.comparisons import Verdicts, WaitingFigure, WaitingPicture
from eureka.report.curve_data import CurveData
from eureka.report.details import ConfigDetails, Plateau, Told
from eureka.report.document import document
from eureka.report.groups import Fix
from eureka.report.head_figures import HeadCurves
from eureka.report.headline import Sentence
from eureka.report.introduction import FixLine, TaskCard, Use
from eureka.report.results import Download, HeatMap, Table
from eureka.study.commands import Commands

SCRIPTS = ("common.js", "layout.js", "curves.js", "waiting.js", "attention.js", "heads.js", "maps.js", "readings.js", "page.js")
"""The parts of the page's own script, each after those that it needs."""
LIVE = ("live.js",)
"""The parts that keep the page of a running study up to date."""


@dataclass(frozen=True)
class ScriptData(CurveData):
    """What the script draws; it calls this `study`."""

    waiting: list[WaitingPicture]
    inside: AttentionFigure | None
    heads: list[HeadCurves]
    maps: list[AttentionMaps]
    readings: list[ReadingPicture]


@dataclass(frozen=True)
class Page:
    """What the template shows, in its order."""

    title: str
    subtitle: str
    fixes: list[Fix]
    conclusion: Sentence
    headline: Sentence
    verdicts: list[Verdicts]
    notes: list[str]
    tasks: list[TaskCard]
    fix_lines: list[FixLine]
    use: Use | None
    short: list[str]
    """the commands that make the runs again, if they are few"""
    panel_word: str
    panels: list[str]
    """the choices of a panel"""
    waiting: WaitingFigure | None
    heat_map: HeatMap | None
    over_rates: Table | None
    losses: Table | None
    steps: str
    """after how many steps the losses are compared; empty where they are not"""
    downloads: list[Download]
    results: Table | None
    config: ConfigDetails
    runs: Table
    versions: Told
    plateau: Plateau | None
    again: Commands
    first_heads: int
    """the run whose heads are shown at first"""
    first_map: int
    """the run whose maps are shown at first"""
    maps_left_out: int
    data: ScriptData


def render(page: Page) -> str:
    """The page as text."""
    return document("page.html.j2", SCRIPTS, page=page)


def render_live(page: Page | str, *, title: str, mark: str, whole: bool) -> str:
    """The page of a study that is followed, as text.

    page    what it shows; a sentence while there is nothing to show
    mark    the state of the study that it shows
    whole   with its scripts
    """
    shown = {"page": None, "problem": page} if isinstance(page, str) else {"page": page, "problem": ""}
    return document("live.html.j2", SCRIPTS if whole else (), live=LIVE, title=title, mark=mark, **shown)
