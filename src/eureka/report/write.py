"""`write_report`: from run folders to one file that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eureka.errors import RequestError
from eureka.files import write_whole
from eureka.formats import plural
from eureka.report.attention_figures import attention_figure, attention_maps, maps_left_out, reading_pictures
from eureka.report.comparisons import WaitingFigure, comparisons_csv, verdicts, waiting_figure
from eureka.report.curve_data import curve_data
from eureka.report.details import again, config_details, plateau, runs_table, versions
from eureka.report.groups import Groups
from eureka.report.head_figures import head_figures
from eureka.report.headline import conclusion, headline, notes
from eureka.report.introduction import fix_lines, task_cards, use
from eureka.report.page import Page, ScriptData, render
from eureka.report.report_run import buckets_for, chosen_to_draw, read_rest
from eureka.report.results import Download, heat_map, losses_table, over_rates_table, results_csv, results_table
from eureka.runs import find_runs
from eureka.study.comparison import Comparison
from eureka.study.losses import after_steps
from eureka.study.summary import Summary, summarise

MOST_SHORT = 3
"""Commands that make the study again and the page, up to which they stand at the top of the page."""


def write_report(folders: Sequence[Path], output: Path, *, title: str | None = None) -> Path:
    """Write one self-contained HTML page about every run in the folders, and return where it is.

    It needs no network and no other file; runs that have not ended are drawn as far as they are.
    """
    found = {run.path.resolve(): run for folder in folders for run in find_runs(folder)}  # each once
    summary = summarise(found.values())
    if not summary.runs:
        where = ", ".join(map(str, folders)) or "no folder"
        raise RequestError(f"no runs found in {where}; give a folder that `eureka compare` or `eureka run` has written.")
    return write_report_of(summary, output, title=title, folders=folders)


def write_report_of(summary: Summary, output: Path, *, title: str | None = None, folders: Sequence[Path] | None = None) -> Path:
    """The same page about a study that was read, grouped and compared already, so that nothing is computed twice.

    folders   what the page's own command line names; the folders of the runs unless given
    """
    write_whole(output, render(report_page(summary, output, title=title, folders=folders)).encode())
    return output


def report_page(summary: Summary, output: Path, *, title: str | None = None, folders: Sequence[Path] | None = None) -> Page:
    """What the page about a study shows; `output` is where its own command line writes it."""
    drawn = chosen_to_draw(summary.grouping)
    buckets = buckets_for(len(drawn))
    runs = [read_rest(run, drawn=run.folder.path in drawn, buckets=buckets) for run in summary.runs]
    groups = Groups(runs, summary.grouping)
    places = [run.folder.path for run in summary.runs] if folders is None else folders
    return _page(groups, summary, places, output, title)


def _page(groups: Groups, summary: Summary, folders: Sequence[Path], output: Path, title: str | None) -> Page:
    tasks = list(dict.fromkeys(run.config.task for run in groups.runs))
    waiting = waiting_figure(groups)
    data = _script_data(groups, waiting)
    commands = again(groups.runs, folders, output)
    return Page(
        title=title or f"eureka report: {', '.join(tasks)}",
        subtitle=_subtitle(groups, tasks),
        fixes=groups.fixes,
        conclusion=conclusion(groups, summary.comparisons),
        headline=headline(groups),
        verdicts=verdicts(groups, summary.comparisons),
        notes=notes(groups),
        tasks=task_cards(groups.runs),
        fix_lines=fix_lines(groups),
        use=use(groups, summary.comparisons),
        short=commands.lines[:-1] if len(commands.lines) <= MOST_SHORT else [],
        panel_word=groups.panel_word,
        panels=[name.removeprefix("lr ") for name in groups.panels],
        waiting=waiting,
        heat_map=heat_map(groups),
        over_rates=over_rates_table(groups, summary.over_rates),
        losses=losses_table(groups, summary.losses),
        steps=after_steps(summary.losses) if summary.losses else "",
        downloads=_downloads(groups, summary.comparisons),
        results=results_table(groups),
        config=config_details(groups.runs),
        runs=runs_table(groups),
        versions=versions(groups.runs),
        plateau=plateau(groups.runs),
        again=commands,
        first_heads=next((i for i, run in enumerate(data.heads) if run.leap), 0),
        first_map=next((i for i, run in enumerate(data.maps) if run.leap), 0),
        maps_left_out=maps_left_out(groups, data.maps),
        data=data,
    )


def _script_data(groups: Groups, waiting: WaitingFigure | None) -> ScriptData:
    return ScriptData(
        **vars(curve_data(groups)),
        waiting=[] if waiting is None else waiting.pictures,
        inside=attention_figure(groups),
        heads=head_figures(groups),
        maps=attention_maps(groups),
        readings=reading_pictures(groups),
    )


def _downloads(groups: Groups, comparisons: Sequence[Comparison]) -> list[Download]:
    found = []
    if groups.cells:
        found.append(Download("Download as CSV", "eureka.csv", results_csv(groups.cells)))
    if comparisons:
        found.append(Download("Comparisons as CSV", "eureka-comparisons.csv", comparisons_csv(groups, comparisons)))
    return found


def _subtitle(groups: Groups, tasks: Sequence[str]) -> str:
    configs = [run.config for run in groups.runs]
    return " · ".join(
        [
            f"{'task' if len(tasks) == 1 else 'tasks'} {', '.join(tasks)}",
            plural(len(configs), "run"),
            plural(len(groups.fixes), "fix", "fixes"),
            plural(len({config.lr for config in configs}), "learning rate"),
            plural(len({config.seed for config in configs}), "seed"),
        ]
    )
