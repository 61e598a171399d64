"""The table of the study, for people and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from urllib.parse import quote

from eureka.formats import NONE, count, percent, rate, setting
from eureka.report.groups import Groups
from eureka.report.headline import fix_name
from eureka.report.markup import Html, join, tag
from eureka.study.settings import is_of_fix
from eureka.study.statistics import Row

Cell = tuple[str, Html]
"""The column's heading and what stands below it."""


def summary_table(groups: Groups) -> Html:
    """One row for each fix and panel."""
    if not groups.rows:
        return tag("p", "No run has ended yet, so there is nothing to count.", class_="quiet")
    lines = [_cells(groups, row, fix) for row, fix in zip(groups.rows, groups.fix_of_row, strict=True)]
    return table(lines)


def table(lines: Sequence[Sequence[Cell]]) -> Html:
    """A table that becomes a list of cards where there is no room; its cells carry their heading as ``data-label``."""
    head = tag("thead", tag("tr", *(tag("th", heading, scope="col") for heading, _ in lines[0])))
    body = (tag("tr", *(tag("td", tag("span", content), data_label=heading) for heading, content in line)) for line in lines)
    return tag("div", tag("table", head, tag("tbody", *body), class_="cards"), class_="scroll")


def _cells(groups: Groups, row: Row, fix: int) -> list[Cell]:
    low, high = row.eureka_ratio_interval
    leaps = sum(step is not None for step in row.eureka_steps)
    ratio = [f"{leaps} of {len(row.seeds)}", _small(f"{percent(low, 0)[:-2]} – {percent(high, 0)}")]
    accuracies = sorted(accuracy for accuracy in row.final_accuracy if accuracy is not None)
    spread = [_small(f"{percent(accuracies[0])[:-2]} – {percent(accuracies[-1])}")] if len(accuracies) > 1 else []
    return [
        ("fix", fix_name(groups, fix)),
        ("learning rate", join(rate(row.lr))),
        *((key, join(NONE if value is None else setting(value))) for key, value in row.settings.items() if not is_of_fix(key)),
        ("seeds", join(_ranges(row.seeds))),
        ("Eureka-ratio, 95 % interval", join(*ratio)),
        ("median Eureka-step", join(count(row.median_eureka_step))),
        ("Eureka-step of each seed", join(" · ".join(map(count, row.eureka_steps)))),
        ("accuracy after", join(percent(row.median_final_accuracy), *spread)),
    ]


def _small(text: str) -> Html:
    return join(" ", tag("small", text))


def _ranges(seeds: Sequence[int]) -> str:
    """``0 – 5`` for what is without gaps, otherwise each."""
    together = len(seeds) > 3 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} – {seeds[-1]}" if together else ", ".join(map(str, seeds))


def csv_link(groups: Groups) -> Html:
    """The same table, with all digits, as a file that the page carries within itself."""
    if not groups.rows:
        return Html("")
    return download("Download as CSV", "eureka.csv", summary_csv(groups.rows))


def download(label: str, name: str, text: str) -> Html:
    """A link that saves a CSV file of this name."""
    return tag("a", label, href=f"data:text/csv;charset=utf-8,{quote(text)}", download=name, class_="download")


def summary_csv(rows: Sequence[Row]) -> str:
    """Lists are separated by semicolons; a run without a Eureka-moment leaves its place empty."""
    keys = sorted({key for row in rows for key in row.settings})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    interval = ["eureka_ratio_low", "eureka_ratio_high"]
    after = ["median_eureka_step", "eureka_steps", "median_final_accuracy", "final_accuracy"]
    writer.writerow(["fix", "lr", *keys, "seeds", "eureka_ratio", *interval, *after])
    for row in rows:
        settings = ["" if row.settings.get(key) is None else setting(row.settings[key]) for key in keys]
        ratio = [row.eureka_ratio, *row.eureka_ratio_interval]
        steps = [row.median_eureka_step, _list(row.eureka_steps)]
        writer.writerow(
            [row.fix, row.lr, *settings, _list(row.seeds), *ratio, *steps, row.median_final_accuracy, _list(row.final_accuracy)]
        )
    return text.getvalue()


def _list(values: Sequence[float | None]) -> str:
    return ";".join("" if value is None else repr(value) for value in values)
