"""The Eureka-ratio over learning rates and fixes: a table whose cells are as dark as the ratio is high."""

from __future__ import annotations

from collections.abc import Sequence

from eureka.formats import rate
from eureka.report.groups import Groups
from eureka.report.headline import fix_name
from eureka.report.markup import Html, tag
from eureka.study.statistics import Row

CAPTION = (
    "In how many of its runs each fix left the plateau at each learning rate; the more of them, the "
    "stronger the colour. A fix that depends less on the rate has more coloured cells."
)


def heat_map(groups: Groups) -> Html:
    """A line for each fix, a column for each learning rate, a block for each setting; nothing for one rate alone."""
    rates = sorted({row.lr for row in groups.rows})
    if len(rates) < 2:
        return Html("")
    head = tag("thead", tag("tr", tag("th", "fix", scope="col"), *(tag("th", rate(lr), scope="col") for lr in rates)))
    blocks = (_block(groups, setting, rates) for setting in range(len(groups.settings)) if setting in groups.setting_of_row)
    title = tag("h2", "Eureka-ratio by learning rate")
    table = tag("div", tag("table", head, *blocks, class_="heat"), class_="scroll")
    return tag("figure", title, table, tag("figcaption", CAPTION))


def _block(groups: Groups, setting: int, rates: Sequence[float]) -> Html:
    name = groups.settings[setting]
    title = [tag("tr", tag("th", name, colspan=str(len(rates) + 1), scope="rowgroup"))] if name else []
    lines = (_line(groups, fix, setting, rates) for fix in range(len(groups.fixes)))
    return tag("tbody", *title, *(line for line in lines if line))


def _line(groups: Groups, fix: int, setting: int, rates: Sequence[float]) -> Html:
    here = zip(groups.rows, groups.fix_of_row, groups.setting_of_row, strict=True)
    rows = [row for row, its, where in here if (its, where) == (fix, setting)]
    if not rows:
        return Html("")
    cells = (_cell([row for row in rows if row.lr == lr]) for lr in rates)
    return tag("tr", tag("th", fix_name(groups, fix), scope="row"), *cells, data_fix=str(fix))


def _cell(rows: Sequence[Row]) -> Html:
    steps = [step for row in rows for step in row.eureka_steps]
    if not steps:
        return tag("td")
    left = sum(step is not None for step in steps)
    return tag("td", f"{left} of {len(steps)}", style=f"--share:{100 * left / len(steps):.4g}%")
