"""`write_report`: from run folders to one file that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eureka.formats import plural
from eureka.report.choices import segments
from eureka.report.command import again
from eureka.report.comparing import comparisons, fix_arms
from eureka.report.definition import definition
from eureka.report.groups import Groups, group
from eureka.report.headline import headline, notes
from eureka.report.heat import heat_map
from eureka.report.inside import inside_data, inside_figure
from eureka.report.maps import map_data, map_figure
from eureka.report.markup import Html, join, script_json, tag
from eureka.report.page import fill_page
from eureka.report.palette import variables
from eureka.report.pictures import picture_data
from eureka.report.reading import read_runs
from eureka.report.readings import reading_data, reading_figure
from eureka.report.settings import config_details, runs_details, versions_details
from eureka.report.table import csv_link, summary_table
from eureka.report.verdicts import comparisons_link, verdicts
from eureka.report.waiting import waiting_data, waiting_figure
from eureka.runs import write_atomically


def write_report(folders: Sequence[Path], output: Path, *, title: str | None = None) -> Path:
    """Write one self-contained HTML page about every run in the folders, and return where it is.

    It needs no network and no other file; runs that have not ended are drawn as far as they are.
    """
    groups = group(read_runs(folders))
    write_atomically(output, render(groups, folders, output, title).encode())
    return output


def render(groups: Groups, folders: Sequence[Path], output: Path, title: str | None) -> str:
    """The page as text."""
    tasks = list(dict.fromkeys(str(run.config["task.name"]) for run in groups.runs))
    light, dark = variables(groups.marks)
    found, waiting = comparisons(groups), waiting_data(groups, fix_arms(groups))
    inside, maps, readings = inside_data(groups), map_data(groups), reading_data(groups)
    return fill_page(
        title=join(title or f"Eureka-moments: {', '.join(tasks)}"),
        subtitle=join(_subtitle(groups, tasks)),
        light=light,
        dark=dark,
        headline=headline(groups),
        verdicts=verdicts(groups, found),
        notes=join(*(tag("p", note) for note in notes(groups))),
        controls=_controls(groups),
        waiting=waiting_figure(groups, waiting),
        heat=heat_map(groups),
        inside=_inside(inside_figure(inside), map_figure(groups, maps), reading_figure(readings)),
        table=summary_table(groups),
        csv=join(csv_link(groups), comparisons_link(groups, found)),
        details=join(config_details(groups.runs), runs_details(groups), versions_details(groups.runs)),
        definition=definition(groups.runs, compared=bool(found)),
        again=again(groups, folders, output),
        data=Html(script_json(picture_data(groups) | {"waiting": waiting, "inside": inside, "maps": maps, "readings": readings})),
    )


def _inside(*figures: Html) -> Html:
    """The part about attention; nothing if no run says anything about it."""
    return tag("section", tag("h2", "Inside attention"), *figures) if any(figures) else Html("")


def _subtitle(groups: Groups, tasks: Sequence[str]) -> str:
    rates, seeds = {run.lr for run in groups.runs}, {run.seed for run in groups.runs}
    return " · ".join(
        [
            f"{'task' if len(tasks) == 1 else 'tasks'} {', '.join(tasks)}",
            plural(len(groups.runs), "run"),
            plural(len(groups.fixes), "fix", "fixes"),
            plural(len(rates), "learning rate"),
            plural(len(seeds), "seed"),
        ]
    )


def _controls(groups: Groups) -> Html:
    """The choice of a panel, where there are several."""
    if len(groups.panels) == 1:
        return Html("")
    return segments("panel", groups.panel_word, ["all", *(name.removeprefix("lr ") for name in groups.panels)])
